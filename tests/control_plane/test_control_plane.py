"""The control plane of the tests is like a user's: a real API server with RBAC on."""

import signal
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.control_plane import binaries, build
from tests.control_plane.component import Component, ComponentError
from tests.control_plane.server import ControlPlane
from tests.support.patience import PATIENCE


async def test_the_server_is_ready_and_of_the_version_that_the_tests_are_written_for(
    control_plane: ControlPlane,
) -> None:
    """/readyz answers 200 and /version says which release was asked for."""
    status, _ = await control_plane.admin.request("GET", "/readyz")
    version = await control_plane.admin.get("/version")
    assert status == 200
    assert f"{version['major']}.{version['minor']}" == binaries.RELEASE
    assert version["gitVersion"] == binaries.KUBERNETES_VERSION


async def test_a_component_that_ends_early_shows_its_last_lines(tmp_path: Path) -> None:
    """The error has the end of the program's output."""
    argv = ["/bin/sh", "-c", "echo no such flag; exit 3"]
    component = Component("broken", argv, "http://127.0.0.1:1/", tmp_path / "broken.log")
    with pytest.raises(ComponentError, match=r"broken exited with 3.*\nno such flag"):
        await component.start()


async def test_components_die_with_their_parent_however_it_dies(tmp_path: Path) -> None:
    """A SIGKILL of the tests leaves no API server behind."""
    launcher = Path(binaries.__file__).parent / "die_with_parent.py"
    pid_file = tmp_path / "pid"
    child = f'["/bin/sh", "-c", "echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 100"]'
    parent = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, {str(launcher)!r}, str(os.getpid()), *{child}])\n"
        f"while not os.path.exists({str(pid_file)!r}): time.sleep(0.01)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    process = await anyio.run_process([sys.executable, "-c", parent], check=False)
    assert process.returncode == -signal.SIGKILL
    child_pid = int(pid_file.read_text())
    with anyio.fail_after(PATIENCE):
        while is_alive(child_pid):
            await anyio.lowlevel.checkpoint()


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_missing_binary_is_an_error_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is skipped silently."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(binaries.MissingBinaryError, match=r"etcd is missing.* Run `make control-plane`"):
        binaries.require("etcd")


def test_a_build_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that says nothing does not hold up the tests for hours."""
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\ntest "$1" = version && echo go version go1.99 || exec /bin/sleep 1000\n')
    go.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "SILENCE", 0.0)
    with pytest.raises(build.BuildError, match=r"building etcd \(1 of 1\) failed(?s:.*)printed nothing for 0 s"):
        build.build_missing(["etcd"])
    assert binaries.find("etcd") is None


def test_the_pinned_releases_follow_each_other() -> None:
    """Each folder pins a patch of its own minor release, and none is left out."""
    pinned = binaries.releases()
    assert [binaries.kubernetes_version(release).rpartition(".")[0] for release in pinned] == [f"v{r}" for r in pinned]
    minors = [int(release.partition(".")[2]) for release in pinned]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert all((binaries.MODULES / f"kubernetes-{release}" / "go.sum").exists() for release in pinned)

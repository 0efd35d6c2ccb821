"""The control plane of the tests is like a user's: a real API server with RBAC on."""

import os
import signal
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.control_plane import binaries, build
from tests.control_plane.component import Component, ComponentError
from tests.control_plane.objects import (
    bind,
    create_node,
    create_pod,
    node_manifest,
    pod_manifest,
    wipe,
)
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.support.patience import PATIENCE

POD = "/api/v1/namespaces/default/pods/p"


def bound(pod: Object) -> bool:
    """Return whether a pod has its node."""
    return "nodeName" in pod["spec"]


async def test_the_server_is_ready_and_of_the_version_that_the_tests_are_written_for(
    control_plane: ControlPlane,
) -> None:
    """/readyz answers 200 and /version says which release was asked for."""
    status, _ = await control_plane.admin.request("GET", "/readyz")
    version = await control_plane.admin.get("/version")
    assert status == 200
    assert f"{version['major']}.{version['minor']}" == binaries.RELEASE
    assert version["gitVersion"] == binaries.KUBERNETES_VERSION


async def test_the_cluster_is_clean_whatever_a_test_left(cluster_api: RestClient) -> None:
    """Wiping deletes bound pods, pods held by a finalizer, nodes, leases and policies."""
    await create_node(cluster_api, node_manifest("n"))
    kept_by_finalizer = pod_manifest("p")
    kept_by_finalizer["metadata"]["finalizers"] = ["tests/held"]
    await bind(cluster_api, await create_pod(cluster_api, kept_by_finalizer), "n")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "my-scheduler"}}
    await cluster_api.apply(lease, namespace="kube-system")
    await wipe(cluster_api)
    leases = await cluster_api.get("/apis/coordination.k8s.io/v1/leases")
    assert [lease["metadata"]["name"].split("-")[0] for lease in leases["items"]] == ["apiserver"]
    for collection in ("/api/v1/pods", "/api/v1/nodes", "/api/v1/events"):
        assert (await cluster_api.get(collection))["items"] == []


async def test_waiting_in_vain_shows_the_objects(cluster_api: RestClient) -> None:
    """The error of a wait names the current objects and says where each one stands."""
    await create_pod(cluster_api, pod_manifest("p"))
    within, told = 0.1, ""
    while "default/p: Pending" not in told:  # on a machine that stalls, the time may be over before the first answer
        with pytest.raises(TimeoutError, match=f"did not get there within {within:g} s; ") as ended:
            await cluster_api.wait_for(POD, bound, within=within)
        within, told = 2 * within, str(ended.value)


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


@pytest.mark.parametrize(
    ("name", "arguments", "version", "wanted"),
    [
        pytest.param("kube-apiserver", "--version", f"Kubernetes v{binaries.RELEASE}.99", True, id="another patch"),
        pytest.param("kube-apiserver", "--version", "Kubernetes v1.33.2", False, id="another minor release"),
        pytest.param("kubectl", "version --client", f"Client Version: v{binaries.RELEASE}.99", True, id="kubectl"),
        pytest.param("kubectl", "version --client", "Client Version: v1.33.0", False, id="another kubectl"),
        pytest.param("helm", "version --short", "v4.0.1+g12500dd", True, id="another Helm 4"),
        pytest.param("helm", "version --short", "v3.19.4+g7cfb6e4", False, id="Helm 3"),
    ],
)
def test_an_installed_binary_is_used_where_its_version_fits(
    *, name: str, arguments: str, version: str, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KUBEBUILDER_ASSETS comes first, and a wrong version in it is ignored."""
    program = tmp_path / name
    program.write_text(f'#!/bin/sh\ntest "$*" = "{arguments}" && echo {version}\n')
    program.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert (binaries.find(name) == program) is wanted


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


def test_a_build_that_fails_has_its_last_lines(tmp_path: Path) -> None:
    """What the compiler said is in the error."""
    command = [sys.executable, "-c", "import sys; print('undefined: x', file=sys.stderr); sys.exit(3)"]
    with pytest.raises(build.BuildError, match=r"(?s)undefined: x.*exited with 3"):
        build.run_in_view(command, tmp_path, os.environ, "building")

"""What `make` installs, keeps and builds, and which tests it runs."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuron_scheduler import __version__
from tests import run

ROOT = Path(__file__).parents[1]
MARKS = ("control_plane", "main_job", "image", "browser", "sampled")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return a virtual environment in which `make demo` has installed its lock; its pip installs nothing."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\n[ "$2" = pip ] || exec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    stamp(programs.parent, "demo").touch()
    make(programs.parent, str(programs / "neuron-scheduler"), str(programs / "kubectl-neuron"))
    return programs.parent


def stamp(environment: Path, lock: str) -> Path:
    """Return the file that says that this lock is installed."""
    with (ROOT / f"requirements/{lock}.txt").open() as text:
        sums = subprocess.run(["cksum"], stdin=text, capture_output=True, text=True, check=True).stdout
    return environment / f".{lock}-{sums.split()[0]}"


def make(environment: Path, *arguments: str) -> str:
    """Run make for this environment; return what it prints."""
    command = ["make", "--silent", f"VENV={environment}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("program", "named"), [("neuron-scheduler", "neuron-scheduler"), ("kubectl-neuron", "kubectl neuron")]
)
def test_the_commands_of_a_clone(environment: Path, tmp_path: Path, program: str, named: str) -> None:
    """`.venv/bin/neuron-scheduler`, and `kubectl neuron`, run the package of the clone with its Python, anywhere."""
    command = [str(environment / "bin" / program), "--version"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == f"{named} {__version__}\n"


def test_another_lock_is_installed_over_what_is_there(environment: Path) -> None:
    """`make browser` and its like keep the commands, and the packages of a demo that runs; older stamps go."""
    package, older = environment / "lib" / "package", environment / ".dev-1"
    package.parent.mkdir()
    for file in (package, older):
        file.touch()
    make(environment, str(stamp(environment, "dev")))
    assert package.exists()
    assert {file.name for file in (environment / "bin").iterdir()} == {"kubectl-neuron", "neuron-scheduler", "python"}
    assert {*environment.glob(".*-*")} == {stamp(environment, lock) for lock in ("demo", "dev")}


@pytest.mark.parametrize(
    ("chosen", "builds"), [("tests/test_main.py", False), ("tests/end_to_end/test_liveness.py", True)]
)
def test_some_tests_build_only_what_they_need(environment: Path, chosen: str, builds: bool) -> None:
    """`make test ARGS=...` names the programs to build; they are built if a chosen test has a control plane."""
    last = make(environment, "--dry-run", "test", "ARGS=-k lease").splitlines()[-1]
    assert last == f'BUILD="etcd kube-apiserver" {environment}/bin/pytest -k lease'
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", chosen]
    variables = os.environ | {"BUILD": "a-program-that-is-not-there"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert ("KeyError: 'a-program-that-is-not-there'" in done.stdout + done.stderr) == builds, done.stdout
    assert (done.returncode == 0) != builds


def test_the_audit_is_strict_and_of_what_is_locked(tmp_path: Path) -> None:
    """`make audit` gives pip-audit the locks as they are; what its list does not have is an error."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pip-audit").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / "pip-audit").chmod(0o755)
    stamp(programs.parent, "audit").touch()
    asked = make(programs.parent, "audit-here").split()
    assert {"--strict", "--require-hashes", "--disable-pip"} <= {*asked}
    locks = [ROOT / after for flag, after in itertools.pairwise(asked) if flag == "--requirement"]
    assert {lock.stem for lock in locks} == {"run", "image", "dev"}
    assert all("--hash=sha256:" in lock.read_text() for lock in locks)


def test_every_test_is_run_and_twice_only_for_more_examples() -> None:
    """`make test` and `make test-all` run all; both run a test only if the first tries a share of its examples."""
    for marks in itertools.product((False, True), repeat=len(MARKS)):
        has = dict(zip(MARKS, marks, strict=True))
        first = [eval(selected, {}, has) for selected in (run.UNIT, run.MAIN_JOB)]  # an expression of pytest's
        second = [eval(selected, {}, has) for selected in (run.ALL_EXAMPLES, run.OTHERS)]
        assert sum(first) + sum(second) >= 1, has
        assert sum(first) <= 1, has
        assert sum(second) <= 1, has
        assert not (any(first) and any(second)) or has["sampled"], has

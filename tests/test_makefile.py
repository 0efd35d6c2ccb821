"""The command that `make` writes into the virtual environment works from any folder."""

import itertools
import subprocess
import sys
from pathlib import Path

from neuron_scheduler import __version__
from tests import run

ROOT = Path(__file__).parents[1]
MARKS = ("control_plane", "main_job", "image", "browser", "sampled")


def test_the_command_of_a_clone(tmp_path: Path) -> None:
    """`.venv/bin/neuron-scheduler` runs the package of the clone with the environment's Python."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    with (ROOT / "requirements/demo.txt").open() as lock:
        checksum = subprocess.run(["cksum"], stdin=lock, capture_output=True, text=True, check=True).stdout.split()[0]
    (programs.parent / f".demo-{checksum}").touch()  # the environment is complete: nothing is installed
    command = programs / "neuron-scheduler"
    subprocess.run(["make", f"VENV={programs.parent}", str(command)], cwd=ROOT, check=True)
    shown = subprocess.run([str(command), "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == f"neuron-scheduler {__version__}\n"


def test_the_audit_is_strict_and_of_what_is_locked(tmp_path: Path) -> None:
    """`make audit` gives pip-audit the locks as they are; what its list does not have is an error."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pip-audit").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / "pip-audit").chmod(0o755)
    with (ROOT / "requirements/audit.txt").open() as lock:
        checksum = subprocess.run(["cksum"], stdin=lock, capture_output=True, text=True, check=True).stdout.split()[0]
    (programs.parent / f".audit-{checksum}").touch()
    command = ["make", "--silent", f"VENV={programs.parent}", "audit-here"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
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

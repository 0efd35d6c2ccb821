"""Standard output: a terminal or a file, colour or none, and a reader who leaves."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

CLUSTER = Path(__file__).parents[2] / "docs" / "example" / "cluster.yaml"
SHOWN = "from neuron_scheduler.telemetry.terminal import terminal; print(terminal().colour)"


@pytest.mark.parametrize(
    ("environment", "says"),
    [({}, "True"), ({"NO_COLOR": "1"}, "False"), ({"TERM": "dumb"}, "False")],
)
def test_on_a_terminal(environment: dict[str, str], says: str) -> None:
    """Colour, unless the user wants none."""
    ours, theirs = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    subprocess.run([sys.executable, "-c", SHOWN], stdout=theirs, check=True, env=clean | environment)
    os.close(theirs)
    assert os.read(ours, 100).decode().strip() == says
    os.close(ours)


def test_in_a_pipe() -> None:
    """No colour."""
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_reader_who_leaves() -> None:
    """No traceback, and the program goes on."""
    script = (
        "import sys\nfrom neuron_scheduler.telemetry.terminal import write_out\n"
        "for _ in range(1000): write_out('line\\n' * 1000)\nprint('done', file=sys.stderr)"
    )
    line = f'{sys.executable} -c "$SCRIPT" | head -n 1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=True, env=os.environ | {"SCRIPT": script}
    )
    assert (done.stdout, done.stderr) == ("line\n", "done\n")


def test_a_full_disk() -> None:
    """One sentence in place of a traceback, also at the end of the interpreter."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "neuron_scheduler", "why", "-o", "json", "--from", str(CLUSTER)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "neuron-scheduler: the output cannot be written: No space left on device\n",
    )


def test_characters_that_cannot_be_written() -> None:
    """A lone surrogate, and what ASCII has not, are escapes."""
    script = "from neuron_scheduler.telemetry.terminal import write_out; write_out('\\ud800\\u2588\\n')"
    for encoding, text in (("utf-8", "\\ud800█\n"), ("ascii", "\\ud800\\u2588\n")):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONIOENCODING": encoding},
        )
        assert done.stdout.decode() == text

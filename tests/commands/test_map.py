"""`map` from files and from an API server, and `--watch` on a terminal and in a pipe: it follows, and ends cleanly."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread
import attrs
import pytest
import yaml

from neuron_scheduler import cli
from sandbox.server import ApiServer
from tests.capture.test_files import a_list, node, pod, written
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.support.patience import PATIENCE

ITEMS = [node(), node("trn1-b", unschedulable=True), pod("holder", "0,1,2,3", neuron=4, nodeName="trn1-a")]


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Write the cluster as kubectl does, and return the path."""
    (path,) = written(tmp_path, json.dumps(a_list(ITEMS)))
    return path


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run the command, check its exit code, and return its output or its error."""
    assert cli.main(["map", *arguments]) == code
    out, err = capsys.readouterr()
    assert (out == "") == (code == 2)
    return out + err


def test_forms(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture, one node, JSON and YAML; the sums are the same."""
    text = ask(capsys, "--from", dump)
    assert "All: 2 nodes, 32 devices: 12 free" in text
    assert "Note: the files have no " in text
    assert "trn1-b" not in ask(capsys, "trn1-a", "--from", dump)
    assert "In no zone: 2 nodes" in ask(capsys, "--by=zone", "-o", "wide", "--from", dump)
    for form in ("json", "yaml"):
        fleet = yaml.safe_load(ask(capsys, "--from", dump, "-o", form))
        assert [(t["devices"], t["free"], t["used"], t["withheld"]) for t in fleet["types"]] == [(32, 12, 4, 16)]
    (machine,) = json.loads(ask(capsys, "trn1-a", "--from", dump, "-o", "json"))["machines"]
    assert machine["holders"][0]["name"] == "holder"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none"], "there is no node none with Neuron"),
        (["--by=rack"], "invalid choice: 'rack'"),
        (["--watch"], "leave out --from"),
        (["--watch", "--interval=0s"], "leave out --from"),
        (["--interval=soon"], "'soon' is not a duration"),
    ],
)
def test_mistakes(dump: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    """One sentence, and 2."""
    error = ask(capsys, *arguments, "--from", dump, code=2)
    assert says in error
    assert error.count("\n") == 1


@attrs.define(eq=False)
class Watched:
    """A process that draws on a terminal, and what it has written so far."""

    process: subprocess.Popen[bytes]
    screen: int
    seen: str = ""

    def until(self, text: str) -> str:
        """Read until the text is there, and return everything up to it, once."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen and time.monotonic() < deadline:
            if select.select([self.screen], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.screen, 1 << 16).decode()
                except OSError:  # the process has closed the terminal
                    break
        before, found, self.seen = self.seen.partition(text)
        assert found, before
        return before + found


@contextmanager
def watching(*arguments: str) -> Iterator[Watched]:
    """Run `map --watch` on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "neuron_scheduler", "map", "--watch", "--interval=100ms", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            yield Watched(process, ours)
        finally:
            process.kill()
            os.close(ours)


async def test_watching_on_a_terminal() -> None:
    """It draws what has changed, line over line, and Ctrl-C leaves the terminal as it was."""
    async with ApiServer(kubelet=False).serving() as server:
        server.create(node_manifest("trn1-a"))

        def first(watched: Watched) -> None:
            start = watched.until("All: 1 node, 16 devices: 16 free")
            assert start.startswith("\033[?1049h\033[?25l")

        def rest(watched: Watched) -> None:
            change = watched.until("12 free")
            assert "\033[H" in change
            watched.process.send_signal(signal.SIGINT)
            end = watched.until("\033[?1049l")
            assert "\033[?25h" in end
            assert "Traceback" not in end
            assert watched.process.wait(PATIENCE) == 0

        with watching(f"--server={server.url}") as watched:
            await anyio.to_thread.run_sync(first, watched)
            bound = pod_manifest("holder", neuron=4, nodeName="trn1-a", annotations={"AWS_NEURON_IDS": "0,1,2,3"})
            server.create(bound | {"metadata": bound["metadata"] | {"namespace": "default"}})
            await anyio.to_thread.run_sync(rest, watched)


async def test_watching_in_a_pipe() -> None:
    """Each picture follows the one before; a reader who leaves is the end, without a traceback."""
    async with ApiServer(kubelet=False).serving() as server:
        server.create(node_manifest("trn1-a"))
        line = (
            f"{sys.executable} -m neuron_scheduler map --watch --interval=100ms --server={server.url} 2>&1 | head -n 1;"
            " echo ${PIPESTATUS[0]}"
        )
        done = anyio.Event()
        lines: list[str] = []

        async def read() -> None:
            result = await anyio.run_process(["bash", "-c", line])
            lines.extend(result.stdout.decode().splitlines())
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            number = 0
            while not done.is_set():  # the process notices that its reader has left when it draws again
                number += 1
                server.create(node_manifest(f"another-{number}"))
                with anyio.move_on_after(0.3):
                    await done.wait()
    first, code = lines
    assert first.startswith("All: ")
    assert code == "0"


def test_a_cluster_that_cannot_be_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and 2; nothing is drawn before."""
    assert ask(capsys, "--watch", "--server=http://127.0.0.1:1", code=2).count("\n") == 1

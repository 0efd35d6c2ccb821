"""The demo plays to its end with the real scheduler, and reports an outcome that is not the expected one."""

import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import anyio
import pytest
from rich.console import Console

from sandbox import __main__ as play
from sandbox.apiserver.store import FIRST_VERSION
from sandbox.demo import workload
from sandbox.demo.stage import Stage
from sandbox.demo.workload import DemoError
from sandbox.server import ApiServer
from tests.support.demo import ROOT, command, read_until

AWS_SENTENCE = (
    "Instance type trn1.32xlarge does not support requests for device: 7. Please request a different number of devices"
)


async def test_it_plays_to_the_end_and_is_exported(tmp_path: Path) -> None:
    """Exit 0, every outcome printed, and the last screen as SVG."""
    picture = tmp_path / "demo.svg"
    async with command("--export", str(picture)) as process:
        text = " ".join((await read_until(process)).split())
        assert await process.wait() == 0, text
    assert AWS_SENTENCE in text
    assert "All checks passed: 25 pods were placed by 25 Bindings" in text
    svg = picture.read_text()
    assert svg.startswith("<svg")
    for words in ("trn1-a", "inf2.48xlarge", "ring-3b", "16&#160;devices", "pending"):
        assert words in svg, words


async def test_it_ends_quietly_when_nobody_reads_on() -> None:
    """As in `make demo | head -n 3`: no traceback, and the exit code of a shell for SIGPIPE."""
    line = f"{sys.executable} -m sandbox | head -n 3; exit ${{PIPESTATUS[0]}}"
    done = await anyio.run_process(["bash", "-c", line], cwd=ROOT, check=False)
    assert done.stderr.decode() == ""
    assert b"An API server at" in done.stdout
    assert done.returncode == 141


async def test_without_rich_it_says_what_to_install(tmp_path: Path) -> None:
    """One sentence and exit code 2."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise ModuleNotFoundError('no rich', name='rich')")
    whole = [sys.executable, "-m", "sandbox"]
    done = await anyio.run_process(whole, cwd=ROOT, check=False, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert "run `make demo`, or pip install rich" in done.stderr.decode()


def test_a_scheduler_that_ends_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, with the end of the scheduler's log."""
    program = "import sys; print('no rights', file=sys.stderr); sys.exit(2)"
    assert play.run(play.parse([]), program=lambda _: [sys.executable, "-c", program]) == 1
    error = capsys.readouterr().err
    assert "ended by itself with exit code 2" in error
    assert "no rights" in error


async def _bad_scheduler(server: ApiServer, choose: Callable[[int], Iterable[int]]) -> None:
    """Binds every pod to the node of its type at once, with the ids that `choose` makes of the amount it asks for."""
    types = {instance_type: name for name, instance_type in workload.NODES}
    async for change in server.store.follow("pods", FIRST_VERSION):
        pod = change.object
        if change.type != "ADDED" or "nodeName" in pod["spec"]:
            continue
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        amount = sum(int(text) for name, text in requests.items() if name.startswith("aws.amazon.com/"))
        name, node = pod["metadata"]["name"], types[pod["spec"]["nodeSelector"]["node.kubernetes.io/instance-type"]]
        annotations = {"AWS_NEURON_IDS": ",".join(map(str, choose(amount)))}
        binding = {"metadata": {"name": name, "annotations": annotations}, "target": {"kind": "Node", "name": node}}
        server.registry.bind("default", name, binding)


WRONG_ALLOCATIONS: dict[str, tuple[Callable[[int], Iterable[int]], str]] = {
    "always from 0": (range, "is used by"),
    "with gaps": (lambda amount: range(0, 2 * amount, 2), "not consecutive"),
    "beyond the machine": (lambda amount: range(90, 90 + amount), "the machine has"),
    "too few": (lambda amount: range(amount - 1), "but the pod asks for"),
    "none": (lambda _: (), "but the pod asks for"),
}


@pytest.mark.parametrize("sentence", WRONG_ALLOCATIONS)
async def test_a_wrong_allocation_is_noticed(sentence: str) -> None:
    """The demo checks by itself, and names what is wrong."""
    choose, complaint = WRONG_ALLOCATIONS[sentence]
    console = Console(file=io.StringIO(), width=200)
    async with ApiServer().serving() as server, anyio.create_task_group() as tasks:
        tasks.start_soon(_bad_scheduler, server, choose)
        with pytest.raises(DemoError, match=complaint):
            await Stage(server, console, patience=10.0).play()
        tasks.cancel_scope.cancel()

"""
`python -m sandbox` (`make demo`) as a user starts it, and a kubectl for it.
"""

import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import attrs

from tests.support.kubectl import KUBECTL, Kubectl
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def command(*argv: str) -> AsyncIterator[anyio.abc.Process]:
    """Run `python -m sandbox ...` as a user does."""
    whole = [sys.executable, "-m", "sandbox", *argv]
    async with await anyio.open_process(whole, cwd=ROOT, env={"COLUMNS": "100"}) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def read_until(process: anyio.abc.Process, words: str = "") -> str:
    """Return what the process prints, until the words or its end."""
    assert process.stdout is not None
    text = ""
    with anyio.fail_after(PATIENCE):
        async for chunk in process.stdout:
            text += chunk.decode()
            if words and words in text:
                break
    return text


@attrs.frozen
class Served:
    """A demo that serves: its process, what it has printed, the kubeconfig that it names, and a kubectl."""

    process: anyio.abc.Process
    printed: str
    kubeconfig: Path
    kubectl: Kubectl


@asynccontextmanager
async def served(home: Path, program: Path = KUBECTL) -> AsyncIterator[Served]:
    """Run it with `--serve` until the block ends; then it must end on Ctrl-C with 0."""
    async with command("--serve") as process:
        text = await read_until(process, "Ctrl-C ends everything")
        assert "Ctrl-C" in text, text + await _errors(process)
        (kubeconfig,), (url,) = re.findall(r"KUBECONFIG=(\S+)", text), re.findall(r"--server=(\S+?)\.\s", text)
        yield Served(process, text, Path(kubeconfig), Kubectl(url, home, program=program))
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(PATIENCE):
            code = await process.wait()
        assert code == 0, await _errors(process)


async def _errors(process: anyio.abc.Process) -> str:
    """Return what an ended process has written to standard error."""
    assert process.stderr is not None
    return "".join([chunk.decode() async for chunk in process.stderr])

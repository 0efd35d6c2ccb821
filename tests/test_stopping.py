"""A signal never kills the process: not before the event loop, nor after it, nor in a long step; it ends a block."""

import os
import signal
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

from neuron_scheduler.stopping import SIGNALS, StopRequests
from tests.end_to_end.process import ROOT
from tests.support.patience import PATIENCE


def ended(script: str, number: signal.Signals) -> int:
    """Run a script in a process of its own, send it the signal once it has written a line, and return its exit code."""
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stdin is not None
        assert run.stdout.readline() == b"ready\n"
        run.send_signal(number)
        run.stdin.close()
        return run.wait(30)


@pytest.mark.parametrize("number", SIGNALS)
def test_before_there_is_anything_to_end(number: signal.Signals) -> None:
    """During the imports, the process ends at once with 0."""
    script = """
import sys
from neuron_scheduler.stopping import REQUESTS

REQUESTS.install()
print("ready", flush=True)
sys.stdin.read()
sys.exit(3)
"""
    assert ended(script, number) == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_after_the_scheduler_has_ended(number: signal.Signals) -> None:
    """The exit code does not change, also while the interpreter shuts down."""
    script = """
import os, sys
from neuron_scheduler import cli
from neuron_scheduler.__main__ import main

class Last:
    def __del__(self, write=os.write, read=os.read):
        write(1, b"ready\\n")
        read(0, 1)

cli.main = lambda **_: 1
code = main()
sys.last = Last()  # is taken apart with the modules, when handlers are gone
sys.exit(code)
"""
    assert ended(script, number) == 1


async def test_requests_come_in_their_order() -> None:
    """Signals that came before the reader are delivered, and none after the end."""
    requests, seen = StopRequests(), []
    with requests.listen() as signals:
        requests.receive(signal.SIGINT)
        requests.receive(signal.SIGTERM)
        with anyio.fail_after(PATIENCE):
            async for number in signals:
                seen.append(number)
                if len(seen) == 2:
                    break
        await signals.aclose()  # type: ignore[attr-defined]  # it is a generator
    requests.receive(signal.SIGTERM)

    assert seen == [signal.SIGINT, signal.SIGTERM]


async def test_a_real_signal_wakes_the_event_loop() -> None:
    """Python's own handler runs although the event loop is idle."""
    requests = StopRequests()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    requests.install()
    try:
        with requests.listen() as signals, anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, os.kill, os.getpid(), signal.SIGTERM)
                assert await anext(signals) is signal.SIGTERM
            await signals.aclose()  # type: ignore[attr-defined]  # it is a generator
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""
How many of our files one Binding and one refusal run through: the weight that a reader of either has to carry.

`traces.json` has the files, so that a change shows what came in anew; write it with
`.venv/bin/python -m tests.test_traces`.
"""

import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest import mock

import anyio
import pytest

import neuron_scheduler
from neuron_scheduler import app
from neuron_scheduler.controllers import group_attempt, liveness
from tests.control_plane.objects import pod_manifest
from tests.support.patience import PATIENCE
from tests.test_app import Process, process

PACKAGE: Final = f"{Path(neuron_scheduler.__file__).parent}/"
RECORDED: Final = Path(__file__).with_name("traces.json")
MOST: Final = {"binding": 79, "refusal": 62}
"""Files."""
DEVICES: Final = {"binding": 1, "refusal": 16}
"""
What a pod asks for that is bound, and one that waits behind it for a whole machine: every filter is asked about it, and
victims are looked for.
"""
PERIODS: Final = (
    (app, "LOOK_FOR_KINDS"),
    (liveness, "PERIOD"),  # of the look at the loop: nobody asks for the Lease here
    (group_attempt, "LOOK_AT_GROUPS"),
)
"""On a slow machine one of these ends within a trace."""


@contextmanager
def traced() -> Iterator[set[str]]:
    """Collect the files of the package in which something is called inside the block; importing one does not count."""
    files: set[str] = set()

    def called(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            files.add(code.co_filename.removeprefix(PACKAGE))

    sys.setprofile(called)
    try:
        yield files
    finally:
        sys.setprofile(None)


async def trace(running: Process, what: str) -> set[str]:
    """Return the files that a pod runs through from its watch event to its Event, the second of two equal pods."""
    await told(running, what, f"first-{what}")
    with traced() as files:
        await told(running, what, f"second-{what}")
    return files


async def told(running: Process, what: str, name: str) -> None:
    """Create a pod, and wait for all that is written about it: its Event, and its condition if it is refused."""
    written = {"binding": {"/binding", "/events"}, "refusal": {"/status", "/events"}}[what]
    running.server.requests.clear()
    running.server.create(pod_manifest(name, neuron=DEVICES[what]))
    with anyio.fail_after(PATIENCE):
        while not all(  # noqa: ASYNC110 - the sandbox has no event for a request
            any(method != "GET" and at.endswith(path) for method, at in running.server.requests) for path in written
        ):
            await anyio.sleep(0.01)
    await anyio.wait_all_tasks_blocked()


async def traces() -> dict[str, list[str]]:
    """Return the files of both traces; nothing that is done from time to time comes in between."""
    async with process(leader_elect=False) as running, anyio.create_task_group() as tasks:
        with ExitStack() as starting:
            for module, period in PERIODS:
                starting.enter_context(mock.patch.object(module, period, math.inf))
            tasks.start_soon(running.run)
            await running.scheduling()
        found = {what: sorted(await trace(running, what)) for what in MOST}
        tasks.cancel_scope.cancel()
    return found


@pytest.mark.parametrize("what", MOST)
async def test_the_files_of_a_trace_are_the_recorded_ones(what: str) -> None:
    """A file more is a cost for every reader: it is in the list on purpose, and the list is short."""
    recorded = json.loads(RECORDED.read_text())[what]
    # Fewer may come: what another test of the same process has asked is kept (`memoise`).
    assert {*(await traces())[what]} - {*recorded} == set(), "if it must be: .venv/bin/python -m tests.test_traces"
    assert len(recorded) <= MOST[what]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(anyio.run(traces), indent=1) + "\n")

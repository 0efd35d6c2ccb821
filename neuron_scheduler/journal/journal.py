"""
The journal of a running scheduler: collects records, and has them written without ever waiting.

Records wait in a bounded buffer; a task makes lines of them, a few at a time, and a thread writes the lines. If the
buffer is full or the file cannot be written, all that waits is dropped and counted, and a new file begins with the
state of the cluster. So every file can be replayed on its own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from neuron_scheduler import __version__
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.journal.changes import Change
from neuron_scheduler.journal.current_state import CurrentState
from neuron_scheduler.journal.files import Output
from neuron_scheduler.journal.recorded_cluster import recorded_cluster
from neuron_scheduler.journal.records import At, Decided, Lost, Record, RecordedProfile, Started, line_of
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError
from neuron_scheduler.telemetry import logs

MOST_WAITING: Final = 50_000
"""Records that wait for the thread: some seconds of the fastest scheduling, about 30 MB."""
PAUSE: Final = 0.2
"""Seconds between two writes."""
RETRY: Final = 60.0
"""Seconds until the next try after the file could not be written."""
_AT_ONCE: Final = 50  # records that are made lines in a row, which takes a millisecond

log = logs.logger(__name__)


def _ignore(_records: int) -> None:
    """Do nothing."""


@attrs.define(eq=False, kw_only=True)
class Journal:
    """
    Records the changes of its cluster, and decisions.

    Attributes:
        cluster: empty at first; whatever changes it is recorded.
        output: where the lines go.
        profiles: those of the scheduler.
        wall_clock: seconds since the epoch.
        lost: called with the number of records that were dropped.
    """

    output: Output
    profiles: Sequence[RecordedProfile]
    wall_clock: Callable[[], float]
    lost: Callable[[int], None] = _ignore
    most_waiting: int = MOST_WAITING
    cluster: Cluster = attrs.field(init=False)
    _state: CurrentState = attrs.field(factory=CurrentState, init=False)
    _waiting: deque[Record] = attrs.field(factory=deque, init=False)
    _recording: bool = attrs.field(default=False, init=False)
    _dropped: int = attrs.field(default=0, init=False)
    _failing: bool = attrs.field(default=False, init=False)
    _second: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.cluster = recorded_cluster(self._changed)

    def decided(self, pod: Pod, decision: Decision | FitError) -> None:
        """Record a decision, before it is assumed."""
        if not self._recording:
            return
        at = self.wall_clock()
        if isinstance(decision, FitError):
            record = Decided(at, pod, nodes=decision.nodes, cause=decision.cause.value, reasons=decision.counts)
        else:
            nodes = self.cluster.view.node_count
            record = Decided(at, pod, decision.node_name, decision.ids, feasible=decision.feasible, nodes=nodes)
        self._put(record)

    async def run(self) -> None:
        """Write until cancelled, which does not interrupt a write; what waits then is written by `finish`."""
        while True:
            try:
                with anyio.CancelScope(shield=True):  # lines that are made and not written would be missing in the file
                    await self._write_what_waits()
                pause = PAUSE
            except OSError as error:
                self._fail(error)
                pause = RETRY
            await anyio.sleep(pause)

    async def finish(self) -> None:
        """Write what waits, and close the file."""
        with anyio.CancelScope(shield=True):
            try:
                if self._recording:
                    await self._write_what_waits()
                await anyio.to_thread.run_sync(self.output.close)
            except OSError as error:
                self._fail(error)

    def _changed(self, change: Change) -> None:
        if self._state.note(change) and self._recording:
            second = int(self.wall_clock())
            if second != self._second:
                self._second = second
                self._put(At(second))
            self._put(change)

    def _put(self, record: Record) -> None:
        if self._dropped or len(self._waiting) >= self.most_waiting:
            self._drop(1)
        else:
            self._waiting.append(record)

    def _drop(self, more: int) -> None:
        """Drop what waits: records after a gap fit no cluster."""
        dropped = len(self._waiting) + more
        self._waiting.clear()
        self._dropped += dropped
        self.lost(dropped)

    async def _write_what_waits(self) -> None:
        """Write the records up to now, and begin a new file first where one is needed."""
        if not self._recording or self._dropped or self.output.full:
            await self._begin()
        while self._waiting:
            lines = [line_of(self._waiting.popleft()) for _ in range(min(_AT_ONCE, len(self._waiting)))]
            await anyio.to_thread.run_sync(self.output.write, b"".join(lines))

    async def _begin(self) -> None:
        """
        Begin a file: its head, the state of the cluster, and then the records that come from now on.

        What still waits is part of the state, except for decisions; they are written to the old file.
        """
        before, self._waiting = self._waiting, deque()
        dropped, self._dropped = self._dropped, 0
        state, at, self._second = self._state.changes(self.cluster), self.wall_clock(), 0
        was_recording, self._recording = self._recording, True
        if was_recording:
            await self._write(before)
            if dropped and not self._failing:  # else there is no file to say it in
                await self._write([Lost(dropped)])
        await anyio.to_thread.run_sync(self.output.begin)
        await self._write([Started(at, __version__, tuple(self.profiles))])
        await self._write(state)
        self._failing = False

    async def _write(self, records: Sequence[Record] | deque[Record]) -> None:
        lines: list[bytes] = []
        for number, record in enumerate(records, start=1):
            lines.append(line_of(record))
            if number % _AT_ONCE == 0:
                await anyio.to_thread.run_sync(self.output.write, b"".join(lines))
                lines.clear()
        if lines:
            await anyio.to_thread.run_sync(self.output.write, b"".join(lines))

    def _fail(self, error: OSError) -> None:
        if not self._failing:
            log.warning("Cannot write the decision journal; trying again later", exc=error, retrySeconds=RETRY)
        self._failing = True
        self._drop(1)

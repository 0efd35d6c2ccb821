"""
The journal of a running scheduler: collects records, and has them written without ever waiting.

Records wait in a bounded buffer; a task makes lines of them, a few at a time, and a thread writes the lines. If the
buffer is full or the file cannot be written, all that waits is dropped and counted, and a new file begins with the
state of the cluster. So every file can be replayed on its own. Nothing that goes wrong here ends the process, or keeps
it from its end.
"""

import errno
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio
import attrs

from neuron_scheduler import __version__
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.journal.beside import Beside
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
LAST_SECONDS: Final = 3.0
"""Seconds for a write that is under way at the end of the process, and for those of what still waits."""
TOO_SMALL: Final = "the state of the cluster alone fills a file; raise --decision-journal-max-bytes"
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
        last_seconds: see `LAST_SECONDS`.
    """

    output: Output
    profiles: Sequence[RecordedProfile]
    wall_clock: Callable[[], float]
    lost: Callable[[int], None] = _ignore
    most_waiting: int = MOST_WAITING
    last_seconds: float = LAST_SECONDS
    cluster: Cluster = attrs.field(init=False)
    _state: CurrentState = attrs.field(factory=CurrentState, init=False)
    _waiting: deque[Record] = attrs.field(factory=deque, init=False)
    _recording: bool = attrs.field(default=False, init=False)
    _dropped: int = attrs.field(default=0, init=False)
    _failing: bool = attrs.field(default=False, init=False)
    _second: int = attrs.field(default=0, init=False)
    _beside: Beside = attrs.field(factory=Beside, init=False)
    _writing: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _ends_at: float = attrs.field(default=math.inf, init=False)
    _hangs: bool = attrs.field(default=False, init=False)

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
        """Write until cancelled; what waits then is written by `finish`."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._limit_the_last_write)
            while True:
                pause = PAUSE
                # Lines that are made and not written would be missing in the file.
                with anyio.CancelScope(shield=True, deadline=self._ends_at) as self._writing:
                    pause = PAUSE if await self._succeeds(self._write_what_waits) else RETRY
                self._hangs = self._writing.cancelled_caught
                await anyio.sleep(pause)

    async def finish(self) -> None:
        """Write what waits, and close the file."""
        with anyio.move_on_after(self.last_seconds, shield=True) as scope:
            if not self._hangs:
                await self._succeeds(self._end)
        if self._hangs or scope.cancelled_caught:
            log.warning("The end of the decision journal is missing: a write to it hangs")

    async def _limit_the_last_write(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._ends_at = self._writing.deadline = anyio.current_time() + self.last_seconds

    async def _end(self) -> None:
        if self._recording:
            await self._write_what_waits()
        await self._beside.call(self.output.close)

    async def _succeeds(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do some work; return False after a failure, which is logged once."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - it is the journal's error, and the pods need no journal
            self._fail(error)
            return False
        return True

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
            await self._write_lines(
                [line_of(self._waiting.popleft()) for _ in range(min(_AT_ONCE, len(self._waiting)))]
            )

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
        await self._beside.call(self.output.begin)
        await self._write([Started(at, __version__, tuple(self.profiles)), *state], must_leave_room=True)
        await self._beside.call(self.output.begun)
        self._failing = False

    async def _write(self, records: Sequence[Record] | deque[Record], *, must_leave_room: bool = False) -> None:
        """Write records; raise OSError if they must leave room in the file, and fill it."""
        lines: list[bytes] = []
        for number, record in enumerate(records, start=1):
            lines.append(line_of(record))
            if number % _AT_ONCE == 0 or number == len(records):
                await self._write_lines(lines)
                lines.clear()
                if must_leave_room and self.output.full:
                    raise OSError(errno.EFBIG, TOO_SMALL)

    async def _write_lines(self, lines: Sequence[bytes]) -> None:
        await self._beside.call(partial(self.output.write, b"".join(lines)))

    def _fail(self, error: Exception) -> None:
        if not self._failing:
            log.warning("Cannot write the decision journal; trying again later", exc=error, retrySeconds=RETRY)
        self._failing = True
        self._drop(1)

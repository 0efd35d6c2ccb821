"""A Lease in memory whose API can fail, hang and race, for tests of leader election."""

from collections.abc import Callable

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.kube.writes.lease import Record
from neuron_scheduler.telemetry.errors import ApiError

CONFLICT = ApiError(409, reason="Conflict")
MISSING = ApiError(404, reason="NotFound")


@attrs.define(eq=False)
class Memory:
    """
    A Lease as the API server keeps it.

    Attributes:
        before, after: called with the verb before a call has its effect, and after a write; may raise or wait.
    """

    record: Record | None = None
    before: Callable[[str], object] = lambda _verb: None
    after: Callable[[str], object] = lambda _verb: None
    calls: list[str] = attrs.field(factory=list)
    changed: anyio.Event = attrs.field(factory=anyio.Event)
    version: int = 0

    key = "kube-system/my-scheduler"

    async def get(self, *, within: float) -> Record:
        """Read it."""
        await self._called("get", within)
        if self.record is None:
            raise MISSING
        return self.record

    async def create(self, record: Record, *, within: float) -> Record:
        """Create it."""
        await self._called("create", within)
        if self.record is not None:
            raise CONFLICT
        return await self._written("create", record)

    async def update(self, record: Record, *, within: float) -> Record:
        """Replace it if it has not changed."""
        await self._called("update", within)
        if self.record is None:
            raise MISSING
        if record.resource_version != self.record.resource_version:
            raise CONFLICT
        return await self._written("update", record)

    async def watch(self, resource_version: str, seen: Callable[[Record | None], bool], *, seconds: int) -> None:
        """Follow its changes."""
        await self._called("watch", seconds)
        known = resource_version
        while True:
            now = "" if self.record is None else self.record.resource_version
            if now != known:
                known = now
                if seen(self.record):
                    return
            await self.changed.wait()

    def put(self, record: Record | None) -> Record:
        """Change it, as another client would."""
        self.version += 1
        self.record = None if record is None else attrs.evolve(record, resource_version=str(self.version))
        self.changed.set()
        self.changed = anyio.Event()
        return self.record or Record("", 0)

    async def _written(self, verb: str, record: Record) -> Record:
        written = self.put(record)
        answer = self.after(verb)
        if answer is not None:
            await answer  # type: ignore[misc]  # as in `_called`
        return written

    async def _called(self, verb: str, within: float) -> None:
        self.calls.append(verb)
        assert within > 0
        await anyio.lowlevel.checkpoint()
        answer = self.before(verb)
        if answer is not None:
            await answer  # type: ignore[misc]  # a coroutine where the test wants to wait

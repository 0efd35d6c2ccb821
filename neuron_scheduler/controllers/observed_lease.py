"""
The Lease as one candidate sees it: who holds it, and when it may be taken.

Upstream: `observedRecord` and `observedTime` of `client-go/tools/leaderelection`. Another machine's clock is never
compared with ours: the holder's time counts from the moment when we last saw the Lease change. Does not read it.
"""

from collections.abc import Callable

import attrs

from neuron_scheduler.kube.writes.lease import Record


@attrs.define(eq=False)
class ObservedLease:
    """
    What was last seen.

    Attributes:
        identity: ours.
        clock: monotonic seconds.
        record: None if there is no Lease, or if it was not seen yet.
    """

    identity: str
    clock: Callable[[], float]
    record: Record | None = None
    _changed_at: float = attrs.field(default=0.0, init=False)

    @property
    def holder(self) -> str:
        """Who held the Lease; empty if nobody."""
        return self.record.holder if self.record is not None else ""

    @property
    def version(self) -> str:
        """The resource version; empty if there is no Lease."""
        return self.record.resource_version if self.record is not None else ""

    def observe(self, record: Record | None) -> bool:
        """Take a new state, and return whether another candidate has become the holder."""
        before = self.holder
        if record != self.record or record is None:
            self.record = record
            self._changed_at = self.clock()
        return self.holder not in ("", before, self.identity)

    def expires_in(self) -> float:
        """Return in how many seconds the Lease may be taken; the duration in it counts, not ours."""
        if self.record is None or self.record.holder in ("", self.identity):
            return 0.0
        return self._changed_at + self.record.duration - self.clock()

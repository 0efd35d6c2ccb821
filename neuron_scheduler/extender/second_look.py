"""
Waits before a pod is refused on all nodes, because kube-scheduler may know more than we do.

kube-scheduler tries a refused pod again as soon as its watch shows that another pod has gone, and that may be some
milliseconds before ours shows it. If we refused by the old state, the pod would sleep until something else happens, or
for five minutes (upstream: `podMaxInUnschedulablePodsDuration`). Where kube-scheduler sends a node on which by our
count too few devices are free, its watch is certainly not where ours is, and a longer wait is worth it. Does not wait
often: kube-scheduler decides one pod after the other, so a wait delays all of them. Where more pods are refused, the
next event comes soon.

An error instead of a refusal would make kube-scheduler try the pod again by itself, but it also takes its nomination
from the pod (upstream: `clearNominatedNode` in `schedule_one.go`), and with it the space for which pods have left.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import attrs

from neuron_scheduler.kube.http.rate_limit import TokenBucket

WAIT: Final = 0.05
"""Seconds; a watch event that has been sent is read within a few milliseconds."""
LONGER: Final = 1.0
"""Seconds for which a node is waited for on which kube-scheduler has counted otherwise."""
BURST: Final = 10.0
LONGER_BURST: Final = 60.0
A_SECOND: Final = 1.0
"""Waits in a row of either kind, and in the long run: a twentieth of kube-scheduler's time."""


@attrs.define(eq=False, kw_only=True)
class SecondLook:
    """
    Says whether a pod that fits nowhere is looked at once more.

    Attributes:
        clock: seconds that never jump.
        sleep: waits for some seconds.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    _waits: TokenBucket = attrs.field(init=False)
    _longer_waits: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._waits = TokenBucket(self.clock, A_SECOND, int(BURST))
        self._longer_waits = TokenBucket(self.clock, A_SECOND, int(LONGER_BURST))

    async def is_due(self) -> bool:
        """Wait, and return True, if there were not too many waits lately; otherwise return False at once."""
        if not self._waits.take_now():
            return False
        await self.sleep(WAIT)
        return True

    async def until(self, changed: Callable[[], bool]) -> bool:
        """
        Wait for a change, and return whether it came; not if there were too many waits lately.

        The clock counts, since on a busy machine a wait takes longer than it should.
        """
        ends = self.clock() + LONGER
        for _ in range(round(LONGER / WAIT)):
            if self.clock() >= ends or not self._longer_waits.take_now():
                return False
            await self.sleep(WAIT)
            if changed():
                return True
        return False

"""
A moment's wait before a pod is refused on all nodes, because kube-scheduler may know more than we do.

kube-scheduler tries a refused pod again as soon as its watch shows that another pod has gone, and that may be some
milliseconds before ours shows it. If we refused by the old state, the pod would sleep until something else happens, or
for five minutes (upstream: `podMaxInUnschedulablePodsDuration`). Does not wait often: kube-scheduler decides one pod
after the other, so a wait delays all of them. Where more pods are refused, the next event comes soon.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import attrs

WAIT: Final = 0.05
"""Seconds; a watch event that has been sent is read within a few milliseconds."""
BURST: Final = 10.0
A_SECOND: Final = 1.0
"""Waits in a row, and in the long run: a twentieth of kube-scheduler's time."""


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
    _left: float = attrs.field(default=BURST, init=False)
    _counted_at: float = attrs.field(default=0.0, init=False)

    async def is_due(self) -> bool:
        """Wait, and return True, if there were not too many waits lately; otherwise return False at once."""
        now = self.clock()
        self._left = min(BURST, self._left + (now - self._counted_at) * A_SECOND)
        self._counted_at = now
        if self._left < 1:
            return False
        self._left -= 1
        await self.sleep(WAIT)
        return True

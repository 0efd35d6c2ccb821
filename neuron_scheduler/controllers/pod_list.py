"""
The list of all pods, while it is being handed over: what has to wait for its end.

The new pods come first, and those that are gone go last, so that nothing looks free in between. Meanwhile a node may
look fuller than it is: that it cannot keep a nomination, or that no node takes a pod, is not concluded from that.
Does not handle pods: `handlers.pods` does.
"""

from collections.abc import Callable
from typing import Final

import anyio
import attrs

LONGEST: Final = 5.0
"""Seconds for which a refusal waits for the end; ten thousand changed pods take about one."""
_SHORT: Final = 0.001
"""Seconds between two looks."""


def _never(*_: str) -> bool:
    return False


@attrs.define(eq=False)
class PodList:
    """
    Whether a list is being handed over.

    Attributes:
        clock: seconds that never jump.
        under_way: returns whether it is.
        defers: returns whether a node is looked at later, at the end of the list.
    """

    clock: Callable[[], float]
    under_way: Callable[[], bool] = attrs.field(default=_never, init=False)
    defers: Callable[[str], bool] = attrs.field(default=_never, init=False)

    async def ended(self) -> bool:
        """Wait for the end, but not for long; return whether there was anything to wait for."""
        waited, until = False, self.clock() + LONGEST
        while self.under_way() and self.clock() < until:
            waited = True
            await anyio.sleep(_SHORT)
        return waited

"""
How many pods a second: as many as the API server and the kubelets of the test keep up with.

More with each quick answer, and a fifth less once a quarter of the latest is late, as TCP finds its rate. Without that
a machine that others use too is driven until leaders lose their Leases for lack of CPU, which says nothing about the
scheduler. Refuses to measure the scheduler: pods that wait for it do not slow the pace.
"""

import time
from collections.abc import Callable
from typing import Final

import attrs

FIRST: Final = 10.0  # pods a second
LEAST: Final = 2.0
LATE: Final = 0.5  # seconds: a tenth of what a renewal of the Lease may take
MANY: Final = 0.25  # the share of late answers with which the rate falls
LATEST: Final = 20  # answers that count: a mean with weights that fall exponentially
MORE: Final = 0.05  # pods a second, for each quick answer
LESS: Final = 0.8
PAUSE: Final = 2.0  # seconds between two steps down: what is late then was under way before


@attrs.define(eq=False)
class Pace:
    """
    The rate.

    Attributes:
        most: pods a second.
        rate: pods a second, now.
    """

    most: float
    clock: Callable[[], float] = time.perf_counter
    rate: float = attrs.field(init=False)
    _next: float = attrs.field(default=0.0, init=False)
    _slowed: float = attrs.field(default=0.0, init=False)
    _late: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.rate = min(FIRST, self.most)

    def due(self) -> bool:
        """Return whether a pod may be created now, and count it if so; what was missed is not made up for."""
        now = self.clock()
        if now < self._next:
            return False
        self._next = max(self._next + 1 / self.rate, now - 1.0)
        return True

    def note(self, seconds: float) -> None:
        """Take how late an answer or a kubelet was."""
        late = seconds > LATE
        self._late += (late - self._late) / LATEST
        if not late:
            self.rate = min(self.most, self.rate + MORE)
        elif self._late > MANY and self.clock() >= self._slowed + PAUSE:
            self._slowed = self.clock()
            self.rate = max(LEAST, self.rate * LESS)

"""A limit on how often something may be done, such as writes under `--kube-api-qps`. Does not wait itself."""

from collections.abc import Callable
from typing import Final

import attrs

ROUNDING: Final = 1e-6  # seconds that sums of turns may be off


@attrs.define(eq=False)
class TokenBucket:
    """
    Allows `qps` calls per second, and `burst` at once.

    Attributes:
        qps: 0 for no limit.
    """

    clock: Callable[[], float]
    qps: float = 0.0
    burst: int = 1
    _free_at: float = attrs.field(default=float("-inf"), init=False)

    def take(self) -> float:
        """Take the next turn, and return how many seconds from now it is."""
        if self.qps <= 0:
            return 0.0
        wait = self._wait()
        self._free_at += 1 / self.qps
        return wait

    def take_now(self) -> bool:
        """Take a turn and return True if there is one now."""
        if self.qps > 0:
            if self._wait() > ROUNDING:
                return False
            self._free_at += 1 / self.qps
        return True

    def _wait(self) -> float:
        now = self.clock()
        most_saved = (max(self.burst, 1) - 1) / self.qps
        self._free_at = max(self._free_at, now - most_saved)
        return max(0.0, self._free_at - now)

"""The optional client-side limit on writes (`--kube-api-qps`, `--kube-api-burst`). Never waits itself."""

from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class TokenBucket:
    """
    Lets `qps` calls a second through, and `burst` at once.

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
        now = self.clock()
        most_saved = (max(self.burst, 1) - 1) / self.qps
        self._free_at = max(self._free_at, now - most_saved)
        wait = max(0.0, self._free_at - now)
        self._free_at += 1 / self.qps
        return wait

"""When to send: how long to wait before the next try, and how often something may be done, as with `--kube-api-qps`."""

from collections.abc import Callable
from typing import Final

import attrs

ROUNDING: Final = 1e-6  # seconds that sums of turns may be off


@attrs.define(eq=False)
class Backoff:
    """
    Successive waiting times in seconds, by default client-go's reflector's: 0.8 s to 30 s, doubled, with jitter.

    Attributes:
        random: numbers from [0, 1).
    """

    random: Callable[[], float]
    first: float = 0.8
    most: float = 30.0
    _next: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._next = self.first

    def next(self, *, at_least: float | None = None) -> float:
        """Return the next wait, and double the one after it; `at_least` is what a server asked for (Retry-After)."""
        wait = min(self._next * (1 + self.random()), self.most)
        self._next = min(self._next * 2, self.most)
        return max(wait, at_least or 0.0)

    def reset(self) -> None:
        self._next = self.first


@attrs.define(eq=False)
class TokenBucket:
    """Allows `qps` calls per second (0: no limit), and `burst` at once."""

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

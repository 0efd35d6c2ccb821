"""How long to wait before the next try: exponential, with jitter, reset after progress. Does not sleep itself."""

from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class Backoff:
    """
    Successive waiting times in seconds.

    The default is client-go's reflector: 0.8 s to 30 s, doubled, with jitter.

    Attributes:
        random: numbers from [0, 1); passed in, so that tests are arithmetic.
        jitter: a wait is stretched by up to this fraction.
    """

    random: Callable[[], float]
    first: float = 0.8
    most: float = 30.0
    jitter: float = 1.0
    _next: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._next = self.first

    def next(self, *, at_least: float | None = None) -> float:
        """Return the next wait, and double the one after it; `at_least` is what a server asked for (Retry-After)."""
        wait = min(self._next * (1 + self.jitter * self.random()), self.most)
        self._next = min(self._next * 2, self.most)
        return max(wait, at_least or 0.0)

    def reset(self) -> None:
        """Start from the first wait again: there was progress."""
        self._next = self.first

"""A clock for code that is given the time."""

import attrs


@attrs.define(eq=False)
class Clock:
    """A clock that a test advances."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

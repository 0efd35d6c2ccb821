"""Values that are good for a while: an answer, the text of the metrics, and what the API server says of a token."""

from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

K = TypeVar("K")
V = TypeVar("V")


@attrs.define(eq=False, kw_only=True)
class TimedCache(Generic[K, V]):
    """
    Values by key.

    Attributes:
        clock: seconds, monotonic.
        seconds: for which a value is good.
        most: values that are kept; of more, those that were put first are forgotten.
    """

    clock: Callable[[], float]
    seconds: float
    most: int
    _values: dict[K, tuple[float, V]] = attrs.field(factory=dict, init=False)

    def get(self, key: K, *, old: bool = False) -> V | None:
        """Return the value, an older one only if `old`; None if there is none."""
        until, value = self._values.get(key, (float("-inf"), None))
        return value if old or self.clock() < until else None

    def put(self, key: K, value: V) -> V:
        self._values.pop(key, None)
        self._values[key] = self.clock() + self.seconds, value
        if len(self._values) > self.most:
            del self._values[next(iter(self._values))]
        return value

"""
A cache of the text of /metrics, so that many scrapers cost the event loop no more than one.

Writing all metrics takes milliseconds, in which nothing is scheduled. A single scraper always gets current values; once
scrapes have used their share of the event loop, further ones get the last text.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, Protocol

import attrs

SHARE: Final = 0.05  # of the event loop's time in the long run
SAVED: Final = 0.25  # seconds of it that may be used before that
REST: Final = 3.0  # pause after writing the metrics, as a multiple of the time that it took
LONGEST_ACCEPT: Final = 1024  # characters of an Accept header that are looked at; Prometheus sends some 300


class Scraped(Protocol):
    """What /metrics shows."""

    def prepared(self) -> Iterator[None]:
        """Prepare for an exposition in small steps; yields whenever other tasks may run."""
        ...

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in a format that `accept` allows, and its content type."""
        ...


@attrs.define(eq=False, kw_only=True)
class Exposition:
    """
    The text for scrapers.

    Attributes:
        clock: seconds, monotonic.
    """

    metrics: Scraped
    clock: Callable[[], float]
    _texts: dict[str, tuple[bytes, str]] = attrs.field(factory=dict, init=False)
    _saved: float = attrs.field(default=SAVED, init=False)
    _saved_at: float = attrs.field(init=False)
    _rested_at: float = attrs.field(default=float("-inf"), init=False)
    _preparing: bool = attrs.field(default=False, init=False)
    _preparation: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._saved_at = self.clock()

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in a format that `accept` allows, or as plain text when there are many scrapers."""
        due, now = self._due(), self._saved_at
        if len(accept) > LONGEST_ACCEPT:
            accept = ""
        if due:
            self._texts.clear()
        elif accept not in self._texts:
            accept = ""
        if accept not in self._texts:
            self._texts[accept] = self.metrics.exposition(accept)
            end = self.clock()
            spent, self._preparation = end - now + self._preparation, 0.0
            self._saved -= spent
            self._rested_at = end + REST * spent
        return self._texts[accept]

    def prepared(self) -> Generator[None, None, None]:
        """
        Prepare for `text` in small steps, if it is going to write and nobody else prepares; yields between them.

        The steps count as time for writing.
        """
        if self._preparing or not self._due():
            return
        self._preparing = True
        try:
            began = self.clock()
            for _ in self.metrics.prepared():
                self._preparation += self.clock() - began
                yield
                began = self.clock()
        finally:
            self._preparing = False

    def _due(self) -> bool:
        """Return whether the metrics may be written now."""
        now = self.clock()
        self._saved = min(SAVED, self._saved + SHARE * (now - self._saved_at))
        self._saved_at = now
        return self._saved > 0 and now >= self._rested_at

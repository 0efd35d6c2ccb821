"""
A cache of the text of /metrics, so that many scrapers cost the event loop no more than one.

Writing all metrics takes milliseconds, in which nothing is scheduled. A single scraper always gets current values; once
scrapes have used their share of the event loop, further ones get the last text.
"""

from collections.abc import Callable
from typing import Final, Protocol

import attrs

SHARE: Final = 0.05  # of the event loop's time in the long run
SAVED: Final = 0.25  # seconds of it that may be used before that
REST: Final = 3.0  # pause after writing the metrics, as a multiple of the time that it took
LONGEST_ACCEPT: Final = 1024  # characters of an Accept header that are looked at; Prometheus sends some 300


class Scraped(Protocol):
    """What /metrics shows."""

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

    def __attrs_post_init__(self) -> None:
        self._saved_at = self.clock()

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in a format that `accept` allows, or as plain text when there are many scrapers."""
        now = self.clock()
        self._saved = min(SAVED, self._saved + SHARE * (now - self._saved_at))
        self._saved_at = now
        if len(accept) > LONGEST_ACCEPT:
            accept = ""
        if self._saved > 0 and now >= self._rested_at:
            self._texts.clear()
        elif accept not in self._texts:
            accept = ""
        if accept not in self._texts:
            self._texts[accept] = self.metrics.exposition(accept)
            end = self.clock()
            self._saved -= end - now
            self._rested_at = end + REST * (end - now)
        return self._texts[accept]

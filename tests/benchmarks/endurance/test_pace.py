"""The rate rises with quick answers, and falls when many are late, once for those that were late together."""

from math import inf

import attrs
import pytest

from benchmarks.endurance.pace import FIRST, LATE, LEAST, LESS, PAUSE, Pace


@attrs.define
class Clock:
    """Seconds that pass when a test says so."""

    now: float = 100.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


def test_pods_are_created_at_the_rate() -> None:
    """A second is made up for, and then the next one is due an eighth of a second later."""
    clock = Clock()
    pace = Pace(8.0, clock)
    assert [pace.due() for _ in range(12)] == [True] * 10 + [False] * 2
    clock.now += 1.0 / 8.0
    assert [pace.due(), pace.due()] == [True, False]


def test_the_rate_follows_the_answers() -> None:
    """And is never more than the most, nor less than the least."""
    clock = Clock()
    pace = Pace(inf, clock)
    for _ in range(1_000):
        pace.note(LATE / 2)
    quick = pace.rate
    assert quick > 2 * FIRST
    for _ in range(4):
        pace.note(2 * LATE)
    assert pace.rate == quick
    for _ in range(4):
        pace.note(2 * LATE)
    assert pace.rate == pytest.approx(quick * LESS)
    for _ in range(50):
        clock.now += PAUSE
        pace.note(2 * LATE)
    assert pace.rate == LEAST
    pace.most = LEAST + 1.0
    for _ in range(1_000):
        pace.note(0.0)
    assert pace.rate == LEAST + 1.0

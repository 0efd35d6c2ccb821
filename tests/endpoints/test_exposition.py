"""Many scrapers cost no more than one, and a single scraper always gets current metrics."""

from collections.abc import Iterator

import attrs

from neuron_scheduler.endpoints.exposition import Exposition

OPEN: str = "application/openmetrics-text"


@attrs.define(eq=False)
class SlowMetrics:
    """Metrics that take some time to write, on a clock that only they advance."""

    cost: float = 0.01
    now: float = 100.0
    written: int = 0
    steps: int = 3
    prepared_steps: int = 0

    def prepared(self) -> Iterator[None]:
        """Prepare, in steps that take as long as writing."""
        for _ in range(self.steps):
            self.now += self.cost
            self.prepared_steps += 1
            yield

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Write them."""
        self.now += self.cost
        self.written += 1
        return str(self.written).encode(), accept

    def clock(self) -> float:
        """Return the time."""
        return self.now


def test_a_lone_scraper_sees_the_moment() -> None:
    """One scrape per second is never answered from the cache."""
    metrics = SlowMetrics()
    shown = Exposition(metrics=metrics, clock=metrics.clock)
    for number in range(1, 101):
        assert shown.text("") == (str(number).encode(), "")
        metrics.now += 1


def test_a_crowd_costs_a_share() -> None:
    """A thousand scrapes per second take a twentieth of the time, and no answer is older than 0.2 s."""
    metrics = SlowMetrics()
    shown = Exposition(metrics=metrics, clock=metrics.clock)
    began, written_at = metrics.now, metrics.now
    for _ in range(20_000):
        before = metrics.written
        shown.text("")
        if metrics.written > before:
            written_at = metrics.now
        assert metrics.now - written_at <= metrics.cost / 0.05 + 0.001
        metrics.now += 0.001
    spent = metrics.written * metrics.cost
    assert 0.04 * (metrics.now - began) < spent < 0.05 * (metrics.now - began) + 0.3


def test_no_two_in_a_row() -> None:
    """Simultaneous scrapes get one text, so that the event loop is not blocked for long."""
    metrics = SlowMetrics()
    shown = Exposition(metrics=metrics, clock=metrics.clock)
    assert {shown.text("")[0] for _ in range(300)} == {b"1"}


def test_formats_do_not_multiply_the_cost() -> None:
    """Many clients with different formats get plain text; each gets its own format when there is time."""
    metrics = SlowMetrics()
    shown = Exposition(metrics=metrics, clock=metrics.clock)
    answers = [shown.text(f"{OPEN}; q=0.{n}")[1] for n in range(300)]
    assert (answers[0], set(answers[1:])) == (f"{OPEN}; q=0.0", {""})
    assert metrics.written == 2
    metrics.now += 60
    assert shown.text(OPEN) == (b"3", OPEN)
    metrics.now += 60
    assert shown.text("x" * 10_000) == (b"4", "")
    assert len(shown._texts) == 1


def test_the_preparation_is_part_of_the_share() -> None:
    """Where the text of earlier scrapes is shown, nothing is prepared; and what was prepared has cost time."""
    metrics = SlowMetrics()
    shown = Exposition(metrics=metrics, clock=metrics.clock)
    began = metrics.now
    for _ in range(20_000):
        for _ in shown.prepared():
            metrics.now += 0.0001
        shown.text("")
        metrics.now += 0.001
    spent = metrics.cost * (metrics.written + metrics.prepared_steps)
    assert metrics.prepared_steps == metrics.steps * metrics.written > 0
    assert 0.04 * (metrics.now - began) < spent < 0.05 * (metrics.now - began) + 0.3


def test_one_scrape_prepares_for_all() -> None:
    """A scrape that comes meanwhile shows what there is; one that was given up holds nobody up."""
    metrics = SlowMetrics()
    shown = Exposition(metrics=metrics, clock=metrics.clock)
    first = shown.prepared()
    next(first)
    assert [*shown.prepared()] == []
    first.close()
    assert len([*shown.prepared()]) == metrics.steps

"""What is counted here reads as the library's own metrics do."""

import random

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from neuron_scheduler.tallies import Counter, Histogram

BOUNDS = (0.5, 1.0, 2.0)


def lines(registry: CollectorRegistry) -> list[str]:
    """Return what is exposed, but for when the library's series were created."""
    return sorted(line for line in generate_latest(registry).decode().splitlines() if "_created" not in line)


@pytest.mark.parametrize("labels", [pytest.param((), id="without labels"), pytest.param(("a", "b"), id="with labels")])
def test_numbers_read_as_the_library_writes_them(labels: tuple[str, ...]) -> None:
    """The same counts and amounts, on the bounds and beyond the last, give the same text."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counter, histogram = Counter("c", "Counts.", labels), Histogram("h", "Amounts.", BOUNDS, labels)
    ours.register(counter)
    ours.register(histogram)
    counts = prometheus_client.Counter("c", "Counts.", labels, registry=theirs)
    amounts = prometheus_client.Histogram("h", "Amounts.", labels, buckets=BOUNDS, registry=theirs)
    assert lines(ours) == lines(theirs)  # without labels there are zeros from the start

    chance = random.Random(1)
    for amount in (*BOUNDS, 0.0, 99.0, *(chance.uniform(0, 3) for _ in range(20))):
        values = tuple(chance.choice("xy") for _ in labels)
        counter.inc(*values)
        histogram.observe(amount, *values)
        (counts.labels(*values) if labels else counts).inc()
        (amounts.labels(*values) if labels else amounts).observe(amount)
    assert lines(ours) == lines(theirs)


def test_zeros_are_shown_where_asked() -> None:
    """A series can be there before anything happens."""
    registry = CollectorRegistry()
    for tally in (Counter("c", "Counts.", ("a",)), Histogram("h", "Amounts.", BOUNDS, ("a",))):
        tally.show("x")
        registry.register(tally)
    assert {'c_total{a="x"} 0.0', 'h_count{a="x"} 0.0', 'h_sum{a="x"} 0.0'} <= set(lines(registry))

"""Large metrics are written in steps, and the text is that of the library, in both formats."""

import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder

from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.stepwise_text import LINES_A_STEP, StepwiseText

FORMATS = pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])


@pytest.fixture(autouse=True)
def without_created_series() -> None:
    """Have no `_created` series, as in a process: `Metrics` switches them off for the whole library."""
    Metrics()


def histogram(registry: CollectorRegistry) -> Histogram:
    """Return a histogram with many series, and an awkward label."""
    declared = Histogram("large", "A large one.", ("plugin",), buckets=(1e-05, 1.5e-05, 1), registry=registry)
    for number in range(60):
        declared.labels(f'a"{number}\n').observe(0.5)
    return declared


@FORMATS
def test_the_text_is_that_of_the_library(accept: str) -> None:
    """Whatever the format, and whether it was prepared or not."""
    whole, text = CollectorRegistry(), StepwiseText()
    histogram(whole)
    histogram(text.registry)
    encode, _ = choose_encoder(accept)
    empty = encode(CollectorRegistry())
    assert text.added_to(empty) == encode(whole)
    steps = len([*text.prepared()])
    assert steps > 60 * 6 // LINES_A_STEP
    assert text.added_to(empty) == encode(whole)


def test_it_shows_what_was_prepared() -> None:
    """What is observed after the preparation is shown at the next scrape."""
    text = StepwiseText()
    declared = histogram(text.registry)
    assert [*text.prepared()]
    before = text.added_to(b"")
    declared.labels("new").observe(0.5)
    assert text.added_to(b"") == before
    assert [*text.prepared()]
    assert b'plugin="new"' in text.added_to(b"")


@FORMATS
def test_the_plugins_are_in_the_exposition(accept: str) -> None:
    """At the end of it, once."""
    metrics = Metrics()
    metrics.plugin_seconds("NodePorts", "Filter", "Success").observe(0.1)
    assert [*metrics.prepared()]
    body, _ = metrics.exposition(accept)
    assert body.count(b"# TYPE scheduler_plugin_execution_duration_seconds histogram") == 1
    assert body.count(b"# EOF") == bool(accept)
    assert body.endswith(b"# EOF\n") == bool(accept)

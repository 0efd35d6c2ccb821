"""Prometheus reads both formats of /metrics, and finds the same series in them."""

from pathlib import Path
from typing import Any

import pytest

from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.state_metrics import State
from tests.monitoring.engine import Query, Scrape, evaluated

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(400)]

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OURS = '{__name__=~"neuron_scheduler.*|scheduler_.*|rest_client.*|leader_.*"}'


def busy() -> Metrics:
    """Return metrics of which each sort has values, some of them awkward."""
    metrics = Metrics(profiles=("p", 'q"'), api_host="[::1]:6443")
    metrics.ask(
        lambda: State(leader=True, unknown_holders_by_node={"(others)": 2, 'a"\\\n': 1}, log_lines_dropped=3),
        tuple,
    )
    metrics.count_request("201", "POST", 0.02)
    metrics.count_malformed("pods")
    metrics.count_attempt("scheduled", 'q"', 0.1)
    return metrics


def read(accept: str, folder: Path) -> dict[tuple[tuple[str, str], ...], Any]:
    """Return the series of one scrape, as Prometheus stores them."""
    metrics = busy()
    body, content_type = metrics.exposition(accept)
    assert ("openmetrics" in content_type) == ("openmetrics" in accept)
    scrape = Scrape(body.decode(), content_type=content_type)
    (answer,) = evaluated([scrape], end=0, queries=[Query(OURS, 0, 0)], folder=folder).answers
    assert answer["error"] == ""
    return {tuple(sorted(series["labels"].items())): series["points"][0][1] for series in answer["series"]}


def test_both_formats_have_the_same_series(tmp_path: Path) -> None:
    """Prometheus asks for OpenMetrics first, whose parser is strict."""
    text, opened = read("", tmp_path), read(OPEN, tmp_path)
    assert text == opened
    names = {dict(labels)["__name__"] for labels in text}
    assert {"neuron_scheduler_build_info", "scheduler_scheduling_attempt_duration_seconds_bucket"} <= names
    assert 'a"\\\n' in {dict(labels).get("node") for labels in text}

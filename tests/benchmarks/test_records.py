"""Records survive the file, and the missing runs follow from them."""

from pathlib import Path

import pytest

from benchmarks.contest import records
from tests.benchmarks.runs import run


def test_appended_records_are_read_back(tmp_path: Path) -> None:
    """Every field, in the order in which the runs were made."""
    file = tmp_path / "results" / "runs.jsonl"
    made = [run(number=number, latencies=(0.01, 0.02)) for number in range(2)]
    for record in made:
        records.append(record, file)
    assert records.read(file) == made


def test_there_are_no_records_without_a_file(tmp_path: Path) -> None:
    """The first benchmark begins with nothing."""
    assert records.read(tmp_path / "none.jsonl") == []


def test_a_cell_that_is_there_is_not_run_again() -> None:
    """The missing runs of one label do not depend on another label."""
    there = [run(), run("kube-scheduler", label="b")]
    cells = [run().cell, run(number=1).cell, run("kube-scheduler").cell]
    assert list(records.missing(cells, there, "a")) == cells[1:]
    assert list(records.missing(cells, there, "b")) == cells[:2]


def test_the_label_measured_last_is_the_default() -> None:
    """A report without arguments is about the latest label."""
    there = [run(label="old"), run(label="new"), run(label="new", number=1)]
    assert records.of_label(there, None) == there[1:]
    assert records.of_label(there, "old") == there[:1]
    assert records.of_label([], None) == []


def test_rates_and_costs_are_of_the_bound_pods() -> None:
    """2,000 pods in 2 s, their Events in 4 s, with 1 s of CPU."""
    record = run(bound=2_000, bind_seconds=2.0, event_seconds=4.0, cpu_seconds=1.0)
    assert (record.rate, record.event_rate, record.cpu_per_pod) == (1_000.0, 500.0, 0.5)
    assert not record.complete


def test_a_run_without_a_bind_has_no_rate() -> None:
    """Nothing is divided by zero."""
    record = run(bound=0, bind_seconds=0.0, event_seconds=0.0)
    assert (record.rate, record.event_rate, record.cpu_per_pod) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("events", "dropped", "seconds", "lost"),
    [
        pytest.param({"Scheduled": 3_000, "FailedScheduling": 9}, 0, 5.0, 0, id="one for each bind, and others"),
        pytest.param({"Scheduled": 2_990}, None, 5.0, 10, id="ten binds without an Event"),
        pytest.param({"Scheduled": 3_000}, 7, 5.0, 7, id="the contender says it gave up seven"),
        pytest.param({}, None, None, 0, id="a contender that writes none"),
    ],
)
def test_binds_without_an_event_are_lost_events(
    events: dict[str, int], dropped: int | None, seconds: float | None, lost: int
) -> None:
    """Both missing Events and reported drops count."""
    assert run(events=events, events_dropped=dropped, event_seconds=seconds).events_lost == lost

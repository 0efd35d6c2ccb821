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


def test_a_cell_that_is_there_is_not_run_again() -> None:
    """The missing runs of one label do not depend on another label."""
    there = [run(), run("kube-scheduler", label="b")]
    cells = [run().cell, run(number=1).cell, run("kube-scheduler").cell]
    assert list(records.missing(cells, there, "a")) == cells[1:]
    assert list(records.missing(cells, there, "b")) == cells[:2]


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

"""Records survive the file, and targets are ratios of medians."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.contest import records
from benchmarks.contest.records import Cell, Record
from benchmarks.report import BARE_LOOP, KUBE_SCHEDULER, LOOP, Bar, Figures, bars


def run(
    contender: str = "ours",
    workload: str = "one-shape",
    *,
    nodes: int = 5_000,
    number: int = 0,
    rate: float = 1_000.0,
    label: str = "a",
    **fields: Any,
) -> Record:
    """Return the record of a run that bound 3,000 pods at that rate."""
    defaults: dict[str, Any] = {
        "when": "2026-11-21T12:00:00+00:00",
        "pods": 3_000,
        "bound": 3_000,
        "bind_seconds": 3_000 / rate,
        "event_seconds": 3_000 / rate + 1,
        "events": {"Scheduled": 3_000},
        "events_dropped": None,
        "cpu_seconds": 1.5,
        "cpu_bind_seconds": 1.0,
        "server_cpu_seconds": 3.0,
        "peak_bytes": 100 << 20,
        "machine": dict.fromkeys(("cpu", "cores", "memory_gib", "kernel", "python", "kubernetes"), "invented"),
    }
    cell = Cell(nodes=nodes, workload=workload, contender=contender, round=number)
    return Record(cell=cell, label=label, **defaults | fields)


def test_a_benchmark_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Records are read back in their order; a cell with a record of the label is not run again."""
    file = tmp_path / "results" / "runs.jsonl"
    made = [run(latencies=(0.01, 0.02)), run(KUBE_SCHEDULER, label="b")]
    for record in made:
        records.append(record, file)
    assert records.read(file) == made
    wanted = [run().cell, run(number=1).cell, run(KUBE_SCHEDULER).cell]
    assert list(records.missing(wanted, made, "a")) == wanted[1:]
    assert list(records.missing(wanted, made, "b")) == wanted[:2]


@pytest.mark.parametrize(
    ("events", "dropped", "seconds", "lost"),
    [
        pytest.param({"Scheduled": 3_000, "FailedScheduling": 9}, 0, 5.0, 0, id="one for each bind, and others"),
        pytest.param({"Scheduled": 2_990}, None, 5.0, 10, id="ten binds without an Event"),
        pytest.param({"Scheduled": 3_000}, 7, 5.0, 7, id="the contender says it gave up seven"),
    ],
)
def test_binds_without_an_event_are_lost_events(
    events: dict[str, int], dropped: int | None, seconds: float | None, lost: int
) -> None:
    """Both missing Events and reported drops count."""
    assert run(events=events, events_dropped=dropped, event_seconds=seconds).events_lost == lost


def bar(title: str, *measured: Record) -> Bar:
    return next(target for target in bars(Figures(measured)) if target.title == title)


@pytest.mark.parametrize(
    ("title", "peer", "value", "verdict"),
    [
        ("one-shape at 5,000 nodes, of the binding-loop", run(LOOP, rate=1_250), 0.8, "met"),
        (
            "one-shape at 5,000 nodes, of the binding-loop without policies",
            run(BARE_LOOP, rate=2e3),
            0.5,
            "**not met**",
        ),
        ("one-shape at 5,000 nodes, of kube-scheduler", run(KUBE_SCHEDULER, rate=250), 4.0, "met"),
        ("one-shape at 5,000 nodes, of the same at 1,000", run(nodes=1_000, rate=1_000), 1.0, "met"),
        ("Events lost, all runs", run(number=1, events={"Scheduled": 2_999}), 1.0, "**not met**"),
    ],
)
def test_a_target_is_compared_within_one_label(title: str, peer: Record, value: float, verdict: str) -> None:
    """Ours binds 1,000 pods a second with 5,000 nodes; without records nothing is met or missed."""
    target = bar(title, run(), peer)
    assert target.value == pytest.approx(value)
    assert target.verdict == verdict
    assert bar(title).verdict == "not measured"

"""The targets are ratios of medians; a target that was not measured is neither met nor missed."""

import pytest

from benchmarks.contest.bars import BARE_LOOP, EXTENDER, KUBE_SCHEDULER, LOOP, Bar, Figures, bars, ratio
from benchmarks.contest.records import Record
from tests.benchmarks.runs import run


def bar(title: str, *records: Record) -> Bar:
    """Return the target with that title."""
    return next(target for target in bars(records) if target.title == title)


def test_a_median_is_over_the_rounds_of_one_cell() -> None:
    """Other workloads, contenders and numbers of nodes do not count."""
    rounds = [run(number=number, rate=rate) for number, rate in enumerate((900.0, 100.0, 1_000.0))]
    others = [run("kube-scheduler", rate=1.0), run(workload="mix", rate=2.0), run(nodes=1_000, rate=3.0)]
    figures = Figures((*rounds, *others))
    assert figures.rate(5_000, "one-shape") == pytest.approx(900.0)
    assert figures.best_rate(5_000, "one-shape", "ours") == pytest.approx(1_000.0)
    assert figures.rate(15_000, "one-shape") is None


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"), [(6.0, 2.0, 3.0), (None, 2.0, None), (6.0, None, None), (6.0, 0.0, None)]
)
def test_a_ratio_needs_both(ours: float | None, theirs: float | None, expected: float | None) -> None:
    """A contender that bound nothing gives no ratio either."""
    assert ratio(ours, theirs) == expected


@pytest.mark.parametrize(
    ("title", "peer", "value", "met"),
    [
        pytest.param("one-shape at 5,000 nodes, of the binding-loop", run(LOOP, rate=1_250), 0.8, True, id="loop"),
        pytest.param(
            "one-shape at 5,000 nodes, of the binding-loop without policies",
            run(BARE_LOOP, rate=2_000),
            0.5,
            False,
            id="loop without policies",
        ),
        pytest.param(
            "one-shape at 5,000 nodes, of kube-scheduler", run(KUBE_SCHEDULER, rate=250), 4.0, True, id="kube"
        ),
        pytest.param(
            "unlike at 5,000 nodes, of one-shape", run(workload="unlike", rate=800), 0.8, False, id="no two alike"
        ),
        pytest.param(
            "workloads at 5,000 nodes, of one-shape", run(workload="workloads", rate=700), 0.7, True, id="exactly"
        ),
        pytest.param(
            "one-shape at 5,000 nodes, of the same at 1,000", run(nodes=1_000, rate=1_000), 1.0, True, id="growth"
        ),
    ],
)
def test_a_target_is_compared_within_one_label(title: str, peer: Record, value: float, met: bool) -> None:
    """Ours binds 1,000 pods a second with 5,000 nodes."""
    target = bar(title, run(), peer)
    assert target.value == pytest.approx(value)
    assert target.met is met


def test_the_extender_is_judged_by_its_best_and_by_its_median_run() -> None:
    """Runs of 50, 100 and 200 pods per second beside ours of 1,000."""
    runs = [run(EXTENDER, "mix", number=number, rate=rate) for number, rate in enumerate((50.0, 200.0, 100.0))]
    records = [run(workload="mix"), *runs]
    assert bar("mix at 5,000 nodes, of the best run with an extender", *records).value == pytest.approx(5.0)
    assert bar("mix at 5,000 nodes, of the median run with an extender", *records).value == pytest.approx(10.0)


def test_costs_may_be_at_most_the_target() -> None:
    """0.5 ms of CPU are within the target, 1 ms is not."""
    title = "CPU per pod, one-shape at 5,000 nodes"
    assert bar(title, run()).met is True
    assert bar(title, run(cpu_seconds=3.0)).met is False


def test_one_lost_event_misses_the_target() -> None:
    """Only ours counts, in any run."""
    records = [run(), run(number=1, events={"Scheduled": 2_999}), run(KUBE_SCHEDULER, events={})]
    target = bar("Events lost, all runs", *records)
    assert (target.value, target.met) == (1.0, False)


def test_a_target_without_records_is_not_measured() -> None:
    """Without any record no target is met or missed."""
    assert {target.met for target in bars([])} == {None}

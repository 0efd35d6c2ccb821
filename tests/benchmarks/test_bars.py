"""The targets are ratios of medians; a target that was not measured is neither met nor missed."""

import pytest

from benchmarks.contest.bars import BARE_LOOP, KUBE_SCHEDULER, LOOP, Bar, bars
from benchmarks.contest.records import Record
from tests.benchmarks.runs import run


def bar(title: str, *records: Record) -> Bar:
    """Return the target with that title."""
    return next(target for target in bars(records) if target.title == title)


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


def test_one_lost_event_misses_the_target() -> None:
    """Only ours counts, in any run."""
    records = [run(), run(number=1, events={"Scheduled": 2_999}), run(KUBE_SCHEDULER, events={})]
    target = bar("Events lost, all runs", *records)
    assert (target.value, target.met) == (1.0, False)


def test_a_target_without_records_is_not_measured() -> None:
    """Without any record no target is met or missed."""
    assert {target.met for target in bars([])} == {None}

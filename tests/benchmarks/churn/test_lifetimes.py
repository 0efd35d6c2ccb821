"""Lifetimes are read from a trace, dealt out evenly, and cut for pods that are already running."""

import random
from pathlib import Path

import pytest

from benchmarks.churn.lifetimes import OPENB, Lifetimes


def test_a_trace_is_read_without_its_longest_pods_and_those_that_never_ran(tmp_path: Path) -> None:
    """Of 200 GPU pods the 2 longest are left out; pods without a GPU, or never scheduled, do not count."""
    rows = [f"1,{at},{at + at}" for at in range(1, 201)] + ["0,1,9", "1,,9", "1,3,"]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["num_gpu,scheduled_time,deletion_time", *rows]))
    assert Lifetimes.read(trace).knots == tuple(range(1, 199))


def test_a_trace_without_lifetimes_is_refused(tmp_path: Path) -> None:
    """An empty file of the right form is an error, not a distribution."""
    trace = tmp_path / "trace.csv"
    trace.write_text("num_gpu,scheduled_time,deletion_time\n1,0,5\n")
    with pytest.raises(ValueError, match="has no lifetimes"):
        Lifetimes.read(trace)


def test_quantiles_lie_between_the_knots() -> None:
    """Linear between two knots, and exact at them."""
    lifetimes = Lifetimes((0.0, 10.0, 50.0))
    assert [lifetimes.quantile(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)] == [0.0, 5.0, 10.0, 30.0, 50.0]
    assert lifetimes.mean == (5 + 30) / 2


def test_lifetimes_have_the_mean_of_the_distribution() -> None:
    """So the load of a run is exact, with any seed."""
    dealt = OPENB.stratified(20_000, random.Random(1))
    assert sum(dealt) / len(dealt) == pytest.approx(OPENB.mean, rel=0.01)
    assert sorted(dealt) == sorted(OPENB.stratified(20_000, random.Random(2)))
    assert list(OPENB.knots) == sorted(OPENB.knots)


def test_long_pods_are_found_running_more_often() -> None:
    """The remaining time of a running pod is E[L^2] / 2 E[L] on average."""
    lifetimes, dice = Lifetimes((0.0, 30.0)), random.Random(1)
    remaining = [lifetimes.remaining(dice) for _ in range(20_000)]
    assert sum(remaining) / len(remaining) == pytest.approx(300 / 30, rel=0.03)

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


def test_lifetimes_have_the_mean_of_the_distribution() -> None:
    """So the load of a run is exact, with any seed."""
    dealt = OPENB.stratified(20_000, random.Random(1))
    assert sum(dealt) / len(dealt) == pytest.approx(OPENB.mean, rel=0.01)
    assert sorted(dealt) == sorted(OPENB.stratified(20_000, random.Random(2)))
    assert list(OPENB.knots) == sorted(OPENB.knots)

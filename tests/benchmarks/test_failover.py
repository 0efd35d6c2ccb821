"""The longest time without a Binding counts only while a pod waits, and a round holds if nothing is lost or wrong."""

from typing import Any

import pytest

from benchmarks.failover import TIMES, Round, longest_gap


@pytest.mark.parametrize(
    ("created", "bindings", "longest"),
    [
        ({"a": 0.0, "b": 1.0}, {"a": 0.5, "b": 4.0}, 3.0),  # b waited since 1, the last Binding was at 0.5
        ({"a": 0.0, "b": 0.0, "c": 3.9}, {"a": 0.5, "c": 4.0, "b": 4.1}, 3.5),  # b waited while c was bound
        ({"a": 0.0, "b": 9.0}, {"a": 0.5, "b": 9.1}, 0.5),  # nobody waited in between
        ({"a": 0.0}, {}, 0.0),
    ],
)
def test_a_gap_counts_only_while_a_pod_waits(
    created: dict[str, float], bindings: dict[str, float], longest: float
) -> None:
    """From the last Binding, or from the arrival of the first pod that waits."""
    assert longest_gap(created, bindings) == pytest.approx(longest)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({"takeover": 16.9}, True),
        ({"takeover": 17.1}, False),
        ({"lost": 1}, False),
        ({"wrong": ["p was bound twice"]}, False),
        ({"deed": "clean stop", "takeover": 0.9}, True),
        ({"deed": "clean stop", "takeover": 1.1}, False),
    ],
)
def test_what_a_round_must_hold(change: dict[str, Any], *, holds: bool) -> None:
    """The Lease must expire after a crash; a replica that is stopped gives it back."""
    fields: dict[str, Any] = {"deed": "crash", "times": TIMES["default"], "takeover": 1.0, "lost": 0}
    assert Round(**fields | change).holds is holds

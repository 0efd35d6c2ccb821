"""The table has a line for each deed with each lease times, and says whether the bounds hold."""

from typing import Any

import attrs
import pytest

from benchmarks.takeover.figures import DEFAULT, SHORT, LeaseTimes, Round

CRASH = Round(deed="crash", times=DEFAULT, takeover=15.2, pods=1_000, bound=1_000)


@pytest.mark.parametrize(
    ("deed", "times", "most"),
    [("crash", DEFAULT, 17), ("freeze", SHORT, 7), ("clean stop", DEFAULT, 1), ("rolling update", SHORT, 1)],
)
def test_the_bound_of_a_deed(deed: str, times: LeaseTimes, most: float) -> None:
    """The Lease must expire after a crash and a freeze; a replica that is stopped gives it back."""
    assert attrs.evolve(CRASH, deed=deed, times=times).bound_in == most


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"takeover": 17.01}, False),
        ({"takeover": float("inf")}, False),
        ({"bound": 999}, False),
        ({"wrong": ("p was bound twice",)}, False),
    ],
)
def test_a_round_holds_if_nothing_is_lost_or_wrong(change: dict[str, Any], holds: bool) -> None:
    """And if the successor was fast enough."""
    assert attrs.evolve(CRASH, **change).holds is holds

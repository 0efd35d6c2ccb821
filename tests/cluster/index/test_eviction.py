"""Forgetting: there is room afterwards, and what is asked in turn is mostly still there."""

import attrs
import pytest

from neuron_scheduler.cluster.index.eviction import evict_if_full


@attrs.frozen
class Thing:
    """Something that was last asked for at a time."""

    asked: int


def test_what_was_asked_last_is_kept() -> None:
    """A quarter goes at once, of the older ones; below the bound nothing does."""
    remembered: dict[int, Thing] = {i: Thing(i) for i in range(16)}
    evict_if_full(remembered, 17)
    assert len(remembered) == 16
    evict_if_full(remembered, 16)
    assert sorted(remembered) == [1, 2, 4, 5, 7, 8, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 1024])
def test_there_is_room_afterwards(most: int) -> None:
    """However little may be remembered."""
    remembered: dict[int, Thing] = {i: Thing(0) for i in range(most)}
    evict_if_full(remembered, most)
    assert len(remembered) < most


def test_what_is_asked_in_turn_is_mostly_remembered() -> None:
    """A little more than there is room for does not make everything be worked out anew each time."""
    remembered: dict[int, Thing] = {}
    missed = 0
    for time in range(3300):
        key = time % 110
        if key not in remembered:
            missed += 1
            evict_if_full(remembered, 100)
        remembered[key] = Thing(time)
        assert len(remembered) <= 100
    assert missed < 3300 // 2

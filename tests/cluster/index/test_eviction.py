"""Eviction: there is room afterwards, and entries that are used in turn are mostly kept."""

import attrs
import pytest

from neuron_scheduler.cluster.index.eviction import evict_if_full


@attrs.frozen
class Entry:
    """An entry that was last used at a time."""

    asked: int


def test_the_latest_entries_are_kept() -> None:
    """A quarter is evicted at once, of the older entries; below the limit none is."""
    cache: dict[int, Entry] = {i: Entry(i) for i in range(16)}
    evict_if_full(cache, 17)
    assert len(cache) == 16
    evict_if_full(cache, 16)
    assert sorted(cache) == [1, 2, 4, 5, 7, 8, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 1024])
def test_there_is_room_afterwards(most: int) -> None:
    """With any limit."""
    cache: dict[int, Entry] = {i: Entry(0) for i in range(most)}
    evict_if_full(cache, most)
    assert len(cache) < most


def test_entries_used_in_turn_are_mostly_kept() -> None:
    """A few more entries than there is room for do not make every use a miss."""
    cache: dict[int, Entry] = {}
    missed = 0
    for time in range(3300):
        key = time % 110
        if key not in cache:
            missed += 1
            evict_if_full(cache, 100)
        cache[key] = Entry(time)
        assert len(cache) <= 100
    assert missed < 3300 // 2

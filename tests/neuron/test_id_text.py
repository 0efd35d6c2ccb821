"""Ids as people read them."""

import pytest

from neuron_scheduler.neuron.id_text import numbered


@pytest.mark.parametrize(
    ("ids", "want"),
    [((4, 5, 6, 7), "devices 4-7"), ((5,), "device 5"), ((0, 1, 8), "devices 0-1, 8")],
)
def test_neighbours_are_written_as_a_range(ids: tuple[int, ...], want: str) -> None:
    """A run has its first and its last id."""
    assert numbered(ids, "device") == want

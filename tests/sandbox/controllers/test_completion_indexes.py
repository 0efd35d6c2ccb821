"""Indexes of Indexed Jobs, as their status shows them."""

from neuron_scheduler.sandbox.controllers.completion_indexes import text


def test_neighbours_are_joined() -> None:
    """Ranges and single numbers, each once, in order."""
    assert text([5, 1, 0, 2, 1, None]) == "0-2,5"
    assert text([]) == ""
    assert text([3]) == "3"

"""Values for what a write does to the nominated node."""

from neuron_scheduler.model.nomination import CLEAR, Nominate, change_to


def test_an_empty_name_clears() -> None:
    """A pod whose status names no node has the value of a cleared field."""
    assert change_to("n1") == Nominate("n1")
    assert change_to("") == CLEAR

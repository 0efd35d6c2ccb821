"""An Event's note and times fit the API."""

from neuron_scheduler.kube.writes.event import cut, micro_time


def test_notes_are_cut_in_bytes() -> None:
    """A note fits the API, ends in the sign of a cut, and stays text."""
    assert cut("x" * 1024) == "x" * 1024
    assert cut("x" * 1025) == "x" * 1020 + " ..."
    long = cut("ä" * 1000)
    assert len(long.encode()) <= 1024
    assert long.endswith("ä ...")


def test_micro_time() -> None:
    """Six digits, also where they are zeros."""
    assert micro_time(1_795_248_000_000_001_999) == "2026-11-21T08:00:00.000001Z"

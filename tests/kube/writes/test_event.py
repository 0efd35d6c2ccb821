"""The note and the times of an Event fit the API."""

from neuron_scheduler.kube.writes.event import cut, micro_time


def test_notes_are_cut_in_bytes() -> None:
    """A note has at most 1024 bytes, ends with dots if it was cut, and stays valid UTF-8."""
    assert cut("x" * 1024) == "x" * 1024
    assert cut("x" * 1025) == "x" * 1020 + " ..."
    long = cut("ä" * 1000)
    assert len(long.encode()) <= 1024
    assert long.endswith("ä ...")


def test_micro_time() -> None:
    """Always six digits."""
    assert micro_time(1_795_248_000_000_001_999) == "2026-11-21T08:00:00.000001Z"

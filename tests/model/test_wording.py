"""Counts, lists and amounts as people read them."""

from itertools import count

import pytest

from neuron_scheduler.model.wording import few, few_names, first_of, quantity, span


@pytest.mark.parametrize(
    ("resource", "amount", "want"),
    [
        ("cpu", 4_000, "4"),
        ("cpu", 1_500, "1500m"),
        ("memory", 16 << 30, "16Gi"),
        ("memory", 3 << 20, "3Mi"),
        ("memory", 1_000, "1000"),
        ("memory", 0, "0"),
        ("hugepages-2Mi", 1 << 21, "2Mi"),
        ("aws.amazon.com/neuron", 16, "16"),
    ],
)
def test_amounts_are_written_without_loss(resource: str, amount: int, want: str) -> None:
    """As Kubernetes writes them, in the largest unit that loses nothing."""
    assert quantity(resource, amount) == want


def test_a_list_is_cut() -> None:
    """The first words are named and the others counted, and none is longer than a name."""
    assert few(["a", "b"]) == "a and b"
    assert few(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert first_of(["a"]) == "a"
    assert first_of(map(str, count())) == "0, 1, 2 and more"
    assert few_names(["x" * 500]) == "x" * 80 + "..."


def test_durations() -> None:
    """As people write them."""
    assert [span(seconds) for seconds in (2.0, 119.0, 120.0, 1200.0, 14400.0)] == ["2s", "119s", "2m", "20m", "240m"]

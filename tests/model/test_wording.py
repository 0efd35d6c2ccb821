"""Counts, lists and amounts as people read them."""

from itertools import count

import pytest

from neuron_scheduler.model.wording import few, few_names, first_of, quantity, shape, span

BLOCKED = (
    "0/1 nodes are available: 1 node(s) had a pod with an unknown Neuron allocation."
    " Unknown ids: trn1.a is blocked by {holder} (schedulerName default-scheduler)."
)
FULL = "0/{n} nodes are available: {n} Insufficient aws.amazon.com/neuron."


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(FULL.format(n=1), FULL.format(n=12), id="counts"),
        pytest.param(
            "0/9 nodes are available: 2 Insufficient cpu, 7 Too many pods.",
            "0/12 nodes are available: 10 Too many pods, 2 Insufficient cpu.",
            id="an order that comes from the counts",
        ),
        pytest.param(
            "Capacity: 1 Neuron device free on 1 node, largest free block 1, pod needs 2.",
            "Capacity: 0 Neuron devices free on 12 nodes, largest free block 0, pod needs 2.",
            id="plurals",
        ),
        pytest.param(BLOCKED.format(holder="default/a"), BLOCKED.format(holder="x/b"), id="who stands in the way"),
    ],
)
def test_what_differs_in_numbers_only(one: str, other: str) -> None:
    """Numbers, plurals and the named pods do not change the shape."""
    assert shape(one) == shape(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(FULL.format(n=1), "0/1 nodes are available: 1 Insufficient cpu.", id="another reason"),
        pytest.param(
            "Capacity: 1 Neuron device free on 1 node, largest free block 1, pod needs 2.",
            "Fragmentation: 2 Neuron devices free on 1 node, largest free block 1, pod needs 2.",
            id="capacity, then fragmentation",
        ),
    ],
)
def test_what_differs_in_more(one: str, other: str) -> None:
    """A changed reason changes the shape."""
    assert shape(one) != shape(other)

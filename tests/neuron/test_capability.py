"""
What a placement costs other sizes, computed by hand.

`tests/support/oracle_blocks.py` counts the blocks one by one, among all legal sets, for the nodes that random clusters
offer.
"""

import random
import tracemalloc

import pytest

from neuron_scheduler.model.neuron_request import NeuronRequest, with_pairs
from neuron_scheduler.neuron import capability
from neuron_scheduler.neuron.capability import ANY_KIND, DEVICE, cost, how_many, losses, size_of
from neuron_scheduler.neuron.catalog import MOST_CORES, Machine, Shape
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import place
from tests.support.builders import machine, request

FLAT, BLOCKS = Machine("", Shape.FLAT, 5, 3), Machine("trn3.4", Shape.BLOCKS, 4, 4)
SIZES = frozenset(map(request, (1, 2, 3, 4, 8, 12, 16)))
WITH_PAIRS = frozenset(map(with_pairs, SIZES))


def _lost(kind: str, level: int, asked: NeuronRequest) -> dict[int, float]:
    lost = losses(machine(kind).kind, level, asked, WITH_PAIRS if asked.pairs else SIZES)
    return {size.total: amount / DEVICE for size, amount in lost.items()}


@pytest.mark.parametrize(
    ("kind", "level", "asked", "want"),
    [
        pytest.param("trn1.32xlarge", 3, request(1), {}, id="a broken row serves one device at a time"),
        pytest.param("trn1.32xlarge", 4, request(1), {4: 4}, id="a row"),
        pytest.param("trn1.32xlarge", 8, request(1), {4: 4, 8: 8}, id="half a node"),
        pytest.param("trn1.32xlarge", 16, request(8), {4: 8, 16: 16}, id="its own size is lost anywhere"),
        pytest.param("inf2.48xlarge", 2, request(1), {2: 2}, id="a run of two"),
        pytest.param("inf2.48xlarge", 5, request(1), {}, id="five less one is still two twos, a three and a four"),
        pytest.param("inf2.48xlarge", 12, request(1), {2: 2, 3: 3, 4: 4, 12: 12}, id="a whole ring"),
        pytest.param("inf2.48xlarge", 12, request(3), {2: 4, 4: 4, 8: 0, 12: 12}, id="three of a ring"),
        pytest.param("inf2.xlarge", 1, request(1), {}, id="one device"),
        pytest.param("trn1.32xlarge", 4, request((4, 1)), {}, id="more than the block has"),
        pytest.param("trn2.48xlarge", 8, with_pairs(request(1)), {2: 2, 4: 4, 8: 8}, id="a pair of half a node"),
        pytest.param("trn2.48xlarge", 1, with_pairs(request(1)), {}, id="the rest of a pair"),
    ],
)
def test_losses_by_hand(kind: str, level: int, asked: NeuronRequest, want: dict[int, float]) -> None:
    """Devices in the blocks that are lost, by size; one unit and the request's own size are left out."""
    assert _lost(kind, level, asked) == {size: amount for size, amount in want.items() if amount}


@pytest.mark.parametrize(
    "kind", ["trn1.32xlarge", "trn2.48xlarge", "inf2.48xlarge", "inf2.xlarge", "trn3.4", "unknown"]
)
def test_as_many_fit_as_can_be_placed_one_after_the_other(kind: str) -> None:
    """Of each size, whatever is free; a count that the machine never serves fits nowhere."""
    dice = random.Random(kind)
    for _ in range(300):
        here = FLAT if kind == "unknown" else BLOCKS if kind == "trn3.4" else machine(kind)
        free = CoreMask(dice.getrandbits(here.core_count) | dice.getrandbits(here.core_count))
        size = dice.choice([request(dice.randint(1, here.devices)), request(cores=dice.randint(1, here.core_count))])
        size = with_pairs(size) if dice.random() < 0.5 else size
        left, count = free, 0
        while (placement := place(here, left, size)) is not None:
            left, count = left & ~placement.cores, count + 1
        assert how_many(here, free, size) == count, (free, size)


def test_devices_are_counted_without_placing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that claims to have hundreds of devices does not hold the event loop."""
    monkeypatch.setattr(capability, "place", None)
    assert how_many(Machine("", Shape.FLAT, MOST_CORES, 1), CoreMask((1 << 1000) - 2), request(1)) == 999


@pytest.mark.parametrize("size", [request(2**62), request(cores=2**62)])
@pytest.mark.parametrize("here", [FLAT, BLOCKS, machine("trn1.32xlarge"), machine("inf2.48xlarge")])
def test_a_count_that_no_machine_has_fits_nowhere(here: Machine, size: NeuronRequest) -> None:
    """A pod may ask for more devices than a mask can have bits."""
    assert how_many(here, CoreMask((1 << here.core_count) - 1), size) == 0


def test_a_size_is_the_largest_container() -> None:
    """The largest container needs one block, by either name of the resource."""
    assert size_of(request((1, 4, 2))) == request(4)
    assert size_of(request(1, init=(8,))) == request(8)
    assert size_of(request(cores=(3, 2))) == request(cores=3)
    assert size_of(with_pairs(request((1, 2)))) == with_pairs(request(2))


def test_sizes_cost_what_their_pods_weigh() -> None:
    """Pods without a node selector count, and pods that selected this kind of machine, but not another one."""
    ring, torus = machine("inf2.48xlarge").kind, machine("trn1.32xlarge").kind
    weights = frozenset({(ANY_KIND, request(2), 4), (ring, request(2), 1), (torus, request(2), 16)})
    assert cost(ring, 2, request(1), weights) == (4 + 1) * 2 * DEVICE
    assert cost(torus, 2, request(1), weights) == 0
    assert cost(ring, 2, request(2), weights) == 0


def test_how_many_fit_is_remembered_for_the_latest_free_cores_only() -> None:
    """Each change of a node asks for all sizes, so answers would pile up faster than those of `place`."""
    here, dice = machine("trn1.32xlarge"), random.Random(1)
    tracemalloc.start()
    try:
        for _ in range(10_000):
            how_many(here, CoreMask(dice.getrandbits(32)), request(16))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 << 20

"""
The free block whose loss costs least, among machines of different kinds, computed the simple way.

Blocks are counted one by one, among all the sets that the rules allow; nothing is cached.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol

import attrs

from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.topology import legal_sets, place
from tests.support.builders import request as a_request

Holders = Sequence[tuple[Pod, Machine | None]]


class Left(Protocol):
    """The free devices and cores of a node."""

    @property
    def machine(self) -> Machine: ...
    @property
    def free(self) -> CoreMask: ...
    @property
    def in_between(self) -> bool: ...


def least_missed(pod: Pod, among: Mapping[str, Node], left: Mapping[str, Left], holders: Holders) -> list[Node]:
    """Return the nodes whose block costs least to lose, each kind of machine with its smallest block."""
    assert pod.neuron is not None
    levels = {name: level_of(left[name], pod.neuron) for name in among}
    smallest: dict[Machine, int] = {}
    for name, level in levels.items():
        kind = nameless(left[name].machine)
        smallest[kind] = min(level, smallest.get(kind, level))
    rank = {kind: (cost(kind, level // 2, pod.neuron, holders), level) for kind, level in smallest.items()}
    least = min(rank.values())
    return [
        node for name, node in among.items() if rank[nameless(left[name].machine)] == least and levels[name] == least[1]
    ]


def cost(kind: Machine, level: int, request: NeuronRequest, holders: Holders) -> Fraction:
    """Return the devices lost for each size, times the pods of that size that this kind can serve, as powers of two."""
    total = Fraction(0)
    if request.unit is Unit.CORE:
        return total  # the smaller block is better, in whatever row or run it is
    if level < 2:
        return total  # a part of a device, or one device: of no use to a pod that needs several
    block = CoreMask((1 << level * kind.cores_per_device) - 1)
    placement = place(kind, block, request)
    remainder = block & ~placement.cores if placement is not None else NO_CORES
    for size in {alone(pod.neuron) for pod, _ in holders if pod.neuron is not None}:
        if size.total == 1 or size == alone(request):
            continue
        lost = (most(kind, block, size) - most(kind, remainder, size)) * size.total
        devices = Fraction(lost, 1 if size.unit is Unit.DEVICE else kind.cores_per_device)
        asking = [(pod, machine) for pod, machine in holders if pod.neuron and alone(pod.neuron) == size]
        anywhere = sum(not chooses(pod, machine) for pod, machine in asking)
        here = sum(
            chooses(pod, machine) and machine is not None and nameless(machine) == kind for pod, machine in asking
        )
        total += devices * (floor_of_two(anywhere) + floor_of_two(here))
    return total


def floor_of_two(count: int) -> int:
    """Return the largest power of two that is not larger, 0 for 0."""
    return max((1 << i for i in range(count) if 1 << i <= count), default=0)


def alone(request: NeuronRequest) -> NeuronRequest:
    """Return a request for the largest container alone."""
    largest = max((*request.counts, *request.init_counts))
    size = a_request(largest) if request.unit is Unit.DEVICE else a_request(cores=largest)
    return attrs.evolve(size, pairs=request.pairs)


def chooses(pod: Pod, machine: Machine | None) -> bool:
    """Return whether a pod chose its nodes, and is on a node of a known kind."""
    return machine is not None and (bool(pod.constraints.node_selector) or pod.constraints.required_terms is not None)


def level_of(left: Left, request: NeuronRequest) -> int:
    """Return the size of the block that is cut, twice, and one more where one unit would break up what others leave."""
    placement = place(left.machine, left.free, request)
    assert placement is not None
    return 2 * placement.level + (left.in_between and request.total == 1)


def most(kind: Machine, free: CoreMask, size: NeuronRequest) -> int:
    """Return how many disjoint sets of a size are free: choosing the one that ends first leaves the most room."""
    count, taken = 0, NO_CORES
    for cores in sorted(legal_sets(kind, size) or (), key=lambda cores: cores.bit_length()):
        if not cores & ~free and not cores & taken:
            count, taken = count + 1, taken | cores
    return count


def nameless(machine: Machine) -> Machine:
    """Return a machine that is equal for all types with the same hardware."""
    return attrs.evolve(machine, instance_type="")

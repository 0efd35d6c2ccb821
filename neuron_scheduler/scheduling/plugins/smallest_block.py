"""
SmallestBlock: a request for Neuron is cut from the free block whose loss costs other pods least.

On machines of one kind, and for cores, that is the smallest sufficient block. Between machines of different kinds, the
sizes of the pods on the nodes decide (`capability.cost`). Ties go to the smaller block, then to the node where the pod
keeps cpu and memory in balance with the silicon (`silicon_balance`).
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final, cast

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.capability import Weights, cost
from neuron_scheduler.neuron.catalog import KIND_BITS, MOST_CORES
from neuron_scheduler.scheduling.plugins.contract import Plugin, PluginName, Preference
from neuron_scheduler.scheduling.plugins.neuron_topology import block_level
from neuron_scheduler.scheduling.plugins.pod_fields import PodField
from neuron_scheduler.scheduling.plugins.silicon_balance import prefer_balanced

NAME = PluginName("SmallestBlock")

_KIND: Final = (1 << KIND_BITS) - 1
_LEVEL_BITS: Final = (2 * MOST_CORES + 1).bit_length()
_WORST: Final = 1 << 1024


def prefer(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes where the placement cuts the block that is missed least; of these, the best for balance."""
    return among if pod.neuron is None else prefer_balanced(view, pod, by_block(view, pod, among))


def by_block(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes where the placement cuts the block that is missed least, whatever their balance is."""
    if pod.neuron is None:
        return among
    levels = view.postings(block_level(pod.neuron))
    ranks = _ranks(pod.neuron, view.demand.weights)
    best, least = NO_NODES, _WORST
    seen: set[int] = set()
    for value in sorted(cast(Sequence[int], levels.values)):
        if value >> KIND_BITS > least:
            break  # the loss of the best block so far costs nothing, and the other blocks are larger
        kind = value & _KIND
        if kind in seen:
            continue
        here = levels.get(value) & among
        if here:
            rank = ranks[value]
            if rank <= least:
                best, least = (best | here if rank == least else here), rank
            if kind:
                seen.add(kind)
    return best or among


class _Ranks(dict[int, int]):
    """By value of `BlockLevel`: the cost of losing the block, then its level, as one number; computed on demand."""

    def __init__(self, request: NeuronRequest, weights: Weights) -> None:
        super().__init__()
        self._cost = partial(cost, request=request, weights=weights)

    def __missing__(self, value: int) -> int:
        level, kind = value >> KIND_BITS, value & _KIND
        rank = self[value] = (self._cost(kind, level // 2) << _LEVEL_BITS if kind else 0) + level
        return rank


_ranks = lru_cache(maxsize=1024)(_Ranks)


PLUGIN: Final = Plugin(name=NAME, preference=Preference(NAME, prefer, reads=(PodField.NEURON,)))
BESIDE_KUBE_SCHEDULER: Final = Preference(NAME, by_block, reads=(PodField.NEURON,))
"""The preference without its tie-break: kube-scheduler's own plugins break ties."""

"""
What the pods on the nodes ask of the silicon: how many pods there are of each size.

Folded from the rows, so that replicas and restarts that see the same pods count alike. Pods that wait are left out:
whoever was refused found no free block of its size anywhere, so there is none that others could take from it.
"""

from typing import Self

import attrs

from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.capability import ANY_KIND, Weights, size_of
from neuron_scheduler.neuron.catalog import Machine


@attrs.define(eq=False)
class Demand:
    """
    The pods with Neuron, by size.

    A pod with a node selector or a required node affinity counts for the kind of machine it is on; any other pod could
    be on any, and counts for all.

    Attributes:
        weights: the counts, each rounded down to a power of two, so that they change seldom.
    """

    weights: Weights = frozenset()
    _counts: dict[int, dict[NeuronRequest, int]] = attrs.field(factory=dict)  # by kind of machine

    def count(self, pod: Pod, machine: Machine | None, change: int) -> None:
        """Take that one pod more, or one fewer (-1), is on a machine."""
        if pod.neuron is None:
            return
        told = pod.constraints
        choosy = told.node_selector or told.required_terms is not None
        kind = machine.kind if choosy and machine is not None else ANY_KIND
        counts, size = self._counts.setdefault(kind, {}), size_of(pod.neuron)
        before = counts.get(size, 0)
        after = counts[size] = before + change
        if before ^ after > before & after:  # they differ in the highest bit that either has
            self._weigh()

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(weights=self.weights, counts={kind: dict(counts) for kind, counts in self._counts.items()})

    def _weigh(self) -> None:
        """Tell the weights anew."""
        self.weights = frozenset(
            (kind, size, 1 << count.bit_length() - 1)
            for kind, counts in self._counts.items()
            for size, count in counts.items()
            if count
        )

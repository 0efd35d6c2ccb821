"""
The demand for Neuron: how many pods of each size are on the nodes.

Counted from the rows, so all replicas have the same counts, also after a restart. Pending pods are left out: a pod that
was refused found no free block of its size, so other pods can take none from it.
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

    A pod with a node selector or a required node affinity counts for the kind of machine that it is on; any other pod
    counts for all kinds.

    Attributes:
        weights: the counts, each rounded down to a power of two, so that they change seldom.
    """

    weights: Weights = frozenset()
    _counts: dict[int, dict[NeuronRequest, int]] = attrs.field(factory=dict)  # by kind of machine

    def count(self, pod: Pod, machine: Machine | None, change: int) -> None:
        """Add a pod on a machine (1), or remove it (-1)."""
        if pod.neuron is None:
            return
        constraints = pod.constraints
        selective = constraints.node_selector or constraints.required_terms is not None
        kind = machine.kind if selective and machine is not None else ANY_KIND
        counts, size = self._counts.setdefault(kind, {}), size_of(pod.neuron)
        before = counts.get(size, 0)
        after = counts[size] = before + change
        if before ^ after > before & after:  # they differ in the highest bit that either has
            self._weigh()

    def fork(self) -> Self:
        return type(self)(weights=self.weights, counts={kind: dict(counts) for kind, counts in self._counts.items()})

    def _weigh(self) -> None:
        self.weights = frozenset(
            (kind, size, 1 << count.bit_length() - 1)
            for kind, counts in self._counts.items()
            for size, count in counts.items()
            if count
        )

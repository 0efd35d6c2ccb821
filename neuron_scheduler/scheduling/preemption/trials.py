"""
One node on trial: does a pod fit there if some pods are gone, and which of them may stay?

There are two kinds of trial. `ByCounting` looks at resources only and takes a hundredth of the time; `ByFilters` asks
every filter, which takes a millisecond or more for a node with many pods.
"""

from collections.abc import Iterable
from typing import Protocol, Self

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo, with_pod
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.scheduling.cycle.filters import refusals_of
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.contract import Refusal


class Trial(Protocol):
    """A node without some of its pods, on which an incoming pod is tried."""

    def fits(self) -> bool:
        """Return whether the incoming pod fits."""

    def reprieve(self, other: Pod) -> bool:
        """Put another pod back if the incoming pod fits beside it; return whether it does."""


@attrs.define(eq=False)
class ByCounting:
    """
    A trial that counts resources, and no more.

    Attributes:
        left: how much of each resource that the pod asks for is left beside it, below 0 if there is too little.
    """

    left: dict[str, int]

    @classmethod
    def without(cls, gone: Iterable[Pod], node_info: NodeInfo, pod: Pod) -> Self:
        """Count what is left on a node beside a pod when others are gone."""
        offered, used = node_info.node.allocatable, node_info.used
        left = {name: offered.get(name, 0) - used.get(name, 0) - need for name, need in pod.requests.items() if need}
        left[PODS] = offered.get(PODS, 0) - used.get(PODS, 0) - 1
        for other in gone:
            left[PODS] += 1
            for name, amount in other.requests.items():
                if name in left:
                    left[name] += amount
        return cls(left)

    def fits(self) -> bool:
        """Return whether the incoming pod fits."""
        return min(self.left.values()) >= 0

    def reprieve(self, other: Pod) -> bool:
        """Put another pod back if the incoming pod fits beside it; return whether it does."""
        left, requests = self.left, other.requests
        if left[PODS] < 1 or any(amount > left.get(name, amount) for name, amount in requests.items()):
            return False
        left[PODS] -= 1
        for name, amount in requests.items():
            if name in left:
                left[name] -= amount
        return True


@attrs.define(eq=False)
class ByFilters:
    """A trial that asks the filters."""

    cluster: Cluster
    slot: Slot
    pod: Pod
    profile: Profile
    node_info: NodeInfo

    def refusals(self) -> list[Refusal]:
        """Return why the node, as it is on trial, refuses the incoming pod."""
        with self.cluster.row_replaced(self.slot, self.node_info):
            return refusals_of(self.cluster, self.slot, self.pod, self.profile)

    def fits(self) -> bool:
        """Return whether the incoming pod fits."""
        return not self.refusals()

    def reprieve(self, other: Pod) -> bool:
        """Put another pod back if the incoming pod fits beside it; return whether it does."""
        before = self.node_info
        self.node_info = with_pod(before, self.cluster.view.row(self.slot).pod_infos[other.uid])
        if not self.fits():
            self.node_info = before
        return self.node_info is not before

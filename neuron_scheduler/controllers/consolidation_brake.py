"""
The brake on a chase with an autoscaler's consolidation, which removes a machine that it was asked for, with its pods.

These pods wait because of fragmentation again, so the next machine would be asked for, and removed in turn. So no
machine of that size is asked for for a while, longer each time. Refuses to keep an autoscaler from anything, and to
say which machines are needed.
"""

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from neuron_scheduler.capacity.limits import owner_of
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.machine_node import is_used
from neuron_scheduler.capacity.requests import Request
from neuron_scheduler.capacity.waits import LONGEST, doubled
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.capacity_policy import Policy
from neuron_scheduler.model.wording import span
from neuron_scheduler.telemetry import logs

CHASE: Final = 600.0
"""Seconds: a machine that is removed earlier after it served, with its pods, is one that it was asked for in vain."""
LEAVING: Final = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"})
"""Keys of the taints with which an autoscaler begins to remove a node."""
REMEDY: Final = "set consolidationPolicy: WhenEmpty, or the annotation karpenter.sh/do-not-disrupt on the pods"

log = logs.logger(__name__)


@attrs.frozen
class Brake:
    """
    Why and until when no machine of some silicon is asked for a profile.

    Attributes:
        reason: a clause for people.
        level: how often in a row.
    """

    reason: str
    until: float
    level: int = 1


@attrs.define(eq=False, kw_only=True)
class ConsolidationBrake:
    """
    Remembers the machines that have served lately, and what was removed again.

    Attributes:
        policies: of the profiles that ask for machines, by scheduler name.
        clock: seconds that never jump.
    """

    cluster: Cluster
    policies: Mapping[str, Policy]
    clock: Callable[[], float]
    _served: dict[str, tuple[Request, float]] = attrs.field(factory=dict, init=False)  # by the node's name, with when
    _brakes: dict[object, Brake] = attrs.field(factory=dict, init=False)  # by profile and silicon

    def on(self, need: MachineNeed) -> Brake | None:
        """Return why no machine like this one is asked for now; None if nothing is in the way."""
        brake = self._brakes.get(_kind(owner_of(need).scheduler_name, need))
        return brake if brake is not None and self.clock() < brake.until else None

    def served(self, request: Request) -> None:
        """Note that the pods of a request are on its machine."""
        self._served[request.node_name] = request, self.clock()

    def node_changed(self, name: str) -> None:
        """Note that a node has changed: an autoscaler may begin to remove it."""
        node_info = self.cluster.node(name) if name in self._served else None
        if node_info is None or not any(taint.key in LEAVING for taint in node_info.node.taints):
            return
        request, since = self._served.pop(name)
        policy, served = self.policies.get(request.owner.scheduler_name), self.clock() - since
        if policy is None or served >= CHASE or not is_used(node_info):
            return
        self._ask_for_no_more(request, policy.give_up)
        log.warning(
            "The autoscaler removes a machine that it was asked for, with its pods; asking for no more for a while",
            machine=request.machine,
            node=name,
            served=span(served),
            hint=REMEDY,
        )

    def node_gone(self, name: str) -> None:
        """Note that a node is gone."""
        self._served.pop(name, None)

    def _ask_for_no_more(self, request: Request, first: float) -> None:
        """Brake for `first` seconds at the first time; if that happens again soon after, for twice as long."""
        now, key = self.clock(), _kind(request.owner.scheduler_name, request.need)
        before = self._brakes.get(key)
        level = before.level + 1 if before is not None and now < before.until + LONGEST else 1
        reason = f"the autoscaler removes node {request.node_name} again, which it was asked for; {REMEDY}"
        self._brakes[key] = Brake(reason, now + doubled(first, level), level)


def _kind(scheduler_name: str, need: MachineNeed) -> object:
    return scheduler_name, frozenset(need.silicon.items())

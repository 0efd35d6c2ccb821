"""
The brake on a chase with an autoscaler's consolidation, which removes a machine that it was asked for, with its pods.

These pods wait because of fragmentation again, so the next machine would be asked for, and removed in turn. So no
machine of that size is asked for for a while, longer each time. A replica on standby follows, so that a new leader goes
on braking. Refuses to keep an autoscaler from anything, and to say which machines are needed.
"""

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from neuron_scheduler.capacity.limits import Owner, owner_of
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.machine_node import is_used
from neuron_scheduler.capacity.waits import LONGEST, doubled
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.capacity_policy import Policy
from neuron_scheduler.model.wording import span
from neuron_scheduler.telemetry import logs

CHASE: Final = 600.0
"""Seconds: a machine that is removed earlier after its first pod came, with its pods, was asked for in vain."""
LEAVING: Final = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"})
"""Keys of the taints with which an autoscaler begins to remove a node."""
REMEDY: Final = "if it consolidates, set consolidationPolicy: WhenEmpty, or karpenter.sh/do-not-disrupt on the pods"

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


@attrs.define(eq=False)
class _Machine:
    """
    A node that has joined for a request.

    Attributes:
        used_since: None before its first pod with Neuron.
        leaving: an autoscaler has begun to remove it. It is kept then: forgotten, it would come again at its next
            change, and one removal would count several times.
    """

    owner: Owner
    need: MachineNeed
    used_since: float | None = None
    leaving: bool = False


@attrs.define(eq=False, kw_only=True)
class ConsolidationBrake:
    """
    Remembers the machines that have come, and what was removed again.

    Attributes:
        policies: of the profiles that ask for machines, by scheduler name.
        clock: seconds that never jump.
        leads: whether this replica does; a standby tells nobody.
    """

    cluster: Cluster
    policies: Mapping[str, Policy]
    clock: Callable[[], float]
    leads: Callable[[], bool]
    _machines: dict[str, _Machine] = attrs.field(factory=dict, init=False)  # by the node's name
    _brakes: dict[object, Brake] = attrs.field(factory=dict, init=False)  # by profile and silicon

    def on(self, need: MachineNeed) -> Brake | None:
        """Return why no machine like this one is asked for now; None if nothing is in the way."""
        brake = self._brakes.get(_kind(owner_of(need).scheduler_name, need))
        return brake if brake is not None and self.clock() < brake.until else None

    def came(self, node_name: str, owner: Owner, need: MachineNeed) -> None:
        """Note that a node has joined for a request."""
        if node_name not in self._machines:
            self._machines[node_name] = _Machine(owner, need)
            self.pod_came(node_name)

    def pod_came(self, node_name: str) -> None:
        """Note that a pod is on a node, whichever request it was waiting for."""
        machine, node_info = self._machines.get(node_name), self.cluster.node(node_name)
        if machine is not None and machine.used_since is None and node_info is not None and is_used(node_info):
            machine.used_since = self.clock()

    def node_changed(self, name: str) -> None:
        """Note that a node has changed: an autoscaler may begin to remove it."""
        machine, node_info = self._machines.get(name), self.cluster.node(name)
        if machine is None or machine.leaving or node_info is None:
            return
        machine.leaving = any(taint.key in LEAVING for taint in node_info.node.taints)
        if not machine.leaving:
            return
        policy, since = self.policies.get(machine.owner.scheduler_name), machine.used_since
        if policy is None or since is None or self.clock() - since >= CHASE or not is_used(node_info):
            return
        self._ask_for_no_more(machine, name, policy.give_up)
        if self.leads():
            log.warning(
                "The autoscaler removes a machine that it was asked for, with its pods; asking for no more for a while",
                machine=machine.need.instance_types[0],
                node=name,
                served=span(self.clock() - since),
                hint=REMEDY,
            )

    def node_gone(self, name: str) -> None:
        """Note that a node is gone."""
        self._machines.pop(name, None)

    def _ask_for_no_more(self, machine: _Machine, node_name: str, first: float) -> None:
        """Brake for `first` seconds at the first time; if that happens again soon after, for twice as long."""
        now, key = self.clock(), _kind(machine.owner.scheduler_name, machine.need)
        before = self._brakes.get(key)
        level = before.level + 1 if before is not None and now < before.until + LONGEST else 1
        reason = f"the autoscaler removes node {node_name} again, which it was asked for; {REMEDY}"
        self._brakes[key] = Brake(reason, now + doubled(first, level), level)


def _kind(scheduler_name: str, need: MachineNeed) -> object:
    return scheduler_name, frozenset(need.silicon.items())

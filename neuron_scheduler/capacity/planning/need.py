"""
A machine that waiting pods need, in the terms of an autoscaler.

It counts for the limits of the profile and of the namespace of its most urgent pod.
"""

import attrs

from neuron_scheduler.cluster.fresh_node import tells_state
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS, Resources
from neuron_scheduler.model.selectors import Effect, tolerates_all
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES
from neuron_scheduler.scheduling.plugins import node_affinity


@attrs.frozen
class LimitOwner:
    """Whose limits a need counts for; `namespace` is empty for the whole profile."""

    scheduler_name: str
    namespace: str = ""


@attrs.frozen(kw_only=True)
class MachineNeed:
    """
    A machine to be asked for.

    Attributes:
        instance_type: the value of the label `node.kubernetes.io/instance-type`; empty for a placeholder without one.
        silicon: all devices, or cores, or both, of an empty machine of this type, by the resources' names: no node
            that is used in part has room for it by count.
        host: all else that the pods ask for together, and more cpu than any single pod that waits: Karpenter packs in
            descending order of cpu, so the request takes the new machine before the pods do.
        zones: in which it serves; empty if the zone does not matter.
        pods: the pods that would be on it, the most urgent first; empty if an earlier leader has asked for it.
        pattern: the pod whose node selector, required node affinity and tolerations the request carries: every machine
            that these allow, of this type and in these zones, takes each of the pods.
    """

    owner: LimitOwner
    instance_type: str
    silicon: Resources
    host: Resources
    zones: tuple[str, ...] = ()
    pods: tuple[Pod, ...]
    pattern: Pod

    @property
    def devices(self) -> int:
        """How many devices the machine has, for the limits; of an unknown type each core counts as one."""
        for name in (NEURON_DEVICE, NEURON_DEVICE_ALIAS):
            if self.silicon.get(name):
                return self.silicon[name]
        row = INSTANCE_TYPES.get(self.instance_type.removeprefix("ml."))
        return self.silicon.get(NEURON_CORE, 0) if row is None else row.devices

    def is_met_by(self, node: Node) -> bool:
        """Return whether a node is what is asked for, by type, zone, labels and lasting taints; also if not ready."""
        closing = [taint for taint in node.taints if taint.effect is not Effect.PREFER_NO_SCHEDULE]
        taints = [taint for taint in closing if not tells_state(taint)]
        return (
            node.labels.get(INSTANCE_TYPE_LABEL) == self.instance_type
            and (not self.zones or node.labels.get(ZONE_LABEL) in self.zones)
            and node_affinity.fits(node_affinity.selection_of(self.pattern), node)
            and tolerates_all(self.pattern.tolerations, taints)
        )

    def is_ready(self, node: Node) -> bool:
        """Return whether a node of this machine takes pods: its silicon is there, and no taint that passes."""
        shown = all(node.allocatable.get(name, 0) for name in self.silicon)
        return shown and not (node.unschedulable or node.refusal or any(map(tells_state, node.taints)))

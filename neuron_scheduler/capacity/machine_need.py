"""
One whole machine that waiting pods need, in the terms in which an autoscaler can be asked for it.

It names what the machine must have and which pods it is for. Does not say how it is asked for: as a placeholder pod
or as a CapacityBuffer.
"""

import attrs

from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS, Resources
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES


@attrs.frozen(kw_only=True)
class MachineNeed:
    """
    A machine to be asked for.

    Attributes:
        instance_types: values of the label `node.kubernetes.io/instance-type` that serve, all of one size; texts name
            the first.
        silicon: all devices, or cores, or both, of an empty machine of these types, by the resources' names: no node
            that is used in part has room for it by count.
        host: all else that the pods ask for together, such as memory, huge pages and network interfaces, and more cpu
            than any single pod that waits: Karpenter packs in descending order of cpu, so the request takes the new
            machine before the pods do.
        zones: values of the label `topology.kubernetes.io/zone` in which it serves; empty if the zone does not matter.
        pods: the pods that would be on it, the most urgent first.
        pattern: the pod whose node selector, required node affinity and tolerations the request carries: every machine
            that these allow, of these types and in these zones, takes all of the pods.
        shortage: why the most urgent pod waits: `24 Neuron devices are free on 2 nodes, largest block 1, pod needs 4`.
    """

    instance_types: tuple[str, ...]
    silicon: Resources
    host: Resources
    zones: tuple[str, ...] = ()
    pods: tuple[Pod, ...]
    pattern: Pod = attrs.Factory(lambda self: self.pods[0], takes_self=True)
    shortage: str = ""

    @property
    def devices(self) -> int:
        """
        How many devices the machine has, for the limits.

        Where it is asked for by its cores and the type is not known, each core counts as a device.
        """
        for name in (NEURON_DEVICE, NEURON_DEVICE_ALIAS):
            if self.silicon.get(name):
                return self.silicon[name]
        row = INSTANCE_TYPES.get(self.instance_types[0].removeprefix("ml."))
        return self.silicon.get(NEURON_CORE, 0) if row is None else row.devices

    def is_met_by(self, node: Node) -> bool:
        """Return whether a node is of a type and in a zone that serve; it may not be ready yet."""
        in_zone = not self.zones or node.labels.get(ZONE_LABEL) in self.zones
        return in_zone and node.labels.get(INSTANCE_TYPE_LABEL) in self.instance_types

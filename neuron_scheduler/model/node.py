"""
A node as the scheduler sees it.

A kubelet's routine update gives an equal value and wakes no pod: heartbeats and other conditions are left out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from neuron_scheduler.model.resources import NOTHING, Resources
from neuron_scheduler.model.selectors import NO_LABELS, Taint

# Well-known labels (`core/v1/well_known_labels.go`); those with BETA in the name are deprecated, and still in use.
HOSTNAME_LABEL = "kubernetes.io/hostname"
ZONE_LABEL, BETA_ZONE_LABEL = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION_LABEL, BETA_REGION_LABEL = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
INSTANCE_TYPE_LABEL, BETA_INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"
INSTANCE_TYPE_LABELS = (INSTANCE_TYPE_LABEL, BETA_INSTANCE_TYPE_LABEL)
"""A node has its type under both; the second is deprecated, but still in old manifests."""

# AWS's device plugin labels the nodes of an UltraServer: two or four of them share a server id, and each has its place.
ULTRASERVER_2, ULTRASERVER_4 = (f"neuron.amazonaws.com/ultraserver-server-id-{size}" for size in (2, 4))
ULTRASERVER_SIZES = {ULTRASERVER_2: 2, ULTRASERVER_4: 4}
ULTRASERVER_PLACES = {
    ULTRASERVER_2: "neuron.amazonaws.com/ultraserver-node-id-2",
    ULTRASERVER_4: "neuron.amazonaws.com/ultraserver-node-id-4",
}
NETWORK_LAYERS = tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (3, 2, 1))
"""Labels of EC2's network nodes, the nearest to the instances first."""

# Conditions that report a fault: AWS's node problem detector with True; EKS's node monitoring agent, which Auto Mode
# has built in, with False, and a reason whose first word is the kind of device.
NEURON_HEALTH, ACCELERATED_HARDWARE = "NeuronHealth", "AcceleratedHardwareReady"
BOTH_ROADS = "BothRoads"
"""Stands for a condition: the node's devices are counted by its kubelet, and published for claims, too."""


class Image(NamedTuple):
    """
    A container image on a node; a plain tuple, because hundreds of thousands are hashed.

    Attributes:
        names: as pods may refer to it, with tag or digest.
        size: bytes.
    """

    names: tuple[str, ...]
    size: int


@attrs.frozen
class Node:
    """
    One node.

    Attributes:
        created: creationTimestamp, seconds since the epoch.
        capacity: the Neuron part only: how many devices and cores there are.
        neuron_fault: the condition that reports a fault of its Neuron devices; empty if none does.
        declared_features: features that its kubelet declares and not every kubelet has.
        images: those that the kubelet reports as pulled, 50 at most by default.
        refusal: why the object could not be read in full, for its owner; then the node takes no new pods.
        published: what drivers publish for it (`neuron.claims.published.DeviceSet`); None for nothing.
    """

    uid: str
    name: str
    created: float = 0.0
    labels: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Resources = NOTHING
    capacity: Resources = NOTHING
    neuron_fault: str = ""
    declared_features: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    refusal: str = ""
    published: Any = None

    @property
    def instance_type(self) -> str:
        """The EC2 instance type without HyperPod's `ml.` prefix; empty if the node has no such label."""
        return self.labels.get(INSTANCE_TYPE_LABEL, "").removeprefix("ml.")


@attrs.frozen
class AnnotatedNode:
    """
    A node, and what is read of it only to look at a cluster, not to schedule.

    Attributes:
        usage_maps: the annotations of AWS's extension by key, as they are.
    """

    node: Node
    usage_maps: Mapping[str, str] = NO_LABELS

    @property
    def name(self) -> str:
        return self.node.name

"""
What can happen in a cluster that may change a refusal, and whose.

Upstream: `EventsToRegister` of each plugin, `pkg/scheduler/framework/events.go`. A node's heartbeat is no event:
the codec leaves nothing of it, so old and new are equal.
"""

import enum
from collections.abc import Iterator

from neuron_scheduler.model.node import Node
from neuron_scheduler.scheduling.plugins import (
    inter_pod_affinity,
    neuron_topology,
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)


class ClusterEvent(enum.Enum):
    """Something that may let a waiting pod fit; the value is the label in `scheduler_queue_incoming_pods_total`."""

    NODE_ADDED = "NodeAdd"
    NODE_LABELS = "NodeLabelChange"
    NODE_TAINTS = "NodeTaintChange"
    NODE_ALLOCATABLE = "NodeAllocatableChange"
    NODE_HEALTH = "NodeConditionChange"
    ASSIGNED_POD_GONE = "AssignedPodDelete"


_NODE_PLUGINS = frozenset(
    plugin.NAME
    for plugin in (
        node_unschedulable,
        node_name,
        taint_toleration,
        node_affinity,
        node_ports,
        node_resources_fit,
        neuron_topology,
    )
)

MAY_HELP: dict[ClusterEvent, frozenset[str]] = {
    ClusterEvent.NODE_ADDED: _NODE_PLUGINS,
    ClusterEvent.NODE_LABELS: frozenset({node_affinity.NAME, neuron_topology.NAME}),
    ClusterEvent.NODE_TAINTS: frozenset({node_unschedulable.NAME, taint_toleration.NAME}),
    ClusterEvent.NODE_ALLOCATABLE: frozenset({node_resources_fit.NAME, neuron_topology.NAME}),
    ClusterEvent.NODE_HEALTH: frozenset({neuron_topology.NAME}),
    ClusterEvent.ASSIGNED_POD_GONE: frozenset(
        {node_ports.NAME, node_resources_fit.NAME, neuron_topology.NAME, inter_pod_affinity.NAME}
    ),
}


def node_events(old: Node, new: Node) -> Iterator[ClusterEvent]:
    """Yield what happened between two states of a node, as far as it could help a pod."""
    if old.labels != new.labels:
        yield ClusterEvent.NODE_LABELS
    if old.taints != new.taints or (old.unschedulable and not new.unschedulable) or old.refusal != new.refusal:
        yield ClusterEvent.NODE_TAINTS
    if old.allocatable != new.allocatable or old.capacity != new.capacity:
        yield ClusterEvent.NODE_ALLOCATABLE
    if old.neuron_unhealthy and not new.neuron_unhealthy:
        yield ClusterEvent.NODE_HEALTH

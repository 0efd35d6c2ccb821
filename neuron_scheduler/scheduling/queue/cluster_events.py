"""
What can happen in a cluster that may change a refusal, and whose.

Upstream: `EventsToRegister` of each plugin, `pkg/scheduler/framework/events.go`. A node's heartbeat is no event:
the codec leaves nothing of it, so old and new are equal.
"""

import enum
from collections.abc import Callable, Collection, Iterator, Set as AbstractSet

import attrs

from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import FEW_COMPARISONS, Pod
from neuron_scheduler.model.selectors import LabelSelector, PodAffinityTerm
from neuron_scheduler.scheduling.plugins import (
    inter_pod_affinity,
    neuron_topology,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)

MOST_ASKED = 256
"""Different pods in one burst of events; beyond, asking which of them matter costs more than it saves."""


class ClusterEvent(enum.StrEnum):
    """Something that may let a waiting pod fit; the value is the label in `scheduler_queue_incoming_pods_total`."""

    NODE_ADDED = "NodeAdd"
    NODE_LABELS = "NodeLabelChange"
    NODE_TAINTS = "NodeTaintChange"
    NODE_ALLOCATABLE = "NodeAllocatableChange"
    NODE_HEALTH = "NodeConditionChange"
    NODE_FEATURES = "NodeDeclaredFeatureChange"
    NODE_DELETED = "NodeDelete"
    ASSIGNED_POD_ADDED = "AssignedPodAdd"
    ASSIGNED_POD_LABELS = "AssignedPodLabelChange"
    ASSIGNED_POD_GONE = "AssignedPodDelete"
    NAMESPACE_LABELS = "NamespaceLabelChange"
    CLAIM_ADDED = "PersistentVolumeClaimAdd"
    CLAIM_CHANGED = "PersistentVolumeClaimUpdate"
    VOLUME_ADDED = "PersistentVolumeAdd"
    VOLUME_CHANGED = "PersistentVolumeUpdate"
    CLASS_ADDED = "storage.k8s.io/StorageClassAdd"
    CLASS_CHANGED = "storage.k8s.io/StorageClassUpdate"
    CSI_NODE_ADDED = "storage.k8s.io/CSINodeAdd"
    CSI_NODE_CHANGED = "storage.k8s.io/CSINodeUpdate"
    CSI_DRIVER_CHANGED = "storage.k8s.io/CSIDriverUpdate"
    CAPACITY_CHANGED = "storage.k8s.io/CSIStorageCapacityUpdate"
    ATTACHMENT_GONE = "storage.k8s.io/VolumeAttachmentDelete"


_NODE_PLUGINS = frozenset(
    plugin.NAME
    for plugin in (
        node_unschedulable,
        node_name,
        taint_toleration,
        node_affinity,
        node_declared_features,
        node_ports,
        node_resources_fit,
        neuron_topology,
    )
)

_COUNTING_PODS = frozenset({pod_topology_spread.NAME, inter_pod_affinity.NAME})
"""Plugins that look at the pods of other nodes too: any pod that comes, goes or changes its labels may matter."""

_COUNTING_VOLUMES = frozenset({volume_restrictions.NAME, node_volume_limits.NAME})
"""Plugins that look at what the pods of a node have mounted."""

_ASKING_WHICH_POD = _COUNTING_PODS | _COUNTING_VOLUMES

_VOLUMES = frozenset({volume_binding.NAME, volume_zone.NAME})

MAY_HELP: dict[ClusterEvent, frozenset[str]] = {
    ClusterEvent.NODE_ADDED: _NODE_PLUGINS | _ASKING_WHICH_POD | _VOLUMES,
    ClusterEvent.NODE_LABELS: frozenset({node_affinity.NAME, neuron_topology.NAME}) | _COUNTING_PODS | _VOLUMES,
    ClusterEvent.NODE_TAINTS: frozenset({node_unschedulable.NAME, taint_toleration.NAME, pod_topology_spread.NAME}),
    ClusterEvent.NODE_FEATURES: frozenset({node_declared_features.NAME}),
    ClusterEvent.NODE_DELETED: _COUNTING_PODS | {volume_restrictions.NAME},  # its pods count no more, ended or not
    # A volume that was attached counts as new to a pod until another pod on its node uses it.
    ClusterEvent.ASSIGNED_POD_ADDED: _COUNTING_PODS | {node_volume_limits.NAME},
    ClusterEvent.ASSIGNED_POD_LABELS: _COUNTING_PODS,
    ClusterEvent.NAMESPACE_LABELS: frozenset({inter_pod_affinity.NAME}),
    ClusterEvent.NODE_ALLOCATABLE: frozenset({node_resources_fit.NAME, neuron_topology.NAME}),
    ClusterEvent.NODE_HEALTH: frozenset({neuron_topology.NAME}),
    ClusterEvent.ASSIGNED_POD_GONE: (
        frozenset({node_ports.NAME, node_resources_fit.NAME, neuron_topology.NAME}) | _ASKING_WHICH_POD
    ),
    ClusterEvent.CLAIM_ADDED: _VOLUMES | _COUNTING_VOLUMES,
    ClusterEvent.CLAIM_CHANGED: _VOLUMES | {node_volume_limits.NAME},
    ClusterEvent.VOLUME_ADDED: _VOLUMES | {node_volume_limits.NAME},
    ClusterEvent.VOLUME_CHANGED: _VOLUMES | {node_volume_limits.NAME},
    ClusterEvent.CLASS_ADDED: _VOLUMES | {node_volume_limits.NAME},  # its provisioner may be another one
    ClusterEvent.CLASS_CHANGED: frozenset({volume_binding.NAME}),
    ClusterEvent.CSI_NODE_ADDED: frozenset({volume_binding.NAME, node_volume_limits.NAME}),
    ClusterEvent.CSI_NODE_CHANGED: frozenset({volume_binding.NAME, node_volume_limits.NAME}),
    ClusterEvent.CSI_DRIVER_CHANGED: frozenset({volume_binding.NAME, node_volume_limits.NAME}),
    ClusterEvent.CAPACITY_CHANGED: frozenset({volume_binding.NAME}),
    ClusterEvent.ATTACHMENT_GONE: frozenset({node_volume_limits.NAME}),
}


@attrs.frozen(cache_hash=True)
class PodChange:
    """
    What of a pod that came, went or changed can matter to others.

    Attributes:
        before: the same before a change; None for one that came or went.
    """

    namespace: str
    labels: frozenset[tuple[str, str]]
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    has_volumes: bool = False
    terminating: bool = False
    before: "PodChange | None" = None


@attrs.frozen(cache_hash=True)
class Interest:
    """
    What a refused pod counts other pods by, and what they may mean it by; equal for the replicas of a workload.

    Attributes:
        asks_much: to find out which other pods concern it would take longer than needless attempts.
    """

    namespace: str
    labels: frozenset[tuple[str, str]]
    selectors: tuple[LabelSelector, ...]
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    asks_much: bool = False

    def concerns(self, other: PodChange, event: ClusterEvent) -> bool:
        """Tell whether the other pod may be one of those that count; of two that keep apart none helps by coming."""
        if self.asks_much:
            return True  # thousands of such pods may wait, and each event would be compared with each of them
        if other.before is not None:
            return self._tells_apart(other.before, other)
        return (
            any(self._counts(selector, other) for selector in self.selectors)
            or any(_may_mean(term, other.namespace, other.labels) for term in self.affinity)
            or (event is not ClusterEvent.ASSIGNED_POD_ADDED and self._shuns(other))
        )

    def _tells_apart(self, before: PodChange, after: PodChange) -> bool:
        """Tell whether a pod that has changed counts otherwise now; whom itself keeps away does not depend on it."""

        def means(term: PodAffinityTerm, pod: PodChange) -> bool:
            return _may_mean(term, pod.namespace, pod.labels)

        return (
            any(
                (self._counts(selector, before) and not before.terminating)
                != (self._counts(selector, after) and not after.terminating)
                for selector in self.selectors
            )
            or any(means(term, before) != means(term, after) for term in self.affinity)
            or any(means(term, before) and not means(term, after) for term in self.anti_affinity)
        )

    def _counts(self, selector: LabelSelector, other: PodChange) -> bool:
        return other.namespace == self.namespace and selector.matches(dict(other.labels))

    def _shuns(self, other: PodChange) -> bool:
        return any(_may_mean(term, other.namespace, other.labels) for term in self.anti_affinity) or any(
            _may_mean(term, self.namespace, self.labels) for term in other.anti_affinity
        )


def pod_changes(event: ClusterEvent, pods: Collection[Pod]) -> Iterator[PodChange | None]:
    """Yield what of the pods that an event happened to can matter to others: of a change, the pod before and after."""
    told = [
        PodChange(
            namespace=pod.namespace,
            labels=frozenset(pod.labels.items()),
            anti_affinity=pod.constraints.anti_affinity,
            has_volumes=bool(pod.constraints.volume_claims or pod.constraints.disks),
            terminating=pod.terminating,
        )
        for pod in pods
    ]
    if event is ClusterEvent.ASSIGNED_POD_LABELS and len(told) == 2:
        before, after = told
        yield attrs.evolve(after, before=before)
    else:
        yield from told or (None,)


def interest_of(pod: Pod, plugins: frozenset[str]) -> Interest | None:
    """Return which pods matter to one that these plugins refused; None if none of them counts pods."""
    if not plugins & _COUNTING_PODS:
        return None
    constraints = pod.constraints
    return Interest(
        namespace=pod.namespace,
        labels=frozenset(pod.labels.items()),
        selectors=tuple({c.selector: None for c in constraints.spread if c.hard and c.selector is not None}),
        affinity=constraints.affinity,
        anti_affinity=constraints.anti_affinity,
        asks_much=constraints.comparisons > FEW_COMPARISONS,
    )


def may_help(
    event: ClusterEvent,
    happened_to: AbstractSet[PodChange | None],
    plugins: frozenset[str],
    interest: Interest | None,
    *,
    local: Callable[[frozenset[str]], bool] = bool,
) -> bool:
    """
    Tell whether an event may help a pod that these plugins refused.

    For plugins that count pods, or their volumes, it matters which pods it happened to; where that is not told (None),
    or they are too many, it may help. Of the others `local` is asked, which knows the nodes it happened to.
    """
    if not plugins:
        return True
    helped = plugins & MAY_HELP[event]
    local_ones = helped - _ASKING_WHICH_POD
    if len(happened_to) > MOST_ASKED and helped != local_ones:
        return True
    if helped & _COUNTING_VOLUMES and any(pod is None or pod.has_volumes for pod in happened_to):
        return True
    if helped & _COUNTING_PODS and any(
        pod is None or interest is None or interest.concerns(pod, event) for pod in happened_to
    ):
        return True
    return bool(local_ones) and local(local_ones)


def _may_mean(term: PodAffinityTerm, namespace: str, labels: frozenset[tuple[str, str]]) -> bool:
    """Tell whether a term may mean a pod; which namespaces a selector means is not known here, so it may mean any."""
    if term.selector is None or not term.selector.matches(dict(labels)):
        return False
    return term.namespace_selector is not None or namespace in term.namespaces


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
    if old.declared_features != new.declared_features:
        yield ClusterEvent.NODE_FEATURES

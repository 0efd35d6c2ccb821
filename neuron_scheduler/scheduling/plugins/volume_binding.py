"""
VolumeBinding: on the pod's node, each of its claims has a volume that can be mounted, or can get one.

Upstream: `plugins/volumebinding/{volume_binding,binder}.go`. A claim that waits for its first consumer gets the
smallest volume that serves it on the node; if there is none, one is provisioned, where the class allows it and the
driver has room.
"""

from collections.abc import Mapping, Sequence

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector
from neuron_scheduler.model.volumes import NO_PROVISIONER, ROOM, PersistentVolumeClaim
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import (
    NONE_REFUSED,
    Filter,
    Plugin,
    PluginName,
    PodRefusal,
    PreFilter,
    Refusal,
)
from neuron_scheduler.scheduling.plugins.node_affinity import any_term
from neuron_scheduler.scheduling.plugins.pod_fields import PodField
from neuron_scheduler.scheduling.plugins.static_volumes import mountable_nodes, nodes_served
from neuron_scheduler.scheduling.plugins.volume_restrictions import not_found

NAME = PluginName("VolumeBinding")
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
TOO_MANY = "pod has too many unlike unbound claims, or values in their selectors"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_MOST_UNLIKE = 20
"""Different wishes of a pod's claims, with the requirements and values of their selectors: all nodes are asked each."""


def pre_filter(view: View, pod: Pod) -> PodRefusal | None:
    """Refuse a pod with a claim that no node could serve in its current state."""
    for name in pod.constraints.volume_claims:
        claim = view.volumes.claim(f"{pod.namespace}/{name}")
        ephemeral = name in pod.constraints.ephemeral_claims
        if claim is None:
            waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return PodRefusal(NAME, waiting if ephemeral else not_found(name))
        reason = _unusable(claim, pod, ephemeral=ephemeral)
        if reason:
            return PodRefusal(NAME, reason)
    _, unbound = claims_of(view, pod)
    if any(claim.volume_name or not view.volumes.waits_for_consumer(claim) for claim in unbound):
        return PodRefusal(NAME, UNBOUND_IMMEDIATE)
    rooms = map(_room_for, {claim.class_name for claim in unbound})
    counted = filter(view.volumes.free.has_any, (*_largest(view, unbound), *rooms))
    unlike = [1 + sum([1 + len(r.values) for r in (wish.selector or LabelSelector()).requirements]) for wish in counted]
    return PodRefusal(NAME, TOO_MANY) if sum(unlike) > _MOST_UNLIKE else None


def _largest(
    view: View, claims: Sequence[PersistentVolumeClaim]
) -> Mapping[PersistentVolumeClaim, PersistentVolumeClaim]:
    """Return what claims ask of volumes, each with the largest claim: where there is room for it, others have room."""
    return {view.volumes.free.round_up(claim.wish): claim for claim in sorted(claims, key=lambda claim: claim.request)}


def _room_for(class_name: str) -> PersistentVolumeClaim:
    """Return what claims of a class ask of the room that its driver reports, whatever their sizes."""
    return PersistentVolumeClaim("", "", "", class_name=class_name, volume_mode=ROOM)


def _unusable(claim: PersistentVolumeClaim, pod: Pod, *, ephemeral: bool) -> str:
    if claim.lost:
        return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{claim.volume_name}"'
    if claim.terminating:
        return f'persistentvolumeclaim "{claim.name}" is being deleted'
    if ephemeral and claim.owner != pod.uid:
        return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
    return ""


def claims_of(view: View, pod: Pod) -> tuple[list[PersistentVolumeClaim], list[PersistentVolumeClaim]]:
    """Return the pod's claims that are bound, and those that wait for their first consumer."""
    known = [view.volumes.claim(f"{pod.namespace}/{name}") for name in pod.constraints.volume_claims]
    claims = [claim for claim in known if claim is not None]
    return [c for c in claims if c.is_fully_bound], [c for c in claims if not c.is_fully_bound]


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse nodes on which a claim has no volume and gets none, with all reasons of each node."""
    if not pod.constraints.volume_claims:
        return NONE_REFUSED
    bound, waiting = claims_of(view, pod)
    of_waiting, unknown = _filter_waiting(view, waiting, among)
    return [
        *[Refusal(NAME, reason, less(nodes, unknown), unresolvable=True) for reason, nodes in of_waiting],
        *[Refusal(NAME, reason, nodes & unknown) for reason, nodes in of_waiting],  # another question may know more
        *[Refusal(NAME, reason, nodes, unresolvable=True) for reason, nodes in _filter_bound(view, bound, among)],
    ]


def _filter_bound(view: View, claims: Sequence[PersistentVolumeClaim], among: NodeSet) -> Sequence[tuple[str, NodeSet]]:
    """Refuse nodes on which the volume of a bound claim cannot be mounted; without the volume, all that are left."""
    elsewhere = NO_NODES
    for claim in claims:
        volume = view.volumes.volume(claim.volume_name)
        if volume is None:
            return [(NODE_CONFLICT, elsewhere), (NO_VOLUME, among)]
        there = mountable_nodes(view, volume, among)
        elsewhere |= among & ~there
        among = there
    return [(NODE_CONFLICT, elsewhere)]


def _filter_waiting(
    view: View, claims: Sequence[PersistentVolumeClaim], among: NodeSet
) -> tuple[Sequence[tuple[str, NodeSet]], NodeSet]:
    """Refuse nodes where a claim finds no volume and none can be made; for some nodes of these that is not known."""
    everywhere, crowded = among, NO_NODES
    for claim in claims:
        if claim.selected_node is not None:
            slot = view.slot(claim.selected_node)
            among &= NO_NODES if slot is None else 1 << slot
    selected = _largest(view, [claim for claim in claims if claim.selected_node is not None])
    free = [claim for claim in claims if claim.selected_node is None]
    static = {claim.class_name for claim in free if not _may_provision(view, claim)}
    served, unknown = nodes_served(view, free, among, static)
    lacking = [(claim, among & ~nodes) for claim, nodes in served]
    for claim, nodes in (*[(claim, among) for claim in selected.values()], *lacking):
        for reason, refused in _filter_provisioning(view, claim, nodes & among):
            crowded |= refused if reason == NO_SPACE else NO_NODES
            among &= ~refused
    return [(BIND_CONFLICT, everywhere & ~among & ~crowded), (NO_SPACE, crowded)], unknown


def _may_provision(view: View, claim: PersistentVolumeClaim) -> bool:
    storage_class = view.volumes.classes.get(claim.class_name)
    return storage_class is not None and storage_class.provisioner not in ("", NO_PROVISIONER)


def _filter_provisioning(view: View, claim: PersistentVolumeClaim, among: NodeSet) -> Sequence[tuple[str, NodeSet]]:
    """Refuse nodes for which the claim's class cannot make a volume, or its driver reports too little room."""
    if not among:
        return []
    if not _may_provision(view, claim):
        return [(BIND_CONFLICT, among)]
    storage_class = view.volumes.classes[claim.class_name]
    topologies = storage_class.allowed_topologies
    allowed = any_term(view, topologies, among) if topologies is not None else among
    driver, roomy = view.volumes.drivers.get(storage_class.provisioner), allowed
    if claim.request and driver is not None and driver.storage_capacity:
        roomy = view.free_volumes(_room_for(claim.class_name)).at_least(claim.request, allowed)
    return [(BIND_CONFLICT, among & ~allowed), (NO_SPACE, allowed & ~roomy)]


PLUGIN = Plugin(
    name=NAME,
    pre_filter=PreFilter(pre_filter, reads=(PodField.VOLUME_CLAIMS,)),
    filters=(Filter(filter_nodes, reads=(PodField.VOLUME_CLAIMS,)),),
    events=frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.CLAIM_ADDED,
            ClusterEvent.CLAIM_CHANGED,
            ClusterEvent.VOLUME_ADDED,
            ClusterEvent.VOLUME_CHANGED,
            ClusterEvent.CLASS_ADDED,
            ClusterEvent.CLASS_CHANGED,
            ClusterEvent.CSI_NODE_ADDED,
            ClusterEvent.CSI_NODE_CHANGED,
            ClusterEvent.CSI_DRIVER_CHANGED,
            ClusterEvent.CAPACITY_CHANGED,
        }
    ),
    cause=Cause.VOLUMES,
)

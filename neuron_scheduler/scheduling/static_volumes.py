"""
Which volumes serve which claims, on which nodes; and, for one node, who gets which.

Upstream: `FindMatchingVolume` in `component-helpers/storage/volume/pv_helpers.go`, `findMatchingVolumes` in the
scheduler's `volumebinding/binder.go`: claims by size, each gets the smallest volume that is left. Equal volumes are
taken by name. No node is looked at by itself: who takes a volume where is a set of nodes.
"""

from collections.abc import Sequence

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.node_state import NodeState
from neuron_scheduler.cluster.nodeset import NodeSet
from neuron_scheduler.cluster.postings import Values
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, NodeSelectorTerm
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.scheduling.plugins.node_affinity import any_term


@attrs.frozen
class Offer:
    """A volume that serves a claim on some nodes."""

    volume: PersistentVolume
    nodes: NodeSet


def _migrated(state: NodeState) -> Values:
    return tuple(state.storage.migrated)


def mountable(cluster: Cluster, volume: PersistentVolume, among: NodeSet) -> NodeSet:
    """Return the nodes that match the volume's node affinity, told in its driver's labels where it is migrated."""
    if not volume.plugin or volume.csi_terms == volume.required_terms:
        return _matching(cluster, volume.required_terms, among)
    migrated = cluster.postings(_migrated).get(volume.plugin)
    return _matching(cluster, volume.csi_terms, among & migrated) | _matching(
        cluster, volume.required_terms, among & ~migrated
    )


def _matching(cluster: Cluster, terms: Sequence[NodeSelectorTerm] | None, among: NodeSet) -> NodeSet:
    return among if terms is None else any_term(cluster, terms, among)


def with_labels(cluster: Cluster, selector: LabelSelector, among: NodeSet) -> NodeSet:
    """Return the nodes whose labels satisfy a selector; an empty one is satisfied by all."""
    if not selector.requirements:
        return among
    return any_term(cluster, (NodeSelectorTerm(selector.requirements),), among)


def served(
    cluster: Cluster, claims: Sequence[PersistentVolumeClaim], among: NodeSet
) -> Sequence[tuple[PersistentVolumeClaim, NodeSet]]:
    """Return the claims by size, each with the nodes on which it gets a volume that is there already."""
    by_size = sorted(claims, key=lambda claim: claim.request)
    taken = _taken([_offers(cluster, claim, among) for claim in by_size])
    return [(claim, _anywhere(each)) for claim, each in zip(by_size, taken, strict=True)]


def assigned(
    cluster: Cluster, pod: Pod, node_name: str, claims: Sequence[PersistentVolumeClaim]
) -> Sequence[tuple[PersistentVolumeClaim, PersistentVolume | None]]:
    """Return the claims by size, each with the volume it gets on a node; None where one must be provisioned."""
    slot = cluster.slot(node_name)
    if slot is None:
        raise LookupError(f"{pod.key} was given the node {node_name!r}, which is not there")
    by_size = sorted((claim for claim in claims if claim.selected_node is None), key=lambda claim: claim.request)
    taken = _taken([_offers(cluster, claim, 1 << slot) for claim in by_size])
    return [
        *((claim, None) for claim in claims if claim.selected_node is not None),
        *((claim, each[0].volume if each else None) for claim, each in zip(by_size, taken, strict=True)),
    ]


def _offers(cluster: Cluster, claim: PersistentVolumeClaim, among: NodeSet) -> Sequence[Offer]:
    """Return the volumes that serve a claim, the best first; one that is kept for it is the only one."""
    for volume in sorted(cluster.volumes.kept_for(claim.key), key=lambda kept: kept.name):
        if volume.may_serve(claim):
            return [Offer(volume, _matching(cluster, volume.required_terms, among))]
    serving = [volume for volume in cluster.volumes.unclaimed(claim.class_name) if volume.may_serve(claim)]
    serving.sort(key=lambda volume: (volume.capacity, volume.name))
    return [Offer(volume, _matching(cluster, volume.required_terms, among)) for volume in serving]


def _anywhere(offers: Sequence[Offer]) -> NodeSet:
    nodes = 0
    for offer in offers:
        nodes |= offer.nodes
    return nodes


def _taken(offers: Sequence[Sequence[Offer]]) -> Sequence[Sequence[Offer]]:
    """Let each claim in turn take the first volume that is left, on all nodes at once; return who took what where."""
    gone: dict[str, NodeSet] = {}
    taken = []
    for each in offers:
        wanting, mine = _anywhere(each), []
        for offer in each:
            name = offer.volume.name
            there = offer.nodes & wanting & ~gone.get(name, 0)
            if there:
                mine.append(Offer(offer.volume, there))
                gone[name] = gone.get(name, 0) | there
                wanting &= ~there
        taken.append(mine)
    return taken

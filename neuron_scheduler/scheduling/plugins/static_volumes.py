"""
Which volumes serve which claims, on which nodes; and, for one node, which claim gets which volume.

Upstream: `FindMatchingVolume` in `component-helpers/storage/volume/pv_helpers.go`, `findMatchingVolumes` in the
scheduler's `volumebinding/binder.go`: claims by size, each gets the smallest volume that is left. Equal volumes are
taken by name.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import attrs

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less
from neuron_scheduler.cluster.index.postings import Postings, Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.volumes import Entry, VolumesOfAffinity
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, NodeSelectorTerm
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.scheduling.plugins.node_affinity import any_term


class VolumeOffer(NamedTuple):
    """A volume that serves a claim on some nodes; the smallest comes first."""

    capacity: int
    name: str
    nodes: NodeSet


def _migrated_plugins(node_info: NodeInfo) -> Values:
    return tuple(node_info.storage.migrated)


def mountable_nodes(view: View, volume: PersistentVolume, among: NodeSet) -> NodeSet:
    """Return the nodes that match the volume's node affinity, in its driver's labels where its plugin is migrated."""
    if not volume.plugin or volume.csi_terms == volume.required_terms:
        return _nodes_matching(view, volume.required_terms, among)
    migrated = view.postings(_migrated_plugins).get(volume.plugin)
    return _nodes_matching(view, volume.csi_terms, among & migrated) | _nodes_matching(
        view, volume.required_terms, among & ~migrated
    )


def _nodes_matching(view: View, terms: Sequence[NodeSelectorTerm] | None, among: NodeSet) -> NodeSet:
    return among if terms is None else any_term(view, terms, among)


def nodes_with_labels(view: View, selector: LabelSelector, among: NodeSet) -> NodeSet:
    """Return the nodes whose labels satisfy a selector; an empty one is satisfied by all."""
    if not selector.requirements:
        return among
    return any_term(view, (NodeSelectorTerm(selector.requirements),), among)


def nodes_with_any_label(view: View, wanted: Mapping[str, Sequence[str]]) -> NodeSet:
    """Return the nodes with one of the values of one of the labels: the affinities of many volumes at once."""
    nodes = NO_NODES
    for key, values in wanted.items():
        nodes |= view.label_postings(key).any_of(values)
    return nodes


@attrs.define(eq=False)
class _Reach:
    """
    The nodes, of some, that match the affinity that volumes share; looked up once for all claims.

    Attributes:
        only: the labels of the node if there is only one.
    """

    view: View
    among: NodeSet
    only: Mapping[str, str] | None = None
    _known: dict[VolumesOfAffinity, NodeSet] = attrs.field(factory=dict, init=False)
    _postings: dict[str, Postings] = attrs.field(factory=dict, init=False)

    def __call__(self, volumes: VolumesOfAffinity) -> NodeSet:
        nodes = self._known.get(volumes)
        if nodes is None:
            nodes = self._known[volumes] = self._look_up(volumes)
        return nodes

    def _look_up(self, volumes: VolumesOfAffinity) -> NodeSet:
        wanted = volumes.label
        if wanted is None:
            return _nodes_matching(self.view, volumes.terms, self.among)
        if self.only is not None:
            return self.among if wanted.matches(self.only) else NO_NODES
        postings = self._postings.get(wanted.key)
        if postings is None:
            postings = self._postings[wanted.key] = self.view.label_postings(wanted.key)
        return self.among & postings.any_of(wanted.values)


def nodes_served(
    view: View, claims: Sequence[PersistentVolumeClaim], among: NodeSet
) -> Sequence[tuple[PersistentVolumeClaim, NodeSet]]:
    """Return the claims by size, each with the nodes on which it gets an existing volume."""
    by_size = sorted(claims, key=lambda claim: claim.request)
    if len({claim.class_name for claim in by_size}) == len(by_size):
        return [(claim, _nodes_served_alone(view, claim, among)) for claim in by_size]
    taken = _take_all(by_size, _Reach(view, among))
    return [(claim, _nodes_of(offers)) for claim, offers in zip(by_size, taken, strict=True)]


def assign_volumes(
    view: View, pod: Pod, node_name: str, claims: Sequence[PersistentVolumeClaim]
) -> Sequence[tuple[PersistentVolumeClaim, PersistentVolume | None]]:
    """Return the claims by size, each with the volume it gets on a node; None where one must be provisioned."""
    slot = view.slot(node_name)
    if slot is None:
        raise LookupError(f"{pod.key} was given the node {node_name!r}, which is not there")
    by_size = sorted((claim for claim in claims if claim.selected_node is None), key=lambda claim: claim.request)
    taken = _take_all(by_size, _Reach(view, 1 << slot, view.row(slot).node.labels))
    return [
        *((claim, None) for claim in claims if claim.selected_node is not None),
        *(
            (claim, view.volumes.volume(offers[0].name) if offers else None)
            for claim, offers in zip(by_size, taken, strict=True)
        ),
    ]


def _nodes_served_alone(view: View, claim: PersistentVolumeClaim, among: NodeSet) -> NodeSet:
    """Return the nodes on which there is a volume for a claim that no other claim competes with."""
    kept = _reserved_volume(view, claim)
    if kept is not None:
        return _nodes_matching(view, kept.required_terms, among)
    nodes, labels = NO_NODES, dict[str, list[str]]()
    for volumes in view.volumes.free.volumes_for(claim):
        if not _best(view, claim, volumes, 1):
            continue
        if volumes.label is not None:
            labels.setdefault(volumes.label.key, []).extend(volumes.label.values)
        else:
            nodes |= _nodes_matching(view, volumes.terms, among)
    return among & (nodes | nodes_with_any_label(view, labels))


def _take_all(by_size: Sequence[PersistentVolumeClaim], reach: _Reach) -> Sequence[Sequence[VolumeOffer]]:
    return _take_in_turn([_offers(claim, reach, len(by_size)) for claim in by_size])


def _offers(claim: PersistentVolumeClaim, reach: _Reach, most: int) -> Sequence[VolumeOffer]:
    """Return the volumes that serve a claim, the best first; only the reserved one if there is one."""
    view = reach.view
    kept = _reserved_volume(view, claim)
    if kept is not None:
        return [VolumeOffer(kept.capacity, kept.name, _nodes_matching(view, kept.required_terms, reach.among))]
    return sorted(
        VolumeOffer(*entry, nodes)
        for volumes in view.volumes.free.volumes_for(claim)
        if (nodes := reach(volumes))
        for entry in _best(view, claim, volumes, most)
    )


def _best(view: View, claim: PersistentVolumeClaim, volumes: VolumesOfAffinity, most: int) -> Sequence[Entry]:
    """Return the first `most` volumes of an affinity that serve a claim; no more are needed than there are claims."""
    fitting = volumes.large_enough_for(claim)
    if claim.selector is None:
        return fitting[:most]
    return list(islice((entry for entry in fitting if _is_wanted(view, claim.selector, entry)), most))


def _reserved_volume(view: View, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    serving = (volume for volume in view.volumes.kept_for(claim.key) if volume.may_serve(claim))
    return min(serving, key=lambda volume: volume.name, default=None)


def _is_wanted(view: View, selector: LabelSelector, entry: Entry) -> bool:
    volume = view.volumes.volume(entry[1])
    return volume is not None and selector.matches(volume.labels)


def _nodes_of(offers: Sequence[VolumeOffer]) -> NodeSet:
    nodes = NO_NODES
    for offer in offers:
        nodes |= offer.nodes
    return nodes


def _take_in_turn(offers: Sequence[Sequence[VolumeOffer]]) -> Sequence[Sequence[VolumeOffer]]:
    """Return the volumes that the claims take, and where: on each node, each claim in turn the first that is left."""
    gone: dict[str, NodeSet] = {}
    taken = []
    for offers_to_claim in offers:
        wanting, taken_by_claim = _nodes_of(offers_to_claim), []
        for offer in offers_to_claim:
            nodes = offer.nodes & wanting
            if nodes and offer.name in gone:
                nodes = less(nodes, gone[offer.name])
            if nodes:
                taken_by_claim.append(VolumeOffer(offer.capacity, offer.name, nodes))
                gone[offer.name] = gone.get(offer.name, NO_NODES) | nodes
                wanting ^= nodes
        taken.append(taken_by_claim)
    return taken

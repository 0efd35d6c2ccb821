"""
Which volumes serve which claims, on which nodes; and, for one node, which claim gets which volume.

Upstream: `FindMatchingVolume` in `component-helpers/storage/volume/pv_helpers.go`, `findMatchingVolumes` in the
scheduler's `volumebinding/binder.go`: claims by size, each gets the smallest volume that is left. Equal volumes are
taken by name.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Final

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, less, slots_of
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.free_volumes import Group, group_of
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, NodeSelectorTerm, Operator
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.scheduling.plugins.node_affinity import any_term

_MOST_TRIED: Final = 4000
"""Comparisons with volumes (to begin takes as long as 10), and claims: a millisecond, five times in an attempt."""
_Equal = tuple[PersistentVolumeClaim, PersistentVolume | None, Sequence[PersistentVolumeClaim]]
"""A wish, the volume that is kept for it, and the claims that have it."""
_Asked = tuple[PersistentVolumeClaim, Column, int]
"""A wish without its size, how many volumes serve it on each node, and how many claims have it."""


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


def nodes_served(
    view: View, claims: Sequence[PersistentVolumeClaim], among: NodeSet, static: Container[str] = ()
) -> tuple[Sequence[tuple[PersistentVolumeClaim, NodeSet]], NodeSet]:
    """
    Return claims, each with the nodes on which it gets an existing volume, and the nodes for which that is not known.

    Of equal claims, only the last by size is returned.

    Numbers decide, but where claims with other modes or selectors may take the volumes of a claim: the first of such
    nodes (about a hundred, fewer for many volumes or claims) are tried, those with as many volumes in all before
    others. These others are not tried for `static` classes: some claim lacks a volume there.
    """
    served = dict[PersistentVolumeClaim, tuple[PersistentVolumeClaim, NodeSet]]()
    asked, doubtful = dict[PersistentVolumeClaim, _Asked](), dict[Group, NodeSet]()
    by_size = list(_equal_claims(view, claims))
    for wish, kept, equal in by_size:
        nodes = NO_NODES
        if kept is not None:
            nodes = _nodes_matching(view, kept.required_terms, among)
        elif view.volumes.free.has_any(wish):
            kind, number = wish.of_size(0), len(equal) + (asked[wish][2] if wish in asked else 0)
            asked[wish] = kind, view.free_volumes(wish), number
            nodes, possible = _nodes_with_enough(kind, list(asked.values()), among)
            doubtful[group_of(wish)] = doubtful.get(group_of(wish), NO_NODES) | less(possible, nodes)
        served[wish] = equal[-1], nodes
    enough, others, volumes = _to_try(view, asked, doubtful, static)
    in_doubt, tried, left = [each for each in by_size if doubtful.get(group_of(each[0]))], NO_NODES, _MOST_TRIED
    for slot in chain(slots_of(enough), slots_of(others)):
        if left <= 0:
            break
        left -= len(claims) + sum(each * (10 + column.value(slot)) for each, column in volumes)
        tried |= 1 << slot
        taken = _choose_volumes(view, slot, in_doubt)
        for wish, (last, nodes) in served.items():
            served[wish] = last, nodes | (NO_NODES if taken.get(last.key) is None else 1 << slot)
    return list(served.values()), less(enough | others, tried)


def assign_volumes(
    view: View, pod: Pod, node_name: str, claims: Sequence[PersistentVolumeClaim]
) -> Sequence[tuple[PersistentVolumeClaim, PersistentVolume | None]]:
    """Return the claims by size, each with the volume it gets on a node; None where one must be provisioned."""
    slot = view.slot(node_name)
    if slot is None:
        raise LookupError(f"{pod.key} was given the node {node_name!r}, which is not there")
    free = [claim for claim in claims if claim.selected_node is None]
    taken = _choose_volumes(view, slot, _equal_claims(view, free))
    return [(claim, taken.get(claim.key)) for claim in sorted(claims, key=lambda claim: claim.request)]


def _equal_claims(view: View, claims: Sequence[PersistentVolumeClaim]) -> Iterator[_Equal]:
    """Yield the claims by size, those that the same volumes serve together; one with a volume kept for it is alone."""
    by_size = [(claim, _reserved_volume(view, claim)) for claim in sorted(claims, key=lambda claim: claim.request)]
    round_up = view.volumes.free.round_up
    for wish, equal in groupby(by_size, key=lambda each: round_up(each[0].wish) if each[1] is None else each[0]):
        taking = list(equal)
        yield wish, taking[0][1], [claim for claim, _ in taking]


def _nodes_with_enough(kind: PersistentVolumeClaim, asked: Sequence[_Asked], among: NodeSet) -> tuple[NodeSet, NodeSet]:
    """
    Return the nodes with volumes for claims of a kind whatever others take, and those where that depends on the others.

    Alike but for their sizes, all get volumes if, for each of the sizes, there are as many volumes of at least that
    size as claims: the smallest go first.
    """
    rivals = sum(number for other, _, number in asked if other != kind and _may_want_the_same(other, kind))
    needed, sure, possible = 0, among, among
    for other, free, number in reversed(asked):
        if other == kind:
            needed += number
            possible = free.at_least(needed, possible)
            sure = free.at_least(needed + rivals, sure) if rivals else possible
    return sure, possible


def _to_try(
    view: View, asked: Mapping[PersistentVolumeClaim, _Asked], doubtful: Mapping[Group, NodeSet], static: Container[str]
) -> tuple[NodeSet, NodeSet, Sequence[tuple[int, Column]]]:
    """
    Return the doubtful nodes with as many volumes as claims, whatever these ask for, and those with too few.

    Also of each group in doubt how many comparisons its wishes make with a volume, and the volumes of each node.
    """
    enough, others, volumes = NO_NODES, NO_NODES, list[tuple[int, Column]]()
    for group, nodes in doubtful.items():
        if nodes:
            wishes = [wish for wish in asked if group_of(wish) == group]  # by size
            any_volume = attrs.evolve(wishes[0], access_modes=(), selector=None)
            each = sum(1 + len(wish.selector.requirements) if wish.selector else 1 for wish in wishes)
            volumes.append((each, view.free_volumes(any_volume)))
            enough |= volumes[-1][1].at_least(sum(asked[wish][2] for wish in wishes), nodes)
            others |= NO_NODES if group[0] in static else nodes
    return enough, less(others, enough), volumes


def _may_want_the_same(*wishes: PersistentVolumeClaim) -> bool:
    """Return whether a volume may serve two wishes: they do not ask for different values of a label."""
    one, other = (
        {r.key: set(r.values) for r in (wish.selector or LabelSelector()).requirements if r.operator is Operator.IN}
        for wish in wishes
    )
    return group_of(wishes[0]) == group_of(wishes[1]) and not any(
        one[k].isdisjoint(other[k]) for k in one.keys() & other
    )


def _choose_volumes(view: View, slot: Slot, by_size: Iterable[_Equal]) -> Mapping[str, PersistentVolume | None]:
    """Return what claims get on a node, by their keys: each, the smallest first, the smallest volume that is left."""
    node, taken, gone = view.row(slot).node, dict[str, PersistentVolume | None](), set[str]()
    left = dict[PersistentVolumeClaim, Iterator[PersistentVolume]]()
    for wish, kept, equal in by_size:
        if kept is not None:
            taken[equal[0].key] = kept if _nodes_matching(view, kept.required_terms, 1 << slot) else None
            continue
        if wish not in left:
            left[wish] = (volume for volume in view.volumes.free.volumes_for(wish, node) if volume.name not in gone)
        for claim in equal:
            volume = taken[claim.key] = next(left[wish], None)
            if volume is not None:
                gone.add(volume.name)
    return taken


def _reserved_volume(view: View, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    serving = (volume for volume in view.volumes.kept_for(claim.key) if volume.may_serve(claim))
    return min(serving, key=lambda volume: volume.name, default=None)

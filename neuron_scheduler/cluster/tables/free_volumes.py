"""
The volumes that no claim has, found by what a claim asks for, and how many of them serve it on each node.

They are grouped by class, volume mode and attributes class, then by access modes and the labels that their node
affinity asks for, then by the values of these labels, and ordered by size. A count for a claim is built from all nodes,
and kept up to date from logs of changes. Claims that differ only in bytes between two sizes of volumes have one count.
Of room (volumes of the mode `ROOM`) the largest at each node is kept instead: one column for claims of any size.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from functools import reduce
from heapq import merge
from itertools import product
from math import prod
from operator import and_
from typing import Any, Final, Self, cast

import attrs

from neuron_scheduler.cluster.index.change_log import ChangeLog
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite
from neuron_scheduler.cluster.index.indexes import build, evict_if_full
from neuron_scheduler.cluster.index.labels import label
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, from_slots, less
from neuron_scheduler.cluster.index.postings import Postings
from neuron_scheduler.cluster.tables.nodes import NodeTable
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator
from neuron_scheduler.model.volumes import ROOM, PersistentVolume, PersistentVolumeClaim

_Entry = tuple[int, str, PersistentVolume]
Group = tuple[str, str, str]
_Kind = tuple[frozenset[str], tuple[str, ...] | None]
_ByKind = CopyOnWrite[_Kind, CopyOnWrite[tuple[Any, ...], list[_Entry]]]
"""
Volumes, each with its capacity in bytes and its name, by access modes and labels of the affinity, then by their values.

An affinity that asks for more than values has no labels, and is the second key itself.
"""

_MOST_COLUMNS: Final = 256
_MOST_LOGGED: Final = 4096
_MOST_PLACES: Final = 1024
_NONE_AS_LARGE: Final = 1 << 63  # bytes: a quantity is less
_AT_ONCE: Final = 64
"""Changes after which a preparation yields."""


@attrs.define(eq=False)
class _Count:
    """A column, and the positions in the logs of volumes and of nodes up to which it is correct."""

    column: Column
    last_used: int
    relabeled: int


@attrs.define(eq=False)
class FreeVolumes:
    """Free volumes; `wish` is what a claim asks of one (`PersistentVolumeClaim.wish`)."""

    _by_group: CopyOnWrite[Group, _ByKind] = attrs.field(factory=CopyOnWrite)
    _sizes: CopyOnWrite[Group, list[int]] = attrs.field(factory=CopyOnWrite)  # of all volumes, sorted
    _counts: dict[PersistentVolumeClaim, _Count] = attrs.field(factory=dict)
    _log: ChangeLog[tuple[PersistentVolume, int]] = attrs.field(factory=ChangeLog)  # whether it came; of room, the bits

    def copy(self) -> Self:
        """Return an independent copy, which counts anew."""
        return type(self)(self._by_group.copy(), self._sizes.copy())

    def put(self, volume: PersistentVolume, *, came: bool = True) -> None:
        """Add a volume, or remove it as it was when it was added."""
        if not volume.available or volume.terminating:
            return
        labels, places = _places(volume.required_terms)
        sizes, size = self._sizes.to_change(group_of(volume), list), volume.capacity
        insort(sizes, size) if came else sizes.pop(bisect_left(sizes, size))
        by_kind = self._by_group.to_change(group_of(volume), CopyOnWrite)
        kind, is_room, change = (frozenset(volume.access_modes), labels), volume.volume_mode == ROOM, int(came)
        by_place = by_kind.to_change(kind, CopyOnWrite)
        is_countable = labels is not None and (not is_room or len(by_kind.by_key) == len(places) == 1)
        for place in places:
            entries, entry = by_place.to_change(place, list), (size, volume.name, volume)
            largest = _largest(entries)
            insort(entries, entry) if came else entries.pop(bisect_left(entries, entry[:2]))
            change = largest ^ _largest(entries) if is_room else change
            if not entries:
                by_place.remove(place)
        if not by_place.by_key:
            by_kind.remove(kind)
        if is_countable:
            self._log.append((volume, change), most=_MOST_LOGGED)
        else:
            self._log.skip()  # the nodes, or the largest at each, would take long to find: all are counted again

    def round_up(self, wish: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Return a wish for the next size that a volume of its class has: the same volumes serve both."""
        sizes = self._sizes.by_key.get(group_of(wish), ())
        at = bisect_left(sizes, wish.request)
        return wish.of_size(sizes[at] if at < len(sizes) else _NONE_AS_LARGE)

    def has_any(self, wish: PersistentVolumeClaim) -> bool:
        """Return whether a volume of a claim's class is large enough: without one there is nothing to count."""
        return self.round_up(wish).request < _NONE_AS_LARGE

    def volumes_for(self, wish: PersistentVolumeClaim, node: Node) -> Iterator[PersistentVolume]:
        """Return the volumes that serve a claim on a node, the smallest first."""
        there = [each[bisect_left(each, (wish.request,)) :] for each in _entries_at(self._for(wish), wish, node)]
        selector = wish.selector
        return (volume for _, _, volume in merge(*there) if selector is None or selector.matches(volume.labels))

    def counts(self, wish: PersistentVolumeClaim, table: NodeTable) -> Column:
        """Return how many volumes serve a claim on each node, or the bytes of the largest room."""
        for _ in self.prepare(wish, table):
            pass
        return self._counts[wish].column if self.has_any(wish) else Column()

    def is_ready(self, wish: PersistentVolumeClaim, table: NodeTable) -> bool:
        """Return whether `counts` has few changes to catch up with."""
        known = self._counts.get(wish)
        is_near = known is not None and self._covers(known, table) and self._log.end - known.last_used <= _AT_ONCE
        return is_near or not self.has_any(wish)

    def prepare(self, wish: PersistentVolumeClaim, table: NodeTable) -> Iterator[None]:
        """
        Count the volumes on a few nodes at a time; at a yield other tasks may run and change volumes and nodes.

        If too many change meanwhile, all are counted again when they are used.
        """
        known = self._counts.get(wish)
        for key in table.offered.labels.keys() & {key for _, keys in self._for(wish).by_key for key in keys or ()}:
            yield from table.of_nodes.prepare(label(str(key)), Postings)
        if self.has_any(wish) and (known is None or not self._covers(known, table)):
            positions = self._log.end, table.relabelings.end
            column = yield from build(_number_at(self._for(wish).copy(), wish), Column, list(table.nodes))
            evict_if_full(self._counts, _MOST_COLUMNS)
            known = self._counts[wish] = _Count(cast(Column, column), *positions)
        while known is not None and self._covers(known, table):
            self._catch_up(known, wish, table)
            if known.last_used == self._log.end:
                break
            yield

    def _covers(self, known: _Count, table: NodeTable) -> bool:
        return self._log.covers(known.last_used) and table.relabelings.covers(known.relabeled)

    def _catch_up(self, known: _Count, wish: PersistentVolumeClaim, table: NodeTable) -> None:
        """Apply the next changes of volumes; after the last, count where nodes came, went or changed their labels."""
        slots = [slot for slot, _ in table.relabelings.changes_since(known.relabeled)]
        moved = from_slots(slots, len(table.nodes)) if slots else NO_NODES
        changes = self._log.changes_since(known.last_used, _AT_ONCE)
        for volume, change in changes:
            if volume.may_serve(wish):
                nodes = less(_nodes_of(volume, table), moved)
                if wish.volume_mode == ROOM:
                    known.column.flip(change, nodes)
                else:
                    known.column.add(1, nodes) if change else known.column.decrease(nodes)
        known.last_used += len(changes)
        if moved and known.last_used == self._log.end:
            number_at = _number_at(self._for(wish), wish)
            numbers = {slot: number_at(node) for slot in slots if (node := table.nodes[slot]) is not None}
            known.column = known.column.mask(~moved)
            known.column.add_all(Column.sparse(numbers), 1, moved)
            known.relabeled = table.relabelings.end

    def _for(self, wish: PersistentVolumeClaim) -> _ByKind:
        return self._by_group.by_key.get(group_of(wish)) or CopyOnWrite()


def group_of(storage: PersistentVolume | PersistentVolumeClaim) -> Group:
    return (storage.class_name, storage.volume_mode, storage.attributes_class)


def _places(terms: tuple[NodeSelectorTerm, ...] | None) -> tuple[tuple[str, ...] | None, Collection[tuple[Any, ...]]]:
    """Return the labels that an affinity asks for, and their allowed values; else None, and the affinity."""
    match terms:
        case None:
            return (), [()]
        case [NodeSelectorTerm(expressions=[_, *_] as wanted, fields=(), unreadable=False)] if (
            all(requirement.operator is Operator.IN for requirement in wanted)
            and prod(len(requirement.values) for requirement in wanted) <= _MOST_PLACES
        ):
            return tuple(r.key for r in wanted), set(product(*[r.values for r in wanted]))
        case _:
            return None, [terms]


def _nodes_of(volume: PersistentVolume, table: NodeTable) -> NodeSet:
    """Return the nodes that match a volume's affinity, which asks for values of labels."""
    labels, places = _places(volume.required_terms)
    nodes = NO_NODES
    for values in places:
        nodes |= reduce(and_, map(table.nodes_of, labels or (), values), table.live)
    return nodes


def _entries_at(volumes: _ByKind, wish: PersistentVolumeClaim, node: Node) -> Iterator[list[_Entry]]:
    """Yield the volumes on a node that have a claim's access modes, by affinity."""
    wanted = set(wish.access_modes)
    for (modes, keys), by_place in volumes.by_key.items():
        if not wanted <= modes:
            continue
        if keys is None:
            terms_met = (terms for terms in by_place.by_key if any(term.matches(node.labels, "") for term in terms))
            yield from map(by_place.by_key.__getitem__, terms_met)
        elif (values := tuple(map(node.labels.get, keys))) in by_place.by_key:
            yield by_place.by_key[values]


def _largest(entries: list[_Entry]) -> int:
    return entries[-1][0] if entries else 0


def _number_at(volumes: _ByKind, wish: PersistentVolumeClaim) -> Callable[[Node], int]:
    """Return the function that counts the volumes for a claim on a node; none may come or go meanwhile."""
    if wish.volume_mode == ROOM:
        return lambda node: max(map(_largest, _entries_at(volumes, wish, node)), default=0)
    known: dict[int, int] = {}

    def number_in(entries: list[_Entry]) -> int:
        first, selector = bisect_left(entries, (wish.request,)), wish.selector
        if selector is None:
            return len(entries) - first
        if id(entries) not in known:
            known[id(entries)] = sum(selector.matches(volume.labels) for _, _, volume in entries[first:])
        return known[id(entries)]

    return lambda node: sum(map(number_in, _entries_at(volumes, wish, node)))

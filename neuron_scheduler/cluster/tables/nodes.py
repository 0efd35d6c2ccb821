"""
The table of nodes: a row for each, in a slot, with the indexes and the other tables that are updated with the rows.

A node keeps its slot while it lives. Slots are given in the order of arrival, and a list arrives in the order of age.
A slot becomes free with its node, and is used again after many others have become free: whoever has read a slot before
a pause does not meet another node. The lowest slot breaks ties. It is the oldest node's until slots are used again.

Pods whose node does not exist (yet, or any more) are in *headless* rows, which have a name but no slot.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.copy_on_write import SharedDict
from neuron_scheduler.cluster.index.indexes import Indexes
from neuron_scheduler.cluster.index.labels import domain, label
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, less
from neuron_scheduler.cluster.index.postings import Postings
from neuron_scheduler.cluster.index.rollup import Domains, Relabelings
from neuron_scheduler.cluster.index.sums import Sums
from neuron_scheduler.cluster.rows.node_info import NodeInfo, is_equal_row
from neuron_scheduler.cluster.rows.pod_info import NO_POD_INFOS, PodInfo
from neuron_scheduler.cluster.tables.affinity_terms import TermKind, TermTable
from neuron_scheduler.cluster.tables.demand import Demand
from neuron_scheduler.cluster.tables.images import ImageTable
from neuron_scheduler.cluster.tables.pods import PodTable
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import PodAffinityTerm

_MOST_HOLES = 64  # more than there are nodes
_MOST_RELABELINGS = 2048  # changes of labels that are kept for the rollups
_MOST_SUMS = 128  # that are kept


@attrs.define(eq=False)
class OfferedNames:
    """
    How many kinds of nodes have each label key and each allocatable resource, and how many nodes each kind has.

    A kind is the tuple of all names: most nodes have the same.

    Attributes:
        novelties: how often a node was the first to have a name.
    """

    labels: dict[Hashable, int] = attrs.field(factory=dict)
    resources: dict[Hashable, int] = attrs.field(factory=dict)
    novelties: int = 0

    def replace(self, old: Node | None, new: Node | None) -> None:
        for names, before, after in (
            (self.labels, old and tuple(old.labels), new and tuple(new.labels)),
            (self.resources, old and tuple(old.allocatable), new and tuple(new.allocatable)),
        ):
            if before != after:
                if after and _count(names, (after,), 1):
                    self.novelties += bool(_count(names, after, 1))
                if before and _count(names, (before,), -1):
                    _count(names, before, -1)

    def fork(self) -> Self:
        return type(self)(dict(self.labels), dict(self.resources), self.novelties)


def _count(numbers: dict[Hashable, int], names: Iterable[Hashable], by: int) -> int:
    """Count names once more (1) or less (-1), and return how many of them came or went."""
    changed = 0
    for name in names:
        number = numbers.get(name, 0) + by
        changed += number == (by > 0)
        if number:
            numbers[name] = number
        else:
            del numbers[name]
    return changed


@attrs.define(eq=False)
class NodeTable:
    """
    Rows by slot and by name.

    Attributes:
        slots: the row in each slot, None where there is a hole.
        nodes: the node of each row.
        slot_of: the slot of each node, by name.
        live: the slots that are no holes.
        set_aside: the slots of nodes to be used only if no other takes the pod.
        of_nodes: indexes that depend on the nodes' objects only.
        of_rows: indexes of rows.
        offered: the labels and resources that some node has.
        relabelings: the slots whose node came, went or changed its labels.
    """

    slots: list[NodeInfo | None] = attrs.field(factory=list)
    nodes: list[Node | None] = attrs.field(factory=list)
    slot_of: SharedDict[str, Slot] = attrs.field(factory=SharedDict)
    live: NodeSet = NO_NODES
    set_aside: NodeSet = NO_NODES
    of_nodes: Indexes[Node] = attrs.Factory(lambda self: Indexes(self.nodes), takes_self=True)
    of_rows: Indexes[NodeInfo] = attrs.Factory(lambda self: Indexes(self.slots), takes_self=True)
    sums: Sums[NodeInfo] = attrs.field(
        init=False, default=attrs.Factory(lambda self: Sums(rows=self.slots, log=self.of_rows.log), takes_self=True)
    )
    pods: PodTable = attrs.field(factory=PodTable)
    terms: TermTable = attrs.field(factory=TermTable)
    demand: Demand = attrs.field(factory=Demand)
    images: ImageTable = attrs.field(factory=ImageTable)
    offered: OfferedNames = attrs.field(factory=OfferedNames)
    relabelings: Relabelings = attrs.field(factory=Relabelings)
    headless: dict[str, NodeInfo] = attrs.field(factory=dict)
    _holes: deque[Slot] = attrs.field(factory=deque)  # the one that has been empty for longest first
    _last_terms: dict[TermKind, tuple[object, list[tuple[PodAffinityTerm, Column]]]] = attrs.field(factory=dict)
    _last_sums: dict[Hashable, Column] = attrs.field(factory=dict)

    def row(self, slot: Slot) -> NodeInfo:
        node_info = self.slots[slot]
        if node_info is None:
            raise LookupError(f"slot {slot} is empty")
        return node_info

    def node_info_of(self, name: str) -> NodeInfo:
        """Return the row of a name; an empty one if there is no such node and no pod names it."""
        slot = self.slot_of.get(name)
        if slot is not None:
            return self.row(slot)
        return self.headless.get(name) or NodeInfo(Node(uid="", name=name))

    def domains(self, key: str) -> Domains:
        """Return the domains of a label; a key that no node has costs no index."""
        known = key in self.offered.labels
        postings = self.of_nodes.get(domain(key), Postings) if known else Postings()
        return Domains(key, postings, self.nodes, self.relabelings)

    def nodes_of(self, key: str, value: str) -> NodeSet:
        return self.of_nodes.get(label(key), Postings).get(value) if key in self.offered.labels else NO_NODES

    def terms_of_placed_pods(
        self, kind: TermKind, pod: Pod, namespace_labels: Mapping[str, str]
    ) -> Sequence[tuple[PodAffinityTerm, Column]]:
        """
        Return each term that matches a pod, with how many pods have it in each slot's domain.

        The last answer is kept while no term and no label changes: one decision asks several times.
        """
        changes = self.terms.changes, self.relabelings.end, len(self.slots)
        question = pod.namespace, pod.labels, namespace_labels, changes
        asked, answer = self._last_terms.get(kind, (None, []))
        if question != asked:
            domains, answer = dict[str, Domains](), []
            for term in self.terms.matching_terms(kind, pod, namespace_labels):
                key = term.topology_key
                if key not in domains:
                    domains[key] = self.domains(key)
                answer.append((term, self.terms.totals(kind, term, domains[key])))
            self._last_terms[kind] = question, answer
        return answer

    def sums_in_domains(self, numbers: Column, key: str) -> Column:
        """Return the sum of a column over each slot's domain of a label; the last sums are kept."""
        question = key, tuple(numbers.weights()), self.relabelings.end
        if question not in self._last_sums:
            if len(self._last_sums) >= _MOST_SUMS:
                for earlier in [*self._last_sums][::3]:  # not all: slightly more than are kept may be used in turn
                    del self._last_sums[earlier]
            self._last_sums[question] = self.domains(key).postings.sums(numbers)
        return self._last_sums[question]

    def put(self, node_info: NodeInfo) -> None:
        """Add or replace the row of a node, which may have been deleted and created again meanwhile."""
        name = node_info.node.name
        slot = self.slot_of.get(name)
        if slot is not None and self.row(slot).node.uid == node_info.node.uid:
            self.replace(slot, node_info)
            return
        if slot is not None:
            self._vacate(slot)
        self.headless.pop(name, None)
        self._insert(node_info)

    def put_pod(self, node_info: NodeInfo, uid: str) -> None:
        """Replace a row in which one pod was added, removed or changed, whether its node exists or not."""
        name = node_info.node.name
        slot = self.slot_of.get(name)
        if slot is not None:
            old = self.row(slot)
            self.slots[slot] = node_info
            before, after = old.pod_infos.get(uid), node_info.pod_infos.get(uid)
            self._move_pod(slot, before, after)
            if before is None or after is None or not _has_same_demand(before.pod, after.pod):
                self._recount(before, old, after, node_info)
            moved = before is None or after is None or before.cores != after.cores  # pods may share devices
            if moved or not is_equal_row(old, node_info):
                pod_info = after or before
                self.of_rows.record(slot, old, node_info, parts=0 if pod_info is None else pod_info.pod.parts)
        elif node_info.pod_infos:
            self.headless[name] = node_info
        else:
            self.headless.pop(name, None)

    def remove(self, name: str) -> None:
        """Remove a node; its pods are kept in a headless row, its nominations are not."""
        slot = self.slot_of.get(name)
        if slot is None:
            return
        node_info = self.row(slot)
        self._vacate(slot)
        if node_info.pod_infos:
            self.headless[name] = attrs.evolve(node_info, nominations=(), set_aside=None)

    def replace(self, slot: Slot, node_info: NodeInfo | None, *, with_terms: bool = True) -> None:
        old = self.slots[slot]
        self.slots[slot] = node_info
        node = None if node_info is None else node_info.node
        node_before = None if old is None else old.node
        self.nodes[slot] = node
        self.images.replace(slot, node_before.images if node_before else (), node.images if node else ())
        if node_info is old:
            return
        is_set_aside = node_info is not None and node_info.set_aside is not None
        if self.set_aside or is_set_aside:
            self.set_aside = less(self.set_aside, 1 << slot) | (1 << slot if is_set_aside else NO_NODES)
        if node is not node_before and node != node_before:
            self.of_nodes.record(slot, node_before, node)
            self.offered.replace(node_before, node)
            if node is None or node_before is None or node.labels != node_before.labels:
                self.relabelings.append((slot, node_before), most=_MOST_RELABELINGS)
        self._move_pods(slot, old, node_info, with_terms=with_terms)
        if node_info != old:
            nominations = (*(old.nominations if old else ()), *(node_info.nominations if node_info else ()))
            self.of_rows.record(slot, old, node_info, parts=sum([each.pod.parts for each in nominations]))

    @contextmanager
    def row_added(self, node_info: NodeInfo) -> Iterator[Slot]:
        """Add the row of a node with a new name inside the `with` block, in which nothing else may run."""
        name = node_info.node.name
        if name in self.slot_of:
            raise ValueError(f"cannot add {name!r} for a question: it exists")
        slot = self._insert(node_info)
        try:
            yield slot
        finally:
            self._vacate(slot)

    def fork(self) -> Self:
        """Return an independent copy; it shares rows and integers."""
        slots, nodes = list(self.slots), list(self.nodes)
        fork = type(self)(
            slots=slots,
            nodes=nodes,
            slot_of=self.slot_of.copy(),
            live=self.live,
            set_aside=self.set_aside,
            of_nodes=self.of_nodes.fork(nodes),
            of_rows=self.of_rows.fork(slots),
            pods=self.pods.fork(),
            terms=self.terms.fork(),
            demand=self.demand.fork(),
            images=self.images.fork(),
            offered=self.offered.fork(),
            relabelings=self.relabelings.fork(),
            headless=dict(self.headless),
            holes=self._holes.copy(),
        )
        fork.sums.share(self.sums)
        return fork

    def _insert(self, node_info: NodeInfo) -> Slot:
        if len(self._holes) > len(self.slot_of) + _MOST_HOLES:
            slot = self._holes.popleft()
        else:
            slot = Slot(len(self.slots))
            self.slots.append(None)
            self.nodes.append(None)
        self.slot_of[node_info.node.name] = slot
        self.live |= 1 << slot
        self.replace(slot, node_info)
        return slot

    def _vacate(self, slot: Slot) -> None:
        self.slot_of.pop(self.row(slot).node.name, None)
        self.live &= ~(1 << slot)
        self._holes.append(slot)
        self.replace(slot, None)

    def _move_pods(self, slot: Slot, old: NodeInfo | None, new: NodeInfo | None, *, with_terms: bool) -> None:
        before, after = old.pod_infos if old else NO_POD_INFOS, new.pod_infos if new else NO_POD_INFOS
        if before is after:
            return
        same = old is not None and new is not None and old.machine is new.machine
        for uid in [uid for uid in {**before, **after} if not same or before.get(uid) is not after.get(uid)]:
            self._move_pod(slot, before.get(uid), after.get(uid), with_terms=with_terms)
            self._recount(before.get(uid), old, after.get(uid), new)

    def _recount(
        self, before: PodInfo | None, old: NodeInfo | None, after: PodInfo | None, new: NodeInfo | None
    ) -> None:
        if after is not None and new is not None:
            self.demand.count(after.pod, new.machine, 1)
        if before is not None and old is not None:
            self.demand.count(before.pod, old.machine, -1)

    def _move_pod(self, slot: Slot, old: PodInfo | None, new: PodInfo | None, *, with_terms: bool = True) -> None:
        if old is new:
            return
        if new is not None:
            self.pods.put(new.pod, slot, None if old is None else old.pod)
        elif old is not None:
            self.pods.remove(old.pod.uid)
        if with_terms:
            self.terms.replace(slot, old.pod if old else None, new.pod if new else None)


def _has_same_demand(before: Pod, after: Pod) -> bool:
    return before.neuron is after.neuron and before.constraints is after.constraints

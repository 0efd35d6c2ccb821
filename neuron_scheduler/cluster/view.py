"""
What can be read of the cluster: node sets, columns and rows, as they are or under an overlay.

Plugins read the cluster only through this. Slots and node sets are valid until the next `await` (`tables.nodes`).
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Protocol, Self, TypeVar

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.indexes import Data, Indexes, Row
from neuron_scheduler.cluster.index.labels import domain, integer_label, label
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, selectors
from neuron_scheduler.cluster.index.postings import Postings, Values
from neuron_scheduler.cluster.index.rollup import Domains
from neuron_scheduler.cluster.index.sums import Totals
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.cluster.tables.demand import Demand
from neuron_scheduler.cluster.tables.nodes import NodeTable
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.cluster.tables.selecting_kinds import NamespaceTable, Workloads
from neuron_scheduler.cluster.tables.volumes import Volumes
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import PodAffinityTerm
from neuron_scheduler.model.volumes import PersistentVolumeClaim

_Definition = TypeVar("_Definition", bound=Hashable)


class Overlay(Hashable, Protocol):
    """
    How rows would be different, such as without the pods of lower priority, for questions about all nodes.

    A hashable value, because it is part of the definition of the indexes that answer the question. Its marks show which
    rows it changes: if they are few, only these are computed.
    """

    @property
    def marks(self) -> Callable[[NodeInfo], Values]:
        """Index definition: a row's marks, which decide whether overlays of this type change it."""

    def changes(self, mark: Hashable) -> bool:
        """Return whether rows with this mark are changed; a row with no such mark is not."""

    def __call__(self, node_info: NodeInfo, /) -> NodeInfo: ...


@attrs.frozen(eq=False)
class _OverlaidIndex:
    """Index definition: another one, applied to rows under an overlay."""

    overlay: Overlay
    base: Callable[[NodeInfo], Any]

    def __call__(self, node_info: NodeInfo) -> Any:
        return self.base(self.overlay(node_info))

    def changed_rows(self, rows: Indexes[NodeInfo]) -> NodeSet:
        return _changed_nodes(rows, self.overlay)


overlaid = memoise(maxsize=4096)(_OverlaidIndex)
"""The only definition for an overlay and a definition, since indexes are looked up by identity."""


@attrs.define(eq=False)
class IndexRequests:
    """
    The indexes that a question has asked for.

    Attributes:
        asked: the indexes of nodes and of rows by definition; without those under an overlay.
        lacking: those that were not ready, by definition, with the function that prepares each in steps.
        comparisons: how many pods, or nodes, are looked at for those that count pods, or free volumes.
    """

    asked: dict[Callable[[Any], Any], Indexes[Any]] = attrs.field(factory=dict)
    lacking: dict[Hashable, Callable[[], Iterator[None]]] = attrs.field(factory=dict)
    comparisons: int = 0

    def are_ready(self) -> bool:
        """Return whether all indexes that were asked for exist and have few changes to catch up with."""
        return all(indexes.is_ready(definition) for definition, indexes in self.asked.items())

    def prepare(self) -> Generator[None, None, None]:
        """Prepare what is lacking; yields when other tasks may run."""
        for prepare in self.lacking.values():
            yield from prepare()


@attrs.define(eq=False)
class View:
    """Read access to the cluster's tables."""

    workloads: Workloads = attrs.field(factory=Workloads)
    namespaces: NamespaceTable = attrs.field(factory=NamespaceTable)
    volumes: Volumes = attrs.field(factory=Volumes)
    _table: NodeTable = attrs.field(factory=NodeTable)
    _overlay: Overlay | None = None

    @property
    def live(self) -> NodeSet:
        return self._table.live

    @property
    def changes(self) -> int:
        """How often a row or a node has changed."""
        table = self._table
        return table.of_rows.log.end + table.of_nodes.log.end

    @property
    def set_aside(self) -> NodeSet:
        """The nodes to be used only if no other takes the pod."""
        return self._table.set_aside

    @property
    def epoch(self) -> int:
        """Changes when prepared indexes may not suffice: one was dropped, or a node has a new label or resource."""
        table = self._table
        return table.of_rows.dropped + table.of_nodes.dropped + table.offered.novelties

    @property
    def node_count(self) -> int:
        return len(self._table.slot_of)

    @property
    def demand(self) -> Demand:
        return self._table.demand

    def row(self, slot: Slot) -> NodeInfo:
        node_info = self._table.row(slot)
        return node_info if self._overlay is None else self._overlay(node_info)

    def node(self, name: str) -> NodeInfo | None:
        slot = self.slot(name)
        return None if slot is None else self.row(slot)

    def rows(self) -> Iterator[NodeInfo]:
        """Yield every node's row by slot; not for decisions, because it loops over all nodes."""
        return filter(None, self._table.slots)

    def rows_in_slots(self) -> list[NodeInfo | None]:
        """Return every slot's row as it is now, None for a hole: for what is read after pauses."""
        return list(self._table.slots)

    def slot(self, name: str) -> Slot | None:
        """Return the slot of a node, None if it does not exist."""
        return self._table.slot_of.get(name)

    def rows_of(self, nodes: NodeSet) -> Iterator[NodeInfo]:
        """Yield rows without an overlay as they are now, by slot."""
        return filter(None, compress(list(self._table.slots), selectors(nodes)))

    def node_postings(self, values_of: Callable[[Node], Values]) -> Postings:
        """Return postings that depend on the node's object only; changes of pods do not touch them."""
        return self._table.of_nodes.get(values_of, Postings)

    def node_column(self, number_of: Callable[[Node], int]) -> Column:
        return self._table.of_nodes.get(number_of, Column)

    def has_label(self, *keys: str) -> bool:
        return not self._table.offered.labels.keys().isdisjoint(keys)

    def label_postings(self, key: str) -> Postings:
        """Return the nodes by their value of a label; a key that no node has costs no index."""
        return self.node_postings(label(key)) if key in self._table.offered.labels else Postings()

    def domains(self, key: str) -> Postings:
        return self.node_postings(domain(key)) if key in self._table.offered.labels else Postings()

    def integer_postings(self, key: str) -> Postings:
        """Return the nodes by the integer value of a label, for Gt and Lt; others are left out."""
        return self.node_postings(integer_label(key)) if key in self._table.offered.labels else Postings()

    def offers(self, resource: str) -> bool:
        return resource in self._table.offered.resources

    def postings(self, values_of: Callable[[NodeInfo], Values]) -> Postings:
        """Return the up-to-date postings defined by `values_of`; equal definitions share one index."""
        if self._overlay is not None:
            return self._overlaid(self._overlay, values_of, Postings)
        return self._table.of_rows.get(values_of, Postings)

    def column(self, number_of: Callable[[NodeInfo], int]) -> Column:
        if self._overlay is not None:
            return self._overlaid(self._overlay, number_of, Column)
        return self._table.of_rows.get(number_of, Column)

    def changed_nodes(self, overlay: Overlay) -> NodeSet:
        """Return the nodes whose rows an overlay changes, and perhaps some that it does not change."""
        return _changed_nodes(self._table.of_rows, overlay)

    def prepare(self, ask: "Callable[[View], object]") -> Iterator[None]:
        """
        Build the indexes that a question needs, a few rows at a time; yields when other tasks may run.

        One index costs some milliseconds for a thousand rows. `ask` is called once, with a view in which missing
        indexes are empty; it must go on to its last index all the same.
        """
        requests = self.index_requests(ask)
        if requests.lacking:
            yield
        yield from requests.prepare()

    def index_requests(self, ask: "Callable[[View], object]") -> IndexRequests:
        """Return the indexes that a question uses; `ask` is called as in `prepare`."""
        requests = IndexRequests()
        ask(RecordingView(self.workloads, self.namespaces, self.volumes, self._table, self._overlay, requests))
        return requests

    def counts(self, definition: PodQuery) -> Column:
        """Return how many pods match a selector on each node."""
        return self._totals(self._table.pods, definition, "")

    def totals(self, definition: PodQuery, key: str) -> Column:
        """Return how many pods match a selector in each node's domain of a label; 0 where the node lacks it."""
        return self._totals(self._table.pods, definition, key)

    def sums_in_domains(self, numbers: Column, key: str) -> Column:
        return self._table.sums_in_domains(numbers, key)

    def sums(self, number_of: Callable[[NodeInfo], int], key: str) -> Column:
        """Return at each node the sum of a number of the rows of its domain of a label; 0 where it lacks that."""
        return self._totals(self._table.sums, number_of, key)

    def terms_of_placed_pods(self, kind: TermKind, pod: Pod) -> Iterable[tuple[PodAffinityTerm, Column]]:
        """Return each term of placed pods that matches a pod, with how many pods have it in each node's domain."""
        return self._table.terms_of_placed_pods(kind, pod, self.namespaces.labels(pod.namespace))

    def terms_of_placed_pod(self, kind: TermKind, placed: Pod) -> Sequence[PodAffinityTerm]:
        return self._table.terms.terms_of(kind, placed)

    def has_terms(self, *kinds: TermKind) -> bool:
        terms = self._table.terms
        return terms.has_any and any(terms.has_terms(kind) for kind in kinds)

    @property
    def terms_left_out(self) -> int:
        """How many terms of placed pods are ignored, because their namespaces have too many."""
        return self._table.terms.left_out

    def images(self, name: str) -> Iterator[tuple[int, NodeSet]]:
        """Yield the sizes of the images of a name, the largest first, each with the nodes that have that size."""
        return self._table.images.sizes_of(name, len(self._table.slots))

    def free_volumes(self, wish: PersistentVolumeClaim) -> Column:
        """Return how many free volumes serve a claim on each node, or the bytes of the largest room (`ROOM`)."""
        return self.volumes.free.counts(wish, self._table)

    def with_overlay(self, overlay: Overlay) -> Self:
        """Return the same cluster with an overlay over every row; counts of pods stay those without it."""
        return attrs.evolve(self, overlay=overlay)

    def _totals(self, totals: Totals[_Definition, Any], definition: _Definition, key: str) -> Column:
        return totals.totals(definition, _domains(self._table, key))

    def _overlaid(self, overlay: Overlay, definition: Callable[[NodeInfo], Any], index_type: type[Data]) -> Data:
        return self._table.of_rows.derive(overlaid(overlay, definition), index_type)


@attrs.define(eq=False)
class RecordingView(View):
    """Records the indexes that a question asks for, and returns an empty one in place of each that is not ready."""

    requests: IndexRequests = attrs.field(factory=IndexRequests)

    def node_postings(self, values_of: Callable[[Node], Values]) -> Postings:
        return (
            Postings() if self._lacks(self._table.of_nodes, values_of, Postings) else super().node_postings(values_of)
        )

    def node_column(self, number_of: Callable[[Node], int]) -> Column:
        lacks = self._lacks(self._table.of_nodes, number_of, Column)
        return Column() if lacks else super().node_column(number_of)

    def postings(self, values_of: Callable[[NodeInfo], Values]) -> Postings:
        """Record the request; `_overlaid` does it under an overlay."""
        lacks = self._overlay is None and self._lacks(self._table.of_rows, values_of, Postings)
        return Postings() if lacks else super().postings(values_of)

    def column(self, number_of: Callable[[NodeInfo], int]) -> Column:
        lacks = self._overlay is None and self._lacks(self._table.of_rows, number_of, Column)
        return Column() if lacks else super().column(number_of)

    def free_volumes(self, wish: PersistentVolumeClaim) -> Column:
        free, table = self.volumes.free, self._table
        if free.is_ready(wish, table):
            return super().free_volumes(wish)
        self.requests.lacking[wish] = lambda: free.prepare(wish, table)
        self.requests.comparisons += len(table.slots)
        return Column()

    def _totals(self, totals: Totals[_Definition, Any], definition: _Definition, key: str) -> Column:
        table = self._table
        if not self._lacks_domains(key) and totals.is_ready(definition, _domains(table, key)):
            return super()._totals(totals, definition, key)
        self.requests.lacking[definition, key] = lambda: totals.prepare(definition, lambda: _domains(table, key))
        self.requests.comparisons += totals.most_compared(definition)
        return Column()

    def terms_of_placed_pods(self, kind: TermKind, pod: Pod) -> Iterable[tuple[PodAffinityTerm, Column]]:
        """Record the requests, and leave out the terms whose domains are not ready."""
        table = self._table
        for term in table.terms.matching_terms(kind, pod, self.namespaces.labels(pod.namespace)):
            if not self._lacks_domains(term.topology_key):
                yield term, table.terms.totals(kind, term, table.domains(term.topology_key))

    def _overlaid(self, overlay: Overlay, definition: Callable[[NodeInfo], Any], index_type: type[Data]) -> Data:
        """Record the request, with the indexes that the one under the overlay derives from."""
        rows, derived = self._table.of_rows, overlaid(overlay, definition)
        if rows.is_ready(derived):
            return super()._overlaid(overlay, definition, index_type)
        self._lacks(rows, overlay.marks, Postings)
        self._lacks(rows, definition, index_type)
        self.requests.lacking[derived] = lambda: rows.prepare_derived(derived, index_type)
        return index_type()

    # The functions that prepare an index keep the table and not this view, which would keep itself, and a fork, alive
    # in a circle of references.

    def _lacks(
        self, indexes: Indexes[Row], definition: Callable[[Row], Any], index_type: type[Postings | Column]
    ) -> bool:
        """Record the request of an index, and return whether it is not ready."""
        self.requests.asked[definition] = indexes
        if indexes.is_ready(definition):
            return False
        self.requests.lacking[definition] = lambda: indexes.prepare(definition, index_type)
        return True

    def _lacks_domains(self, key: str) -> bool:
        """Record the request of a label's domains, and return whether they are not ready."""
        return key in self._table.offered.labels and self._lacks(self._table.of_nodes, domain(key), Postings)


def _domains(table: NodeTable, key: str) -> Domains | None:
    """Return the domains of a label; None without a label, for the nodes themselves."""
    return table.domains(key) if key else None


def _changed_nodes(rows: Indexes[NodeInfo], overlay: Overlay) -> NodeSet:
    marked = rows.get(overlay.marks, Postings)
    return marked.any_of(filter(overlay.changes, marked.values)) if marked.keyed else NO_NODES

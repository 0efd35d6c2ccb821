"""
The cluster in memory: whose pods are on which node, what is promised to whom, and every question about all of it.

A pod's life here:

    (pending) --assume--> ASSUMED --put_pod (the watch confirms)--> BOUND --remove_pod--> (gone)
                             |                                        ^
                             +--forget--> (pending)   (bound by others)--put_pod

There is no lock: nothing here awaits, so no event comes between a decision and its assumption. Refuses to know
where rows and pods come from, and to forget an assumption by itself.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import attrs

from neuron_scheduler.cluster.column import Column
from neuron_scheduler.cluster.indexes import Indexes
from neuron_scheduler.cluster.lens import Lens, through
from neuron_scheduler.cluster.namespaces import NamespaceTable
from neuron_scheduler.cluster.node_state import (
    NodeState,
    Nomination,
    Tenant,
    tenant_of,
    with_tenant,
    with_tenant_again,
    without_tenant,
)
from neuron_scheduler.cluster.nodeset import NodeSet, slots_of
from neuron_scheduler.cluster.pods import Matching
from neuron_scheduler.cluster.postings import Postings, Values
from neuron_scheduler.cluster.rereading import claims_on, holding, holding_anew, on_new_node
from neuron_scheduler.cluster.table import NodeTable
from neuron_scheduler.cluster.terms import Bearing
from neuron_scheduler.cluster.volumes import Touched, Volumes
from neuron_scheduler.cluster.workloads import Workloads
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import PodAffinityTerm
from neuron_scheduler.model.volumes import Storage

CHANGED = "its allocation changed after it was bound; the first is kept"


_Lacking = dict[Callable[[Any], Any], tuple[bool, type[Postings | Column]]]
"""Definitions of indexes that are not there, with whether they are of nodes alone."""


@attrs.define(eq=False)
class Cluster:
    """
    Nodes, pods, indexes. Slots and node sets are valid until the next `await` (`table` says why).

    Attributes:
        workloads: the Services and controllers that pods belong to.
        namespaces: the labels of namespaces.
        volumes: the storage objects.
    """

    workloads: Workloads = attrs.field(factory=Workloads)
    namespaces: NamespaceTable = attrs.field(factory=NamespaceTable)
    volumes: Volumes = attrs.field(factory=Volumes)
    _table: NodeTable = attrs.field(factory=NodeTable)
    _where: dict[str, str] = attrs.field(factory=dict)
    _assumed: set[str] = attrs.field(factory=set)
    _nominated: dict[str, str] = attrs.field(factory=dict)
    _lens: Lens | None = None
    _lacking: _Lacking | None = None

    # What there is

    @property
    def live(self) -> NodeSet:
        """All nodes that exist."""
        return self._table.current.live

    @property
    def epoch(self) -> int:
        """Changes whenever all slots are given anew, and all indexes are gone."""
        return self._table.current.epoch

    @property
    def node_count(self) -> int:
        """How many nodes exist."""
        return len(self._table.slot_of)

    @property
    def pod_count(self) -> int:
        """How many pods are bound or assumed."""
        return len(self._where)

    @property
    def assumed_count(self) -> int:
        """How many pods are assumed and not yet confirmed by the watch."""
        return len(self._assumed)

    def row(self, slot: int) -> NodeState:
        """Return the row in a live slot."""
        state = self._table.row(slot)
        return state if self._lens is None else self._lens(state)

    def node(self, name: str) -> NodeState | None:
        """Return the row of a node, None if it does not exist."""
        slot = self._table.slot_of.get(name)
        return None if slot is None else self._table.row(slot)

    def rows(self) -> Iterator[NodeState]:
        """Yield every node's row by age. For tests, start-up and explanations: no decision calls it."""
        table = self._table.current
        return map(table.row, table.by_age(slot for slot, state in enumerate(table.slots) if state is not None))

    def slot(self, name: str) -> int | None:
        """Return the slot of a node; valid until the next `await`."""
        return self._table.current.slot_of.get(name)

    def oldest(self, nodes: NodeSet) -> int:
        """Return the slot of the oldest of the nodes, of which there must be one: every replica breaks ties by it."""
        return self._table.oldest(nodes)

    def oldest_first(self, nodes: NodeSet) -> Iterable[int]:
        """Return the slots of the nodes by age."""
        return self._table.by_age(slots_of(nodes))

    def tenant(self, uid: str) -> Tenant | None:
        """Return a bound or assumed pod with what it holds."""
        name = self._where.get(uid)
        return None if name is None else self._table.state_of(name).tenants[uid]

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node a pod is bound to or assumed on."""
        return self._where.get(uid)

    def conflicts(self, uid: str) -> tuple[Pod, ...]:
        """Return the other pods on the same node that claim a core this pod claims."""
        name = self._where.get(uid)
        return () if name is None else self._table.state_of(name).conflicts(uid)

    def nomination(self, uid: str) -> tuple[str, Nomination] | None:
        """Return the node that is promised to a pending pod, and the promise; None if there is none."""
        name = self._nominated.get(uid)
        state = None if name is None else self.node(name)
        if name is None or state is None:
            return None
        return next(((name, each) for each in state.nominated if each.pod.uid == uid), None)

    @property
    def has_nominations(self) -> bool:
        """Whether space is promised to any pending pod."""
        return bool(self._nominated)

    def is_assumed(self, uid: str) -> bool:
        """Tell whether a pod is assumed and not yet confirmed."""
        return uid in self._assumed

    # What changes

    def put_node(self, node: Node) -> NodeState:
        """Add a node or take its new state, and return its row."""
        before = self._table.state_of(node.name)
        if self.node(node.name) is None:  # in no index so far: nobody told when a claim of its pods changed
            before = holding_anew(before, self.volumes)
        new = on_new_node(before, node, self.volumes.storage_of(node.name))
        self._table.put(new)
        return new

    def remove_node(self, name: str) -> tuple[Nomination, ...]:
        """Take a node out and return what was promised on it, which is void; its pods stay until they are gone."""
        state = self.node(name)
        self._table.remove(name)
        return () if state is None else state.nominated

    def put_pod(self, pod: Pod) -> Tenant:
        """
        Take a bound pod, or its new state, and return it with what it holds.

        The first allocation that could be read for a uid is kept: the silicon it names is what the kubelet was told.
        An assumption was never read anywhere, so it gives way to what the watch says.
        """
        known = self.tenant(pod.uid)
        if known is not None and known.holds_as_before(pod):
            self._assumed.discard(pod.uid)
            tenant = attrs.evolve(known, pod=pod)
            self._table.put_tenant(with_tenant_again(self._table.state_of(pod.node_name), tenant), pod.uid)
            return tenant
        before = None if pod.uid in self._assumed else known
        self._assumed.discard(pod.uid)
        tenant = tenant_of(pod, self._table.state_of(pod.node_name).machine)
        same_node = self._where.get(pod.uid) == pod.node_name
        if before is not None and same_node and before.cores and before.cores != tenant.cores:
            first = attrs.evolve(pod, allocation=before.pod.allocation)
            tenant = Tenant(first, cores=before.cores, problem=CHANGED)
        self._settle(tenant)
        return tenant

    def put_unreadable_pod(self, pod: Pod) -> None:
        """Take a bound pod of which only identity and node could be read: an unknown holder of an unknown amount."""
        if pod.uid not in self._where:
            self._settle(Tenant(pod, cores=None, problem="the pod object cannot be read", unreadable=True))

    def remove_pod(self, uid: str) -> str | None:
        """Take a pod off its node and return the node's name; None if it was on no node."""
        self._assumed.discard(uid)
        name = self._where.pop(uid, None)
        if name is not None:
            self._table.put_tenant(without_tenant(self._table.state_of(name), uid), uid)
        return name

    def assume(self, pod: Pod, cores: int = 0) -> None:
        """
        Take a pod as bound to `pod.node_name` from now on, before the API server says so.

        Raises:
            ValueError: the pod is on a node already, or one of the cores is not free there.
        """
        state = self.node(pod.node_name)
        if pod.uid in self._where or state is None:
            raise ValueError(f"cannot assume {pod.key} on {pod.node_name!r}: already placed, or no such node")
        if cores & ~state.free_cores:
            raise ValueError(f"cannot assume {pod.key} on {pod.node_name!r}: a core it was given is held already")
        self._settle(Tenant(pod, cores=cores))
        self._assumed.add(pod.uid)

    def forget(self, uid: str) -> None:
        """Take back an assumption; a pod that the watch has confirmed since stays."""
        if uid in self._assumed:
            self.remove_pod(uid)

    def nominate(self, name: str, nomination: Nomination) -> None:
        """Promise space on a node to a pending pod, in place of what it was promised before; no node, no promise."""
        self.denominate(nomination.pod.uid)
        state = self.node(name)
        if state is not None:
            self._nominated[nomination.pod.uid] = name
            held = self.volumes.held_by(nomination.pod)
            nomination = attrs.evolve(nomination, volumes=held) if held else nomination
            self._table.put(attrs.evolve(state, nominated=(*state.nominated, nomination)))

    def denominate(self, uid: str) -> str | None:
        """Take a promise back and return its node's name; None if there was none."""
        name = self._nominated.pop(uid, None)
        state = None if name is None else self.node(name)
        if state is not None:
            self._table.put(_unpromised(state, uid))
        return name

    def put_storage(self, found: Storage) -> None:
        """Take a storage object's state; the nodes that refer to it are put anew."""
        self._look_again(self.volumes.put(found))

    def remove_storage(self, gone: Storage) -> None:
        """Take that a storage object is gone."""
        self._look_again(self.volumes.remove(gone))

    # What is asked

    def node_postings(self, values_of: Callable[[Node], Values]) -> Postings:
        """Return the postings of something that only the node's own object decides: pods come and go beside it."""
        table = self._table.current if self._table.stale else self._table
        if self._lacking is not None and self._lacks(table.of_nodes, values_of, Postings):
            return Postings()
        return table.of_nodes.postings(values_of, table.nodes)

    def node_column(self, number_of: Callable[[Node], int]) -> Column:
        """Return the column of a number that only the node's own object decides."""
        table = self._table.current if self._table.stale else self._table
        if self._lacking is not None and self._lacks(table.of_nodes, number_of, Column):
            return Column()
        return table.of_nodes.column(number_of, table.nodes)

    def postings(self, values_of: Callable[[NodeState], Values]) -> Postings:
        """Return the up-to-date postings defined by `values_of`; equal definitions share one index."""
        table = self._table.current if self._table.stale else self._table
        definition = values_of if self._lens is None else through(self._lens, values_of)
        if self._lacking is not None and self._lacks(table.of_rows, definition, Postings):
            return Postings()
        return table.of_rows.postings(definition, table.slots)

    def column(self, number_of: Callable[[NodeState], int]) -> Column:
        """Return the up-to-date column defined by `number_of`; equal definitions share one index."""
        table = self._table.current if self._table.stale else self._table
        definition = number_of if self._lens is None else through(self._lens, number_of)
        if self._lacking is not None and self._lacks(table.of_rows, definition, Column):
            return Column()
        return table.of_rows.column(definition, table.slots)

    def prepared(self, ask: Callable[[Self], object]) -> Iterator[None]:
        """
        Build the indexes that a question needs, a few rows at a time; yields whenever others may run.

        For questions that have not been asked for long: an index costs some milliseconds for a thousand rows. `ask` is
        called once, of a cluster where indexes that are not there have nothing in them, and must not stop at what that
        leads to.
        """
        lacking: _Lacking = {}
        ask(attrs.evolve(self, lacking=lacking))
        for definition, (of_nodes, kind) in lacking.items():
            table = self._table.current
            if of_nodes:
                yield from table.of_nodes.prepare(definition, kind, table.nodes)
            else:
                yield from table.of_rows.prepare(definition, kind, table.slots)

    def counts(self, definition: Matching) -> Column:
        """Return how many pods match a selector on each node."""
        table = self._table.current
        return table.pods.counts(definition, len(table.slots))

    def totals(self, definition: Matching, key: str) -> Column:
        """Return how many pods match a selector in each node's domain of a label; 0 where the node lacks it."""
        table = self._table.current
        return table.pods.totals(definition, table.domains(key), len(table.slots))

    def borne(self, bearing: Bearing, pod: Pod) -> Iterator[tuple[PodAffinityTerm, Column]]:
        """Yield each term that pods here bear and that means a pod, with how many bear it in each node's domain."""
        table = self._table.current
        for term, bearers in table.terms.meaning(bearing, pod, self.namespaces.labels(pod.namespace)):
            yield term, bearers.totals(table.domains(term.topology_key), len(table.slots))

    def bears(self, *bearings: Bearing) -> bool:
        """Tell whether any pod here bears a term in one of these ways."""
        terms = self._table.terms
        return terms.borne_at_all and any(terms.bears(bearing) for bearing in bearings)

    def images(self, name: str) -> Iterator[tuple[int, NodeSet]]:
        """Yield the sizes that images of a name have, the largest first, with the nodes where it is that large."""
        table = self._table.current
        return table.images.named(name, table.slot_of)

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(
            workloads=self.workloads.fork(),
            namespaces=self.namespaces.fork(),
            volumes=self.volumes.fork(),
            table=self._table.fork(),
            where=dict(self._where),
            assumed=set(self._assumed),
            nominated=dict(self._nominated),
        )

    def seen(self, lens: Lens) -> Self:
        """
        Return the same cluster with every row seen through a lens.

        For questions to all nodes at once. Counts of pods (`counts`, `totals`) are those of the cluster as it is.
        """
        return attrs.evolve(self, lens=lens)

    @contextmanager
    def unpromised(self, uid: str) -> Iterator[None]:
        """Let what a pod was promised count as free inside the `with` block: it is what the pod itself may take."""
        name = self._nominated.get(uid)
        slot = None if name is None else self.slot(name)
        if slot is None:
            yield
            return
        with self.what_if(slot, _unpromised(self._table.row(slot), uid)):
            yield

    @contextmanager
    def what_if(self, slot: int, state: NodeState) -> Iterator[None]:
        """Let the whole cluster, indexes included, have one row replaced inside the `with` block."""
        before = self._table.row(slot)
        self._table.replace(slot, state)
        try:
            yield
        finally:
            self._table.replace(slot, before)

    def _lacks(self, indexes: Indexes[Any], definition: Callable[[Any], Any], kind: type[Postings | Column]) -> bool:
        """Tell whether an index is not ready, and note it."""
        if self._lacking is None or indexes.is_ready(definition):
            return False
        self._lacking[definition] = (indexes is self._table.of_nodes, kind)
        return True

    def _settle(self, tenant: Tenant) -> None:
        """Put a pod on the node it names, off any other, in one change where it stays on the same node."""
        uid, name = tenant.pod.uid, tenant.pod.node_name
        tenant = holding(tenant, self.volumes)
        self.denominate(uid)
        if self._where.get(uid) not in (None, name):
            self.remove_pod(uid)
        state = self._table.state_of(name)
        if uid in state.tenants:
            state = without_tenant(state, uid)
        self._where[uid] = name
        self._table.put_tenant(with_tenant(state, tenant), uid)

    def _look_again(self, touched: Touched) -> None:
        """Put the rows anew that a storage object means something to."""
        for name in touched.nodes:
            state = self.node(name)
            if state is not None:
                self._table.put(attrs.evolve(state, storage=self.volumes.storage_of(name)))
        if not (touched.claims and self._where):
            return
        holders = self.postings(claims_on)
        for slot in {slot for key in touched.claims for slot in holders.slots(key)}:
            self._table.replace(slot, holding_anew(self._table.row(slot), self.volumes))


def _unpromised(state: NodeState, uid: str) -> NodeState:
    return attrs.evolve(state, nominated=tuple(each for each in state.nominated if each.pod.uid != uid))

"""
The cluster in memory: a table of nodes, the place of every pod, and indexes over both.

A pod's life here:

    (pending) --assume--> ASSUMED --put_pod (the watch confirms)--> BOUND --remove_pod--> (gone)
                             |                                        ^
                             +--forget--> (pending)   (bound by others)--put_pod

There is no lock: nothing here awaits, so no event comes between a decision and its assumption. Refuses to know
where rows and pods come from, and to forget an assumption by itself.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self

import attrs

from neuron_scheduler.cluster.column import Column
from neuron_scheduler.cluster.images import ImageTable
from neuron_scheduler.cluster.indexes import Indexes
from neuron_scheduler.cluster.labels import label
from neuron_scheduler.cluster.namespaces import NamespaceTable
from neuron_scheduler.cluster.node_state import (
    NO_TENANTS,
    NodeState,
    Nomination,
    Tenant,
    on_node,
    tenant_of,
    with_tenant,
    without_tenant,
)
from neuron_scheduler.cluster.nodeset import NodeSet, from_slots
from neuron_scheduler.cluster.pods import Matching, PodTable
from neuron_scheduler.cluster.postings import Postings, Values
from neuron_scheduler.cluster.rollup import Domains
from neuron_scheduler.cluster.terms import Bearing, TermTable
from neuron_scheduler.cluster.volumes import Touched, Volumes
from neuron_scheduler.cluster.workloads import Workloads
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import PodAffinityTerm
from neuron_scheduler.model.volumes import Storage

_MOST_HOLES = 64  # beyond as many as there are nodes

CHANGED = "its allocation changed after it was bound; the first is kept"


Lens = Callable[[NodeState], NodeState]
"""What a row would be under an assumption; a hashable value, since it becomes part of the definition of indexes."""


@attrs.frozen(cache_hash=True)
class _Through:
    """Index definition: another one, of rows seen through a lens."""

    lens: Lens
    definition: Callable[[NodeState], Any]

    def __call__(self, state: NodeState) -> Any:
        return self.definition(self.lens(state))


_through = lru_cache(maxsize=4096)(_Through)


@attrs.define(eq=False)
class Cluster:
    """
    Nodes, pods, indexes.

    Rows are numbered by (creationTimestamp, name, uid), so that every replica and every restart breaks ties alike.
    A node that arrives out of that order, or too many holes, make the numbering stale: the next question renumbers
    and starts with no indexes (a new *epoch*). Slots and node sets must therefore not outlive an `await`.

    Attributes:
        workloads: the Services and controllers that pods belong to.
        namespaces: the labels of namespaces.
    """

    workloads: Workloads = attrs.field(factory=Workloads)
    namespaces: NamespaceTable = attrs.field(factory=NamespaceTable)
    _slots: list[NodeState | None] = attrs.field(factory=list)
    _nodes: list[Node | None] = attrs.field(factory=list)
    _slot_of: dict[str, int] = attrs.field(factory=dict)
    _headless: dict[str, NodeState] = attrs.field(factory=dict)
    _where: dict[str, str] = attrs.field(factory=dict)
    _assumed: set[str] = attrs.field(factory=set)
    _nominated: dict[str, str] = attrs.field(factory=dict)
    _live: NodeSet = 0
    _pods: PodTable = attrs.field(factory=PodTable)
    _terms: TermTable = attrs.field(factory=TermTable)
    _images: ImageTable = attrs.field(factory=ImageTable)
    volumes: Volumes = attrs.field(factory=Volumes)
    _labels_epoch: int = 0
    _stale: bool = False
    _of_nodes: Indexes[Node] = attrs.field(factory=Indexes[Node])
    _of_rows: Indexes[NodeState] = attrs.field(factory=Indexes[NodeState])
    _lens: Lens | None = None

    # What there is

    @property
    def live(self) -> NodeSet:
        """All nodes that exist."""
        if self._stale:
            self._renumber()
        return self._live

    @property
    def node_count(self) -> int:
        """How many nodes exist."""
        return len(self._slot_of)

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
        state = self._slots[slot]
        if state is None:
            raise LookupError(f"slot {slot} is empty")
        return state if self._lens is None else self._lens(state)

    def node(self, name: str) -> NodeState | None:
        """Return the row of a node, None if it does not exist."""
        slot = self._slot_of.get(name)
        return None if slot is None else self._slots[slot]

    def rows(self) -> Iterator[NodeState]:
        """Yield every node's row in slot order. For tests, start-up and explanations: no decision calls it."""
        if self._stale:
            self._renumber()
        return (state for state in self._slots if state is not None)

    def slot(self, name: str) -> int | None:
        """Return the slot of a node; valid until the next `await`."""
        if self._stale:
            self._renumber()
        return self._slot_of.get(name)

    def tenant(self, uid: str) -> Tenant | None:
        """Return a bound or assumed pod with what it holds."""
        name = self._where.get(uid)
        return None if name is None else self._state_of(name).tenants[uid]

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node a pod is bound to or assumed on."""
        return self._where.get(uid)

    def conflicts(self, uid: str) -> tuple[Pod, ...]:
        """Return the other pods on the same node that claim a core this pod claims."""
        name = self._where.get(uid)
        return () if name is None else self._state_of(name).conflicts(uid)

    def nomination(self, uid: str) -> tuple[str, Nomination] | None:
        """Return the node that is promised to a pending pod, and the promise; None if there is none."""
        name = self._nominated.get(uid)
        state = None if name is None else self.node(name)
        if name is None or state is None:
            return None
        return next(((name, each) for each in state.nominated if each.pod.uid == uid), None)

    def is_assumed(self, uid: str) -> bool:
        """Tell whether a pod is assumed and not yet confirmed."""
        return uid in self._assumed

    # What changes

    def put_node(self, node: Node) -> NodeState:
        """Add a node or take its new state, and return its row."""
        slot = self._slot_of.get(node.name)
        if slot is None:
            headless = self._headless.pop(node.name, None)
            return self._insert(self._resettled(headless, node))
        old = self.row(slot)
        new = self._resettled(old, node)
        if _age(old) != _age(new):  # deleted and made anew while nobody looked, or its age is told otherwise now
            self._vacate(slot)
            return self._insert(new)
        self._put(slot, new)
        return new

    def remove_node(self, name: str) -> None:
        """Take a node out; its pods stay on the books until they are gone themselves."""
        slot = self._slot_of.get(name)
        if slot is None:
            return
        state = self.row(slot)
        self._vacate(slot)
        if state.tenants:
            self._headless[name] = state

    def put_pod(self, pod: Pod) -> Tenant:
        """
        Take a bound pod, or its new state, and return it with what it holds.

        The first allocation that could be read for a uid is kept: the silicon it names is what the kubelet was told.
        An assumption was never read anywhere, so it gives way to what the watch says.
        """
        before = None if pod.uid in self._assumed else self.tenant(pod.uid)
        self._assumed.discard(pod.uid)
        tenant = tenant_of(pod, self._state_of(pod.node_name).machine)
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
            self._put_state(name, without_tenant(self._state_of(name), uid))
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
        slot = self._slot_of.get(name)
        if slot is not None:
            state = self.row(slot)
            self._nominated[nomination.pod.uid] = name
            self._put(slot, attrs.evolve(state, nominated=(*state.nominated, nomination)))

    def denominate(self, uid: str) -> str | None:
        """Take a promise back and return its node's name; None if there was none."""
        name = self._nominated.pop(uid, None)
        slot = None if name is None else self._slot_of.get(name)
        if slot is not None:
            self._put(slot, _unpromised(self.row(slot), uid))
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
        if self._stale:
            self._renumber()
        return self._of_nodes.postings(values_of, self._nodes)

    def node_column(self, number_of: Callable[[Node], int]) -> Column:
        """Return the column of a number that only the node's own object decides."""
        if self._stale:
            self._renumber()
        return self._of_nodes.column(number_of, self._nodes)

    def postings(self, values_of: Callable[[NodeState], Values]) -> Postings:
        """Return the up-to-date postings defined by `values_of`; equal definitions share one index."""
        if self._stale:
            self._renumber()
        return self._of_rows.postings(self._seen_by(values_of), self._slots)

    def column(self, number_of: Callable[[NodeState], int]) -> Column:
        """Return the up-to-date column defined by `number_of`; equal definitions share one index."""
        if self._stale:
            self._renumber()
        return self._of_rows.column(self._seen_by(number_of), self._slots)

    def knows(self, definition: Callable[[NodeState], Any]) -> bool:
        """Tell whether an index of rows is there already; building one takes its time with every row."""
        return self._of_rows.knows(self._seen_by(definition))

    def counts(self, definition: Matching) -> Column:
        """Return how many pods match a selector on each node."""
        if self._stale:
            self._renumber()
        return self._pods.counts(definition, len(self._slots))

    def totals(self, definition: Matching, key: str) -> Column:
        """Return how many pods match a selector in each node's domain of a label; 0 where the node lacks it."""
        return self._pods.totals(definition, self._domains(key), len(self._slots))

    def borne(self, bearing: Bearing, pod: Pod) -> Iterator[tuple[PodAffinityTerm, Column]]:
        """Yield each term that pods here bear and that means a pod, with how many bear it in each node's domain."""
        if self._stale:
            self._renumber()
        for term, bearers in self._terms.meaning(bearing, pod, self.namespaces.labels(pod.namespace)):
            yield term, bearers.totals(self._domains(term.topology_key), len(self._slots))

    def images(self, name: str) -> Iterator[tuple[int, NodeSet]]:
        """Yield the sizes that images of a name have, the largest first, with the nodes where it is that large."""
        if self._stale:
            self._renumber()
        return self._images.named(name, self._slot_of)

    def fork(self) -> Self:
        """Return an independent copy: rows and planes are shared values, what is copied is lists of references."""
        if self._stale:
            self._renumber()
        return type(self)(
            workloads=self.workloads.fork(),
            namespaces=self.namespaces.fork(),
            slots=list(self._slots),
            nodes=list(self._nodes),
            slot_of=dict(self._slot_of),
            headless=dict(self._headless),
            where=dict(self._where),
            assumed=set(self._assumed),
            nominated=dict(self._nominated),
            live=self._live,
            pods=self._pods.fork(),
            terms=self._terms.fork(),
            images=self._images.fork(),
            volumes=self.volumes.fork(),
            of_nodes=self._of_nodes.fork(),
            of_rows=self._of_rows.fork(),
        )

    def seen(self, lens: Lens) -> Self:
        """
        Return the same cluster with every row seen through a lens; valid until the next change.

        For questions to all nodes at once. Counts of pods (`counts`, `totals`) are those of the cluster as it is.
        """
        if self._stale:
            self._renumber()
        return type(self)(
            workloads=self.workloads,
            namespaces=self.namespaces,
            slots=self._slots,
            nodes=self._nodes,
            slot_of=self._slot_of,
            headless=self._headless,
            where=self._where,
            assumed=self._assumed,
            nominated=self._nominated,
            live=self._live,
            pods=self._pods,
            terms=self._terms,
            images=self._images,
            volumes=self.volumes,
            labels_epoch=self._labels_epoch,
            of_nodes=self._of_nodes,
            of_rows=self._of_rows,
            lens=lens,
        )

    @contextmanager
    def unpromised(self, uid: str) -> Iterator[None]:
        """Let what a pod was promised count as free inside the `with` block: it is what the pod itself may take."""
        name = self._nominated.get(uid)
        slot = None if name is None else self.slot(name)
        if slot is None:
            yield
            return
        with self.what_if(slot, _unpromised(self.row(slot), uid)):
            yield

    @contextmanager
    def what_if(self, slot: int, state: NodeState) -> Iterator[None]:
        """Let the whole cluster, indexes included, have one row replaced inside the `with` block."""
        before = self.row(slot)
        self._put(slot, state)
        try:
            yield
        finally:
            self._put(slot, before)

    # Rows

    def _domains(self, key: str) -> Domains:
        return Domains(key, self.node_postings(label(key)), self._nodes, self._labels_epoch)

    def _seen_by(self, definition: Callable[[NodeState], Any]) -> Callable[[NodeState], Any]:
        return definition if self._lens is None else _through(self._lens, definition)

    def _state_of(self, name: str) -> NodeState:
        slot = self._slot_of.get(name)
        if slot is not None:
            return self.row(slot)
        return self._headless.get(name) or NodeState(Node(uid="", name=name))

    def _put_state(self, name: str, state: NodeState) -> None:
        slot = self._slot_of.get(name)
        if slot is not None:
            self._put(slot, state)
        elif state.tenants:
            self._headless[name] = state
        else:
            self._headless.pop(name, None)

    def _settle(self, tenant: Tenant) -> None:
        """Put a pod on the node it names, off any other, in one change where it stays on the same node."""
        uid, name = tenant.pod.uid, tenant.pod.node_name
        tenant = self._with_volumes(tenant)
        self.denominate(uid)
        if self._where.get(uid) not in (None, name):
            self.remove_pod(uid)
        state = self._state_of(name)
        if uid in state.tenants:
            state = without_tenant(state, uid)
        self._where[uid] = name
        self._put_state(name, with_tenant(state, tenant))

    def _with_volumes(self, tenant: Tenant) -> Tenant:
        held = self.volumes.held_by(tenant.pod)
        return tenant if held == tenant.volumes else attrs.evolve(tenant, volumes=held)

    def _look_again(self, touched: Touched) -> None:
        """Put the rows anew that a storage object means something to."""
        for name in touched.nodes:
            slot = self._slot_of.get(name)
            if slot is not None:
                self._put(slot, attrs.evolve(self.row(slot), storage=self.volumes.storage_of(name)))
        if not (touched.claims and self._where):
            return
        holders = self.postings(claims_on)
        for slot in {slot for key in touched.claims for slot in holders.slots(key)}:
            state = self.row(slot)
            for uid, tenant in state.tenants.items():
                again = self._with_volumes(tenant)
                if again is not tenant:
                    state = with_tenant(without_tenant(state, uid), again)
            self._put(slot, state)

    def _resettled(self, before: NodeState | None, node: Node) -> NodeState:
        storage = self.volumes.storage_of(node.name)
        new = attrs.evolve(on_node(node), storage=storage)
        if before is None:
            return new
        if new.machine == before.machine:
            return attrs.evolve(before, node=node, storage=storage)
        return attrs.evolve(on_node(node, {uid: _reread(t, new) for uid, t in before.tenants.items()}), storage=storage)

    def _insert(self, state: NodeState) -> NodeState:
        last = next((other for other in reversed(self._slots) if other is not None), None)
        self._stale |= last is not None and _age(state) < _age(last)
        slot = len(self._slots)
        self._slots.append(None)
        self._nodes.append(None)
        self._slot_of[state.node.name] = slot
        self._live |= 1 << slot
        self._put(slot, state)
        return state

    def _vacate(self, slot: int) -> None:
        del self._slot_of[self.row(slot).node.name]
        self._live &= ~(1 << slot)
        self._put(slot, None)
        holes = len(self._slots) - len(self._slot_of)
        self._stale |= holes > len(self._slot_of) + _MOST_HOLES

    def _put(self, slot: int, state: NodeState | None) -> None:
        old = self._slots[slot]
        self._slots[slot] = state
        node = self._nodes[slot] = None if state is None else state.node
        node_before = None if old is None else old.node
        self._move_images(slot, node_before, node)
        if self._stale or state is old:
            return
        if node is not node_before and node != node_before:
            self._of_nodes.record(slot, node_before, node)
            if node is None or node_before is None or node.labels != node_before.labels:
                self._labels_epoch += 1
        self._move_pods(slot, old.tenants if old else NO_TENANTS, state.tenants if state else NO_TENANTS)
        if state != old:
            self._of_rows.record(slot, old, state)

    def _move_images(self, slot: int, old: Node | None, new: Node | None) -> None:
        """Let the image table follow a row's node."""
        name = new.name if new is not None else old.name if old is not None else ""
        self._images.replace(name, slot, old.images if old else (), new.images if new else ())

    def _move_pods(self, slot: int, old: Mapping[str, Tenant], new: Mapping[str, Tenant]) -> None:
        """Let the pod table follow a row's tenants."""
        if old is new:
            return
        for uid, tenant in old.items():
            if uid not in new:
                self._pods.remove(uid)
                self._terms.replace(slot, tenant.pod, None)
        for uid, tenant in new.items():
            before = old.get(uid)
            if before is not tenant:
                self._pods.put(tenant.pod, slot)
                self._terms.replace(slot, before.pod if before else None, tenant.pod)

    def _renumber(self) -> None:
        states = sorted((state for state in self._slots if state is not None), key=_age)
        self._slots = list(states)
        self._nodes = [state.node for state in states]
        self._slot_of = {state.node.name: slot for slot, state in enumerate(states)}
        self._live = from_slots(range(len(states)), len(states))
        self._labels_epoch += 1
        self._images.renumber()
        self._pods = PodTable()
        self._terms = TermTable()
        for slot, state in enumerate(states):
            self._move_pods(slot, NO_TENANTS, state.tenants)
        self._of_nodes = Indexes()
        self._of_rows = Indexes()
        self._stale = False


def _unpromised(state: NodeState, uid: str) -> NodeState:
    return attrs.evolve(state, nominated=tuple(each for each in state.nominated if each.pod.uid != uid))


def claims_on(state: NodeState) -> Values:
    """Index definition: nodes by the keys of the claims that their pods use."""
    return tuple(held for held in state.volumes if isinstance(held, str)) if state.volumes else ()


def _age(state: NodeState) -> tuple[float, str, str]:
    return (state.node.created, state.node.name, state.node.uid)


def _reread(tenant: Tenant, state: NodeState) -> Tenant:
    return tenant if tenant.unreadable else tenant_of(tenant.pod, state.machine)

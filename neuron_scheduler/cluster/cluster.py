"""
The cluster in memory: the pods on each node, and the nodes nominated for pending pods.

A pod's life here:

    (pending) --assume--> ASSUMED --put_pod (the watch confirms)--> BOUND --remove_pod--> (gone)
                             |                                        ^
                             +--forget--> (pending)   (bound by others)--put_pod

There is no lock: nothing here awaits, so no event comes between a decision and its assumption. Questions about all
nodes at once are for `view`.
"""

from collections.abc import Iterator, Sequence, Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Optional, Self

import attrs

from neuron_scheduler.cluster.index.copy_on_write import SharedDict
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import (
    Claimed,
    NodeInfo,
    Nomination,
    on_node,
    with_changed_pod,
    with_claimed,
    with_pod,
    without_nomination,
    without_pod,
)
from neuron_scheduler.cluster.rows.pod_info import PodInfo, pod_info_of
from neuron_scheduler.cluster.tables.budgets import Budgets
from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.cluster.tables.nodes import NodeTable
from neuron_scheduler.cluster.tables.placed_groups import PlacedGroups
from neuron_scheduler.cluster.tables.selecting_kinds import NamespaceTable, Workloads
from neuron_scheduler.cluster.tables.volumes import (
    Effects,
    Volumes,
    claims_on,
    pod_with_current_volumes,
    with_current_volumes,
)
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import NodeStorage, Storage
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask

if TYPE_CHECKING:
    from neuron_scheduler.cluster.tables.claims import Claims

CHANGED = "its allocation changed after it was bound; the first is kept"


@attrs.define(eq=False)
class Cluster:
    """
    Nodes, pods, indexes; `view` is what can be read of all nodes at once.

    Attributes:
        claims: on devices, with the devices that drivers publish; None where claims are off, and in a fork: there a pod
            that leaves gives its devices back.
        ended_nominations: how many nominations have ended so far.
    """

    workloads: Workloads = attrs.field(factory=Workloads)
    namespaces: NamespaceTable = attrs.field(factory=NamespaceTable)
    volumes: Volumes = attrs.field(factory=Volumes)
    groups: Groups = attrs.field(factory=Groups)
    placed_groups: PlacedGroups = attrs.field(factory=PlacedGroups)
    budgets: Budgets = attrs.field(factory=Budgets)
    claims: Optional["Claims"] = None
    _table: NodeTable = attrs.field(factory=NodeTable)
    view: View = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: View(self.workloads, self.namespaces, self.volumes, self._table), takes_self=True
        ),
    )
    _where: SharedDict[str, str] = attrs.field(factory=SharedDict)  # the name of the node, by the pod's uid
    _assumed: set[str] = attrs.field(factory=set)
    _nominated_nodes: dict[str, str] = attrs.field(factory=dict)  # names, by the pod's uid
    ended_nominations: int = attrs.field(default=0, init=False)

    @property
    def pod_count(self) -> int:
        return len(self._where)

    @property
    def assumed_count(self) -> int:
        return len(self._assumed)

    def node(self, name: str) -> NodeInfo | None:
        slot = self._table.slot_of.get(name)
        return None if slot is None else self._table.row(slot)

    def pod_info(self, uid: str) -> PodInfo | None:
        name = self._where.get(uid)
        return None if name is None else self._table.node_info_of(name).pod_infos[uid]

    def node_of(self, uid: str) -> str | None:
        return self._where.get(uid)

    def conflicts(self, uid: str) -> tuple[Pod, ...]:
        name = self._where.get(uid)
        return () if name is None else self._table.node_info_of(name).conflicts(uid)

    def nomination(self, uid: str) -> tuple[str, Nomination] | None:
        name = self._nominated_nodes.get(uid, "")
        node_info = self.node(name) if name else None
        for nomination in () if node_info is None else node_info.nominations:
            if nomination.pod.uid == uid:
                return name, nomination
        return None

    @property
    def has_nominations(self) -> bool:
        return bool(self._nominated_nodes)

    def is_nominated(self, uid: str) -> bool:
        """Return whether space is kept for a pod that will get it; one that has a turn may still go elsewhere."""
        nomination = self.nomination(uid)
        return nomination is not None and not nomination[1].awaited

    def nominees_among(self, uids: AbstractSet[str]) -> AbstractSet[str]:
        """Return which of these pods have a nomination."""
        return self._nominated_nodes.keys() & uids

    def has_turn(self, uid: str) -> bool:
        return uid in self._nominated_nodes and not self.is_nominated(uid)

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def put_node(self, node: Node) -> NodeInfo:
        if self.claims is not None:
            node = self.claims.with_published(node)
        before, storage = self.node(node.name), self.volumes.storage_of(node.name)
        if before is None and (headless := self._table.headless.get(node.name)) is not None:
            before = with_current_volumes(headless, self.volumes)  # no index had its pods to apply changes of claims
        new = self._with_claimed(_with_node(before, node, storage) if before else on_node(node, storage=storage))
        self._table.put(new)
        return new

    def remove_node(self, name: str) -> tuple[Nomination, ...]:
        """Remove a node and return its nominations, which are lost; its pods stay until they are removed."""
        node_info = self.node(name)
        self._table.remove(name)
        return () if node_info is None else node_info.nominations

    def set_aside(self, name: str, cores: CoreMask | None) -> None:
        """Set a node aside, and some of its cores even there; None ends that. An unknown node is ignored."""
        node_info = self.node(name)
        if node_info is not None and node_info.set_aside != cores:
            self._table.put(attrs.evolve(node_info, set_aside=cores))

    def put_pod(self, pod: Pod, known: PodInfo | None = None) -> PodInfo:
        """
        Add or replace a bound pod, of which the caller may know already what is `known`; return it with what it holds.

        The first allocation that could be read for a uid is kept: the kubelet has handed out those devices. An
        assumption is replaced by what the watch reports.
        """
        known = known or self.pod_info(pod.uid)
        is_seen = pod.uid not in self._assumed or not pod.claims  # an assumption holds only what its claims got then
        if known is not None and is_seen and known.holds_the_same(pod):
            self._assumed.discard(pod.uid)
            pod_info = PodInfo(pod, known.cores, known.problem, volumes=known.volumes, is_evictable=known.is_evictable)
            if pod.group is not None or known.pod.group is not None:
                self.placed_groups.replace(known, pod_info)
            self._table.put_pod(with_changed_pod(self._table.node_info_of(pod.node_name), pod_info), pod.uid)
            return pod_info
        before = None if pod.uid in self._assumed else known
        self._assumed.discard(pod.uid)
        pod_info = pod_info_of(pod, self._table.node_info_of(pod.node_name).machine)
        same_node = self._where.get(pod.uid) == pod.node_name
        if before is not None and same_node and before.cores not in (None, NO_CORES, pod_info.cores) and not pod.claims:
            first = attrs.evolve(pod, allocation=before.pod.allocation)
            pod_info = PodInfo(first, cores=before.cores, problem=CHANGED)
        self._settle(pod_info)
        return pod_info

    def put_unreadable_pod(self, pod: Pod) -> PodInfo:
        """Add a bound pod of which only identity and node could be read, and return it: what it holds is unknown."""
        pod_info = self.pod_info(pod.uid)
        if pod_info is None:
            pod_info = PodInfo(
                pod, cores=None, problem="the pod object cannot be read", unreadable=True, is_evictable=False
            )
            self._settle(pod_info)
        return pod_info

    def set_evictable(self, uid: str, *, is_evictable: bool) -> None:
        """Let nobody evict a pod, or end that; an unknown or unreadable pod is ignored."""
        pod_info = self.pod_info(uid)
        if pod_info is not None and not pod_info.unreadable and pod_info.is_evictable != is_evictable:
            self._settle(attrs.evolve(pod_info, is_evictable=is_evictable))

    def remove_pod(self, uid: str) -> str | None:
        self._assumed.discard(uid)
        name = self._where.pop(uid, None)
        if name is not None:
            node_info = self._table.node_info_of(name)
            if node_info.pod_infos[uid].pod.group is not None:
                self.placed_groups.replace(node_info.pod_infos[uid], None)
            node_info = without_pod(node_info, uid)
            self._table.put_pod(node_info if node_info.node.published is None else self._with_claimed(node_info), uid)
        return name

    def assume(self, pod: Pod, cores: CoreMask = NO_CORES) -> None:
        """
        Treat a pod as bound to `pod.node_name`, before the API server confirms it.

        Raises:
            ValueError: the pod is on a node already, or one of the cores is not free there.
        """
        node_info = self.node(pod.node_name)
        if pod.uid in self._where or node_info is None:
            raise ValueError(f"cannot assume {pod.key} on {pod.node_name!r}: already placed, or no such node")
        if cores & ~node_info.free_cores:
            raise ValueError(f"cannot assume {pod.key} on {pod.node_name!r}: a core it was given is held already")
        self._assumed.add(pod.uid)  # first, so that `forget` removes a pod that an exception left half added
        self._settle(PodInfo(pod, cores=cores))

    def forget(self, uid: str) -> None:
        """Remove an assumed pod; one that the watch has confirmed since stays."""
        if uid in self._assumed:
            self.remove_pod(uid)

    def nominate(self, name: str, nomination: Nomination) -> None:
        """Nominate a node for a pending pod in place of any other; an unknown node is not nominated."""
        self.clear_nomination(nomination.pod.uid)
        node_info = self.node(name)
        if node_info is not None:
            self._nominated_nodes[nomination.pod.uid] = name
            volumes = self.volumes.held_by(nomination.pod)
            nomination = attrs.evolve(nomination, volumes=volumes) if volumes else nomination
            self._table.put(attrs.evolve(node_info, nominations=(*node_info.nominations, nomination)))

    def clear_nomination(self, uid: str) -> str | None:
        name = self._nominated_nodes.pop(uid, None)
        self.ended_nominations += name is not None
        node_info = None if name is None else self.node(name)
        if node_info is not None:
            self._table.put(without_nomination(node_info, uid))
        return name

    def with_claims(self, pod: Pod) -> Pod:
        """Return a pod, as it was read, with what its claims mean; the same pod where they are off."""
        return self.claims.resolve(pod) if pod.claims and self.claims is not None else pod

    def refresh_claimed(self, name: str) -> None:
        """Count again what claims hold on a node."""
        node_info = self.node(name)
        if node_info is not None:
            self._table.put(self._with_claimed(node_info))

    def _with_claimed(self, node_info: NodeInfo) -> NodeInfo:
        published = node_info.node.published
        if published is None or self.claims is None:
            return node_info
        name = node_info.node.name
        pods = [each.cores or NO_CORES for each in node_info.pod_infos.values() if each.pod.claims]
        held = twice = NO_CORES
        for devices in self.claims.held_on(name):
            bits = published.bits_of(devices, name)
            held, twice = held | bits, twice | held & bits
        claimed = Claimed(held & ~reduce(or_, pods, NO_CORES), twice)
        return node_info if claimed == node_info.claimed else with_claimed(node_info, claimed)

    def put_storage(self, storage: Storage) -> Sequence[str]:
        """Add or replace a storage object; return the names of the nodes on which it counts otherwise now."""
        return self._refresh(self.volumes.put(storage))

    def remove_storage(self, storage: Storage) -> Sequence[str]:
        return self._refresh(self.volumes.remove(storage))

    def fork(self) -> Self:
        return type(self)(
            workloads=self.workloads.fork(),
            namespaces=self.namespaces.fork(),
            volumes=self.volumes.fork(),
            groups=self.groups.fork(),
            placed_groups=self.placed_groups.fork(),
            budgets=self.budgets.fork(),
            table=self._table.fork(),
            where=self._where.copy(),
            assumed=set(self._assumed),
            nominated_nodes=dict(self._nominated_nodes),
        )

    @contextmanager
    def without_nomination(self, uid: str) -> Iterator[None]:
        """Count the space nominated for a pod as free inside the `with` block, as it is for the pod itself."""
        name = self._nominated_nodes.get(uid)
        slot = None if name is None else self.view.slot(name)
        if slot is None:
            yield
            return
        with self.row_replaced(slot, without_nomination(self._table.row(slot), uid)):
            yield

    @contextmanager
    def row_replaced(self, slot: Slot, node_info: NodeInfo, *, with_terms: bool = True) -> Iterator[None]:
        """Replace one row inside the `with` block, in the indexes too; `with_terms`, also in that of affinity terms."""
        before = self._table.row(slot)
        self._table.replace(slot, node_info, with_terms=with_terms)
        try:
            yield
        finally:
            self._table.replace(slot, before, with_terms=with_terms)

    def row_added(self, node_info: NodeInfo) -> AbstractContextManager[Slot]:
        """
        Add the row of a node with a new name inside the `with` block, which gets its slot.

        Raises:
            ValueError: there is a node of that name.
        """
        return self._table.row_added(node_info)

    def _settle(self, pod_info: PodInfo) -> None:
        """Put a pod on the node that it names and remove it from any other; on the same node that is one change."""
        uid, name = pod_info.pod.uid, pod_info.pod.node_name
        pod_info = pod_with_current_volumes(pod_info, self.volumes)
        self.clear_nomination(uid)
        where = self._where.get(uid)
        if where not in (None, name):
            self.remove_pod(uid)
        node_info = self._table.node_info_of(name)
        before = None
        if uid in node_info.pod_infos:
            before, node_info = node_info.pod_infos[uid], without_pod(node_info, uid)
        node_info = with_pod(node_info, pod_info)
        if node_info.node.published is not None:
            node_info = self._with_claimed(node_info)
        if where != name:
            self._where[uid] = name
        if pod_info.pod.group is not None or (before is not None and before.pod.group is not None):
            self.placed_groups.replace(before, pod_info)
        self._table.put_pod(node_info, uid)

    def _refresh(self, effects: Effects) -> Sequence[str]:
        changed = [name for name in effects.nodes if self.node(name) is not None]
        for name in changed:
            self._table.put(attrs.evolve(self._table.node_info_of(name), storage=self.volumes.storage_of(name)))
        claims = effects.claims if self._where else ()
        for slot in {slot for key in claims for slot in self.view.postings(claims_on).slots(key)}:
            before = self._table.row(slot)
            after = with_current_volumes(before, self.volumes)
            if after is not before:
                self._table.replace(slot, after)
                changed.append(after.node.name)
        return changed


def _with_node(before: NodeInfo, node: Node, storage: NodeStorage) -> NodeInfo:
    """Return the row with a new node object; another machine changes what its pods hold and ends its nominations."""
    machine = machine_of(node)
    if machine == before.machine:
        return attrs.evolve(before, node=node, storage=storage)
    pod_infos = {
        uid: pod_info
        if pod_info.unreadable
        else attrs.evolve(pod_info_of(pod_info.pod, machine), volumes=pod_info.volumes)
        for uid, pod_info in before.pod_infos.items()
    }
    return on_node(node, pod_infos, storage)

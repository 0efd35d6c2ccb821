"""
The cluster in memory: whose pods are on which node, and what is promised to whom.

A pod's life here:

    (pending) --assume--> ASSUMED --put_pod (the watch confirms)--> BOUND --remove_pod--> (gone)
                             |                                        ^
                             +--forget--> (pending)   (bound by others)--put_pod

There is no lock: nothing here awaits, so no event comes between a decision and its assumption. Refuses to know
where rows and pods come from, and to forget an assumption by itself. What is asked of all nodes at once is for `view`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import attrs

from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.refresh import claims_on, holding, holding_anew, on_new_node
from neuron_scheduler.cluster.rows.node_info import (
    NodeInfo,
    Nomination,
    SetAside,
    with_changed_pod,
    with_pod,
    without_pod,
)
from neuron_scheduler.cluster.rows.pod_info import PodInfo, pod_info_of
from neuron_scheduler.cluster.tables.namespaces import NamespaceTable
from neuron_scheduler.cluster.tables.nodes import NodeTable
from neuron_scheduler.cluster.tables.volumes import Touched, Volumes
from neuron_scheduler.cluster.tables.workloads import Workloads
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import Storage
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask

CHANGED = "its allocation changed after it was bound; the first is kept"


@attrs.define(eq=False)
class Cluster:
    """
    Nodes, pods, indexes.

    Attributes:
        workloads: the Services and controllers that pods belong to.
        namespaces: the labels of namespaces.
        volumes: the storage objects.
        view: the same, to be read.
    """

    workloads: Workloads = attrs.field(factory=Workloads)
    namespaces: NamespaceTable = attrs.field(factory=NamespaceTable)
    volumes: Volumes = attrs.field(factory=Volumes)
    _table: NodeTable = attrs.field(factory=NodeTable)
    view: View = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: View(self.workloads, self.namespaces, self.volumes, self._table), takes_self=True
        ),
    )
    _where: dict[str, str] = attrs.field(factory=dict)
    _assumed: set[str] = attrs.field(factory=set)
    _nominated: dict[str, str] = attrs.field(factory=dict)

    # What there is

    @property
    def pod_count(self) -> int:
        """How many pods are bound or assumed."""
        return len(self._where)

    @property
    def assumed_count(self) -> int:
        """How many pods are assumed and not yet confirmed by the watch."""
        return len(self._assumed)

    def node(self, name: str) -> NodeInfo | None:
        """Return the row of a node, None if it does not exist."""
        slot = self._table.slot_of.get(name)
        return None if slot is None else self._table.row(slot)

    def pod_info(self, uid: str) -> PodInfo | None:
        """Return a bound or assumed pod with what it holds."""
        name = self._where.get(uid)
        return None if name is None else self._table.node_info_of(name).pod_infos[uid]

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node a pod is bound to or assumed on."""
        return self._where.get(uid)

    def conflicts(self, uid: str) -> tuple[Pod, ...]:
        """Return the other pods on the same node that claim a core this pod claims."""
        name = self._where.get(uid)
        return () if name is None else self._table.node_info_of(name).conflicts(uid)

    def nomination(self, uid: str) -> tuple[str, Nomination] | None:
        """Return the node that is promised to a pending pod, and the promise; None if there is none."""
        name = self._nominated.get(uid)
        node_info = None if name is None else self.node(name)
        if name is None or node_info is None:
            return None
        return next(((name, each) for each in node_info.nominated if each.pod.uid == uid), None)

    @property
    def has_nominations(self) -> bool:
        """Whether space is promised to any pending pod."""
        return bool(self._nominated)

    def is_assumed(self, uid: str) -> bool:
        """Tell whether a pod is assumed and not yet confirmed."""
        return uid in self._assumed

    # What changes

    def put_node(self, node: Node) -> NodeInfo:
        """Add a node or take its new state, and return its row."""
        before = self._table.node_info_of(node.name)
        if self.node(node.name) is None:  # in no index so far: nobody told when a claim of its pods changed
            before = holding_anew(before, self.volumes)
        new = on_new_node(before, node, self.volumes.storage_of(node.name))
        self._table.put(new)
        return new

    def remove_node(self, name: str) -> tuple[Nomination, ...]:
        """Take a node out and return what was promised on it, which is void; its pods stay until they are gone."""
        node_info = self.node(name)
        self._table.remove(name)
        return () if node_info is None else node_info.nominated

    def set_aside(self, name: str, what: SetAside | None) -> None:
        """Let a part of a node be used only where there is no choice, None to end that; no node, nothing happens."""
        node_info = self.node(name)
        if node_info is not None and node_info.set_aside != what:
            self._table.put(attrs.evolve(node_info, set_aside=what))

    def put_pod(self, pod: Pod) -> PodInfo:
        """
        Take a bound pod, or its new state, and return it with what it holds.

        The first allocation that could be read for a uid is kept: the silicon it names is what the kubelet was told.
        An assumption was never read anywhere, so it gives way to what the watch says.
        """
        known = self.pod_info(pod.uid)
        if known is not None and known.holds_as_before(pod):
            self._assumed.discard(pod.uid)
            pod_info = PodInfo(pod, cores=known.cores, problem=known.problem, volumes=known.volumes)
            self._table.put_pod(with_changed_pod(self._table.node_info_of(pod.node_name), pod_info), pod.uid)
            return pod_info
        before = None if pod.uid in self._assumed else known
        self._assumed.discard(pod.uid)
        pod_info = pod_info_of(pod, self._table.node_info_of(pod.node_name).machine)
        same_node = self._where.get(pod.uid) == pod.node_name
        if before is not None and same_node and before.cores and before.cores != pod_info.cores:
            first = attrs.evolve(pod, allocation=before.pod.allocation)
            pod_info = PodInfo(first, cores=before.cores, problem=CHANGED)
        self._settle(pod_info)
        return pod_info

    def put_unreadable_pod(self, pod: Pod) -> None:
        """Take a bound pod of which only identity and node could be read: an unknown holder of an unknown amount."""
        if pod.uid not in self._where:
            self._settle(PodInfo(pod, cores=None, problem="the pod object cannot be read", unreadable=True))

    def remove_pod(self, uid: str) -> str | None:
        """Take a pod off its node and return the node's name; None if it was on no node."""
        self._assumed.discard(uid)
        name = self._where.pop(uid, None)
        if name is not None:
            self._table.put_pod(without_pod(self._table.node_info_of(name), uid), uid)
        return name

    def assume(self, pod: Pod, cores: CoreMask = NO_CORES) -> None:
        """
        Take a pod as bound to `pod.node_name` from now on, before the API server says so.

        Raises:
            ValueError: the pod is on a node already, or one of the cores is not free there.
        """
        node_info = self.node(pod.node_name)
        if pod.uid in self._where or node_info is None:
            raise ValueError(f"cannot assume {pod.key} on {pod.node_name!r}: already placed, or no such node")
        if cores & ~node_info.free_cores:
            raise ValueError(f"cannot assume {pod.key} on {pod.node_name!r}: a core it was given is held already")
        self._assumed.add(pod.uid)  # first, so that `forget` takes back what an exception left half done
        self._settle(PodInfo(pod, cores=cores))

    def forget(self, uid: str) -> None:
        """Take back an assumption; a pod that the watch has confirmed since stays."""
        if uid in self._assumed:
            self.remove_pod(uid)

    def nominate(self, name: str, nomination: Nomination) -> None:
        """Promise space on a node to a pending pod, in place of what it was promised before; no node, no promise."""
        self.clear_nomination(nomination.pod.uid)
        node_info = self.node(name)
        if node_info is not None:
            self._nominated[nomination.pod.uid] = name
            held = self.volumes.held_by(nomination.pod)
            nomination = attrs.evolve(nomination, volumes=held) if held else nomination
            self._table.put(attrs.evolve(node_info, nominated=(*node_info.nominated, nomination)))

    def clear_nomination(self, uid: str) -> str | None:
        """Take a promise back and return its node's name; None if there was none."""
        name = self._nominated.pop(uid, None)
        node_info = None if name is None else self.node(name)
        if node_info is not None:
            self._table.put(_without_nomination(node_info, uid))
        return name

    def put_storage(self, found: Storage) -> None:
        """Take a storage object's state; the nodes that refer to it are put anew."""
        self._look_again(self.volumes.put(found))

    def remove_storage(self, gone: Storage) -> None:
        """Take that a storage object is gone."""
        self._look_again(self.volumes.remove(gone))

    # What is asked

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

    @contextmanager
    def without_nomination(self, uid: str) -> Iterator[None]:
        """Let what a pod was promised count as free inside the `with` block: it is what the pod itself may take."""
        name = self._nominated.get(uid)
        slot = None if name is None else self.view.slot(name)
        if slot is None:
            yield
            return
        with self.what_if(slot, _without_nomination(self._table.row(slot), uid)):
            yield

    @contextmanager
    def what_if(self, slot: Slot, node_info: NodeInfo) -> Iterator[None]:
        """Let the whole cluster, indexes included, have one row replaced inside the `with` block."""
        before = self._table.row(slot)
        self._table.replace(slot, node_info)
        try:
            yield
        finally:
            self._table.replace(slot, before)

    def _settle(self, pod_info: PodInfo) -> None:
        """Put a pod on the node it names, off any other, in one change where it stays on the same node."""
        uid, name = pod_info.pod.uid, pod_info.pod.node_name
        pod_info = holding(pod_info, self.volumes)
        self.clear_nomination(uid)
        if self._where.get(uid) not in (None, name):
            self.remove_pod(uid)
        node_info = self._table.node_info_of(name)
        if uid in node_info.pod_infos:
            node_info = without_pod(node_info, uid)
        node_info = with_pod(node_info, pod_info)
        self._where[uid] = name
        self._table.put_pod(node_info, uid)

    def _look_again(self, touched: Touched) -> None:
        """Put the rows anew that a storage object means something to."""
        for name in touched.nodes:
            node_info = self.node(name)
            if node_info is not None:
                self._table.put(attrs.evolve(node_info, storage=self.volumes.storage_of(name)))
        if not (touched.claims and self._where):
            return
        holders = self.view.postings(claims_on)
        for slot in {slot for key in touched.claims for slot in holders.slots(key)}:
            self._table.replace(slot, holding_anew(self._table.row(slot), self.volumes))


def _without_nomination(node_info: NodeInfo, uid: str) -> NodeInfo:
    return attrs.evolve(node_info, nominated=tuple(each for each in node_info.nominated if each.pod.uid != uid))

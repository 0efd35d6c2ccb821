"""
A node that does not exist yet, for questions such as "would the pod fit if a trn1.32xlarge joined?".

It is shaped like the cluster's nodes of its type: their labels, taints, allocatable amounts and usual daemon pods,
without what belongs to one machine or to a passing state. A type that the cluster lacks is shaped by the catalog.
"""

import re
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, less, membership, slots_of
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, on_node
from neuron_scheduler.cluster.rows.pod_info import pod_info_of
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, NEURON_CORE, NEURON_DEVICE, PODS, Resources
from neuron_scheduler.model.selectors import Taint
from neuron_scheduler.model.volumes import CSINode, NodeStorage
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, doubts, machine_of

_MOST_READ: Final = 32
"""Nodes of a group whose pods are read: a new node is like them."""
_MANY: Final = 2048
"""Nodes of a group that are not sorted by age: there may be a hundred thousand."""
_YOUNG: Final = 600.0
"""Seconds for which a node may lack some of its daemon pods."""
_MOST_GROUPS: Final = 64
"""Groups of nodes of a type that a new one may belong to."""
_PLENTY: Final = 1 << 50
"""Stands for an amount of cpu, memory or storage that is not known."""
_PODS_ON_ANY_NODE: Final = 110
_LATER: Final = float("inf")

_OF_ONE_MACHINE: Final = (
    "neuron.amazonaws.com/ultraserver-server-id",
    "neuron.amazonaws.com/ultraserver-node-id",
    "topology.k8s.aws/capacity-block-id",
    "topology.k8s.aws/network-node-layer",
    "topology.k8s.aws/ultraserver-id",
)
"""Beginnings of the keys of labels that say where one machine is."""
_INSTANCE_ID: Final = re.compile(r"i-[0-9a-f]{8,17}\Z")
_OF_A_STATE: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "aws-node-termination-handler/")
_OF_A_STATE_TOO: Final = frozenset(
    {
        "DeletionCandidateOfClusterAutoscaler",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "karpenter.sh/unregistered",
        "sagemaker.amazonaws.com/node-health-status",
    }
)


@attrs.frozen
class FreshNode:
    """
    What a new node would look like.

    Attributes:
        node: with a name that `join` replaces.
        like: the existing node that it is shaped like; empty if it comes from the catalog. Then its cpu, memory, taints
            and most of its labels are not known, and cpu and memory count as plenty.
        daemons: pods that would run on it as they run on its like.
        storage: what that node can attach.
        node_group: what tells its group of nodes from others.
        row: what it is with its daemon pods, for `Cluster.row_added`: no fork is needed for one node.
    """

    node: Node
    like: str = ""
    daemons: tuple[Pod, ...] = ()
    storage: NodeStorage = attrs.field(factory=NodeStorage)
    node_group: Hashable = ()
    row: NodeInfo = attrs.field(init=False, eq=False)

    @row.default
    def _default_row(self) -> NodeInfo:
        node, daemons = _with_own_names(self, 1)
        machine = machine_of(node)
        row = on_node(node, {pod.uid: pod_info_of(pod, machine) for pod in daemons})
        return attrs.evolve(row, storage=self.storage)

    @property
    def zone(self) -> str:
        return self.node.labels.get(ZONE_LABEL, "")


def node_group_of(node: Node) -> Values:
    """Index definition: a number for what is the same in all nodes of a group; nothing without Neuron."""
    if machine_of(node) is None or node.refusal:
        return ()
    return (hash((frozenset(_lasting_labels(node).items()), frozenset(_lasting_taints(node)))),)


def nodes_of_type(view: View, instance_type: str) -> NodeSet:
    """Return the nodes with Neuron of a type, which is without `ml.`."""
    by_type = view.label_postings(INSTANCE_TYPE_LABEL)
    return by_type.any_of((instance_type, f"ml.{instance_type}")) & view.node_postings(node_group_of).keyed


def known_types(view: View) -> tuple[str, ...]:
    """Return the types with Neuron of which a shape is known: those of the cluster, then the catalog's."""
    by_type, with_neuron = view.label_postings(INSTANCE_TYPE_LABEL), view.node_postings(node_group_of).keyed
    present = {str(name).removeprefix("ml.") for name in by_type.values if by_type.get(name) & with_neuron}
    return tuple(dict.fromkeys((*sorted(present), *INSTANCE_TYPES)))


def fresh_nodes(
    view: View, instance_type: str, among: NodeSet, known: dict[Hashable, FreshNode]
) -> Iterator[FreshNode]:
    """
    Yield a new node of a type for each group of nodes that has some of `among`.

    Of very many groups those of the latest nodes of each zone count. Of a type that the cluster lacks there is one of
    each zone, shaped by the catalog. Nothing for one that neither has. `known` has earlier answers by group, and gets
    new ones.
    """
    by_group, by_zone = view.node_postings(node_group_of), view.label_postings(ZONE_LABEL)
    of_type = nodes_of_type(view, instance_type)
    zones = deque(among & of_type & nodes for nodes in (*map(by_zone.get, by_zone.values), ~by_zone.keyed))
    found = 0
    while zones and found < _MOST_GROUPS:
        nodes = zones.popleft()
        if nodes:
            (group,) = node_group_of(view.row(Slot(nodes.bit_length() - 1)).node)
            zones.append(less(nodes, by_group.get(group)))
            if group not in known:
                known[group] = _shape_of(group, _youngest(view, by_group.get(group)))
            yield known[group]
            found += 1
    if not of_type:
        yield from _catalog_shapes(view, instance_type)


def join(cluster: Cluster, fresh: FreshNode, number: int = 1) -> str:
    """Add a new node to a fork, with its daemon pods, and return its name; `number` tells several of a type apart."""
    node, daemons = _with_own_names(fresh, number)
    cluster.put_storage(
        CSINode(f"csi-{node.name}", node.name, fresh.storage.limits, fresh.storage.migrated, fresh.storage.drivers)
    )
    cluster.put_node(node)
    for pod in daemons:
        cluster.put_pod(pod)
    return node.name


def _with_own_names(fresh: FreshNode, number: int) -> tuple[Node, tuple[Pod, ...]]:
    name = f"new-{fresh.node.instance_type}-{number:03}"
    own = {key: name for key, value in fresh.node.labels.items() if value == fresh.node.name}
    node = attrs.evolve(fresh.node, uid=f"uid-{name}", name=name, labels={**fresh.node.labels, **own})
    return node, tuple(
        attrs.evolve(pod, uid=f"{name}-{index}", node_name=name) for index, pod in enumerate(fresh.daemons)
    )


def _youngest(view: View, nodes: NodeSet) -> Sequence[NodeInfo]:
    """
    Return the rows of some nodes, the youngest first.

    Of very many nodes those in the last slots: until slots are used again, they have arrived last.
    """
    slots = slots_of(nodes)
    if nodes.bit_count() > _MANY:
        latest = filter(membership(nodes, nodes.bit_length()), map(Slot, reversed(range(nodes.bit_length()))))
        slots = islice(latest, _MANY)
    return sorted(map(view.row, slots), key=attrgetter("node.created"), reverse=True)


def _usual_daemons(rows: Sequence[Mapping[Hashable, Pod]]) -> dict[Hashable, Pod]:
    """Return a pod of each owner that has pods on more than half of the nodes: some DaemonSets are for one node."""
    frequency = Counter(chain.from_iterable(rows))
    usual = (item for row in reversed(rows) for item in row.items())  # the youngest node's last
    return {daemon: pod for daemon, pod in usual if 2 * frequency[daemon] > len(rows)}


def _daemon_of(pod: Pod, node_name: str) -> Hashable:
    """Return what is the same in all pods of one DaemonSet, and in one static pod on all nodes."""
    owner = None if pod.owner is None or pod.owner.kind == "Node" else pod.owner
    return pod.namespace, owner or pod.name.removesuffix(node_name)


def _shape_of(group: Hashable, alike: Sequence[NodeInfo]) -> FreshNode:
    """Return the shape of the node that shows best what a new one would be: a sound one that lacks no daemon pod."""
    grown = [row for row in alike if row.node.created <= alike[0].node.created - _YOUNG]
    alike = (grown if len(grown) > 2 else alike)[:_MOST_READ]
    rows = [{_daemon_of(pod, row.node.name): pod for pod in _daemons(row)} for row in alike]
    daemons = _usual_daemons(rows)

    def quality(at: int) -> tuple[bool, bool, int]:
        node = alike[at].node
        return not node.neuron_fault, doubts(node) is None, len(rows[at].keys() & daemons.keys())

    node_info = alike[max(range(len(alike)), key=quality)]
    node = node_info.node
    whole = {resource: amount for resource, amount in node.capacity.items() if amount}  # no device of it is sick
    fresh = attrs.evolve(
        node,
        created=_LATER,
        labels=_lasting_labels(node),
        taints=_lasting_taints(node),
        unschedulable=False,
        allocatable={**node.allocatable, **whole},
        neuron_fault="",
        images=(),
    )
    storage = attrs.evolve(node_info.storage, attachments=frozenset())
    named = [key for key, value in node.labels.items() if value in _names_of(node)]
    fresh = attrs.evolve(fresh, labels={**fresh.labels, **dict.fromkeys(named, node.name)})
    return FreshNode(fresh, node.name, tuple(daemons.values()), storage, group)


def _lasting_labels(node: Node) -> dict[str, str]:
    """Return the labels that a new node of the group would have, too, without its own name."""
    names = _names_of(node)
    return {
        key: value
        for key, value in node.labels.items()
        if not (value in names or key.startswith(_OF_ONE_MACHINE) or (value[:2] == "i-" and _INSTANCE_ID.match(value)))
    }


def _names_of(node: Node) -> tuple[str, str]:
    return node.name, node.labels.get(HOSTNAME_LABEL, node.name)


def tells_state(taint: Taint) -> bool:
    """Return whether a taint tells the passing state of a node, and not for whom the node is."""
    return taint.key.startswith(_OF_A_STATE) or taint.key in _OF_A_STATE_TOO or taint.key.endswith("/agent-not-ready")


def _lasting_taints(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.taints if not tells_state(taint))


def _daemons(node_info: NodeInfo) -> Iterator[Pod]:
    for pod_info in node_info.pod_infos.values():
        pod = pod_info.pod
        if pod.is_of_every_node and not pod.terminating and not pod_info.unreadable:
            yield pod


def _catalog_shapes(view: View, instance_type: str) -> Iterable[FreshNode]:
    row = INSTANCE_TYPES.get(instance_type)
    if row is None:
        return
    silicon: Resources = {NEURON_DEVICE: row.devices, NEURON_CORE: row.devices * row.cores_per_device[0]}
    host: Resources = {CPU: _PLENTY, MEMORY: _PLENTY, EPHEMERAL_STORAGE: _PLENTY, PODS: _PODS_ON_ANY_NODE}
    labels = {INSTANCE_TYPE_LABEL: instance_type, HOSTNAME_LABEL: "new", "kubernetes.io/os": "linux"}
    zones = sorted(str(zone) for zone in view.label_postings(ZONE_LABEL).values)[:_MOST_GROUPS]
    for zone in ({ZONE_LABEL: zone} for zone in zones) if zones else ({},):
        node = Node("", "new", _LATER, {**labels, **zone}, allocatable={**host, **silicon}, capacity=silicon)
        yield FreshNode(node, node_group=(instance_type, *zone.values()))

"""
Pods placed on a fork one after the other, and nodes that do not exist yet.

Each pod is decided by the functions that decide real ones.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, known_types, nodes_of_type, tells_state
from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.node import ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Taint, tolerates_all
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.topology import illegal_count, place
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, NoNode, decide_on, select_node
from neuron_scheduler.scheduling.cycle.trial import take_with_volumes
from neuron_scheduler.scheduling.plugins import node_affinity, taint_toleration


@attrs.define(eq=False)
class Placer:
    """Places pods on a fork as the running scheduler would: decide, assume, next."""

    fork: Cluster
    warmup: IndexWarmup = attrs.field(factory=IndexWarmup)

    def place(self, pod: Pod, profile: Profile) -> Generator[None, None, Decision | NoNode]:
        """Place a pod on the best node, if there is one; a step is a decision, or a part of building its indexes."""
        yield from self.warmup.prepare(self.fork, pod, profile)
        result = select_node(self.fork, pod, profile)
        if isinstance(result, Decision):
            take_with_volumes(self.fork, pod, result)
        yield
        return result

    def place_on(self, pod: Pod, profile: Profile, node_name: str) -> bool:
        decision = decide_on(self.fork, pod, profile, node_name)
        if not isinstance(decision, Decision):
            return False
        take_with_volumes(self.fork, pod, decision)
        return True


def new_node_takes(cluster: Cluster, fresh: FreshNode, pod: Pod, profile: Profile) -> bool:
    """
    Return whether a new node would take a pod, beside all pods that are in the cluster, which stays the same.

    False if a node has the name that the new one would get. Its indexes are built when they are first asked for: warm
    up for the pod before.
    """
    if pod.neuron is not None and not has_room(fresh, pod.neuron):
        return False  # for most types no trial is needed
    name = fresh.row.node.name
    if cluster.view.slot(name) is not None:
        return False
    with cluster.row_added(fresh.row):
        return isinstance(decide_on(cluster, pod, profile, name), Decision)


def has_room(fresh: FreshNode, request: NeuronRequest) -> bool:
    """Return whether the whole machine of a new node serves a request while no pod at all is on it."""
    machine = machine_of(fresh.node)
    if machine is None or illegal_count(machine, request) is not None:
        return False
    return place(machine, machine.all_cores, request) is not None


def prepare_for_fresh(view: View) -> Iterator[None]:
    """Build in steps the indexes from which new nodes get their shape."""
    return view.prepare(lambda view: (known_types(view), view.label_postings(ZONE_LABEL)))


def nodes_like_new_ones(view: View, pod: Pod) -> NodeSet:
    """Return the nodes that a pod selects, and whose lasting taints it tolerates, in whatever state they are."""
    lists = taint_toleration.lists_of_taints(view)
    refused = [
        taints
        for taints in cast(Iterable[tuple[Taint, ...]], lists.values)
        if not tolerates_all(pod.tolerations, [taint for taint in taints if not tells_state(taint)])
    ]
    return node_affinity.fitting_nodes(view, pod, less(view.live, lists.any_of(refused)))


def fresh_nodes_that_take(
    cluster: Cluster, pod: Pod, profile: Profile, *, existing: bool, zone: str
) -> Generator[None, None, list[FreshNode]]:
    """
    Return a new node of each type that takes the pod, the type with the fewest devices first.

    Args:
        cluster: the same afterwards; nobody else changes it.
        pod: with warm indexes.
        profile: by which it is decided.
        existing: whether the cluster's types are tried, or the others of the catalog.
        zone: tried for each type, even if it has no node there yet.
    """
    found, view = list[FreshNode](), cluster.view
    labels = {key: value for key, value in pod.constraints.node_selector.items() if key != ZONE_LABEL or not zone}
    anywhere = attrs.evolve(pod, constraints=attrs.evolve(pod.constraints, node_selector=labels))
    among, in_zone = nodes_like_new_ones(view, anywhere), view.label_postings(ZONE_LABEL).get(zone)
    for instance_type in known_types(view):
        moved = {ZONE_LABEL: zone} if zone and not in_zone & nodes_of_type(view, instance_type) else {}
        for shape in fresh_nodes(view, instance_type, among, {}):
            fresh = attrs.evolve(shape, node=attrs.evolve(shape.node, labels={**shape.node.labels, **moved}))
            if bool(fresh.like) is existing and new_node_takes(cluster, fresh, pod, profile):
                found.append(fresh)
                break
            yield
        yield
    return sorted(found, key=lambda fresh: (_devices(fresh), fresh.node.instance_type))


def _devices(fresh: FreshNode) -> int:
    machine = machine_of(fresh.node)
    return 0 if machine is None else machine.devices

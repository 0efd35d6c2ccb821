"""
The smallest changes of each kind by trying every change, in clusters small enough for that.

A change is applied to the objects, as an owner or an operator would do it, and a cluster is built from them: nothing
here uses the trials or the rules of `explain.changes`. Which pods and taints are no candidates is written down again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import Any, Final, TypeVar

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, join, known_types
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.explain.answers import Change
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Requirement, Taint, Toleration
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, explain, select_node

T = TypeVar("T")
PROFILE: Final = default_profile("my-scheduler")
CORDON: Final = "node.kubernetes.io/unschedulable"


@attrs.frozen
class World:
    """
    A cluster as objects, with a pending pod.

    Attributes:
        kept: space that is kept on a node for another pending pod.
    """

    nodes: tuple[Node, ...]
    bound: tuple[Pod, ...]
    pending: Pod
    kept: tuple[tuple[str, Nomination], ...] = ()
    profile: Profile = PROFILE

    def cluster(self) -> Cluster:
        """Return the cluster that a scheduler would have."""
        cluster = Cluster()
        for node in self.nodes:
            cluster.put_node(node)
        for pod in self.bound:
            cluster.put_pod(pod)
        for name, nomination in self.kept:
            cluster.nominate(name, nomination)
        return cluster

    @property
    def fits(self) -> bool:
        """Whether some node takes the pending pod."""
        return self.fits_in(self.cluster())

    def fits_in(self, cluster: Cluster) -> bool:
        """Return whether some node takes the pending pod, in a cluster with these nodes and pods."""
        return isinstance(select_node(cluster, self.pending, self.profile), Decision)

    def takes(self, name: str) -> bool:
        """Return whether one node takes the pending pod."""
        return _takes(self.cluster(), self, name)

    def without_pods(self, keys: Iterable[str]) -> "World":
        """Return the world after the end of these pods."""
        gone = set(keys)
        return attrs.evolve(
            self,
            bound=tuple(pod for pod in self.bound if pod.key not in gone),
            kept=tuple(each for each in self.kept if each[1].pod.key not in gone),
        )

    def uncordoned(self, name: str) -> "World":
        """Return the world after `kubectl uncordon`, and after Kubernetes has removed the taint."""
        return attrs.evolve(self, nodes=tuple(_uncordoned(node) if node.name == name else node for node in self.nodes))

    def tolerating(self, taints: Iterable[Taint]) -> "World":
        """Return the world in which the pending pod tolerates some taints."""
        more = tuple(Toleration(taint.key, value=taint.value, effect=taint.effect) for taint in taints)
        return self.with_pending(tolerations=(*self.pending.tolerations, *more))

    def with_pending(self, **fields: Any) -> "World":
        """Return the world in which the pending pod has other fields."""
        return attrs.evolve(self, pending=attrs.evolve(self.pending, **fields))

    def constrained(self, **fields: Any) -> "World":
        """Return the world in which the pending pod has other constraints."""
        return self.with_pending(constraints=attrs.evolve(self.pending.constraints, **fields))

    def asking_for(self, count: int) -> "World":
        """Return the world in which the one container that asks for Neuron asks for another count."""
        request = self.pending.neuron
        assert request is not None
        init = bool(request.init_counts)
        neuron = NeuronRequest(
            request.unit, () if init else (count,), count, (count,) if init else (), resource=request.resource
        )
        requests = {**self.pending.requests, request.resource: count}
        return self.with_pending(neuron=neuron, requests=requests)


def nearest_counts(world: World) -> list[int]:
    """Return the nearest count below that fits, and the nearest above, as far as there are any."""
    request = world.pending.neuron
    if request is None or len(request.counts) + len(request.init_counts) != 1:
        return []
    machines = [machine for node in world.nodes if (machine := machine_of(node)) is not None]
    most = max((machine.size(request.unit) for machine in machines), default=0)
    cluster = world.cluster()
    below = (count for count in range(min(request.total - 1, most), 0, -1) if world.asking_for(count).fits_in(cluster))
    above = (count for count in range(request.total + 1, most + 1) if world.asking_for(count).fits_in(cluster))
    return [*_first(below), *_first(above)]


def departures_help(world: World) -> bool:
    """Return whether some node takes the pending pod when all pods are gone that may leave it."""
    return any(world.without_pods(_may_leave(world, node.name)).takes(node.name) for node in world.nodes)


def cordons(world: World) -> list[str]:
    """Return the nodes that would take the pod without their cordon."""
    return [node.name for node in world.nodes if node.unschedulable and world.uncordoned(node.name).takes(node.name)]


def fewest_taints(world: World) -> int | None:
    """Return how few taints have to be tolerated, out of those that say whom a node is for."""
    taints = {
        taint
        for node in world.nodes
        for taint in node.taints
        if taint.effect is not Effect.PREFER_NO_SCHEDULE
        and not taint.key.startswith("node.kubernetes.io/")
        and not any(toleration.tolerates(taint) for toleration in world.pending.tolerations)
    }
    cluster = world.cluster()
    sets = _subsets(sorted(taints, key=str))
    return next((len(some) for some in sets if world.tolerating(some).fits_in(cluster)), None)


def droppable(world: World) -> list[tuple[str, Requirement | None]]:
    """Return what the pod can drop: (key, None), or ("", requirement), or ("", None) for all of its affinity."""
    constraints = world.pending.constraints
    keys: list[tuple[str, Requirement | None]] = [(key, None) for key in constraints.node_selector]
    terms = constraints.required_terms
    if terms is None:
        return keys
    if len(terms) == 1 and not terms[0].unreadable and (terms[0].expressions or terms[0].fields):
        return [*keys, *(("", requirement) for requirement in {*terms[0].expressions, *terms[0].fields})]
    return [*keys, ("", None)]


def dropping(world: World, dropped: Iterable[tuple[str, Requirement | None]]) -> World:
    """Return the world in which the pending pod does not require this of nodes."""
    constraints, gone = world.pending.constraints, set(dropped)
    selector = {key: value for key, value in constraints.node_selector.items() if (key, None) not in gone}
    terms = constraints.required_terms
    requirements = {requirement for key, requirement in gone if not key}
    if None in requirements:
        terms = None
    elif requirements:
        assert terms is not None
        (term,) = terms
        left = NodeSelectorTerm(
            tuple(each for each in term.expressions if each not in requirements),
            tuple(each for each in term.fields if each not in requirements),
        )
        terms = (left,) if left.expressions or left.fields else None
    return world.constrained(node_selector=selector, required_terms=terms)


def fewest_dropped(world: World) -> int | None:
    """Return how few requirements of nodes the pod has to drop; None if dropping does not help."""
    cluster = world.cluster()
    return next((len(some) for some in _subsets(droppable(world)) if dropping(world, some).fits_in(cluster)), None)


def selecting(world: World, value: str) -> World:
    """Return the world in which the pending pod selects one instance type, if its selector is the only place for it."""
    return world.constrained(node_selector={**world.pending.constraints.node_selector, INSTANCE_TYPE_LABEL: value})


def other_types(world: World) -> list[tuple[int, str]]:
    """Return the instance types that would take the pod, with the devices of their smallest machine that does."""
    if INSTANCE_TYPE_LABEL not in world.pending.constraints.node_selector:
        return []
    values = {node.labels[INSTANCE_TYPE_LABEL] for node in world.nodes if INSTANCE_TYPE_LABEL in node.labels}
    return sorted((_devices(world, value), value) for value in values if selecting(world, value).fits)


def new_type(world: World) -> str | None:
    """Return the smallest type of the cluster of which a new node would take the pod, or else that of the catalog."""
    if world.pending.neuron is None:
        return None
    origin = world.cluster()
    shapes = [fresh for name in known_types(origin.view) for fresh in _shapes(origin, world, name)]

    def order(fresh: FreshNode) -> tuple[bool, int, str]:
        machine = machine_of(fresh.node)
        return not fresh.like, 0 if machine is None else machine.devices, fresh.node.instance_type

    for fresh in sorted(shapes, key=order):
        fork = origin.fork()
        if _takes(fork, world, join(fork, fresh)):
            return fresh.node.instance_type
    return None


def joined(world: World, name: str) -> bool:
    """Return whether a new node of a type would take the pod."""
    origin = world.cluster()
    forks = [(origin.fork(), fresh) for fresh in _shapes(origin, world, name)]
    return any(_takes(fork, world, join(fork, fresh)) for fork, fresh in forks)


def _shapes(origin: Cluster, world: World, name: str) -> list[FreshNode]:
    """Return the shapes of a new node, each also in the zone that the pod selects."""
    shapes = list(fresh_nodes(origin.view, name))
    zone = world.pending.constraints.node_selector.get(ZONE_LABEL)
    if zone is not None and zone not in {fresh.zone for fresh in shapes}:
        for fresh in shapes.copy():
            there = attrs.evolve(fresh.node, labels={**fresh.node.labels, ZONE_LABEL: zone})
            shapes.append(attrs.evolve(fresh, node=there))
    return shapes


def keys_of(change: Change) -> list[str]:
    """Return the pods of a departure."""
    return [f"{pod.namespace}/{pod.name}" for pod in change.pods]


def _takes(cluster: Cluster, world: World, name: str) -> bool:
    slot = cluster.view.slot(name)
    return slot is not None and bool(explain(cluster, world.pending, world.profile)[0] >> slot & 1)


def _may_leave(world: World, name: str) -> list[str]:
    """Return the keys of pods that may leave a node: not of DaemonSets, but of pods with space kept from the pod."""
    here = [pod for pod in world.bound if pod.node_name == name]
    bound = [pod.key for pod in here if pod.owner is None or pod.owner.kind != "DaemonSet"]
    kept = [nomination.pod for on, nomination in world.kept if on == name and nomination.pod is not world.pending]
    return [*bound, *(pod.key for pod in kept if pod.priority >= world.pending.priority)]


def _uncordoned(node: Node) -> Node:
    taints = tuple(taint for taint in node.taints if taint.key != CORDON)
    return attrs.evolve(node, unschedulable=False, taints=taints)


def _devices(world: World, value: str) -> int:
    cluster = selecting(world, value).cluster()
    decision = select_node(cluster, selecting(world, value).pending, world.profile)
    assert isinstance(decision, Decision)
    node_info = cluster.node(decision.node_name)
    return 0 if node_info is None or node_info.machine is None else node_info.machine.devices


def _subsets(of: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield every set that is not empty, the smallest first."""
    return chain.from_iterable(combinations(of, size) for size in range(1, len(of) + 1))


def _first(numbers: Iterator[int]) -> list[int]:
    number = next(numbers, None)
    return [] if number is None else [number]

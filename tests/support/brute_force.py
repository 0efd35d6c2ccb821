"""
What changes let a pod in, by making them, in clusters small enough for that.

A change is applied to the objects, as an owner or an operator would do it, and a cluster is built from them: nothing
here uses the trials or the rules of `explain.changes`. Which pods and taints are no candidates is written down again.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, join, known_types
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.explain.answers import ChangeKind, SuggestedChange
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.quantity import milli, whole
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Requirement, Taint, Toleration
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.cycle.refusals import first_reasons
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, select_node
from tests.support.oracle_node import affine

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
        more = (Toleration(each.key, exists=not each.value, value=each.value, effect=each.effect) for each in taints)
        return self.with_pending(tolerations=(*self.pending.tolerations, *more))

    def with_pending(self, **fields: Any) -> "World":
        """Return the world in which the pending pod has other fields."""
        return attrs.evolve(self, pending=attrs.evolve(self.pending, **fields))

    def constrained(self, **fields: Any) -> "World":
        """Return the world in which the pending pod has other constraints."""
        return self.with_pending(constraints=attrs.evolve(self.pending.constraints, **fields))

    def requesting(self, name: str, amount: int) -> "World":
        """Return the world in which the pending pod asks for another amount of a resource."""
        return self.with_pending(requests={**self.pending.requests, name: amount})

    def asking_for(self, count: int) -> Iterator["World"]:
        """Yield the worlds in which one of the containers that ask for Neuron asks for another count."""
        request = self.pending.neuron
        assert request is not None
        before = request.counts + request.init_counts
        for place in range(len(before)):
            every = (*before[:place], count, *before[place + 1 :])
            apps, inits = every[: len(request.counts)], every[len(request.counts) :]
            starting = (sum(apps[:beside]) + init for init, beside in zip(inits, request.beside, strict=True))
            total = max(sum(apps), *starting) if inits else sum(apps)
            neuron = NeuronRequest(
                request.unit,
                apps,
                total,
                inits,
                resource=request.resource,
                beside=request.beside,
                cores_each=request.cores_each,
                pairs=request.pairs,
            )
            requests = {**self.pending.requests, request.resource: total}
            if request.cores_each:
                requests[NEURON_CORE] = total * request.cores_each
            yield self.with_pending(neuron=neuron, requests=requests)


def in_pairs(world: World) -> World:
    """Return the world in which the pod's profile allows pairs."""
    request = world.pending.neuron
    return world if request is None else world.with_pending(neuron=attrs.evolve(request, pairs=True))


def lets_it_in(world: World, change: SuggestedChange) -> bool:
    """Return whether the pod goes where a change says, once the change is made."""
    match change.kind:
        case ChangeKind.COUNT:
            count = int(change.detail.partition("=")[2])
            return any(other.takes(change.node_name) for other in world.asking_for(count))
        case ChangeKind.REQUESTS:
            name, _, amount = change.detail.partition("=")
            world = world.requesting(name, milli(amount) if name == CPU else whole(amount))
        case ChangeKind.DEPARTURE:
            return world.without_pods(f"{pod.namespace}/{pod.name}" for pod in change.pods).takes(change.node_name)
        case ChangeKind.UNCORDON:
            return world.uncordoned(change.node_name).takes(change.node_name)
        case ChangeKind.TOLERATION:
            world = world.tolerating(read_taint(text) for text in change.detail.split(", "))
        case ChangeKind.SELECTOR:
            named = change.detail.split("; ")
            dropped = [part for part in droppable(world) if _text_of(world, *part) in named]
            assert not any(_names_types(world, *part) for part in dropped)
            node_name = _decided(dropping(world, dropped))
            assert is_of_a_family_meant(world, _type_of(_node_of(world, node_name)))
            world = dropping(world, dropped)
        case ChangeKind.INSTANCE_TYPE:
            assert is_of_a_family_meant(world, _type_of(_node_of(world, change.node_name)))
            world = selecting(world, change.instance_type)
        case ChangeKind.PAIRS:
            world = in_pairs(world)
        case ChangeKind.NEW_NODE:
            return _joined(world, change.instance_type)
    return world.takes(change.node_name)


def possible(world: World) -> Iterator[ChangeKind]:
    """Yield the kinds of which some change lets the pod in."""
    request, pending = world.pending.neuron, world.pending
    if request is not None:
        machines = [machine for node in world.nodes if (machine := machine_of(node)) is not None]
        most = max((machine.size(request.unit) for machine in machines), default=0)
        cluster = world.cluster()
        if any(other.fits_in(cluster) for count in range(1, most + 1) for other in world.asking_for(count)):
            yield ChangeKind.COUNT
    others = {
        name for name, amount in pending.requests.items() if amount > 1 and not name.startswith("aws.amazon.com/")
    }
    if any(world.requesting(name, 1).fits for name in others):
        yield ChangeKind.REQUESTS
    if any(world.without_pods(_may_leave(world, node.name)).takes(node.name) for node in world.nodes):
        yield ChangeKind.DEPARTURE
    if any(node.unschedulable and world.uncordoned(node.name).takes(node.name) for node in world.nodes):
        yield ChangeKind.UNCORDON
    taints = {taint for node in world.nodes for taint in node.taints if not taint.key.startswith("node.kubernetes.io/")}
    if world.tolerating(taints).fits:
        yield ChangeKind.TOLERATION
    wider = dropping(world, [part for part in droppable(world) if not _names_types(world, *part)])
    nodes = [node for node in world.nodes if wider.takes(node.name)]
    if nodes and all(is_of_a_family_meant(world, _type_of(node)) for node in nodes):
        yield ChangeKind.SELECTOR
    if INSTANCE_TYPE_LABEL in pending.constraints.node_selector:
        alike = [node for node in world.nodes if is_of_a_family_meant(world, _type_of(node))]
        values = {node.labels[INSTANCE_TYPE_LABEL] for node in alike if INSTANCE_TYPE_LABEL in node.labels}
        if any(selecting(world, value).fits for value in values):
            yield ChangeKind.INSTANCE_TYPE
    if request is not None and in_pairs(world).fits:
        yield ChangeKind.PAIRS
    types = (name for name in known_types(world.cluster().view) if is_of_a_family_meant(world, name))
    if request is not None and not exceeds_every_node(world) and any(_joined(world, name) for name in types):
        yield ChangeKind.NEW_NODE


def exceeds_every_node(world: World) -> bool:
    """Return whether the pod's cpu or memory is more than any node with Neuron has: other types have who knows what."""
    sizes = [node.allocatable for node in world.nodes if machine_of(node) is not None]
    asked = {name: world.pending.requests.get(name, 0) for name in (CPU, MEMORY)}
    return bool(sizes) and all(any(size.get(name, 0) < asked[name] for name in asked) for size in sizes)


def is_of_a_family_meant(world: World, instance_type: str) -> bool:
    """Return whether a program that runs on the nodes that the pod requires runs on machines of a type, too."""
    if world.pending.neuron is None:
        return True
    machines = [each for each in world.nodes if machine_of(each) is not None]
    families = {_family(_type_of(each)) for each in machines if affine(each, world.pending)}
    if not families:
        selected = world.pending.constraints.node_selector.get(INSTANCE_TYPE_LABEL)
        families = {_family(selected)} if selected else {_family(_type_of(each)) for each in world.nodes}
    return _family(instance_type) in families


def _type_of(node: Node) -> str:
    return node.labels.get(INSTANCE_TYPE_LABEL, "")


def _family(instance_type: str) -> str:
    return re.sub(r"^ml\.", "", instance_type)[:4]


def _names_types(world: World, key: str, requirement: Requirement | None) -> bool:
    """Return whether a part of the rules is about instance types."""
    if key or requirement is not None:
        return INSTANCE_TYPE_LABEL in (key, requirement and requirement.key)
    terms = world.pending.constraints.required_terms or ()
    return any(each.key == INSTANCE_TYPE_LABEL for term in terms for each in term.expressions)


def _decided(world: World) -> str:
    decision = select_node(world.cluster(), world.pending, world.profile)
    assert isinstance(decision, Decision)
    return decision.node_name


def _node_of(world: World, name: str) -> Node:
    return next(node for node in world.nodes if node.name == name)


def read_taint(text: str) -> Taint:
    """Return the taint of `key=value:effect`."""
    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return Taint(key, Effect(effect), value)


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


def selecting(world: World, value: str) -> World:
    """Return the world in which the pending pod selects one instance type, if its selector is the only place for it."""
    return world.constrained(node_selector={**world.pending.constraints.node_selector, INSTANCE_TYPE_LABEL: value})


def _joined(world: World, name: str) -> bool:
    """Return whether a new node of a type would take the pod."""
    origin = world.cluster()
    forks = [(origin.fork(), fresh) for fresh in _shapes(origin, world, name)]
    return any(_takes(fork, world, join(fork, fresh)) for fork, fresh in forks)


def _shapes(origin: Cluster, world: World, name: str) -> list[FreshNode]:
    """Return the shapes of a new node, each also in the zone that the pod selects."""
    shapes = list(fresh_nodes(origin.view, name, origin.view.live, {}))
    zone = world.pending.constraints.node_selector.get(ZONE_LABEL)
    if zone is not None and zone not in {fresh.zone for fresh in shapes}:
        for fresh in shapes.copy():
            there = attrs.evolve(fresh.node, labels={**fresh.node.labels, ZONE_LABEL: zone})
            shapes.append(attrs.evolve(fresh, node=there))
    return shapes


def _text_of(world: World, key: str, requirement: Requirement | None) -> str:
    """Return how a part that is dropped is described."""
    if key:
        return f"{key}={world.pending.constraints.node_selector[key]}"
    if requirement is None:
        return "its required node affinity"
    values = f" ({', '.join(requirement.values)})" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _takes(cluster: Cluster, world: World, name: str) -> bool:
    slot = cluster.view.slot(name)
    return slot is not None and bool(first_reasons(cluster, world.pending, world.profile)[0] >> slot & 1)


def _may_leave(world: World, name: str) -> list[str]:
    """Return the keys of pods that may leave a node: not of DaemonSets, nor of the pod's own controller."""
    here, pending = [pod for pod in world.bound if pod.node_name == name], world.pending
    own = pending.owner and (pending.namespace, pending.owner)
    alike = {pod.key for pod in here if own and not pod.terminating and (pod.namespace, pod.owner) == own}
    return [pod.key for pod in here if pod.key not in alike and (pod.owner is None or pod.owner.kind != "DaemonSet")]


def _uncordoned(node: Node) -> Node:
    taints = tuple(taint for taint in node.taints if taint.key != CORDON)
    return attrs.evolve(node, unschedulable=False, taints=taints)

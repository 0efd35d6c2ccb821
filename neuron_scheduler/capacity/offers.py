"""
The machines that an autoscaler could add: of the types that the cluster has, and of those that pods name.

Each is an empty node as `cluster.fresh_node` shapes it, in one zone. A pod that no such node takes may need one in a
zone where the cluster has none of its type, so those are tried last. Does not guess a type that no node has and no
pod names: the autoscaler may not have it.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, known_types, row_of
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import NEURON_NAMES, Resources
from neuron_scheduler.model.selectors import Taint
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.topology import illegal_count, place
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on

MOST_ZONES: Final = 8
MOST_NAMED: Final = 32
"""Types that pods name and no node has; more are not tried."""
_ZONE_ID: Final = "topology.k8s.aws/zone-id"
_ZONE_NAME: Final = "/zone"


@attrs.frozen(eq=False)
class Offer:
    """
    A machine that could be added.

    Attributes:
        fresh: the empty node.
        assumed: the cluster has no such node in this zone.
    """

    fresh: FreshNode
    assumed: bool = False

    @property
    def instance_type(self) -> str:
        """The value of the label, with `ml.` where the nodes have it."""
        return self.fresh.node.labels.get(INSTANCE_TYPE_LABEL, "")

    @property
    def zone(self) -> str:
        """Its zone; empty if it is not known."""
        return self.fresh.zone

    @property
    def silicon(self) -> Resources:
        """All that it has of Neuron, by the resources' names."""
        allocatable = self.fresh.node.allocatable
        return {name: allocatable[name] for name in NEURON_NAMES if allocatable.get(name, 0) > 0}

    @property
    def devices(self) -> int:
        """How many devices it has; where devices are not known, each core counts as one."""
        machine = machine_of(self.fresh.node)
        return 0 if machine is None else machine.devices

    @property
    def cores_per_device(self) -> int:
        """How many cores each device has; 1 where it is not known."""
        machine = machine_of(self.fresh.node)
        return 1 if machine is None else machine.cores_per_device

    def has_room(self, pod: Pod) -> bool:
        """Return whether the whole machine serves the pod's request, if no pod at all is on it."""
        request, machine = pod.neuron, machine_of(self.fresh.node)
        if request is None or machine is None or illegal_count(machine, request) is not None:
            return False
        return place(machine, machine.all_cores, request) is not None


@attrs.define(eq=False)
class Offers:
    """
    All of them.

    Attributes:
        offers: those like existing nodes and named ones first, then those in other zones.
    """

    offers: tuple[Offer, ...] = ()

    def taking(self, fork: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, tuple[Offer, ...]]:
        """
        Return the offers that would take a pod beside the pods that are on the fork, by the real rules.

        Those in a zone where the cluster has no such node count only if no other offer takes the pod.
        """
        for assumed in (False, True):
            taking: list[Offer] = []
            for offer in self.offers:
                if offer.assumed is assumed and offer.has_room(pod):
                    if takes(fork, offer, pod, profile):
                        taking.append(offer)
                    yield
            if taking:
                return tuple(taking)
        return ()


def takes(fork: Cluster, offer: Offer, pod: Pod, profile: Profile) -> bool:
    """Return whether an empty machine takes a pod."""
    row = row_of(offer.fresh)
    if fork.view.slot(row.node.name) is not None:  # an existing node has the name
        return False
    with fork.row_added(row):
        return isinstance(decide_on(fork, pod, profile, row.node.name), Decision)


def offers_of(view: View, pods: Iterable[Pod], also: Iterable[str] = ()) -> Generator[None, None, Offers]:
    """Return what could be added for pods; `also` are further types, as labels have them."""
    yield from view.prepared(lambda view: (view.labelled(INSTANCE_TYPE_LABEL), view.labelled(ZONE_LABEL)))
    constraints = {id(pod.constraints): pod.constraints for pod in pods}
    named = dict.fromkeys(name.removeprefix("ml.") for name in also)
    zones = dict.fromkeys(sorted(str(zone) for zone in view.labelled(ZONE_LABEL).values))
    for position, each in enumerate(constraints.values(), start=1):
        named.update(dict.fromkeys(sorted(name.removeprefix("ml.") for name in _named(each, INSTANCE_TYPE_LABEL))))
        zones.update(dict.fromkeys(sorted(_named(each, ZONE_LABEL))))
        if position % 100 == 0:
            yield
    offers = yield from _offers(view, dict.fromkeys([*named][:MOST_NAMED]), [*zones][:MOST_ZONES])
    return Offers(tuple(offers))


def names_a_node(constraints: Constraints) -> bool:
    """
    Return whether a pod requires a node by its name.

    Karpenter ignores pods that name the label of the host name in any term, and terms that look at fields.
    """
    if HOSTNAME_LABEL in constraints.node_selector:
        return True
    return any(
        term.fields or any(requirement.key == HOSTNAME_LABEL for requirement in term.expressions)
        for term in constraints.required_terms or ()
    )


def zone_matters(pod: Pod) -> bool:
    """Return whether volumes or other pods may close some zones to a pod; its node selector is carried as it is."""
    constraints = pod.constraints
    if constraints.volume_claims or constraints.inline_volumes:
        return True
    keys = {term.topology_key for term in (*constraints.affinity, *constraints.anti_affinity)}
    keys |= {constraint.topology_key for constraint in constraints.spread if constraint.hard}
    return bool(keys - {HOSTNAME_LABEL})


def _offers(view: View, named: Mapping[str, None], zones: list[str]) -> Generator[None, None, list[Offer]]:
    offers: list[Offer] = []
    elsewhere: list[Offer] = []
    for name in known_types(view):
        shapes = fresh_nodes(view, name)
        shapes = tuple(fresh for fresh in shapes if fresh.like or name in named)
        offers += map(Offer, shapes)
        elsewhere += [Offer(fresh, assumed=True) for fresh in _elsewhere(shapes, zones)]
        yield
    return offers + elsewhere


def _elsewhere(shapes: tuple[FreshNode, ...], zones: list[str]) -> list[FreshNode]:
    """Return the same machines in the zones in which the cluster has none of them."""
    known = {_group(fresh) for fresh in shapes}
    moved: list[FreshNode] = []
    for fresh in shapes:
        for zone in zones:
            candidate = _moved(fresh, zone)
            if _group(candidate) not in known:
                known.add(_group(candidate))
                moved.append(candidate)
    return moved


def _group(fresh: FreshNode) -> tuple[frozenset[tuple[str, str]], tuple[Taint, ...]]:
    """Return what tells the nodes of one group and zone from others."""
    return frozenset(fresh.node.labels.items()), fresh.node.taints


def _moved(fresh: FreshNode, zone: str) -> FreshNode:
    """Return the same node in another zone, whose labels about the zone follow."""
    node, before = fresh.node, fresh.zone
    labels = {
        key: zone if before and value == before and key.endswith(_ZONE_NAME) else value
        for key, value in node.labels.items()
        if key != _ZONE_ID
    }
    return attrs.evolve(fresh, node=attrs.evolve(node, labels={**labels, ZONE_LABEL: zone}))


def _named(constraints: Constraints, key: str) -> set[str]:
    """Return the values of a label that a pod's node selector and required node affinity name."""
    named = {constraints.node_selector[key]} if key in constraints.node_selector else set()
    for term in constraints.required_terms or ():
        named |= {value for requirement in term.expressions if requirement.key == key for value in requirement.values}
    return named

"""
Where a group belongs: the rule of the smallest sufficient block, from the machine on upwards.

    node < pair of an UltraServer < four of an UltraServer < network layer 3 < layer 2 < layer 1 < anywhere

A required topology is a filter: the group goes into one domain of it or nowhere. All else is a preference, and only
for members that take whole machines: smaller ones share machines by the rule for single pods. Two to four such members
get one server id. More of them take whole UltraServers first, if their number can be divided so. Their ranks follow
the places of the nodes in each, which is the order of the links.

A domain is enough if it has *room*: a bound from above for how many members fit, exact for members that are alike and
look at no other pod. Of the domains that are enough, the one with the least room leaves most to others.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.labels import domain_of
from neuron_scheduler.cluster.index.nodeset import NodeSet, less, lowest_slot, membership
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import NETWORK_LAYERS, ULTRASERVER_2, ULTRASERVER_4, ULTRASERVER_SIZES, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.model.selectors import PodAffinityTerm
from neuron_scheduler.neuron.capability import how_many
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import place
from neuron_scheduler.scheduling.groups.gang import Gang
from neuron_scheduler.scheduling.plugins.neuron_topology import machines

MOST_DOMAINS: Final = 8
"""Domains of one kind that are tried."""
_AT_ONCE: Final = 256
"""Domains that are counted in one step."""
LEVELS: Final = (ULTRASERVER_2, ULTRASERVER_4, *NETWORK_LAYERS)
"""The labels of the blocks above the machine, the smallest first."""
_LARGEST: Final = max(ULTRASERVER_SIZES.values())

RegionSteps = Generator["Region | None", None, None]

Domain = tuple[str, str]
"""A node label and a value of it. Names, because node sets do not outlive a pause."""


@attrs.frozen
class Region:
    """
    Nodes for the members of a group.

    Attributes:
        within: all members go there; None for anywhere.
        slices: for the members that take a whole machine, `per_slice` in each, in the order of their ranks.
    """

    within: Domain | None = None
    slices: tuple[Domain, ...] = ()
    per_slice: int = 1

    def domain_for(self, number: int) -> Domain | None:
        """Return where a member goes, by its number among those that take a whole machine."""
        part = number // self.per_slice
        return self.slices[part] if part < len(self.slices) else self.within


ANYWHERE: Final = Region()
NOWHERE: Final = Region(("", ""))
EVERYTHING: Final = CoreMask(-1)


@attrs.frozen(eq=False)
class PodRoom:
    """Index definition: how many equal pods fit on a node one beside the other; a bound from above."""

    requests: tuple[tuple[str, int], ...]
    neuron: NeuronRequest | None

    def __call__(self, node_info: NodeInfo) -> Values:
        room = min([node_info.free(PODS), *(node_info.free(name) // amount for name, amount in self.requests)])
        if room and self.neuron is not None:
            room = min(room, self._sets(node_info, self.neuron))
        return (room,) if room > 0 else ()

    def _sets(self, node_info: NodeInfo, neuron: NeuronRequest) -> int:
        machine, free = node_info.machine, node_info.free_cores
        if machine is None:
            return 0
        if neuron.wanted is not None:  # claims need no block, and perhaps no Neuron device
            alone = place(machine, EVERYTHING, neuron)
            if alone is None:
                return 0
            counted = machine.all_cores if alone.ids else EVERYTHING
            return (free & counted).bit_count() // max(1, (alone.cores & counted).bit_count())
        if len(neuron.counts) == 1 and not neuron.init_counts:
            return how_many(machine, free, neuron)
        cores = neuron.total * (machine.cores_per_device if neuron.unit is Unit.DEVICE else 1)
        return free.bit_count() // cores


_room = lru_cache(maxsize=1024)(PodRoom)


def room_of(pod: Pod) -> PodRoom:
    """Return the definition for pods like this one; equal requests share one index."""
    return _room(tuple(sorted((name, amount) for name, amount in pod.requests.items() if amount > 0)), pod.neuron)


@attrs.frozen
class DomainRoom:
    """
    A domain with some room.

    Attributes:
        room: how many members fit in it.
        node: one of its nodes: it shows in which larger domains it is, and how old it is.
    """

    value: str
    room: int
    node: Node


@attrs.define(eq=False)
class Rooms:
    """
    The room for pods like one of the members on the nodes that take one; valid for one attempt.

    Attributes:
        whole: whether one of them takes a whole machine.
        each: the nodes that take some other member; a domain must have one of each of these sets.
    """

    view: View
    whole: bool
    each: Sequence[NodeSet]
    _numbers: Sequence[tuple[int, NodeSet]]
    _of_domains: dict[str, Mapping[str, DomainRoom]] = attrs.field(factory=dict)

    @property
    def total(self) -> int:
        return sum(number * nodes.bit_count() for number, nodes in self._numbers)

    def by_domain(self, key: str) -> Generator[None, None, Mapping[str, DomainRoom]]:
        """Return the domains of a label that have any room."""
        if key not in self._of_domains:
            found, postings = dict[str, DomainRoom](), self.view.domains(key)
            size = max((nodes.bit_length() for _, nodes in self._numbers), default=0)
            numbers = [(number, nodes, membership(nodes, size)) for number, nodes in self._numbers]
            for count, value in enumerate(list(postings.values), start=1):
                slots = postings.slots(value)
                if isinstance(slots, tuple):
                    room = sum([number for slot in slots if slot < size for number, _, has in numbers if has(slot)])
                else:
                    room = sum((nodes & postings.get(value)).bit_count() * number for number, nodes, _ in numbers)
                if room:
                    node = self.view.row(next(iter(postings.slots(value)))).node
                    found[str(value)] = DomainRoom(str(value), room, node)
                if count % _AT_ONCE == 0:
                    yield
                    postings = self.view.domains(key)
            self._of_domains[key] = found
        return self._of_domains[key]

    def most(self, key: str) -> Generator[None, None, int]:
        """Return the room of the roomiest domain of a label; of all nodes, if there is no label."""
        domains = (yield from self.by_domain(key)).values() if key else ()
        return max((domain.room for domain in domains), default=0) if key else self.total


def rooms_for(view: View, pod: Pod, nodes: NodeSet, each: Sequence[NodeSet] = ()) -> Rooms:
    """Count the room for pods like one of them on the nodes that take one; `each` as in the value."""
    nodes &= view.live  # some may have gone in a pause
    numbers = view.postings(room_of(pod))
    by_number = [(number, numbers.get(number) & nodes) for number in numbers.values if isinstance(number, int)]
    whole = bool(nodes) and takes_whole(view.row(lowest_slot(nodes)), pod)
    return Rooms(view, whole, each, [(number, here) for number, here in by_number if here])


def empty_machines(view: View, pod: Pod) -> Rooms:
    """Return the room for pods that ask for as much Neuron as this one, if every machine were free."""
    kinds, neuron = machines(view), pod.neuron
    numbers = [
        (0 if neuron is None else machine.size(neuron.unit) // max(1, neuron.total), kinds.get(machine) & view.live)
        for machine in kinds.values
        if isinstance(machine, Machine)
    ]
    return Rooms(view, whole=False, each=(), numbers=numbers)


def without_pod_terms(pod: Pod) -> Pod:
    """Return a pod without what keeps it off a node only until other members are placed."""
    constraints = pod.constraints
    if not (constraints.affinity or constraints.spread):
        return pod
    return attrs.evolve(pod, constraints=attrs.evolve(constraints, affinity=(), spread=()))


def own_term(pod: Pod) -> PodAffinityTerm | None:
    """Return the first required affinity of a pod to pods like itself; None if it has none."""
    for term in pod.constraints.affinity:
        if pod.namespace in term.namespaces and term.selector is not None and term.selector.matches(pod.labels):
            return term
    return None


def takes_whole(node_info: NodeInfo, pod: Pod) -> bool:
    machine = node_info.machine
    return machine is not None and pod.neuron is not None and pod.neuron.total == machine.size(pod.neuron.unit)


def regions(gang: Gang, rooms: Rooms, wanted: int, fixed: Mapping[str, str], needed: int = 0) -> RegionSteps:
    """
    Yield the regions to try, the best first; None where other tasks may run. There is none without a required domain.

    `rooms` is for the largest members, of which `wanted` are to be placed and `needed` must be. `fixed` has by label
    the domain of the members that have a node; it is empty if they are in several.
    """
    if gang.group.topology:
        yield from _required_domains(gang, rooms, wanted, fixed, needed)
        return
    if rooms.whole:
        for key, per_slice in reversed(ULTRASERVER_SIZES.items()):
            if not any(fixed.values()) and wanted > _LARGEST and wanted % per_slice == 0:
                yield from _in_slices(rooms, key, wanted // per_slice, per_slice)
        for key in LEVELS:
            yield from in_one(rooms, key, wanted, fixed.get(key, ""))
    yield ANYWHERE


def _required_domains(gang: Gang, rooms: Rooms, wanted: int, fixed: Mapping[str, str], needed: int) -> RegionSteps:
    """Yield the domains with room for all members, also for those that are still to come, then the roomiest."""
    key = gang.group.topology
    if key in fixed:
        if fixed[key]:
            yield Region((key, fixed[key]))
        return
    yield from in_one(rooms, key, wanted + gang.still_to_come)
    domains = yield from rooms.by_domain(key)
    enough = [domain for domain in domains.values() if domain.room >= needed]
    roomiest = sorted(enough, key=lambda domain: -domain.room)
    yield from _first_of(rooms, key, roomiest, wanted)


def in_one(rooms: Rooms, key: str, wanted: int, fixed: str = "") -> RegionSteps:
    """Yield the domains with enough room: those with the least first, and of these those with the least around."""
    domains = yield from rooms.by_domain(key)
    around = yield from _room_around(rooms, key)
    enough = [domain for domain in domains.values() if domain.room >= wanted and fixed in ("", domain.value)]
    enough.sort(key=lambda domain: (domain.room, around(domain), domain.node.created, domain.value))
    yield from _first_of(rooms, key, enough, wanted)


def _first_of(rooms: Rooms, key: str, domains: Iterable[DomainRoom], wanted: int) -> RegionSteps:
    """
    Yield the first domains with a node for each member.

    An UltraServer is a slice, too, where the ranks follow the places; for two members that fill machines a pair of it
    is the slice, if one is free.
    """
    found, pairs = 0, dict[str | None, Domain]()
    if key == ULTRASERVER_4 and wanted == 2 and rooms.whole:
        inside = yield from rooms.by_domain(ULTRASERVER_2)
        free = [pair for pair in reversed([*inside.values()]) if pair.room >= wanted]
        pairs = {domain_of(pair.node, key): (ULTRASERVER_2, pair.value) for pair in free}
    for count, domain in enumerate(sorted(domains, key=lambda domain: domain.value not in pairs), start=1):
        within = key, domain.value
        here, pair = nodes_in(rooms.view, within), pairs.get(domain.value, within)
        if all(here & nodes for nodes in rooms.each):
            of_it = within if less(nodes_in(rooms.view, pair), here) else pair
            yield Region(within, (of_it,), wanted) if wanted and key in ULTRASERVER_SIZES else Region(within)
            found += 1
            if found == MOST_DOMAINS:
                return
        elif count % _AT_ONCE == 0:
            yield None


def _in_slices(rooms: Rooms, key: str, count: int, per_slice: int) -> RegionSteps:
    """Yield so many whole UltraServers, the nearest to each other that are enough; pairs of broken ones come first."""
    domains = yield from rooms.by_domain(key)
    around = yield from _room_around(rooms, key)
    whole = [domain for domain in domains.values() if domain.room >= per_slice]
    whole.sort(key=lambda domain: (around(domain), domain.node.created, domain.value))
    for layer in (*NETWORK_LAYERS, None):
        near = dict[str | None, list[DomainRoom]]()
        for domain in whole:
            near.setdefault(layer and domain_of(domain.node, layer), []).append(domain)
        enough = [each for value, each in near.items() if len(each) >= count and (value or not layer)]
        if enough:
            best = min(enough, key=len)[:count]
            yield Region(slices=tuple((key, domain.value) for domain in best), per_slice=per_slice)
            return
        yield None


def _room_around(rooms: Rooms, key: str) -> Generator[None, None, Callable[[DomainRoom], int]]:
    """Return the function that says how much room is in the UltraServer around a pair; 0 for other domains."""
    if key != ULTRASERVER_2:
        return lambda _: 0
    fours = yield from rooms.by_domain(ULTRASERVER_4)

    def around(domain: DomainRoom) -> int:
        four = fours.get(domain_of(domain.node, ULTRASERVER_4) or "")
        return 0 if four is None else four.room

    return around


def nodes_in(view: View, domain: Domain | None) -> NodeSet:
    """Return the nodes of a domain as they are now, or all."""
    return view.live if domain is None else view.domains(domain[0]).get(domain[1])


def fixed_domains(cluster: Cluster, gang: Gang) -> Mapping[str, str]:
    """
    Return by label the domain of the members with a node; empty if they are in several.

    A node without the label fixes nothing, as for a pod affinity: it may have lost the label since.
    """
    names = [name for uid, name in gang.placed.items() if uid not in gang.unconstrained]
    if not gang.group.topology and cluster.has_nominations:  # the members with kept space will be there
        kept = [cluster.nomination(pod.uid) for pod in gang.waiting if pod.neuron is not None]
        names += [nomination[0] for nomination in kept if nomination is not None]
    rows = [row for row in map(cluster.node, names) if row is not None]
    keys = {*LEVELS, gang.group.topology}
    found = {key: {domain for row in rows if (domain := domain_of(row.node, key)) is not None} for key in keys}
    return {key: domains.pop() if len(domains) == 1 else "" for key, domains in found.items() if domains}

"""
What would let a refused group in, tried with the scheduler's own plan: MEMBERS, NEW_NODE and those of `group_members`.

MEMBERS: the group has fewer members, as many as fit at once now. The last of the largest are left out.

NEW_NODE: the fewest nodes of one type join, all in one domain of the group's label if it has one. The type with the
fewest devices that takes the largest member is offered, out of the cluster's types if one of these would do. For the
label of an UltraServer a whole one joins, of a type that comes in such.
"""

from collections.abc import Generator, Iterator
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, join
from neuron_scheduler.cluster.view import View
from neuron_scheduler.explain.answers import ChangeKind, SuggestedChange
from neuron_scheduler.explain.changes.group_members import RefusedGroup, changes_of_members, end_of_evicted
from neuron_scheduler.explain.changes.pod_spec import families_meant
from neuron_scheduler.explain.changes.refused_pod import Answer
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ULTRASERVER_SIZES, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import COUNT_LABEL, Dialect
from neuron_scheduler.model.resources import CPU, MEMORY
from neuron_scheduler.model.wording import count_text
from neuron_scheduler.neuron.catalog import ULTRASERVER_TYPE, family_of, machine_of
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.neuron_shortage import amount
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.what_if import fresh_nodes_that_take, prepare_for_fresh
from neuron_scheduler.scheduling.groups.gang import Gang, GroupRefusal, neuron_total_of
from neuron_scheduler.scheduling.groups.regions import without_pod_terms
from neuron_scheduler.scheduling.plugins import neuron_topology
from neuron_scheduler.scheduling.plugins.node_resources_fit import allocatable_of

NONE_FOR_GROUP: Final = (
    "No number of new nodes of one type, no smaller group, and no end of other pods was found with which it fits."
)
_CUT_OFF: Final = "The group is large: not all that might let it in was tried."
MOST_TYPES: Final = 3
"""Types of new nodes that are tried for a group."""
_IF: Final = " The cluster has no such node, so its cpu, memory, labels and taints were not checked."
_NEW: Final = "new-domain"
"""The value of the group's label on new nodes; no name of a node, which `join` replaces."""


def fitting_new_nodes(
    cluster: Cluster, pod: Pod, profile: Profile, topology: str = ""
) -> Generator[None, None, list[FreshNode]]:
    """
    Return a new node of each type that takes a pod, out of the cluster's types or, if none does, the catalog's.

    For the label of an UltraServer as `topology`, only types that come in such.
    """
    view = cluster.view
    yield from prepare_new_nodes(view, pod, topology)
    if _exceeds_every_node(view, pod):
        return []
    zone, families = pod.constraints.node_selector.get(ZONE_LABEL, ""), families_meant(view, pod)
    for existing in (True, False):
        found = yield from fresh_nodes_that_take(cluster, pod, profile, existing=existing, zone=zone)
        alike = [fresh for fresh in found if family_of(fresh.node.instance_type) in families]
        alike = [fresh for fresh in alike if _comes_in_domains(view, fresh.node.instance_type, topology)]
        if alike:
            return alike
    return []


def prepare_new_nodes(view: View, pod: Pod, topology: str = "") -> Iterator[None]:
    """Build the indexes that the search for new nodes needs of all others; yields when other tasks may run."""
    yield from prepare_for_fresh(view)
    yield from view.prepare(lambda view: (_exceeds_every_node(view, pod), _comes_in_domains(view, "", topology)))


def _exceeds_every_node(view: View, pod: Pod) -> bool:
    """Return whether cpu or memory of each node with Neuron is too small: of types that are not there it is unknown."""
    nodes = with_neuron = neuron_topology.machines(view).keyed & view.live
    for resource in (CPU, MEMORY):
        nodes = view.node_column(allocatable_of(resource)).at_least(pod.requests.get(resource, 0), nodes)
    return bool(with_neuron) and not nodes


def _comes_in_domains(view: View, instance_type: str, topology: str) -> bool:
    """Return whether a new node of a type can have a label; those of UltraServers are only for some types."""
    of_type = view.label_postings(INSTANCE_TYPE_LABEL).any_of((instance_type, f"ml.{instance_type}"))
    return (
        topology not in ULTRASERVER_SIZES
        or instance_type == ULTRASERVER_TYPE
        or bool(view.domains(topology).keyed & of_type)
    )


def group_changes(
    cluster: Cluster, pod: Pod, gang: Gang, refused: GroupRefusal, profile: Profile
) -> Generator[None, None, Answer]:
    """
    Return changes after which a refused group fits; yields whenever other tasks may run.

    `cluster` is a fork that nobody else changes; the pod becomes a member there, if it is not yet known.
    """
    if refused.reason.pod_reason and refused.reason.new_node_cannot_help:
        return (), ()  # the reason is what the members say
    cluster.groups.put(pod)
    for member in gang.waiting:
        cluster.clear_nomination(member.uid)
    group = RefusedGroup(cluster, gang, profile, refused)
    end = yield from end_of_evicted(group)
    if end is not None:
        return (end,), ()
    nodes = yield from _new_nodes(group)
    fewer = yield from _fewer_members(group)
    of_members = yield from changes_of_members(group)
    found = (*of_members, *(change for change in (fewer, nodes) if change is not None))
    if group.left <= 0:
        return found, (_CUT_OFF,)
    return found, () if found or gang.still_to_come else (NONE_FOR_GROUP,)


def _fewer_members(group: RefusedGroup) -> Generator[None, None, SuggestedChange | None]:
    gang, fitting = group.gang, group.refusal.fitting
    placed, missing = len(gang.placed), gang.missing_count
    largest = [pod for pod in gang.waiting if neuron_total_of(pod) == neuron_total_of(gang.waiting[0])]
    left_out = {pod.uid for pod in largest[len(largest) - (len(gang.waiting) - fitting) :]}
    if not 0 < fitting < missing or len(gang.waiting) - fitting >= len(largest):
        return None
    smaller = attrs.evolve(
        gang,
        group=attrs.evolve(gang.group, least=placed + fitting, expected=placed + fitting),
        waiting=tuple(pod for pod in gang.waiting if pod.uid not in left_out),
    )
    if not (yield from group.plan(group.cluster.fork(), smaller)):
        return None
    members, label = count_text(placed + fitting, "member"), ""
    if gang.group.key.dialect is Dialect.COSCHEDULING and gang.group.least:
        label = f" Lower its label {COUNT_LABEL} to {placed + fitting}, too."
    sentence = f"Run group {gang.group.key} with {members} instead of {placed + missing}: it then fits.{label}"
    return SuggestedChange(ChangeKind.MEMBERS, sentence, detail=f"members={placed + fitting}")


def _new_nodes(group: RefusedGroup) -> Generator[None, None, SuggestedChange | None]:
    cluster, profile, member = group.cluster, group.profile, without_pod_terms(group.gang.waiting[0])
    if member.neuron is None:
        return None
    yield from IndexWarmup().prepare(cluster, member, profile)
    for fresh in (yield from fitting_new_nodes(cluster, member, profile, group.gang.group.topology))[:MOST_TYPES]:
        if fewest := (yield from _fewest(group, fresh)):
            return _sentence(group.gang, fresh, fewest, seen=not group.refusal.reason.new_node_cannot_help)
    return None


def _fewest(group: RefusedGroup, fresh: FreshNode) -> Generator[None, None, int]:
    """Return with how many new nodes the group fits: a whole UltraServer, or at most one a member; 0 if it does not."""
    gang = group.gang
    missing, whole, found = gang.missing_count, ULTRASERVER_SIZES.get(gang.group.topology, 0), 0
    lacking, requests = missing - group.refusal.fitting, gang.waiting[0].requests.items()
    on_each = min([fresh.node.allocatable.get(name, 0) // amount for name, amount in requests if amount], default=1)
    least = -(-lacking // max(1, on_each))
    are_alike = all(pod.requests == gang.waiting[0].requests for pod in gang.waiting)
    lowest = max(whole, least if are_alike else 1, 1)
    for most in dict.fromkeys((least, lacking, missing)):  # those that fit may have to move
        number = whole or most + gang.still_to_come
        while group.left > 0 and number >= lowest and (used := (yield from _used_of(group, fresh, number))):
            number = (found := min(number, whole or used)) - 1
        if found:
            break
    return found


def _used_of(group: RefusedGroup, fresh: FreshNode, number: int) -> Generator[None, None, int]:
    """Return how many of so many new nodes the group's plan needs; 0 if it does not fit."""
    fork, topology = group.cluster.fork(), group.gang.group.topology
    if topology:
        fresh = attrs.evolve(fresh, node=attrs.evolve(fresh.node, labels={**fresh.node.labels, topology: _NEW}))
    for each in range(1, number + 1):
        yield
        join(fork, fresh, each)
    plan = yield from group.plan(fork, group.gang)
    nodes = {taken.decision.node_name for taken in plan.members} if plan else set[str]()
    return sum(group.cluster.node(name) is None for name in nodes) + bool(plan) * group.gang.still_to_come


def _sentence(gang: Gang, fresh: FreshNode, number: int, *, seen: bool) -> SuggestedChange:
    machine, name, topology = machine_of(fresh.node), fresh.node.instance_type, gang.group.topology
    devices = "" if machine is None else f" ({amount(machine.size(Unit.DEVICE), Unit.DEVICE)} each)"
    zone = f" in zone {fresh.zone}" if fresh.zone else ""
    domain = f" with one value of the label {topology}" if topology else ""
    whole = "a whole UltraServer, " if topology in ULTRASERVER_SIZES else ""
    sentence = f"Add {whole}{count_text(number, 'node')} of type {name}{devices}{zone}{domain}: the group then fits."
    return SuggestedChange(
        ChangeKind.NEW_NODE, f"{sentence}{'' if fresh.like else _IF}", instance_type=name, autoscalers=seen
    )

"""
The oracle: a simple scheduler, node by node and pod by pod, directly from the objects.

It shares with the real one the definitions of `model` (what matches what) and of `neuron` (which sets are legal), and
of `cluster` and `scheduling` one sentence only: no index, no running sum, no set of nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor

import attrs

from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, PODS
from neuron_scheduler.model.selectors import Effect, Operator, Taint
from neuron_scheduler.model.workload import Workload
from neuron_scheduler.neuron.annotations import read
from neuron_scheduler.neuron.catalog import Machine, machine_of
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import illegal_count, place, whole_free_devices
from neuron_scheduler.scheduling.plugins import dynamic_resources
from tests.support import oracle_affinity, oracle_blocks
from tests.support.oracle_affinity import Namespaces, affinity_refusals, image_eighths
from tests.support.oracle_node import affine, forbidding, untolerated
from tests.support.oracle_spread import default_scores, spread_refusals, spread_shares

NO_NAMESPACES: Namespaces = {}
NO_REJECTIONS: Mapping[str, int] = {}
"""How often nodes have rejected pods lately."""
CORDON = Taint("node.kubernetes.io/unschedulable", Effect.NO_SCHEDULE)


@attrs.frozen
class Outcome:
    """The expected outcome: a node with the number of feasible ones, or reasons with their counts."""

    node_name: str | None = None
    feasible: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    pod_reason: str = ""


@attrs.frozen
class Machinery:
    """One node's silicon as its pods leave it."""

    machine: Machine
    free: CoreMask
    unknown_devices: int
    unknown_cores: int
    in_between: bool


def outcome(
    nodes: Iterable[Node],
    bound: Sequence[Pod],
    pod: Pod,
    *,
    count_unknown_only: bool = False,
    workloads: Sequence[Workload] = (),
    namespaces: Namespaces = NO_NAMESPACES,
    rejecting: Mapping[str, int] = NO_REJECTIONS,
) -> Outcome:
    """Return the outcome of a pod according to the documents."""
    nodes = list(nodes)
    refused = pod_reason(pod)
    if refused:
        return Outcome(pod_reason=refused)
    counts: Counter[str] = Counter()
    feasible: list[Node] = []
    for node in nodes:
        here = [p for p in bound if p.node_name == node.name]
        reasons = (
            refusals(node, here, pod, count_unknown_only=count_unknown_only)
            or spread_refusals(nodes, bound, pod, node)
            or affinity_refusals(nodes, bound, pod, node, namespaces)
        )
        counts.update(reasons)
        if not reasons:
            feasible.append(node)
    if not feasible:
        return Outcome(reasons=tuple(sorted(counts.items())))
    among = lowest(feasible, lambda node: rejecting.get(node.name, 0))
    among = wished_for(nodes, bound, pod, among, namespaces)
    if pod.neuron is not None:
        among = least_missed(nodes, bound, pod, among, workloads)
    return Outcome(node_name=best(nodes, bound, pod, among, workloads).name, feasible=len(feasible))


def wished_for(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, among: Sequence[Node], namespaces: Namespaces
) -> list[Node]:
    """Return the nodes that the pod and other pods prefer, among those with the fewest untolerated taints."""
    among = lowest(among, lambda node: discouragement(node, pod))
    shares = [
        affinity_shares(pod, among),
        spread_shares(nodes, bound, pod, among),
        oracle_affinity.affinity_shares(nodes, bound, pod, among, namespaces),
    ]
    return lowest(among, lambda node: -sum(share.get(node.name, Fraction(0)) for share in shares))


def best(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, among: Sequence[Node], workloads: Sequence[Workload]
) -> Node:
    """Return the best of the nodes: each preference keeps its best ones."""
    if pod.neuron is None:
        among = lowest(among, lambda node: machine_of(node) is not None)
    spread = default_scores(nodes, bound, pod, among, workloads)
    among = lowest(among, lambda node: spread[node.name])
    return min(among, key=lambda node: merit(nodes, node, [p for p in bound if p.node_name == node.name], pod))


def least_missed(
    nodes: Sequence[Node],
    bound: Sequence[Pod],
    pod: Pod,
    among: Sequence[Node],
    workloads: Sequence[Workload],
) -> list[Node]:
    """Return the nodes where the loss of the pod's block costs least, by the sizes of the pods on nodes."""
    spread = default_scores(nodes, bound, pod, among, workloads)
    among = lowest(among, lambda node: spread[node.name])
    here = {node.name: [p for p in bound if p.node_name == node.name] for node in nodes}
    left = {name: silicon(node, here[name]) for node in nodes for name in [node.name]}
    return oracle_blocks.least_missed(
        pod,
        {node.name: node for node in among},
        {name: machinery for name, machinery in left.items() if machinery is not None},
        [
            (p, machinery.machine if (machinery := left[p.node_name]) is not None else None)
            for p in bound
            if p.node_name in left
        ],
    )


def lowest(among: Sequence[Node], key: Callable[[Node], Fraction | int]) -> list[Node]:
    """Return all the nodes with the lowest key."""
    bound = min(key(node) for node in among)
    return [node for node in among if key(node) == bound]


def discouragement(node: Node, pod: Pod) -> int:
    """Return how many PreferNoSchedule taints the pod does not tolerate."""
    taints = [t for t in node.taints if t.effect is Effect.PREFER_NO_SCHEDULE]
    weighing = [t for t in pod.tolerations if t.effect in (None, Effect.PREFER_NO_SCHEDULE)]
    return sum(not any(t.tolerates(taint) for t in weighing) for taint in taints)


def affinity_shares(pod: Pod, among: Sequence[Node]) -> dict[str, Fraction]:
    """Return how well each node serves preferred node affinity, the best 1."""
    terms = pod.constraints.preferred_terms
    weights = {n.name: sum(p.weight for p in terms if p.term.matches(n.labels, n.name)) for n in among}
    highest = max(weights.values())
    return {name: Fraction(weight, highest) for name, weight in weights.items() if highest}


def pod_reason(pod: Pod) -> str:
    """Return why the pod itself is refused; empty if it is not."""
    asked = pod.constraints
    named = names_allowed(pod)
    for wrong, reason in (
        (pod.refusal, pod.refusal),
        (named is not None and not named, "pod affinity terms conflict"),
        (
            asked.inline_volumes,
            'volume "disk" is of an in-tree type that no CSI driver serves; use a PersistentVolumeClaim',
        ),
        (asked.volume_claims, 'persistentvolumeclaim "data" not found'),
        (
            asked.resource_claims,
            dynamic_resources.REASON,
        ),
    ):
        if wrong:
            return reason
    return ""


def names_allowed(pod: Pod) -> set[str] | None:
    """Return the node names that the required terms allow, None if some term names none."""
    allowed: set[str] = set()
    for term in pod.constraints.required_terms or ():
        lists = [set(field.values) for field in term.fields if field.operator is Operator.IN]
        if not lists:
            return None
        allowed |= set.intersection(*lists)
    return allowed if pod.constraints.required_terms else None


def refusals(node: Node, here: Sequence[Pod], pod: Pod, *, count_unknown_only: bool) -> list[str]:
    """Return why a node cannot take a pod: the reasons of the first that refuses, in kube-scheduler's order."""
    named = names_allowed(pod)
    cordon = [CORDON] if node.unschedulable else []
    for refused, reason in (
        (named is not None and node.name not in named, "node(s) didn't satisfy plugin(s) [NodeAffinity]"),
        (node.refusal, "node(s) had an object that could not be read"),
        (untolerated(cordon, pod), "node(s) were unschedulable"),
        (pod.node_name not in ("", node.name), "node(s) didn't match the requested node name"),
        (untolerated(forbidding(node), pod), "node(s) had untolerated taint(s)"),
        (not affine(node, pod), "node(s) didn't match Pod's node affinity/selector"),
        (
            any(clash(mine, theirs) for mine in pod.host_ports for other in here for theirs in other.host_ports),
            "node(s) didn't have free ports for the requested pod ports",
        ),
    ):
        if refused:
            return [reason]
    return (
        illegal(node, pod)
        or lacking(node, here, pod)
        or no_block(node, here, pod, count_unknown_only=count_unknown_only)
    )


def clash(mine: HostPort, theirs: HostPort) -> bool:
    """Return whether two ports exclude each other."""
    everywhere = HostPort("TCP", 1).ip
    same = (mine.protocol, mine.port) == (theirs.protocol, theirs.port)
    return same and (mine.ip == theirs.ip or everywhere in (mine.ip, theirs.ip))


def illegal(node: Node, pod: Pod) -> list[str]:
    """Return the sentence about a count that the type never serves, unless the node is too small for it anyway."""
    machine, request = machine_of(node), pod.neuron
    if machine is None or request is None or node.allocatable.get(request.resource, 0) < request.total:
        return []
    sentence = illegal_count(machine, request)
    return [sentence] if sentence else []


def lacking(node: Node, here: Sequence[Pod], pod: Pod) -> list[str]:
    """Return a reason for each resource of which too little is free."""
    reasons = ["Too many pods"] if len(here) + 1 > node.allocatable.get(PODS, 0) else []
    free = free_amounts(node, here)
    return reasons + [f"Insufficient {name}" for name, amount in pod.requests.items() if amount > free.get(name, 0)]


def free_amounts(node: Node, here: Sequence[Pod]) -> Mapping[str, int]:
    """Return what is left of each resource, never below 0."""
    return {
        name: max(0, amount - sum(p.requests.get(name, 0) for p in here)) for name, amount in node.allocatable.items()
    }


def silicon(node: Node, here: Sequence[Pod]) -> Machinery | None:
    """Return what the pods leave of a node's silicon."""
    machine = machine_of(node)
    if machine is None:
        return None
    free, unknown_devices, unknown_cores, in_between = machine.all_cores, 0, 0, False
    for pod in here:
        cores = read(pod, machine).cores
        if cores is not None:
            free &= ~cores
            in_between |= bool(cores) and pod.neuron is not None and pod.neuron.total > 1 and cores != machine.all_cores
        elif pod.neuron is None:
            unknown_devices += machine.devices
            unknown_cores += machine.core_count
        else:
            in_cores = pod.neuron.unit is Unit.CORE
            unknown_devices += pod.neuron.total
            unknown_cores += pod.neuron.total * (1 if in_cores else machine.cores_per_device)
    return Machinery(machine, free, unknown_devices, unknown_cores, in_between)


def no_block(node: Node, here: Sequence[Pod], pod: Pod, *, count_unknown_only: bool) -> list[str]:
    """Return why the free devices and cores are not enough."""
    request, left = pod.neuron, silicon(node, here)
    if request is None:
        return []
    by_core = request.unit is Unit.CORE
    free = doubtful = 0
    if left is not None:
        free = left.free.bit_count() if by_core else whole_free_devices(left.machine, left.free)
        doubtful = 0 if count_unknown_only else left.unknown_cores if by_core else left.unknown_devices
    reason = ""
    if node.neuron_unhealthy:
        reason = "node(s) had an unhealthy Neuron device"
    elif left is None or free < request.total:
        reason = f"Insufficient {request.resource}"
    elif doubtful and (request.total > 1 or free <= doubtful):
        reason = "node(s) had a pod with an unknown Neuron allocation"
    elif place(left.machine, left.free, request) is None:
        reason = f"node(s) didn't have a free block of Neuron {'cores' if by_core else 'devices'}"
    return [reason] if reason else []


def merit(nodes: Sequence[Node], node: Node, here: Sequence[Pod], pod: Pod) -> tuple[object, ...]:
    """Return the values that the last preferences compare, the most important first; the smallest is the best."""
    images = image_eighths(nodes, node, pod)
    return (*of_silicon(node, here, pod, silicon(node, here)), -images, node.created, node.name, node.uid)


def of_silicon(node: Node, here: Sequence[Pod], pod: Pod, left: Machinery | None) -> tuple[int, ...]:
    """Return the part that differs between pods with and without Neuron."""
    free = free_amounts(node, here)
    eighths = [free[name] * 8 // node.allocatable[name] for name in (CPU, MEMORY) if node.allocatable.get(name)]
    if pod.neuron is None or left is None:
        return (left is not None, -sum(eighths))
    placement = place(left.machine, left.free, pod.neuron)
    if placement is None:
        raise AssertionError("a feasible node has a placement")
    crowded = left.in_between and pod.neuron.total == 1
    return (placement.level, crowded, stranded(node, free, pod, left, placement.cores.bit_count()))


def stranded(node: Node, free: Mapping[str, int], pod: Pod, left: Machinery, taken: int) -> int:
    """Return by how much |share of cpu left - share of silicon left|, and of memory, grows: 16ths times devices."""
    grown = 0
    for name in (CPU, MEMORY):
        whole, size = node.allocatable.get(name, 0), left.machine.core_count
        if whole > 0:
            surplus = floor((Fraction(free[name], whole) - Fraction(left.free.bit_count(), size)) * 16)
            alike = int(f"{whole:b}"[:6].ljust(len(f"{whole:b}"), "0"), 2)  # nodes of one type differ slightly
            more = (Fraction(pod.requests.get(name, 0), alike) - Fraction(taken, size)) * 16
            grown += abs(surplus - (ceil(more) if more > 0 else floor(more))) - abs(surplus)
    return grown * left.machine.devices

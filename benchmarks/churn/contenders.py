"""
The contenders: the scheduler's own preferences, other ones in their place, and a fleet without topology.

All run in the same profile with the same filters; a preference only chooses among the feasible nodes. All use the same
rule for a pod's devices on its node (`neuron.topology.place`).
"""

from collections.abc import Callable, Mapping

import attrs

from benchmarks.by_claims import ByClaims
from benchmarks.churn.workload import SCHEDULER_NAME, Arrival, Workload
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.devices import WantedDevices
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_NAMES, PODS
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.claims.choice import bits_of
from neuron_scheduler.neuron.claims.published import DeviceSet
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import Placement, place, whole_free_devices
from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.plugins import intact_ultra_servers
from neuron_scheduler.scheduling.plugins.contract import Prefer, Preference

POOLED = "example.com/pooled"


@attrs.frozen
class Contender:
    """
    A policy.

    Attributes:
        color: in pictures.
        profile: returns the profile for the requests and their shares.
        setting: the workload as this contender gets it.
        groups: whether it differs from ours only where there are jobs of several pods.
        claims: whether it is only for machines of 16 devices, which are asked for by claims.
        turn_after: seconds after which requests of whole machines get a turn; 0: never.
    """

    title: str
    color: str
    profile: Callable[[Workload], Profile]
    setting: Callable[[Workload], Workload] = lambda workload: workload
    groups: bool = False
    claims: bool = False
    turn_after: float = 0.0


def preferring(prefer: Prefer) -> Profile:
    """Return the default profile with one preference in place of its own."""
    return attrs.evolve(default_profile(SCHEDULER_NAME), preferences=(Preference("contender", prefer),))


def _free_devices(node_info: NodeInfo) -> int:
    return 0 if node_info.machine is None else whole_free_devices(node_info.machine, node_info.free_cores)


def _free_cores(node_info: NodeInfo) -> int:
    return node_info.free_cores.bit_count()


def _counting(pod: Pod) -> Callable[[NodeInfo], int]:
    return _free_cores if pod.neuron is not None and pod.neuron.unit is Unit.CORE else _free_devices


def prefer_fullest(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes with the fewest units free."""
    return view.column(_counting(pod)).lowest(among)


def prefer_emptiest(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes with the most units free."""
    return view.column(_counting(pod)).highest(among)


@attrs.frozen(eq=False)
class FragmentationGradientDescent:
    """
    The policy of Weng et al., "Beware of Fragmentation" (USENIX ATC '23), for devices that are not shared.

    A node's fragmentation is its free cores that the next pod cannot use, expected over all pods: all of them if the
    pod does not fit there, none otherwise. The best node is the one whose fragmentation grows least with the pod.

    Attributes:
        requests: the requests, with the share of each.
    """

    requests: Mapping[NeuronRequest, float]
    _known: dict[tuple[Machine, CoreMask], float] = attrs.field(factory=dict, init=False)

    def __call__(self, view: View, pod: Pod, among: NodeSet) -> NodeSet:
        """Return the nodes with the least growth."""
        request = pod.neuron
        if request is None:
            return among
        by_growth: dict[float, NodeSet] = {}
        for slot in slots_of(among):
            growth = self.growth(view.row(slot), request)
            by_growth[growth] = by_growth.get(growth, NO_NODES) | 1 << slot
        return by_growth[min(by_growth)]

    def growth(self, node_info: NodeInfo, request: NeuronRequest) -> float:
        """Return by how much a node's fragmentation grows with one more pod."""
        placement = None if node_info.machine is None else place(node_info.machine, node_info.free_cores, request)
        if node_info.machine is None or placement is None:
            return float("inf")
        after = self.fragmentation(node_info.machine, node_info.free_cores & ~placement.cores)
        return round(after - self.fragmentation(node_info.machine, node_info.free_cores), 9)

    def fragmentation(self, machine: Machine, free: CoreMask) -> float:
        """Return the expected number of free cores that the next pod cannot use."""
        known = self._known.get((machine, free))
        if known is None:
            lost = sum(share for request, share in self.requests.items() if place(machine, free, request) is None)
            known = self._known[machine, free] = lost * free.bit_count()
        return known


def pooled(workload: Workload) -> Workload:
    """Return the workload on one node with all devices: the upper limit without topology and without node borders."""
    first = workload.nodes[0]
    total = {resource: sum(node.allocatable[resource] for node in workload.nodes) for resource in (CPU, MEMORY, PODS)}
    pool = Node(uid="pool", name="pool", created=first.created, allocatable={**total, POOLED: workload.capacity})
    arrivals = tuple(attrs.evolve(arrival, pod=_from_pool(arrival)) for arrival in workload.arrivals)
    return attrs.evolve(workload, nodes=(pool,), arrivals=arrivals)


def _from_pool(arrival: Arrival) -> Pod:
    requests = {name: amount for name, amount in arrival.pod.requests.items() if name not in NEURON_NAMES}
    requests = {**requests, POOLED: arrival.size // arrival.members}
    group = arrival.pod.group and attrs.evolve(arrival.pod.group, topology="")
    pod = attrs.evolve(arrival.pod, requests=requests, neuron=None, neuron_containers=(), group=group)
    return attrs.evolve(pod, constraints=NO_CONSTRAINTS)


def one_by_one(workload: Workload) -> Workload:
    """Return the workload without groups: each pod goes where it fits, and holds that until its job is complete."""
    alone = [attrs.evolve(arrival, pod=attrs.evolve(arrival.pod, group=None)) for arrival in workload.arrivals]
    return attrs.evolve(workload, arrivals=tuple(alone))


def anywhere(workload: Workload) -> Workload:
    """Return the workload with groups that need no UltraServer."""

    def freed(pod: Pod) -> Pod:
        return attrs.evolve(pod, group=pod.group and attrs.evolve(pod.group, topology=""))

    free = [attrs.evolve(arrival, pod=freed(arrival.pod)) for arrival in workload.arrivals]
    return attrs.evolve(workload, arrivals=tuple(free))


@attrs.define(eq=False)
class FirstFit(DeviceSet):
    """Devices of which claims get the first that fit, as upstream's allocator gives them."""

    def place(self, free: int, wanted: WantedDevices) -> Placement | None:
        """Return the first devices for a single request with one constraint at most."""
        (request,), constraints = wanted.requests, wanted.constraints
        for value in self.alike(constraints[0][0]) if constraints else (self.all,):
            bits = [*bits_of(free & value)][: request.count]
            if len(bits) == request.count:
                mask = CoreMask(sum(1 << bit for bit in bits))
                return Placement(tuple(bits), (tuple(bits),), mask, level=0, sets=(int(mask),))
        return None


def claimed(workload: Workload) -> Workload:
    """Return the workload with nodes whose devices a driver publishes, and pods with claims on them."""
    by_claims = ByClaims()
    nodes = tuple(map(by_claims.node, workload.nodes))
    arrivals = tuple(attrs.evolve(arrival, pod=by_claims.pod(arrival.pod)) for arrival in workload.arrivals)
    return attrs.evolve(workload, nodes=nodes, arrivals=arrivals)


def claimed_at_first(workload: Workload) -> Workload:
    """Return the same where the first devices that fit are given."""
    known, workload = dict[DeviceSet, DeviceSet](), claimed(workload)
    for node in workload.nodes:
        if node.published not in known:
            fields = [each.name for each in attrs.fields(DeviceSet) if each.init]
            known[node.published] = FirstFit(*(getattr(node.published, name) for name in fields))
    nodes = tuple(attrs.evolve(node, published=known[node.published]) for node in workload.nodes)
    return attrs.evolve(workload, nodes=nodes)


def _unprotected(_: Workload) -> Profile:
    profile = default_profile(SCHEDULER_NAME)
    others = [each for each in profile.preferences if each.name != intact_ultra_servers.NAME]
    return attrs.evolve(profile, preferences=tuple(others))


def _default(_: Workload) -> Profile:
    return default_profile(SCHEDULER_NAME)


CONTENDERS: Mapping[str, Contender] = {
    "ours": Contender("ours", "#2f6fde", _default),
    "turn": Contender("with turns", "#1c4a96", _default, turn_after=3600.0),
    "fgd": Contender("FGD", "#e08a3c", lambda workload: preferring(FragmentationGradientDescent(workload.requests))),
    "packing": Contender("bin-packing", "#8b949e", lambda _: preferring(prefer_fullest)),
    "spreading": Contender("spreading", "#c3c9d1", lambda _: preferring(prefer_emptiest)),
    "claims": Contender("by claims", "#3f8f7a", _default, claimed, claims=True),
    "first": Contender(
        "by claims, first fit", "#b5a642", lambda _: preferring(prefer_emptiest), claimed_at_first, claims=True
    ),
    "breaking": Contender("without super-blocks", "#7aa7f0", _unprotected, groups=True),
    "anywhere": Contender("groups anywhere", "#58b09c", _default, anywhere, groups=True),
    "alone": Contender("pods one by one", "#c65d5d", _unprotected, one_by_one, groups=True),
    "pooled": Contender("pooled bound", "#3a3f47", _default, pooled),
}

"""
One row of the cluster: a node, its pods, and the sums over the pods that indexes read.

Frozen: a change makes a new row. Pods are added and removed only here, so the cluster, a fork and an overlay have the
same sums. A *headless* row has pods and no node object: it keeps the sums and takes no pod.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from operator import attrgetter
from typing import Any, Final, TypeVar

import attrs

from neuron_scheduler.cluster.rows.pod_info import NO_POD_INFOS, PodInfo
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.pod_group import PodGroup
from neuron_scheduler.model.resources import NOTHING, PODS, Resources
from neuron_scheduler.model.volumes import NO_STORAGE, HeldVolume, NodeStorage
from neuron_scheduler.neuron.annotations import alloc_time_of
from neuron_scheduler.neuron.catalog import Machine, machine_of
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask

_T = TypeVar("_T")
NO_COUNTS: Mapping[Any, int] = {}


@attrs.frozen
class NeuronUsage:
    """
    Which of a node's devices and cores are held, and how certain that is.

    Attributes:
        free: the cores that no pod certainly holds.
        double_booked: the cores that more than one pod claims.
        has_multi_unit_pod: some pod holds more than one unit but not the whole machine.
        unknown_holders: how many pods have ids that cannot be read.
        unknown_devices: the most whole devices that unknown holders may use in part.
        unknown_cores: the most cores that unknown holders may hold.
    """

    free: CoreMask = NO_CORES
    double_booked: CoreMask = NO_CORES
    has_multi_unit_pod: bool = False
    unknown_holders: int = 0
    unknown_devices: int = 0
    unknown_cores: int = 0


NO_NEURON_USAGE = NeuronUsage()


@attrs.frozen
class Claimed:
    """What claims hold of a node: what no pod there has (`alone`), and what several claims have (`twice`)."""

    alone: CoreMask = NO_CORES
    twice: CoreMask = NO_CORES


NO_CLAIMED = Claimed()


def neuron_usage_with(
    pod_info: PodInfo, before: NeuronUsage, machine: Machine | None, pod_infos: Mapping[str, PodInfo], claimed: Claimed
) -> NeuronUsage:
    """Return the usage with one more of the pods; the others are read again only if cores are unknown."""
    cores = pod_info.cores
    if cores == 0 or machine is None:
        return before
    if cores is None or before.unknown_holders or machine.published is not None:
        return neuron_usage_of(machine, pod_infos, claimed)
    return NeuronUsage(
        free=before.free & ~cores,
        double_booked=before.double_booked | cores & (machine.all_cores ^ before.free),
        has_multi_unit_pod=before.has_multi_unit_pod or _holds_several_units(pod_info, machine),
    )


def _holds_several_units(pod_info: PodInfo, machine: Machine) -> bool:
    request, cores = pod_info.pod.neuron, (pod_info.cores or NO_CORES) & machine.all_cores
    several = cores.bit_count() > 1 if request is None else request.total > 1  # by claims, it asks for no more
    return several and cores != machine.all_cores


def neuron_usage_of(machine: Machine | None, pod_infos: Mapping[str, PodInfo], claimed: Claimed) -> NeuronUsage:
    """Return the usage by pods and, on a machine for claims, by claims."""
    if machine is None:
        return NO_NEURON_USAGE
    held, double_booked = claimed.alone, NO_CORES
    unknown_holders = unknown_devices = unknown_cores = 0
    has_multi_unit_pod = False
    for pod_info in pod_infos.values():
        if pod_info.cores is None:
            devices, cores = _may_hold(pod_info, machine)
            unknown_holders += 1
            unknown_devices += devices
            unknown_cores += cores
        elif pod_info.cores:
            double_booked |= held & pod_info.cores
            held |= pod_info.cores
            has_multi_unit_pod |= _holds_several_units(pod_info, machine)
    given = machine.all_cores
    if machine.published is not None:  # pods may share a claim
        given, double_booked = CoreMask(machine.published.all), claimed.twice
    return NeuronUsage(
        given & ~held, double_booked, has_multi_unit_pod, unknown_holders, unknown_devices, unknown_cores
    )


def _may_hold(pod_info: PodInfo, machine: Machine) -> tuple[int, int]:
    """Return the most devices that an unknown holder may use in part, and the most cores that it may hold."""
    request = pod_info.pod.neuron
    if request is None or pod_info.unreadable:
        return machine.devices, machine.core_count
    if request.unit is Unit.DEVICE:
        apart = request.total * request.cores_each  # the kubelet may have taken cores of other devices
        return request.total + apart, request.total * machine.cores_per_device + apart
    return request.total, request.total  # at worst every core is on a device of its own


@attrs.frozen
class Nomination:
    """
    Space on a node nominated for a pending pod, for which other pods are evicted, or awaited.

    Attributes:
        cores: chosen in the dry run; empty for a pod without Neuron.
        victims: uids of the pods that leave, gone or not.
        volumes: what the pod will hold of volumes, as known at the nomination.
        awaited: the victims end by themselves: the pod has a turn, and may still go elsewhere.
    """

    pod: Pod
    cores: CoreMask = NO_CORES
    victims: frozenset[str] = frozenset()
    volumes: tuple[HeldVolume, ...] = ()
    awaited: bool = False


@attrs.frozen
class NodeInfo:
    """
    One node with all that its pods use.

    Equality leaves out what no index reads (the pods themselves, the last allocation time), so that changes of these
    are not logged.

    Attributes:
        pod_infos: pods by uid, terminating ones included.
        used: sum of the pods' requests, with `pods` counted as a resource.
        ports: each used host port with the number of pods that use it.
        priorities: each priority with the number of pods that could be evicted.
        nominations: of this node, for pending pods.
        volumes: what the pods hold of volumes, with the number of pods that hold it.
        storage: the node's storage, apart from its pods.
        claimed: what claims hold of what is published for the node.
        set_aside: None, or the node is used only if no other takes a pod, and these cores if no others do: its kubelet
            has rejected the pods that had been given them.
        last_alloc_time: the latest NEURON_ALLOC_TIME of a pod here, ns since the epoch.
        answers: what was worked out from the row alone, by question; forks share it with the row.
    """

    node: Node
    machine: Machine | None = None
    pod_infos: Mapping[str, PodInfo] = attrs.field(default=NO_POD_INFOS, eq=False)
    used: Resources = NOTHING
    ports: Mapping[HostPort, int] = NO_COUNTS
    neuron_usage: NeuronUsage = NO_NEURON_USAGE
    priorities: Mapping[int, int] = NO_COUNTS
    nominations: tuple[Nomination, ...] = ()
    volumes: Mapping[HeldVolume, int] = NO_COUNTS
    storage: NodeStorage = NO_STORAGE
    set_aside: CoreMask | None = None
    claimed: Claimed = NO_CLAIMED
    last_alloc_time: int = attrs.field(default=0, eq=False)
    answers: dict[Hashable, Any] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    @property
    def free_cores(self) -> CoreMask:
        return self.neuron_usage.free

    def free(self, resource: str) -> int:
        """Return what is allocatable less what is used, never below 0."""
        return max(0, self.node.allocatable.get(resource, 0) - self.used.get(resource, 0))

    def conflicts(self, uid: str) -> tuple[Pod, ...]:
        """Return the other pods that claim a core that this pod claims, too."""
        cores = (self.pod_infos[uid].cores or NO_CORES) & self.neuron_usage.double_booked
        return tuple(p.pod for other, p in self.pod_infos.items() if other != uid and (p.cores or NO_CORES) & cores)

    def without_claimed(self, cores: CoreMask) -> "NodeInfo":
        """Return the row as if claims had given these cores back."""
        return with_claimed(self, attrs.evolve(self.claimed, alone=self.claimed.alone & ~cores))

    def without_lower_priority(self, priority: int) -> "NodeInfo":
        """Return the row without the pods of lower priority; computed once for a row and a priority."""
        if not any(lower < priority for lower in self.priorities):
            return self
        key = ("without_lower_priority", priority)
        row: NodeInfo | None = self.answers.get(key)
        if row is None:
            row = self.answers[key] = without_pods(self, evictable(self, priority))
        return row

    def with_nominated(self, priority: int) -> "NodeInfo":
        """Return the row with the nominated pods of this priority or a higher one; kept for each priority."""
        if not self.nominations:
            return self
        key = ("with_nominated", priority)
        row: NodeInfo | None = self.answers.get(key)
        if row is None:
            row, used, left = self, Counter(self.used), {*self.pod_infos}
            asked = defaultdict[frozenset[str], Counter[str]](Counter)
            for nomination in self.nominations:
                pod = nomination.pod
                if pod.priority >= priority and pod.uid not in self.pod_infos:
                    row = with_pod(row, PodInfo(pod, cores=nomination.cores, volumes=nomination.volumes))
                    asked[nomination.victims].update({**pod.requests, PODS: 1})
            for victims, more in asked.items():  # none comes before its victims have gone
                freed = (Counter({**self.pod_infos[uid].pod.requests, PODS: 1}) for uid in victims & left)
                used += more - sum(freed, Counter())
                left -= victims
            if row is not self:
                row = self.answers[key] = attrs.evolve(row, used=dict(used))
        return row


_compared: Final = attrgetter(*(field.name for field in attrs.fields(NodeInfo) if field.eq))


def is_equal_row(first: NodeInfo, second: NodeInfo) -> bool:
    """Return whether two rows are equal; faster than `==` where a field is the same object in both."""
    return bool(_compared(first) == _compared(second))


def on_node(node: Node, pod_infos: Mapping[str, PodInfo] = NO_POD_INFOS, storage: NodeStorage = NO_STORAGE) -> NodeInfo:
    """Return the row of a node with these pods; what they hold must have been read for this node's machine."""
    machine = machine_of(node)
    row = NodeInfo(node, machine, neuron_usage=neuron_usage_of(machine, NO_POD_INFOS, NO_CLAIMED), storage=storage)
    return with_only(row, pod_infos) if pod_infos else row


def with_only(node_info: NodeInfo, pod_infos: Mapping[str, PodInfo]) -> NodeInfo:
    """Return the row with these pods and no others, in one pass: thousands may name a node before it exists."""
    used, priorities = Counter[str](), Counter[int]()
    ports, volumes = Counter[HostPort](), Counter[HeldVolume]()
    last_alloc_time = node_info.last_alloc_time
    for pod_info in pod_infos.values():
        pod = pod_info.pod
        used.update(pod.requests)
        used[PODS] += 1
        ports.update(pod.host_ports)
        volumes.update(pod_info.volumes)
        if pod_info.is_evictable:
            priorities[pod.priority] += 1
        last_alloc_time = max(last_alloc_time, _alloc_time(pod_info))
    return _with_pods(
        node_info,
        pod_infos,
        used=dict(used),
        ports=dict(ports),
        volumes=dict(volumes),
        neuron_usage=neuron_usage_of(node_info.machine, pod_infos, node_info.claimed),
        priorities=dict(priorities),
        last_alloc_time=last_alloc_time,
    )


def with_pod(node_info: NodeInfo, pod_info: PodInfo) -> NodeInfo:
    pod = pod_info.pod
    used = dict(node_info.used)
    for name, amount in pod.requests.items():
        used[name] = used.get(name, 0) + amount
    used[PODS] = used.get(PODS, 0) + 1
    pod_infos = {**node_info.pod_infos, pod.uid: pod_info}
    return _with_pods(
        node_info,
        pod_infos,
        used=used,
        ports=_more(node_info.ports, pod.host_ports),
        volumes=_more(node_info.volumes, pod_info.volumes),
        neuron_usage=neuron_usage_with(
            pod_info, node_info.neuron_usage, node_info.machine, pod_infos, node_info.claimed
        ),
        priorities=_one_more(node_info.priorities, pod.priority) if pod_info.is_evictable else node_info.priorities,
        last_alloc_time=max(node_info.last_alloc_time, _alloc_time(pod_info)),
    )


def with_changed_pod(node_info: NodeInfo, pod_info: PodInfo) -> NodeInfo:
    """Return the row with the new state of a pod that holds the same as before."""
    dated = pod_info.pod.allocation != node_info.pod_infos[pod_info.pod.uid].pod.allocation
    return _with_pods(
        node_info,
        {**node_info.pod_infos, pod_info.pod.uid: pod_info},
        used=node_info.used,
        ports=node_info.ports,
        volumes=node_info.volumes,
        neuron_usage=node_info.neuron_usage,
        priorities=node_info.priorities,
        last_alloc_time=max(node_info.last_alloc_time, _alloc_time(pod_info) if dated else 0),
    )


def without_pod(node_info: NodeInfo, uid: str) -> NodeInfo:
    return without_pods(node_info, (uid,))


def without_pods(node_info: NodeInfo, uids: Collection[str]) -> NodeInfo:
    if not uids:
        return node_info
    pod_infos, used, priorities = dict(node_info.pod_infos), dict(node_info.used), dict(node_info.priorities)
    removed = [pod_infos.pop(uid) for uid in uids]
    ports, volumes = node_info.ports, node_info.volumes
    for pod_info in removed:
        pod = pod_info.pod
        for name, amount in pod.requests.items():
            used[name] = used.get(name, 0) - amount
        ports = _less(ports, pod.host_ports)
        volumes = _less(volumes, pod_info.volumes)
        if pod_info.is_evictable:
            priorities[pod.priority] -= 1
    used[PODS] = used.get(PODS, 0) - len(removed)
    return _with_pods(
        node_info,
        pod_infos,
        used={name: amount for name, amount in used.items() if amount},
        ports=ports,
        volumes=volumes,
        neuron_usage=neuron_usage_of(node_info.machine, pod_infos, node_info.claimed)
        if any(pod_info.cores != 0 for pod_info in removed)
        else node_info.neuron_usage,
        priorities={priority: count for priority, count in priorities.items() if count},
        last_alloc_time=node_info.last_alloc_time,
    )


def evictable(node_info: NodeInfo, priority: int) -> frozenset[str]:
    """Return the uids of the pods that may be evicted for a pod of this priority."""
    return frozenset(uid for uid, p in node_info.pod_infos.items() if p.pod.priority < priority and p.is_evictable)


def _with_pods(
    node_info: NodeInfo,
    pod_infos: Mapping[str, PodInfo],
    *,
    used: Resources,
    ports: Mapping[HostPort, int],
    volumes: Mapping[HeldVolume, int],
    neuron_usage: NeuronUsage,
    priorities: Mapping[int, int],
    last_alloc_time: int,
) -> NodeInfo:
    return NodeInfo(
        node=node_info.node,
        machine=node_info.machine,
        pod_infos=pod_infos,
        used=used,
        ports=ports,
        volumes=volumes,
        storage=node_info.storage,
        neuron_usage=neuron_usage,
        priorities=priorities,
        nominations=node_info.nominations,
        set_aside=node_info.set_aside,
        claimed=node_info.claimed,
        last_alloc_time=last_alloc_time,
    )


def without_nomination(node_info: NodeInfo, uid: str, group: PodGroup | None = None) -> NodeInfo:
    """Return the row without what is nominated for a pod, and for the others of its group, if one is named."""
    key = group.key if group is not None else ""
    others = tuple([n for n in node_info.nominations if n.pod.uid != uid and (n.pod.group and n.pod.group.key) != key])
    return node_info if len(others) == len(node_info.nominations) else attrs.evolve(node_info, nominations=others)


def with_claimed(node_info: NodeInfo, claimed: Claimed) -> NodeInfo:
    """Return the row with other devices that claims hold."""
    usage = neuron_usage_of(node_info.machine, node_info.pod_infos, claimed)
    return attrs.evolve(node_info, claimed=claimed, neuron_usage=usage)


def _alloc_time(pod_info: PodInfo) -> int:
    """Return when a pod was given its ids; 0 if it has none, or no credible time."""
    return (pod_info.cores != 0 and alloc_time_of(pod_info.pod)) or 0


def _one_more(counts: Mapping[int, int], key: int) -> Mapping[int, int]:
    return {**counts, key: counts.get(key, 0) + 1}


def _more(counts: Mapping[_T, int], added: tuple[_T, ...]) -> Mapping[_T, int]:
    if not added:
        return counts
    return dict(Counter(counts) + Counter(added))


def _less(counts: Mapping[_T, int], removed: tuple[_T, ...]) -> Mapping[_T, int]:
    if not removed:
        return counts
    return dict(Counter(counts) - Counter(removed))

"""
One row of the cluster: a node, its pods, and the running sums that indexes read.

Frozen: a change is a new row. The arithmetic of adding and removing pods lives here, so that the live cluster, a
fork and a what-if can only agree. A node that has pods but no object yet is *headless*: it keeps account and takes
nothing.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any, Final, TypeVar

import attrs

from neuron_scheduler.cluster.rows.neuron_usage import NO_NEURON_USAGE, NeuronUsage, neuron_usage_of, neuron_usage_with
from neuron_scheduler.cluster.rows.pod_info import NO_POD_INFOS, PodInfo
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.resources import NOTHING, PODS, Resources
from neuron_scheduler.model.volumes import NO_STORAGE, HeldVolume, NodeStorage
from neuron_scheduler.neuron.annotations import alloc_time_of
from neuron_scheduler.neuron.catalog import Machine, machine_of
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask

_T = TypeVar("_T")


NONE_BORNE: Mapping[Any, int] = {}


@attrs.frozen
class Nomination:
    """
    Space on a node that is promised to a pending pod, for which others were asked to leave.

    Attributes:
        cores: mask of the core bits chosen in the dry run; 0 without Neuron.
        victims: uids of the pods that were asked to leave, gone or not.
        volumes: what it will hold of volumes, as known when the space was promised.
    """

    pod: Pod
    cores: CoreMask = NO_CORES
    victims: frozenset[str] = frozenset()
    volumes: tuple[HeldVolume, ...] = ()


@attrs.frozen
class SetAside:
    """
    What of a node is not to be used where there is a choice, because its kubelet has rejected pods.

    Attributes:
        level: how often, lately; 0 if the node itself is well, and only the cores are in doubt.
        cores: mask of the core bits that rejected pods were to get.
    """

    level: int
    cores: CoreMask = NO_CORES


@attrs.frozen
class NodeInfo:
    """
    One node with all that its pods use.

    Equality leaves out what no index reads (the pods themselves, the last allocation time), so that a change of those
    enters no log.

    Attributes:
        tenants: pods by uid, terminating ones included.
        used: sum of the tenants' requests, with `pods` counted as a resource.
        ports: what the tenants take, with the number of those that take it.
        priorities: how many tenants of each priority could be asked to leave; what could not be read never is.
        nominated: space promised to pending pods.
        volumes: what the tenants hold of volumes, with the number of those that hold it.
        storage: what is known of the node's storage apart from them.
        set_aside: what is not to be used where there is a choice; None if that is nothing.
        last_alloc_time: the latest NEURON_ALLOC_TIME given out here, ns since the epoch.
    """

    node: Node
    machine: Machine | None = None
    pod_infos: Mapping[str, PodInfo] = attrs.field(default=NO_POD_INFOS, eq=False)
    used: Resources = NOTHING
    ports: Mapping[HostPort, int] = NONE_BORNE
    neuron_usage: NeuronUsage = NO_NEURON_USAGE
    priorities: Mapping[int, int] = NONE_BORNE
    nominated: tuple[Nomination, ...] = ()
    volumes: Mapping[HeldVolume, int] = NONE_BORNE
    storage: NodeStorage = NO_STORAGE
    set_aside: SetAside | None = None
    last_alloc_time: int = attrs.field(default=0, eq=False)
    _imagined: dict[tuple[str, int], "NodeInfo"] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    @property
    def free_cores(self) -> CoreMask:
        """Mask of the core bits nobody provably holds."""
        return self.neuron_usage.free

    def free(self, resource: str) -> int:
        """Return allocatable less used, never below 0."""
        return max(0, self.node.allocatable.get(resource, 0) - self.used.get(resource, 0))

    def conflicts(self, uid: str) -> tuple[Pod, ...]:
        """Return the other pods that claim a core this pod claims."""
        mine = self.pod_infos[uid].cores or NO_CORES
        return tuple(t.pod for other, t in self.pod_infos.items() if other != uid and (t.cores or NO_CORES) & mine)

    def without_lower_priority(self, priority: int) -> "NodeInfo":
        """Return the row without the pods of lower priority; worked out once for a row and a priority."""
        if not any(lower < priority for lower in self.priorities):
            return self
        found = self._imagined.get(("without_lower_priority", priority))
        if found is None:
            found = self._imagined["without_lower_priority", priority] = without_pods(self, evictable(self, priority))
        return found

    def with_nominated(self, priority: int) -> "NodeInfo":
        """
        Return the row with the nominated pods of this priority or a higher one as tenants.

        Worked out once for a row and a priority.
        """
        if not self.nominated:
            return self
        found = self._imagined.get(("with_nominated", priority))
        if found is None:
            found = self
            for nomination in self.nominated:
                pod = nomination.pod
                if pod.priority >= priority and pod.uid not in self.pod_infos:
                    found = with_pod(found, PodInfo(pod, cores=nomination.cores, volumes=nomination.volumes))
            if found is not self:
                self._imagined["with_nominated", priority] = found
        return found


_compared: Final = attrgetter(*(field.name for field in attrs.fields(NodeInfo) if field.eq))


def reads_alike(one: NodeInfo, other: NodeInfo) -> bool:
    """Tell whether two rows are equal, as `==` does, but without looking into what is the same object in both."""
    return bool(_compared(one) == _compared(other))


def on_node(node: Node, pod_infos: Mapping[str, PodInfo] = NO_POD_INFOS) -> NodeInfo:
    """
    Return the row of a node and its tenants.

    Allocations are read again if the machine is another one than before or was not known; a reading never depends
    on the order in which nodes and pods arrive.
    """
    machine = machine_of(node)
    node_info = NodeInfo(node=node, machine=machine, neuron_usage=neuron_usage_of(machine, NO_POD_INFOS))
    for pod_info in pod_infos.values():
        node_info = with_pod(node_info, pod_info)
    return node_info


def with_pod(node_info: NodeInfo, pod_info: PodInfo) -> NodeInfo:
    """Return the row with one pod more."""
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
        neuron_usage=neuron_usage_with(pod_info, node_info.neuron_usage, node_info.machine, pod_infos),
        priorities=node_info.priorities if pod_info.unreadable else _one_more(node_info.priorities, pod.priority),
        last_alloc_time=max(node_info.last_alloc_time, (pod_info.cores != 0 and alloc_time_of(pod)) or 0),
    )


def with_changed_pod(node_info: NodeInfo, pod_info: PodInfo) -> NodeInfo:
    """Return the row with the new state of a pod that holds what it held."""
    pod, before = pod_info.pod, node_info.pod_infos[pod_info.pod.uid].pod
    dated = pod_info.cores != 0 and pod.allocation != before.allocation
    return _with_pods(
        node_info,
        {**node_info.pod_infos, pod_info.pod.uid: pod_info},
        used=node_info.used,
        ports=node_info.ports,
        volumes=node_info.volumes,
        neuron_usage=node_info.neuron_usage,
        priorities=node_info.priorities,
        last_alloc_time=max(node_info.last_alloc_time, (dated and alloc_time_of(pod)) or 0),
    )


def without_pod(node_info: NodeInfo, uid: str) -> NodeInfo:
    """Return the row with one pod fewer."""
    return without_pods(node_info, (uid,))


def without_pods(node_info: NodeInfo, uids: Collection[str]) -> NodeInfo:
    """Return the row with several pods fewer."""
    if not uids:
        return node_info
    pod_infos, used, priorities = dict(node_info.pod_infos), dict(node_info.used), dict(node_info.priorities)
    gone = [pod_infos.pop(uid) for uid in uids]
    ports, volumes = node_info.ports, node_info.volumes
    for pod_info in gone:
        pod = pod_info.pod
        for name, amount in pod.requests.items():
            used[name] = used.get(name, 0) - amount
        ports = _less(ports, pod.host_ports)
        volumes = _less(volumes, pod_info.volumes)
        if not pod_info.unreadable:
            priorities[pod.priority] -= 1
    used[PODS] = used.get(PODS, 0) - len(gone)
    return _with_pods(
        node_info,
        pod_infos,
        used={name: amount for name, amount in used.items() if amount},
        ports=ports,
        volumes=volumes,
        neuron_usage=neuron_usage_of(node_info.machine, pod_infos)
        if any(pod_info.cores != 0 for pod_info in gone)
        else node_info.neuron_usage,
        priorities={priority: count for priority, count in priorities.items() if count},
        last_alloc_time=node_info.last_alloc_time,
    )


def evictable(node_info: NodeInfo, priority: int) -> frozenset[str]:
    """Return the uids of the tenants that a pod of this priority may ask to leave."""
    return frozenset(uid for uid, t in node_info.pod_infos.items() if t.pod.priority < priority and not t.unreadable)


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
    """Return the row with other tenants."""
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
        nominated=node_info.nominated,
        set_aside=node_info.set_aside,
        last_alloc_time=last_alloc_time,
    )


def _one_more(counts: Mapping[int, int], key: int) -> Mapping[int, int]:
    return {**counts, key: counts.get(key, 0) + 1}


def _more(terms_of_placed_pods: Mapping[_T, int], added: tuple[_T, ...]) -> Mapping[_T, int]:
    if not added:
        return terms_of_placed_pods
    return dict(Counter(terms_of_placed_pods) + Counter(added))


def _less(terms_of_placed_pods: Mapping[_T, int], removed: tuple[_T, ...]) -> Mapping[_T, int]:
    if not removed:
        return terms_of_placed_pods
    return dict(Counter(terms_of_placed_pods) - Counter(removed))

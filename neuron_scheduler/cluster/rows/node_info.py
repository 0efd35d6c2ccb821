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

from neuron_scheduler.cluster.rows.neuron_usage import NO_SILICON, Silicon, silicon_of, silicon_with
from neuron_scheduler.cluster.rows.pod_info import NO_TENANTS, Tenant
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.resources import NOTHING, PODS, Resources
from neuron_scheduler.model.volumes import NO_STORAGE, Held, NodeStorage
from neuron_scheduler.neuron.annotations import alloc_time_of
from neuron_scheduler.neuron.catalog import Machine, machine_of

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
    cores: int = 0
    victims: frozenset[str] = frozenset()
    volumes: tuple[Held, ...] = ()


@attrs.frozen
class SetAside:
    """
    What of a node is not to be used where there is a choice, because its kubelet has rejected pods.

    Attributes:
        level: how often, lately; 0 if the node itself is well, and only the cores are in doubt.
        cores: mask of the core bits that rejected pods were to get.
    """

    level: int
    cores: int = 0


@attrs.frozen
class NodeState:
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
    tenants: Mapping[str, Tenant] = attrs.field(default=NO_TENANTS, eq=False)
    used: Resources = NOTHING
    ports: Mapping[HostPort, int] = NONE_BORNE
    silicon: Silicon = NO_SILICON
    priorities: Mapping[int, int] = NONE_BORNE
    nominated: tuple[Nomination, ...] = ()
    volumes: Mapping[Held, int] = NONE_BORNE
    storage: NodeStorage = NO_STORAGE
    set_aside: SetAside | None = None
    last_alloc_time: int = attrs.field(default=0, eq=False)
    _imagined: dict[tuple[str, int], "NodeState"] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    @property
    def free_cores(self) -> int:
        """Mask of the core bits nobody provably holds."""
        return self.silicon.free

    def free(self, resource: str) -> int:
        """Return allocatable less used, never below 0."""
        return max(0, self.node.allocatable.get(resource, 0) - self.used.get(resource, 0))

    def conflicts(self, uid: str) -> tuple[Pod, ...]:
        """Return the other pods that claim a core this pod claims."""
        mine = self.tenants[uid].cores or 0
        return tuple(t.pod for other, t in self.tenants.items() if other != uid and (t.cores or 0) & mine)

    def above(self, priority: int) -> "NodeState":
        """Return the row without the pods of lower priority; worked out once for a row and a priority."""
        if not any(lower < priority for lower in self.priorities):
            return self
        found = self._imagined.get(("above", priority))
        if found is None:
            found = self._imagined["above", priority] = without_tenants(self, evictable(self, priority))
        return found

    def claimed(self, priority: int) -> "NodeState":
        """
        Return the row with the nominated pods of this priority or a higher one as tenants.

        Worked out once for a row and a priority.
        """
        if not self.nominated:
            return self
        found = self._imagined.get(("claimed", priority))
        if found is None:
            found = self
            for nomination in self.nominated:
                pod = nomination.pod
                if pod.priority >= priority and pod.uid not in self.tenants:
                    found = with_tenant(found, Tenant(pod, cores=nomination.cores, volumes=nomination.volumes))
            if found is not self:
                self._imagined["claimed", priority] = found
        return found


_compared: Final = attrgetter(*(field.name for field in attrs.fields(NodeState) if field.eq))


def read_alike(one: NodeState, other: NodeState) -> bool:
    """Tell whether two rows are equal, as `==` does, but without looking into what is the same object in both."""
    return bool(_compared(one) == _compared(other))


def on_node(node: Node, tenants: Mapping[str, Tenant] = NO_TENANTS) -> NodeState:
    """
    Return the row of a node and its tenants.

    Allocations are read again if the machine is another one than before or was not known; a reading never depends
    on the order in which nodes and pods arrive.
    """
    machine = machine_of(node)
    state = NodeState(node=node, machine=machine, silicon=silicon_of(machine, NO_TENANTS))
    for tenant in tenants.values():
        state = with_tenant(state, tenant)
    return state


def with_tenant(state: NodeState, tenant: Tenant) -> NodeState:
    """Return the row with one pod more."""
    pod = tenant.pod
    used = dict(state.used)
    for name, amount in pod.requests.items():
        used[name] = used.get(name, 0) + amount
    used[PODS] = used.get(PODS, 0) + 1
    tenants = {**state.tenants, pod.uid: tenant}
    return _with_tenants(
        state,
        tenants,
        used=used,
        ports=_more(state.ports, pod.host_ports),
        volumes=_more(state.volumes, tenant.volumes),
        silicon=silicon_with(tenant, state.silicon, state.machine, tenants),
        priorities=state.priorities if tenant.unreadable else _one_more(state.priorities, pod.priority),
        last_alloc_time=max(state.last_alloc_time, (tenant.cores != 0 and alloc_time_of(pod)) or 0),
    )


def with_tenant_again(state: NodeState, tenant: Tenant) -> NodeState:
    """Return the row with the new state of a pod that holds what it held."""
    pod, before = tenant.pod, state.tenants[tenant.pod.uid].pod
    dated = tenant.cores != 0 and pod.allocation != before.allocation
    return _with_tenants(
        state,
        {**state.tenants, tenant.pod.uid: tenant},
        used=state.used,
        ports=state.ports,
        volumes=state.volumes,
        silicon=state.silicon,
        priorities=state.priorities,
        last_alloc_time=max(state.last_alloc_time, (dated and alloc_time_of(pod)) or 0),
    )


def without_tenant(state: NodeState, uid: str) -> NodeState:
    """Return the row with one pod fewer."""
    return without_tenants(state, (uid,))


def without_tenants(state: NodeState, uids: Collection[str]) -> NodeState:
    """Return the row with several pods fewer."""
    if not uids:
        return state
    tenants, used, priorities = dict(state.tenants), dict(state.used), dict(state.priorities)
    gone = [tenants.pop(uid) for uid in uids]
    ports, volumes = state.ports, state.volumes
    for tenant in gone:
        pod = tenant.pod
        for name, amount in pod.requests.items():
            used[name] = used.get(name, 0) - amount
        ports = _less(ports, pod.host_ports)
        volumes = _less(volumes, tenant.volumes)
        if not tenant.unreadable:
            priorities[pod.priority] -= 1
    used[PODS] = used.get(PODS, 0) - len(gone)
    return _with_tenants(
        state,
        tenants,
        used={name: amount for name, amount in used.items() if amount},
        ports=ports,
        volumes=volumes,
        silicon=silicon_of(state.machine, tenants) if any(tenant.cores != 0 for tenant in gone) else state.silicon,
        priorities={priority: count for priority, count in priorities.items() if count},
        last_alloc_time=state.last_alloc_time,
    )


def evictable(state: NodeState, priority: int) -> frozenset[str]:
    """Return the uids of the tenants that a pod of this priority may ask to leave."""
    return frozenset(uid for uid, t in state.tenants.items() if t.pod.priority < priority and not t.unreadable)


def _with_tenants(
    state: NodeState,
    tenants: Mapping[str, Tenant],
    *,
    used: Resources,
    ports: Mapping[HostPort, int],
    volumes: Mapping[Held, int],
    silicon: Silicon,
    priorities: Mapping[int, int],
    last_alloc_time: int,
) -> NodeState:
    """Return the row with other tenants."""
    return NodeState(
        node=state.node,
        machine=state.machine,
        tenants=tenants,
        used=used,
        ports=ports,
        volumes=volumes,
        storage=state.storage,
        silicon=silicon,
        priorities=priorities,
        nominated=state.nominated,
        set_aside=state.set_aside,
        last_alloc_time=last_alloc_time,
    )


def _one_more(counts: Mapping[int, int], key: int) -> Mapping[int, int]:
    return {**counts, key: counts.get(key, 0) + 1}


def _more(borne: Mapping[_T, int], added: tuple[_T, ...]) -> Mapping[_T, int]:
    if not added:
        return borne
    return dict(Counter(borne) + Counter(added))


def _less(borne: Mapping[_T, int], removed: tuple[_T, ...]) -> Mapping[_T, int]:
    if not removed:
        return borne
    return dict(Counter(borne) - Counter(removed))

"""
The Bindings of one node: which of them wait, and for which pod.

A Binding that names an amount waits for
- an earlier one that waits itself and has an amount in common with it;
- every Binding of the node that was let through and has not been answered for the first time, whatever its amount, so
  that Bindings arrive in the order of their times;
- every pod on the node with an amount in common that its kubelet has not admitted, `LONGEST` seconds at most.

Which pods those are follows from the cluster and from the Bindings on their way. Does not send a Binding or
decide when to look again: that is `allocate_fence`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.annotations import alloc_time_of, has_ids, lookup_amounts
from neuron_scheduler.telemetry import logs

LONGEST: Final = 120.0
"""Seconds from a pod's Binding after which other Bindings do not wait for it, even if it has not started."""

log = logs.logger(__name__)

Amounts = frozenset[tuple[Unit, int]]


@attrs.define(eq=False)
class WaitingBinding:
    """
    A Binding that waits.

    Attributes:
        amounts: the plugin may look for the pod by any of them.
        logged: the log says that it waits.
    """

    commitment: Commitment
    amounts: Amounts
    logged: bool = False


@attrs.define(eq=False, kw_only=True)
class NodeBindings:
    """
    The Bindings of one node.

    Attributes:
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds.
        waiting: those that wait, in the order of the decisions.
        first_tries: the pods whose Binding was let through and has not been answered for the first time, by uid.
        bound_at: when pods that have not started were bound, by uid; -inf for a pod that is not waited for any more.
        recheck_at: when the waiting ones are to be looked at again.
    """

    cluster: Cluster
    node_name: str
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    waiting: list[WaitingBinding] = attrs.field(factory=list)
    first_tries: dict[str, Pod] = attrs.field(factory=dict)
    bound_at: dict[str, float] = attrs.field(factory=dict)
    recheck_at: float = math.inf
    _last_stamp: int = attrs.field(default=0, init=False)

    def stamp(self, node_info: NodeInfo, uid: str) -> int:
        """Return the NEURON_ALLOC_TIME of a Binding that is sent now: unique, and increasing on the node."""
        self._last_stamp = max(self.wall_clock(), self._last_stamp + 1, node_info.last_alloc_time + 1)
        self.restart_clock(uid)
        return self._last_stamp

    def restart_clock(self, uid: str) -> None:
        """Count the time of a pod from now, unless it is not waited for any more."""
        if self.bound_at.get(uid, -math.inf) > -math.inf:
            self.bound_at[uid] = self.clock()

    def let_through(self, pod: Pod) -> None:
        """Note that a pod's Binding is sent now, and drop the pods that have started or are gone."""
        node_info = self.cluster.node(self.node_name)
        pod_infos = {} if node_info is None else node_info.pod_infos
        self.bound_at = {
            uid: at
            for uid, at in self.bound_at.items()
            if (pod_info := pod_infos.get(uid)) is not None and not pod_info.pod.admitted
        }
        self.bound_at[pod.uid] = self.clock()
        self.first_tries[pod.uid] = pod

    def predecessor(self, binding: WaitingBinding) -> tuple[Pod, float] | None:
        """Return the pod that a Binding waits for, and until when at most; None if it may be sent."""
        for earlier in self.waiting:
            if not earlier.amounts.isdisjoint(binding.amounts):
                return earlier.commitment.pod, math.inf
        for pod in self.first_tries.values():
            return pod, math.inf
        now, overdue = self.clock(), list[Pod]()
        latest: tuple[Pod, float] | None = None
        for pod, at in self._confusable(binding):
            if at + LONGEST <= now:
                overdue.append(pod)
            elif latest is None or at + LONGEST > latest[1]:
                latest = (pod, at + LONGEST)
        if latest is None:
            for pod in overdue:
                self._stop_waiting_for(pod, binding.commitment.pod)
        return latest

    def _confusable(self, binding: WaitingBinding) -> Iterator[tuple[Pod, float]]:
        """Yield the pods on the node that the plugin could take for the Binding's pod, and when they were bound."""
        node_info = self.cluster.node(self.node_name)
        machine = None if node_info is None else node_info.machine
        if node_info is None or machine is None:
            return
        for uid, pod_info in node_info.pod_infos.items():
            pod = pod_info.pod
            if pod.admitted or pod.neuron is None or lookup_amounts(pod.neuron, machine).isdisjoint(binding.amounts):
                continue
            at = self.bound_at.get(uid)
            if at is None:
                if self.cluster.is_assumed(uid) or not has_ids(pod):
                    continue  # its Binding is not let through yet, or the plugin has no ids of it to hand out
                at = self.bound_at[uid] = self._bound_at(pod)
            yield pod, at

    def _bound_at(self, pod: Pod) -> float:
        """Return when another scheduler's pod was bound, on our clock; a time in the future counts as now."""
        now, wall = self.clock(), self.wall_clock()
        return now - max(0, wall - (alloc_time_of(pod) or wall)) / 1e9

    def _stop_waiting_for(self, pod: Pod, waiting: Pod) -> None:
        """Do not wait any more for a pod that has not started; log it once."""
        if self.bound_at.get(pod.uid, 0.0) == -math.inf:
            return
        self.bound_at[pod.uid] = -math.inf
        log.warning(
            "Pod has not started; pods with the same Neuron request are bound to its node without waiting for it",
            pod=pod.key,
            node=self.node_name,
            waiting=waiting.key,
            seconds=LONGEST,
        )

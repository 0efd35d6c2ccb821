"""
Holds a Binding back while the device plugin could confuse its pod with another one of its node.

The kubelet tells the device plugin how many devices or cores a container gets, but not to which pod it belongs. The
plugin takes the pod of its node with this amount and the lowest NEURON_ALLOC_TIME that has not been served. Two such
pods may swap their ids, and our account of who holds what is then wrong (decision 11).

So a decided pod is assumed at once, and its Binding waits: first the kubelet must admit every earlier pod that the
plugin could take for it. Nothing is stored: a new leader needs nothing from the old one.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import ClassVar, Final

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.changes import AssumedPodChanged, Change, Kinds, NodeGone, PodBound, PodGone, SpaceChanged
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.controllers.commitment import Commitment, obstacle, refused_by
from neuron_scheduler.kube.writes.binder import BindOutcome, Bound, Fenced
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.annotations import alloc_time_of, has_ids, lookup_amounts
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

LONGEST: Final = 120.0
"""Seconds from a pod's Binding after which other Bindings do not wait for it, even if it has not started."""
PERIOD: Final = 5.0
"""Seconds between two looks for such pods."""

log = logs.logger(__name__)

Amounts = frozenset[tuple[Unit, int]]


@attrs.define(eq=False)
class WaitingBinding:
    """
    A Binding that waits; the plugin may look for its pod by any of `amounts`.

    Attributes:
        since: when it was taken.
        told: its pod has an Event about that.
    """

    commitment: Commitment
    amounts: Amounts
    since: float = 0.0
    told: bool = False


@attrs.define(eq=False, kw_only=True)
class NodeBindings:
    """
    The Bindings of one node, and the pods they wait for.

    A Binding that names an amount waits for
    - an earlier one that waits itself and has an amount in common with it;
    - every Binding of the node that was let through and has no first answer yet, whatever its amount: Bindings arrive
      in the order of their times;
    - every pod on the node with an amount in common that its kubelet has not admitted, `LONGEST` seconds at most.

    Attributes:
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds.
        waiting: in the order of the decisions.
        first_tries: the pods whose Binding was let through and has no first answer yet, by uid.
        bound_at: when pods that have not started were bound, by uid; -inf for those not waited for any more.
    """

    cluster: Cluster
    node_name: str
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    waiting: list[WaitingBinding] = attrs.field(factory=list)
    first_tries: dict[str, Pod] = attrs.field(factory=dict)
    bound_at: dict[str, float] = attrs.field(factory=dict)
    _last_stamp: int = attrs.field(default=0, init=False)

    def stamp(self, node_info: NodeInfo, uid: str) -> int:
        """Return the NEURON_ALLOC_TIME of a Binding that is sent now: unique, and increasing on the node."""
        self._last_stamp = max(self.wall_clock(), self._last_stamp + 1, node_info.last_alloc_time + 1)
        self.restart_clock(uid)
        return self._last_stamp

    def restart_clock(self, uid: str) -> None:
        if self.bound_at.get(uid, -math.inf) > -math.inf:
            self.bound_at[uid] = self.clock()

    def let_through(self, pod: Pod) -> None:
        """Note that a pod's Binding is sent now; forget the pods that have started or are gone."""
        node_info = self.cluster.node(self.node_name)
        pod_infos = {} if node_info is None else node_info.pod_infos
        self.bound_at = {
            uid: at
            for uid, at in self.bound_at.items()
            if (pod_info := pod_infos.get(uid)) is not None and not pod_info.pod.admitted
        }
        self.bound_at[pod.uid] = self.clock()
        self.first_tries[pod.uid] = pod

    def predecessor(self, binding: WaitingBinding) -> Pod | None:
        """Return a pod that a Binding waits for; None if it may be sent."""
        for earlier in self.waiting:
            if not earlier.amounts.isdisjoint(binding.amounts):
                return earlier.commitment.pod
        for pod in self.first_tries.values():
            return pod
        now, overdue = self.clock(), list[Pod]()
        for pod, at in self._confusable(binding):
            if at + LONGEST > now:
                return pod
            overdue.append(pod)
        for pod in overdue:
            self._stop_waiting_for(pod, binding.commitment.pod)
        return None

    def _confusable(self, binding: WaitingBinding) -> Iterator[tuple[Pod, float]]:
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


@attrs.define(eq=False, kw_only=True)
class AllocateFence:
    """
    Decides when each Binding may be sent, and gives out NEURON_ALLOC_TIME.

    Attributes:
        of_groups: decisions about members of groups that are not taken yet, by uid.
        enabled: False lets every Binding through; it gets a NEURON_ALLOC_TIME all the same.
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds.
        on_free: called with a commitment that has waited, when its Binding may be sent.
        on_withdrawn: called with a commitment that will not be sent, and its outcome.
        on_held: called once with a pod whose Binding waits for long, its node, and the pod it waits for.
    """

    OBSERVES: ClassVar[Kinds] = (AssumedPodChanged, PodBound, PodGone, SpaceChanged, NodeGone)

    cluster: Cluster
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    on_free: Callable[[Commitment], None]
    on_withdrawn: Callable[[Commitment, BindOutcome], None]
    on_held: Callable[[Pod, str, Pod], None]
    errors: UnexpectedErrors
    enabled: bool = True
    of_groups: OrderedDict[str, Commitment] = attrs.field(factory=OrderedDict, init=False)
    _nodes: dict[str, NodeBindings] = attrs.field(factory=dict, init=False)  # by the name of the node
    _waiting: dict[str, WaitingBinding] = attrs.field(factory=dict, init=False)  # by uid

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def take(self, commitment: Commitment) -> bool:
        """Return True if the Binding may be sent now; otherwise a callback comes, now or later."""
        try:
            return self._take(commitment)
        except Exception as error:  # noqa: BLE001 - it is one pod's error
            self._withdraw_crashed(commitment, error)
            return False

    def give_up(self, uid: str) -> bool:
        """Settle a pod that waits, since its place is needed for another one; False if it does not wait."""
        binding, commitment = self._waiting.get(uid), self.of_groups.pop(uid, None)
        if binding is not None:
            self._withdraw(binding, Fenced())
        if commitment is not None:
            self.on_withdrawn(commitment, Fenced())
        return binding is not None or commitment is not None

    def stamp(self, commitment: Commitment) -> int:
        """Return the NEURON_ALLOC_TIME of a Binding that is sent now: unique, and increasing on its node."""
        node_info = self.cluster.node(commitment.node_name)
        if node_info is None:
            return self.wall_clock()  # the node is gone: nothing is remembered of it
        return self._bindings_of(commitment.node_name).stamp(node_info, commitment.pod.uid)

    def on_delayed(self, commitment: Commitment) -> None:
        """Note that a Binding will take longer: those of other amounts no longer wait for it."""
        node, uid = self._nodes.get(commitment.node_name), commitment.pod.uid
        if node is not None and node.first_tries.pop(uid, None) is not None:
            self._advance(commitment.node_name)

    def on_outcome(self, commitment: Commitment, outcome: BindOutcome) -> None:
        node, uid = self._nodes.get(commitment.node_name), commitment.pod.uid
        if node is None or uid not in node.bound_at:
            return
        node.first_tries.pop(uid, None)
        if isinstance(outcome, Bound):
            node.restart_clock(uid)
        else:
            del node.bound_at[uid]
        self._advance(commitment.node_name)

    def observe(self, change: Change) -> None:
        match change:
            case NodeGone(name):
                self._forget_node(name)
            case _ if not self._waiting:
                return
            case SpaceChanged(name):
                self._withdraw_misfits(name)
            case AssumedPodChanged(pod):
                self.recheck(pod.uid)
            case PodBound(after=pod_info):
                self._look_at_pod(pod_info.pod.uid, pod_info.pod.node_name)
            case PodGone(pod, held):
                self._look_at_pod(pod.uid, "" if held is None else held.pod.node_name)

    def recheck(self, uid: str) -> None:
        binding = self._waiting.get(uid)
        if binding is not None and (outcome := self._obstacle(binding.commitment)) is not None:
            self._withdraw(binding, outcome)

    def _look_at_pod(self, uid: str, node_name: str) -> None:
        """Look again after a pod has come, changed or gone; the name is that of the node it is or was on."""
        self.recheck(uid)
        node = self._nodes.get(node_name)
        if node is not None and uid in node.bound_at:
            self._advance(node_name)

    def _withdraw_misfits(self, name: str) -> None:
        """Withdraw the Bindings whose pods the node takes no more: the lowest priority first, then the latest."""
        node = self._nodes.get(name)
        waiting = reversed(node.waiting) if node is not None else ()
        for binding in sorted(waiting, key=lambda binding: binding.commitment.pod.priority):
            self.recheck(binding.commitment.pod.uid)  # it may have been let through when another one left

    def _forget_node(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        for binding in node.waiting if node is not None else ():
            del self._waiting[binding.commitment.pod.uid]
            self.on_withdrawn(binding.commitment, self._obstacle(binding.commitment) or Fenced())

    def clear(self) -> None:
        for node in self._nodes.values():
            waiting, node.waiting = node.waiting, []
            for binding in waiting:
                del self._waiting[binding.commitment.pod.uid]
                self.on_withdrawn(binding.commitment, Fenced())

    async def watch_the_clock(self) -> None:
        while True:
            await anyio.sleep(PERIOD)
            for _ in self.expire():
                await anyio.lowlevel.checkpoint()

    def expire(self) -> Iterator[None]:
        """Look again at the nodes where Bindings wait; yields when other tasks may run."""
        for name in dict.fromkeys([binding.commitment.node_name for binding in self._waiting.values()]):
            self._advance(name)
            yield

    def _take(self, commitment: Commitment) -> bool:
        amounts = self._amounts(commitment)
        if not amounts:
            return True
        node, binding = self._bindings_of(commitment.node_name), WaitingBinding(commitment, amounts, self.clock())
        predecessor = node.predecessor(binding)
        if predecessor is None:
            node.let_through(commitment.pod)
            return True
        log.info(
            "Waiting for another pod's Neuron allocation before binding",
            v=2,
            pod=commitment.pod.key,
            node=node.node_name,
            behind=predecessor.key,
        )
        node.waiting.append(binding)
        self._waiting[commitment.pod.uid] = binding
        return False

    def _amounts(self, commitment: Commitment) -> Amounts:
        request = None if commitment.pod.claims else commitment.pod.neuron  # no device plugin gives its devices
        node_info = self.cluster.node(commitment.node_name) if self.enabled and request is not None else None
        if request is None or node_info is None or node_info.machine is None:
            return frozenset()
        return lookup_amounts(request, node_info.machine)

    def _bindings_of(self, name: str) -> NodeBindings:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeBindings(
                cluster=self.cluster, node_name=name, clock=self.clock, wall_clock=self.wall_clock
            )
        return node

    def _obstacle(self, commitment: Commitment) -> BindOutcome | None:
        return obstacle(self.cluster, commitment, self.errors)

    def _withdraw_crashed(self, commitment: Commitment, error: Exception) -> None:
        self.on_withdrawn(commitment, refused_by(error, commitment, self.errors, task="allocate fence"))

    def _advance(self, name: str) -> None:
        """Send or settle, in their order, the Bindings that do not wait for a pod any more."""
        node = self._nodes.get(name)
        if node is None or not node.waiting:
            return
        waiting, node.waiting = node.waiting, []
        for binding in waiting:
            try:
                self._look_at(binding, node)
            except Exception as error:  # noqa: BLE001 - it is one pod's error
                self._waiting.pop(binding.commitment.pod.uid, None)
                self._withdraw_crashed(binding.commitment, error)

    def _look_at(self, binding: WaitingBinding, node: NodeBindings) -> None:
        predecessor, commitment = node.predecessor(binding), binding.commitment
        if predecessor is not None:
            if not binding.told and self.clock() - binding.since >= PERIOD:
                binding.told = True
                self.on_held(commitment.pod, node.node_name, predecessor)
            node.waiting.append(binding)
            return
        del self._waiting[commitment.pod.uid]
        outcome = self._obstacle(commitment)
        if outcome is None:
            node.let_through(commitment.pod)
            self.on_free(commitment)
        else:
            self.on_withdrawn(commitment, outcome)

    def _withdraw(self, binding: WaitingBinding, outcome: BindOutcome) -> None:
        name = binding.commitment.node_name
        self._nodes[name].waiting.remove(binding)
        del self._waiting[binding.commitment.pod.uid]
        self.on_withdrawn(binding.commitment, outcome)
        self._advance(name)

"""
The machines that an autoscaler is asked for, and what happens to them: nodes join, pods leave, the API server refuses.

    a node joins that serves a request, or a request has lost its last pod: its objects are deleted, and Bindings that
    must not overtake the deletion wait for it (`withdrawal_fence`)

What the watch shows is the truth about placeholders: the leader takes over one that is there and not known. Handlers
call the methods, which never wait. Refuses to decide which machines are needed: that is for `capacity_requester`.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Final

import attrs

from neuron_scheduler.capacity.limits import Owner
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.requests import Outcome, Request, Requests
from neuron_scheduler.capacity.waits import FIRST_REFUSAL
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.adopted_machines import (
    adopted_machine,
    is_placeholder,
    is_seen_by_autoscalers,
    requested_by,
    warn_of_foreign,
)
from neuron_scheduler.controllers.capacity_policy import Policy, Reporter
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.controllers.consolidation_brake import ConsolidationBrake
from neuron_scheduler.controllers.followed_machines import FollowedMachines
from neuron_scheduler.controllers.machine_arrivals import MachineArrivals
from neuron_scheduler.controllers.machine_deadlines import MachineDeadlines
from neuron_scheduler.controllers.machine_orders import MachineOrders, order_of
from neuron_scheduler.kube.writes.machine_order import Orders
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

NO_MACHINE: Final = "The autoscaler cannot be asked for a machine for this pod"

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class MachineRequests:
    """
    Carries requests out.

    Attributes:
        scheduler_names: the profiles; placeholders of others belong to another installation.
        policies: of the profiles that ask for machines, by scheduler name.
        placeholders: writes placeholders, also those of profiles that ask for none any more.
        let_through: called with the name of a request whose objects are gone: Bindings may go on.
        clock: seconds that never jump, the queue's time.
        table: the requests.
        orders: their objects.
        arrivals: the nodes that have joined for them.
        deadlines: for what takes too long.
        brake: on a chase with the autoscaler's consolidation.
        followed: what this replica sees on standby.
    """

    cluster: Cluster
    queue: SchedulingQueue
    scheduler_names: Container[str]
    policies: Mapping[str, Policy]
    placeholders: Orders
    reporter: Reporter
    metrics: Metrics
    clock: Callable[[], float]
    let_through: Callable[[str], None]
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    table: Requests = attrs.field(factory=Requests, init=False)
    orders: MachineOrders = attrs.field(init=False)
    arrivals: MachineArrivals = attrs.field(init=False)
    deadlines: MachineDeadlines = attrs.field(init=False)
    brake: ConsolidationBrake = attrs.field(init=False)
    followed: FollowedMachines = attrs.field(init=False)
    _leading: bool = attrs.field(default=False, init=False)
    _seen: dict[str, Pod] = attrs.field(factory=dict, init=False)  # placeholders by uid
    _leaving: dict[str, tuple[Owner, MachineNeed]] = attrs.field(factory=dict, init=False)  # ended, by name
    _refusals: logs.Once = attrs.field(factory=logs.Once, init=False)
    _told: logs.Once = attrs.field(factory=logs.Once, init=False)  # about placeholders, by uid

    def __attrs_post_init__(self) -> None:
        self.orders = MachineOrders(clock=self.clock, listener=self, errors=self.errors)
        self.brake = ConsolidationBrake(
            cluster=self.cluster, policies=self.policies, clock=self.clock, leads=lambda: self._leading
        )
        self.followed = FollowedMachines(brake=self.brake, clock=self.clock)
        self.arrivals = MachineArrivals(
            cluster=self.cluster,
            table=self.table,
            orders=self.orders,
            policies=self.policies,
            clock=self.clock,
            brake=self.brake,
            unneeded=partial(self.end, outcome=Outcome.SERVED),
        )
        self.deadlines = MachineDeadlines(
            cluster=self.cluster,
            table=self.table,
            policies=self.policies,
            clock=self.clock,
            give_up=self.give_up,
            taken=partial(self.end, outcome=Outcome.WITHDRAWN),
        )

    @property
    def outstanding(self) -> list[tuple[Owner, MachineNeed]]:
        """
        What counts for the limits: requests, and ended ones as long as their objects may be there.

        The autoscaler goes on buying for what cannot be deleted.
        """
        return [*self.table.outstanding, *self._leaving.values()]

    def lead(self, others: Iterable[tuple[Pod, Orders]] = ()) -> None:
        """Take over the requests of the last leader, `others` being those that the watch does not show."""
        self._leading = True
        for pod, form in (*((pod, self.placeholders) for pod in self._seen.values()), *others):
            try:
                self._adopt(pod, form)
            except Exception as error:  # noqa: BLE001 - what one object says must not end a leader
                self.errors.report(error, task="capacity request", pod=pod.key)

    def ask(self, need: MachineNeed) -> None:
        """Ask for a machine, and report that to the owners of its pods."""
        now, policy = self.clock(), self.policies[need.pods[0].scheduler_name]
        taken = {*self.orders.names, *(pod.name for pod in self._seen.values())}
        request = self.table.ask(need, now, taken)
        self.orders.ask(order_of(request, policy.image), policy.form)
        log.info(
            "Asked the autoscaler for a machine",
            machine=request.machine,
            name=request.name,
            pod=need.pods[0].key,
            pods=len(need.pods),
            why=need.shortage,
        )
        for pod in need.pods:
            self.reporter.capacity_requested(pod, request.machine, need.shortage)

    def end(self, request: Request, outcome: Outcome) -> None:
        """End a request: its objects are removed."""
        if self.table.end(request.name) is None:
            return
        if request.name in self.orders.names:
            self._leaving[request.name] = request.owner, request.need
            self.orders.withdraw(request.name)
        self.metrics.capacity_request_ended(outcome.value)
        log.info("Request for a machine has ended", machine=request.machine, name=request.name, outcome=outcome.value)
        if not len(self.table):
            self.arrivals.forget_young()

    def give_up(self, request: Request, reason: str, *, first: float) -> None:
        """End a request in vain: its pods ask for nothing for a while, `first` seconds at the first time."""
        self.table.waits.gave_up(request.pods, reason, self.clock(), first)
        log.warning("Gave up a machine that was asked for", machine=request.machine, name=request.name, err=reason)
        for pod in self._waiting(request.pods):
            self.reporter.capacity_given_up(
                pod, f"Gave up the {request.machine} that the autoscaler was asked for: {reason}"
            )
        self.end(request, Outcome.GIVEN_UP)

    def report(self) -> None:
        """Let the messages of all pods that a machine is asked for say so."""
        self.reporter.capacity_asked({uid: request.machine for request in self.table.all() for uid in request.pods})

    # Called by the handlers of pods

    def seen(self, pod: Pod) -> None:
        """Note the present state of a pod that is not ours to place."""
        if is_placeholder(pod):
            self._seen[pod.uid] = pod
            if self._leading:
                self._adopt(pod, self.placeholders)

    def gone(self, uid: str) -> None:
        """Note that a pod is gone."""
        placeholder = self._seen.pop(uid, None)
        if placeholder is not None and not self._leading:
            self.followed.gone(placeholder)
        if placeholder is not None and self.orders.vanished(placeholder.name, uid):
            request = self.table.get(placeholder.name)
            if request is not None:
                self.give_up(request, "what asked for it was deleted", first=FIRST_REFUSAL)
        self._left(uid)

    def noticed(self, uid: str, node_name: str) -> None:
        """Note that a pod is bound, if it has a node."""
        if not node_name:
            return
        pod_info = self.cluster.pod_info(uid)
        if pod_info is not None:
            self.seen(pod_info.pod)
        self.brake.pod_came(node_name)
        self._left(uid)

    def behind(self, commitment: Commitment) -> str:
        """
        Return the name of the request whose objects must be gone before a Binding is sent; empty if none must.

        A request without a node ends when its last pod is about to go elsewhere. Otherwise a pod leaves its request
        when it is bound: a Binding may be refused.
        """
        closing = self.arrivals.closing(commitment.node_name)
        for request in self.table.all():
            if commitment.pod.uid in request.pods and not request.node_name and self._all_placed(request):
                self.end(request, Outcome.WITHDRAWN)
                closing = closing or request.name
        return closing if closing in self.orders.names else ""

    # Called by the handler of nodes

    def node_came(self, node: Node) -> None:
        """Note that a node has joined."""
        self.brake.node_gone(node.name)  # another machine that had its name: its deletion may have been missed
        self.arrivals.came(node)
        self._follow(node.name)

    def node_changed(self, name: str) -> None:
        """Note that a node has changed."""
        self.arrivals.changed(name)
        self._follow(name)
        self.brake.node_changed(name)

    def node_gone(self, name: str) -> None:
        """Note that a node is gone."""
        self.arrivals.gone(name)
        self.brake.node_gone(name)
        request = self.table.of_node(name)
        if request is not None:
            self.give_up(request, f"its node {name} is gone again", first=FIRST_REFUSAL)

    # Called by the orders

    def declined(self, name: str, message: str) -> None:
        """The API server refuses to let a machine be asked for: its pods wait, and their owners are told."""
        request = self.table.end(name)
        if request is None:
            return
        self._leaving[name] = request.owner, request.need
        message = message.replace(name, "...")
        self.table.waits.refused(request.pods, message, self.clock())
        if self._refusals(request.owner.scheduler_name, message):
            log.error(
                "The API server refuses a request for a machine; it is tried again, and scheduling goes on",
                machine=request.machine,
                pods=len(request.pods),
                err=message,
            )
        for pod in self._waiting(request.pods):
            self.reporter.capacity_refused(pod, f"{NO_MACHINE}: {message}")

    def withdrawn(self, name: str) -> None:
        """The objects of a request are gone, or cannot be removed now: Bindings may go on."""
        if name not in self.orders.names:
            self._leaving.pop(name, None)
        self.arrivals.withdrawn(name)
        self.let_through(name)

    def _adopt(self, pod: Pod, form: Orders) -> None:
        """Take over a placeholder that is not known; remove it if no autoscaler can have seen it, or none is wanted."""
        if self.orders.has_deleted(pod.uid):
            return  # the watch shows it as it was before
        scheduler_name, visible = requested_by(pod), pod.uid in self._seen
        if pod.name in self.orders.names:
            if visible:
                self.orders.seen(pod.name, pod.uid)
            if pod.node_name:
                self._was_bound(pod)
            return
        if scheduler_name not in self.scheduler_names:
            if self._told(pod.uid, "left alone"):
                warn_of_foreign(pod)
            return
        self.orders.adopt(pod.name, pod.uid if visible else "", form)
        machine = adopted_machine(pod)
        if scheduler_name not in self.policies or machine is None or not is_seen_by_autoscalers(pod):
            if pod.node_name:
                self._was_bound(pod)
            else:
                log.info("Removing a placeholder that is not needed", pod=pod.key)
            if machine is not None:
                self._leaving[pod.name] = machine.owner, machine.need
            self.orders.withdraw(pod.name)
            return
        request = self.table.adopt(pod.name, machine.owner, machine.need, self.clock())
        log.info("Took over a request for a machine", machine=request.machine, name=request.name)
        self.arrivals.taken_over(pod, request.need)

    def _follow(self, node_name: str) -> None:
        """Look on standby whether a node has joined for the leader."""
        node_info = None if self._leading else self.cluster.node(node_name)
        if node_info is not None:
            self.followed.look_at(node_info.node, self._seen.values())

    def _was_bound(self, placeholder: Pod) -> None:
        """Give up the machine of a placeholder that somebody has bound: it holds a machine, and asks for none."""
        if self._told(placeholder.uid, "bound"):
            log.error("A placeholder was bound to a node, deleting it", pod=placeholder.key, node=placeholder.node_name)
        request = self.table.get(placeholder.name)
        if request is not None:
            self.give_up(request, "what asked for it was bound to a node", first=FIRST_REFUSAL)

    def _left(self, uid: str) -> None:
        """Forget a pod that waits no more, and end the requests that were for no other one."""
        for request in self.table.left(uid):
            self.end(request, Outcome.SERVED if request.usable else Outcome.WITHDRAWN)

    def _all_placed(self, request: Request) -> bool:
        """Return whether all pods of a request have a node, or are about to be bound to one."""
        return all(self.cluster.node_of(uid) is not None for uid in request.pods)

    def _waiting(self, uids: Iterable[str]) -> list[Pod]:
        """Return those of the pods that wait; in one order, because sets have none."""
        return [queued.pod for queued in map(self.queue.get, sorted(uids)) if queued is not None]

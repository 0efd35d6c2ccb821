"""
The machines that an autoscaler is asked for, and what happens to them: nodes join, pods leave, the API server refuses.

    a node joins that serves a request, ready or not, or a request has lost its last pod: its placeholder is deleted

A placeholder that waits after a pod has taken its machine makes the autoscaler buy another one. What the watch shows is
the truth about placeholders: the leader takes over one that is there and not known. Handlers call the methods, which
never wait.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.capacity.placeholders import (
    is_placeholder,
    is_seen_by_autoscalers,
    manifest,
    need_of,
    owner_of,
)
from neuron_scheduler.capacity.planning.requests import (
    FIRST_REFUSAL,
    MachineNeed,
    MachineRequest,
    Outcome,
    Owner,
    Requests,
    is_used,
    takes_pods,
)
from neuron_scheduler.capacity.writer import PlaceholderWriter
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import slots_of
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import span
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.profile_config import CapacityRequests
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
        policies: the settings of the profiles that ask for machines, by scheduler name.
        clock: seconds that never jump, the queue's time.
        may_send, timeout: as in `PlaceholderWriter`.
        table: the requests.
        writer: their placeholders.
    """

    cluster: Cluster
    queue: SchedulingQueue
    scheduler_names: Container[str]
    policies: Mapping[str, CapacityRequests]
    reporter: PodReporter
    metrics: Metrics
    clock: Callable[[], float]
    errors: UnexpectedErrors
    client: Client
    may_send: Callable[[], bool]
    timeout: float
    table: Requests = attrs.field(factory=Requests, init=False)
    writer: PlaceholderWriter = attrs.field(init=False)
    _leading: bool = attrs.field(default=False, init=False)
    _seen: dict[str, Pod] = attrs.field(factory=dict, init=False)  # placeholders by uid
    _ended: dict[str, tuple[Owner, MachineNeed]] = attrs.field(factory=dict, init=False)  # not deleted yet, by name
    _young: dict[str, float] = attrs.field(factory=dict, init=False)  # when nodes joined during requests, by name
    _given: set[str] = attrs.field(factory=set, init=False)  # names of nodes that have joined for a request
    _refusals: logs.Once = attrs.field(factory=logs.Once, init=False)
    _told: logs.Once = attrs.field(factory=logs.Once, init=False)  # about placeholders, by uid

    def __attrs_post_init__(self) -> None:
        self.writer = PlaceholderWriter(
            client=self.client,
            may_send=self.may_send,
            timeout=self.timeout,
            clock=self.clock,
            declined=self.declined,
            gone=self._deleted,
            errors=self.errors,
        )

    @property
    def outstanding(self) -> list[tuple[Owner, MachineNeed]]:
        """
        What counts for the limits: requests, and ended ones as long as their placeholder may be there.

        The autoscaler goes on buying for what cannot be deleted.
        """
        return [*self.table.outstanding, *self._ended.values()]

    def lead(self) -> None:
        """Take over the requests of the last leader."""
        self._leading = True
        for pod in [*self._seen.values()]:
            try:
                self._adopt(pod)
            except Exception as error:  # noqa: BLE001 - what one object says must not end a leader
                self.errors.report(error, task="capacity request", pod=pod.key)

    def ask(self, need: MachineNeed) -> None:
        """Ask for a machine, and report that to the owners of its pods."""
        taken = {*self.writer.names, *(pod.name for pod in self._seen.values())}
        request = self.table.ask(need, self.clock(), taken)
        try:
            placeholder = manifest(request, self.policies[request.owner.scheduler_name].image)
        except ValueError as error:
            self.declined(request.name, str(error))
            return
        self.writer.ask(request.name, placeholder)
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

    def end(self, request: MachineRequest, outcome: Outcome) -> None:
        """End a request: its placeholder is deleted."""
        if self.table.end(request.name) is None:
            return
        self._withdraw(request.name, request.owner, request.need)
        self.metrics.capacity_request_ended(outcome.value)
        log.info("Request for a machine has ended", machine=request.machine, name=request.name, outcome=outcome.value)
        if not len(self.table):
            self._young.clear()

    def look(self) -> None:
        """End the requests that take too long: not served in time, or with other pods on their machine."""
        now = self.clock()
        for request in self.table.overdue(now, {name: policy.give_up for name, policy in self.policies.items()}):
            bound = self.policies[request.owner.scheduler_name].give_up
            came = f"node {request.node_name} has joined for it" if request.node_name else "no node has joined for it"
            self._give_up(request, f"it has not served its pods within {span(bound)}: {came}", first=bound)
        for request in self.table.all():
            since = request.usable_since
            if since is None or now - since < self.policies[request.owner.scheduler_name].wait:
                continue
            node_info = self.cluster.node(request.node_name)
            if node_info is not None and is_used(node_info, but=request.pods):
                self.end(request, Outcome.WITHDRAWN)  # its pods are planned for again

    def report(self) -> None:
        """Let the messages of all pods that a machine is asked for say so."""
        self.reporter.capacity_asked({uid: request.machine for request in self.table.all() for uid in request.pods})

    # Called by the handlers of pods and nodes

    def pod_seen(self, pod: Pod) -> None:
        """Note the present state of a pod that is not ours to place."""
        if is_placeholder(pod):
            self._seen[pod.uid] = pod
            if self._leading:
                self._adopt(pod)

    def pod_gone(self, uid: str) -> None:
        """Note that a pod is gone."""
        placeholder = self._seen.pop(uid, None)
        if placeholder is not None and self.writer.vanished(placeholder.name, uid):
            request = self.table.get(placeholder.name)
            if request is not None:
                self._give_up(request, "what asked for it was deleted", first=FIRST_REFUSAL)
        self._left(uid)

    def pod_bound(self, uid: str) -> None:
        """Note that a pod is bound."""
        pod_info = self.cluster.pod_info(uid)
        if pod_info is not None:
            self.pod_seen(pod_info.pod)
        self._left(uid)

    def node_came(self, node: Node) -> None:
        """Note that a node has joined."""
        self._given.discard(node.name)
        if len(self.table):
            self._young[node.name] = self.clock()
            self._look_at(node)

    def node_changed(self, name: str) -> None:
        """Note that a node has changed: it may have got its labels, or may take pods now."""
        node_info = self.cluster.node(name) if name in self._young else None
        if node_info is not None:
            self._look_at(node_info.node)

    def node_gone(self, name: str) -> None:
        """Note that a node is gone."""
        self._young.pop(name, None)
        self._given.discard(name)
        request = self.table.of_node(name)
        if request is not None:
            self._give_up(request, f"its node {name} is gone again", first=FIRST_REFUSAL)

    def _look_at(self, node: Node) -> None:
        """Stop asking for the machine that has come with a node."""
        request = self.table.of_node(node.name)
        if request is None and node.name not in self._given:
            request = self.table.joined(node, self._young[node.name])
        if request is None:
            return
        self._given.add(node.name)
        self.writer.withdraw(request.name)
        if takes_pods(node, request.need) and not request.usable:
            request.usable_since = self.clock()
            log.info(
                "Machine that was asked for takes pods", machine=request.machine, name=request.name, node=node.name
            )
            if not request.pods:
                self.end(request, Outcome.SERVED)

    # Called by the writer

    def declined(self, name: str, message: str) -> None:
        """The API server refuses to let a machine be asked for: its pods wait, and their owners are told."""
        request = self.table.end(name)
        if request is None:
            return
        self._withdraw(name, request.owner, request.need)
        message = message.replace(name, "...")
        self.table.wait(request.pods, f"the API server refused it: {message}", self.clock(), refused=True)
        if self._refusals(request.owner.scheduler_name, message):
            log.error(
                "The API server refuses a request for a machine; it is tried again, and scheduling goes on",
                machine=request.machine,
                pods=len(request.pods),
                err=message,
            )
        for pod in self._waiting(request.pods):
            self.reporter.capacity_ended(pod, "NeuronCapacityRefused", f"{NO_MACHINE}: {message}")

    def _deleted(self, name: str) -> None:
        self._ended.pop(name, None)

    def _withdraw(self, name: str, owner: Owner, need: MachineNeed) -> None:
        """Delete a placeholder, which counts for the limits until it is gone."""
        if name in self.writer.names:
            self._ended[name] = owner, need
            self.writer.withdraw(name)

    def _give_up(self, request: MachineRequest, reason: str, *, first: float) -> None:
        """End a request in vain: its pods ask for nothing for a while, `first` seconds at the first time."""
        self.table.wait(request.pods, reason, self.clock(), first=first)
        log.warning("Gave up a machine that was asked for", machine=request.machine, name=request.name, err=reason)
        message = f"Gave up the {request.machine} that the autoscaler was asked for: {reason}"
        for pod in self._waiting(request.pods):
            self.reporter.capacity_ended(pod, "NeuronCapacityGivenUp", message)
        self.end(request, Outcome.GIVEN_UP)

    def _adopt(self, pod: Pod) -> None:
        """Take over a placeholder that is not known; remove it if no autoscaler can have seen it, or none is wanted."""
        if self.writer.has_deleted(pod.uid):
            return  # the watch shows it as it was before
        if pod.name in self.writer.names:
            self.writer.seen(pod.name, pod.uid)
            if pod.node_name:
                self._was_bound(pod)
            return
        owner, need = owner_of(pod), need_of(pod)
        if owner.scheduler_name not in self.scheduler_names:
            if self._told(pod.uid, "left alone"):
                log.warning(
                    "A placeholder is left alone: no profile has its scheduler name",
                    pod=pod.key,
                    schedulerName=owner.scheduler_name,
                    hint="delete it, unless another installation serves this name",
                )
            return
        self.writer.adopt(pod.name, pod.uid)
        if owner.scheduler_name in self.policies and need is not None and is_seen_by_autoscalers(pod):
            request = self.table.adopt(pod.name, owner, need, self.clock())
            log.info("Took over a request for a machine", machine=request.machine, name=request.name)
            self._look_at_nodes_since(pod, need)
            return
        if pod.node_name:
            self._was_bound(pod)
        else:
            log.info("Removing a placeholder that is not needed", pod=pod.key)
        if need is not None:
            self._ended[pod.name] = owner, need
        self.writer.withdraw(pod.name)

    def _look_at_nodes_since(self, placeholder: Pod, need: MachineNeed) -> None:
        """Look at the nodes that have joined since an earlier leader created a placeholder."""
        view = self.cluster.view
        of_types = view.labelled(INSTANCE_TYPE_LABEL).any_of(need.instance_types)
        for node in [view.row(slot).node for slot in slots_of(of_types)]:
            if node.created > placeholder.created:  # times are whole seconds
                self._young[node.name] = self.clock()
                self._look_at(node)

    def _was_bound(self, placeholder: Pod) -> None:
        """Give up the machine of a placeholder that somebody has bound: it holds a machine, and asks for none."""
        if self._told(placeholder.uid, "bound"):
            log.error("A placeholder was bound to a node, deleting it", pod=placeholder.key, node=placeholder.node_name)
        request = self.table.get(placeholder.name)
        if request is not None:
            self._give_up(request, "what asked for it was bound to a node", first=FIRST_REFUSAL)

    def _left(self, uid: str) -> None:
        """Forget a pod that waits no more, and end the requests that were for no other one."""
        for request in self.table.left(uid):
            self.end(request, Outcome.SERVED if request.usable else Outcome.WITHDRAWN)

    def _waiting(self, uids: Iterable[str]) -> list[Pod]:
        """Return those of the pods that wait; in one order, because sets have none."""
        return [queued.pod for queued in map(self.queue.get, sorted(uids)) if queued is not None]

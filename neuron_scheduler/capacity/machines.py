r"""
The machines that an autoscaler is asked for: a table of placeholders, and the task that writes them.

    need --asked--> OPEN --a node has come--> ARRIVING --the node takes pods, and has one--> served
                      \--no pod needs it--> withdrawn     \--too late, or gone again--> given up

The table has every placeholder that answers and the watch have shown, and says whether it is wanted. So a new leader, a
pod that has moved and a deletion in doubt need no path of their own. A placeholder that outlives the arrival of its
machine makes the autoscaler buy another one, so the node's appearance ends it, ready or not.
"""

import random
from collections import deque
from collections.abc import Callable, Container, Mapping
from itertools import count
from typing import Any, ClassVar, Final, Literal, TypeAlias

import attrs
from anyio.lowlevel import checkpoint

from neuron_scheduler.capacity.placeholders import is_asking, is_placeholder, manifest, need_of
from neuron_scheduler.capacity.planning.need import MachineNeed
from neuron_scheduler.capacity.writer import PlaceholderWriter
from neuron_scheduler.cluster.changes import Change, Kinds, NodeChanged, PodBound, PodGone, PodPending
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.writes.work_queue import DelayingQueue
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import span
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.profile_config import CapacityRequests
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, FencedError, UnreachableError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

FIRST_PAUSE: Final = 60.0
"""Seconds after a refusal of the API server until a machine is asked for the same pods again; then twice as long."""
LONGEST_PAUSE: Final = 4 * 3600.0
MOST_DELETED: Final = 256
"""So many uids of deleted placeholders are remembered, because the watch may show these pods later."""
_ROWS_A_STEP: Final = 1000

log = logs.logger(__name__)


Outcome: TypeAlias = Literal["served", "withdrawn", "given_up"]
"""How a request ended: a pod is on its machine; no pod needs it any more; its pods have waited in vain."""


@attrs.define(eq=False, kw_only=True)
class MachineRequest:
    """
    One machine that is asked for, and its placeholder.

    Attributes:
        since: when it was asked for, or adopted.
        manifest: the placeholder that is to be created; None if an earlier leader has created it.
        uid: of the placeholder; empty until it is known. Without it no autoscaler sees the placeholder.
        created: when the API server created it, Unix time.
        is_asking: the placeholder is complete.
        gone: the placeholder is deleted.
        pods: uids of the pods that its machine serves, as last planned.
        node_name: the node that has come for it.
        ended: nobody needs it any more; it counts for the limits until its placeholder is gone.
    """

    name: str
    need: MachineNeed
    since: float
    backoff: Backoff
    manifest: Mapping[str, Any] | None = None
    uid: str = ""
    created: float = float("inf")
    is_asking: bool = False
    gone: bool = False
    pods: frozenset[str] = frozenset()
    node_name: str = ""
    ended: bool = False

    @property
    def is_wanted(self) -> bool:
        return not (self.ended or self.node_name)

    def note_placeholder(self, placeholder: Pod) -> None:
        self.uid, self.created = placeholder.uid, placeholder.created


@attrs.frozen(eq=False)
class Pause:
    """
    Why and until when no machine is asked for some pods; the next pause is twice as long.

    Attributes:
        reason: a sentence for people, without its full stop.
        refused: the API server has refused; else a machine was given up.
    """

    reason: str
    refused: bool
    until: float
    seconds: float


@attrs.define(eq=False, kw_only=True)
class MachineRequests:
    """
    Carries requests out.

    Attributes:
        scheduler_names: the profiles; placeholders of others belong to another installation.
        policies: the settings of the profiles that ask for machines, by scheduler name.
        requests: by name, the oldest first; also those that have ended and whose placeholder is there.
    """

    OBSERVES: ClassVar[Kinds] = (PodPending, PodBound, PodGone, NodeChanged)

    cluster: Cluster
    queue: SchedulingQueue
    scheduler_names: Container[str]
    policies: Mapping[str, CapacityRequests]
    reporter: PodReporter
    metrics: Metrics
    clock: Callable[[], float]
    errors: UnexpectedErrors
    writer: PlaceholderWriter
    requests: dict[str, MachineRequest] = attrs.field(factory=dict, init=False)
    _seen: dict[str, Pod] = attrs.field(factory=dict, init=False)  # placeholders as the watch shows them, by uid
    _deleted: deque[str] = attrs.field(factory=lambda: deque(maxlen=MOST_DELETED), init=False)  # uids
    _pauses: dict[str, Pause] = attrs.field(factory=dict, init=False)  # by uid; one that is over decides the next one
    _failed: set[str] = attrs.field(factory=set, init=False)  # uids of pods for which a machine was given up
    _turns: DelayingQueue[str] = attrs.field(init=False)  # names of requests whose placeholder may have to be written
    _told: logs.Once = attrs.field(factory=logs.Once, init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = DelayingQueue(clock=self.clock, share=1)

    async def run(self) -> None:
        await self._turns.serve(self._settle)

    @property
    def unmet_needs(self) -> dict[str, MachineNeed]:
        """The machines that are still to come, or do not take pods yet, by the names of their requests."""
        return {request.name: request.need for request in self._present() if self._ready_node(request) is None}

    @property
    def served_uids(self) -> frozenset[str]:
        """The uids of the pods whose machine takes pods: they are about to be tried there."""
        ready = (request for request in self._present() if self._ready_node(request) is not None)
        return frozenset[str]().union(*(request.pods for request in ready))

    def request_for(self, uid: str) -> MachineRequest | None:
        return next((request for request in self._present() if uid in request.pods), None)

    def pause_of(self, uid: str) -> Pause | None:
        pause = self._pauses.get(uid)
        return pause if pause is not None and self.clock() < pause.until else None

    def has_failed(self, uid: str) -> bool:
        """Return whether a machine for the pod was given up."""
        return uid in self._failed

    def counts(self) -> dict[str, int]:
        arriving = [bool(request.node_name) for request in self._present()]
        refused = {pause for uid in self._pauses if (pause := self.pause_of(uid)) is not None and pause.refused}
        return {"open": arriving.count(False), "arriving": arriving.count(True), "refused": len(refused)}

    def ask(self, need: MachineNeed) -> None:
        taken = {*self.requests, *(pod.name for pod in self._seen.values())}
        name = next(name for number in count() if (name := f"capacity-{need.pods[0].uid}-{number}") not in taken)
        request = self.requests[name] = self._new(name, need)
        request.pods = frozenset(pod.uid for pod in need.pods)
        request.manifest = manifest(name, need, self.policies[need.owner.scheduler_name].image)
        self._turn(request)
        log.info(
            "Asked the autoscaler for a machine",
            machine=need.instance_type,
            name=name,
            pod=need.pods[0].key,
            pods=len(need.pods),
        )
        for pod in need.pods:
            note = f"Asked the autoscaler for 1 {need.instance_type}"
            self.reporter.report_capacity(pod, "NeuronCapacityRequested", note, type="Normal")

    def end(self, request: MachineRequest, outcome: Outcome) -> None:
        self._drop(request)
        self.metrics.count_capacity_request(outcome)
        log.info(
            "Request for a machine has ended", machine=request.need.instance_type, name=request.name, outcome=outcome
        )

    def look(self) -> None:
        """Bring the table up to date with placeholders and nodes; end requests that are served, or take too long."""
        self._pauses = {uid: pause for uid, pause in self._pauses.items() if uid in self.queue}
        self._failed = {uid for uid in self._failed if uid in self.queue}
        for placeholder in [*self._seen.values()]:
            with self.errors.contain(task="capacity request", pod=placeholder.key):
                self._look_at_placeholder(placeholder)
        for request in self._present():
            policy, ready = self.policies[request.need.owner.scheduler_name], self._ready_node(request)
            bound = policy.give_up
            if ready is not None and _is_used(ready):
                left = Pause("a machine has come for it", False, self.clock() + policy.wait, 0.0)
                self._pauses |= dict.fromkeys(request.pods, left)  # those of them for which others have left no room
                self.end(request, "served")
            elif ready is not None and not any(uid in self.queue for uid in request.pods):
                self.end(request, "withdrawn")
            elif request.node_name and self.cluster.node(request.node_name) is None:
                self._give_up(request, f"its node {request.node_name} is gone again", first=FIRST_PAUSE)
            elif self.clock() - request.since >= bound:
                came = f"node {request.node_name} has joined" if request.node_name else "no node has joined"
                self._give_up(request, f"it has not served its pods within {span(bound)}: {came} for it", first=bound)

    async def look_at_nodes(self) -> None:
        """Look for machines that had come before their request was known here; of others the watch tells."""
        oldest = min([request.created for request in self._present() if request.is_wanted], default=float("inf"))
        for position, node_info in enumerate(self.cluster.view.rows_in_slots() if oldest < float("inf") else ()):
            if position % _ROWS_A_STEP == 0:
                await checkpoint()
            if node_info is not None and oldest <= node_info.node.created:
                self._look_at(node_info)

    def observe(self, change: Change) -> None:
        match change:
            case PodPending(pod) | PodBound(after=PodInfo(pod)) if is_placeholder(pod):
                self._seen[pod.uid] = pod
            case PodGone(pod):
                self._forget_placeholder(pod.uid)
            case NodeChanged(after=node_info) if self.requests:
                self._look_at(node_info)

    def _forget_placeholder(self, uid: str) -> None:
        placeholder = self._seen.pop(uid, None)
        request = None if placeholder is None else self.requests.get(placeholder.name)
        if request is not None and request.uid == uid:
            request.gone = True
            if request.is_wanted:
                self._give_up(request, "what asked for it was deleted", first=FIRST_PAUSE)
            self._forget_if_over(request)

    def _look_at(self, node_info: NodeInfo) -> None:
        """Stop asking for the machine that has come: an empty node serves the first request older than the node."""
        node = node_info.node
        if _is_used(node_info) or any(request.node_name == node.name for request in self._present()):
            return
        for request in self._present():
            if request.is_wanted and request.created <= node.created and request.need.is_met_by(node):
                request.node_name = node.name
                self._turn(request)
                log.info("Machine that was asked for has come", name=request.name, node=node.name)
                return

    def _present(self) -> list[MachineRequest]:
        return [request for request in self.requests.values() if not request.ended]

    def _ready_node(self, request: MachineRequest) -> NodeInfo | None:
        node_info = self.cluster.node(request.node_name) if request.node_name else None
        return node_info if node_info is not None and request.need.is_ready(node_info.node) else None

    def _look_at_placeholder(self, pod: Pod) -> None:
        """Note that a placeholder is there; an unknown one is taken over, or removed."""
        request = self.requests.get(pod.name)
        if pod.uid in self._deleted or (request is not None and request.uid not in ("", pod.uid)):
            return  # the watch shows it as it was before
        if pod.node_name and self._told(pod.uid, "bound"):
            log.error("A placeholder was bound to a node, deleting it", pod=pod.key, node=pod.node_name)
        if request is None:
            self._adopt(pod)
            return
        request.note_placeholder(pod)
        if pod.node_name and request.is_wanted:
            self._give_up(request, "what asked for it was bound to a node", first=FIRST_PAUSE)

    def _adopt(self, pod: Pod) -> None:
        """Take over a placeholder that is not known; remove it if no autoscaler can have seen it, or none is wanted."""
        need = need_of(pod)
        scheduler_name = need.owner.scheduler_name
        if scheduler_name not in self.scheduler_names:
            if self._told(pod.uid, "left alone"):
                log.warning(
                    "A placeholder is left alone: no profile has its scheduler name",
                    pod=pod.key,
                    schedulerName=scheduler_name,
                    hint="delete it, unless another installation serves this name",
                )
            return
        request = self.requests[pod.name] = self._new(pod.name, need)
        request.note_placeholder(pod)
        if scheduler_name in self.policies and is_asking(pod):
            request.is_asking = True
            log.info("Took over a request for a machine", machine=need.instance_type, name=request.name)
            return
        log.info("Removing a placeholder that is not needed", pod=pod.key)
        self._drop(request)

    def _new(self, name: str, need: MachineNeed) -> MachineRequest:
        backoff = Backoff(random.random, first=0.2, most=30.0)
        return MachineRequest(name=name, need=need, since=self.clock(), backoff=backoff)

    def _turn(self, request: MachineRequest) -> None:
        request.backoff.reset()
        self._turns.add(request.name, "", self.clock())

    def _drop(self, request: MachineRequest) -> None:
        request.ended, request.pods = True, frozenset()
        self._turn(request)
        self._forget_if_over(request)

    def _forget_if_over(self, request: MachineRequest) -> None:
        if request.ended and request.gone:
            self.requests.pop(request.name, None)

    def _pause(self, request: MachineRequest, reason: str, *, first: float, refused: bool = False) -> list[Pod]:
        """Ask for no machine for the pods of a request for a while; return those that wait, whose owners are told."""
        before = max((self._pauses[uid].seconds for uid in request.pods if uid in self._pauses), default=0.0)
        seconds = min(max(first, 2 * before), LONGEST_PAUSE)
        self._pauses |= dict.fromkeys(request.pods, Pause(reason, refused, self.clock() + seconds, seconds))
        waiting = map(self.queue.get, sorted(request.pods))  # in one order, because sets have none
        return [queued.pod for queued in waiting if queued is not None]

    def _give_up(self, request: MachineRequest, reason: str, *, first: float) -> None:
        """End a request in vain: its pods ask for nothing for a while, `first` seconds at the first time."""
        machine = request.need.instance_type
        log.warning("Gave up a machine that was asked for", machine=machine, name=request.name, err=reason)
        message = f"Gave up the {machine} that the autoscaler was asked for: {reason}"
        self._failed |= request.pods
        for pod in self._pause(request, reason, first=first):
            self.reporter.report_capacity(pod, "NeuronCapacityGivenUp", message)
        self.end(request, "given_up")

    def _end_refused(self, request: MachineRequest, message: str) -> None:
        """End a request that the API server refuses: its pods wait, and their owners are told."""
        message = message.replace(request.name, "...")
        if self._told(request.need.owner.scheduler_name, message):
            log.error(
                "The API server refuses a request for a machine; it is tried again, and scheduling goes on",
                machine=request.need.instance_type,
                pods=len(request.pods),
                err=message,
            )
        note = f"The autoscaler cannot be asked for a machine for this pod: {message}"
        for pod in self._pause(request, f"the API server refused it: {message}", first=FIRST_PAUSE, refused=True):
            self.reporter.report_capacity(pod, "NeuronCapacityRefused", note)
        self._drop(request)

    async def _settle(self, name: str) -> None:
        request = self.requests.get(name)
        if request is None or request.gone or (request.is_wanted and request.is_asking):
            return
        try:
            await (self._create(request) if request.is_wanted else self._delete(request))
        except Exception as error:  # noqa: BLE001 - it is one request's error
            if not request.gone:
                self._handle_failure(request, error)

    async def _create(self, request: MachineRequest) -> None:
        if not request.uid and request.manifest is not None:
            request.note_placeholder(await self.writer.create(request.name, request.manifest))
        if request.is_wanted and not request.gone:
            await self.writer.mark(request.name, request.uid)
            request.is_asking = True

    async def _delete(self, request: MachineRequest) -> None:
        """Delete a placeholder; one without a known uid is seen by no autoscaler, and the watch will show it."""
        if request.uid:
            await self.writer.delete(request.name, request.uid)
            self._deleted.append(request.uid)
        request.gone = True
        self._forget_if_over(request)

    def _handle_failure(self, request: MachineRequest, error: Exception) -> None:
        if not isinstance(error, (ApiError, FencedError, UnreachableError)):
            self.errors.report(error, task="capacity request", pod=request.name)
        if request.is_wanted and isinstance(error, ApiError) and error.is_refusal and error.status not in (401, 409):
            self._end_refused(request, error.message or str(error))
            return
        if self._told(request.name, str(error)):
            log.warning("Request for a machine cannot be written, trying again", name=request.name, err=str(error))
        pause = request.backoff.next(at_least=error.retry_after if isinstance(error, ApiError) else None)
        self._turns.add(request.name, "", self.clock() + pause)


def _is_used(node_info: NodeInfo) -> bool:
    return any(pod_info.cores != 0 for pod_info in node_info.pod_infos.values())

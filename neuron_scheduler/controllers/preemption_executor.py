"""
Carries preemption out: search, promise, and ask the victims to leave, beside further decisions.

    FitError --search--> Preemption --confirmed--> promise (nomination) --> PATCH, DELETE each victim --> release
                  or --> NoPreemption: the text that is appended to the refusal

From the confirmation to the promise nothing awaits, so nobody is asked to leave for a picture of the cluster that is no
longer true. The pod is held in the queue until all of its victims have been asked, and waits for their end then
(upstream's asynchronous preemption, `framework/preemption/executor.go`). Refuses to choose the victims: that is
`scheduling.preemption`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import anyio.abc
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.nomination import CLEAR, KEEP, Nominate, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.preemption.search import (
    NoPreemption,
    Preemption,
    can_be_kept,
    confirmed,
    rebuilt,
    search,
)
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

log = logs.logger(__name__)

_LONGEST_TURN = 0.002
"""Seconds of searching in a row after which the event loop gets a turn."""


class Evictor(Protocol):
    """Asks a pod to leave."""

    async def evict(self, victim: Pod, *, scheduler_name: str) -> bool:
        """Return whether it is terminating or gone."""


class PodReporter(Protocol):
    """Tells pods' owners what preemption does to them."""

    def preempted(self, victim: Pod, preemptor: Pod, node_name: str) -> None:
        """Tell that the pod has to leave."""

    def displaced(self, pod: Pod) -> None:
        """Let the pod's status name no node any more: what it was promised is another's."""


@attrs.frozen
class PostFilter:
    """
    What became of a pod that fits nowhere.

    Attributes:
        text: why nobody is asked to leave; empty if some are.
        nomination: what its status is to say about its nominated node.
        held: its victims are being asked; it must not be tried before that is done.
        plugins: who would refuse it although others left.
    """

    text: str = ""
    nomination: NominationChange = KEEP
    held: bool = False
    plugins: frozenset[str] = frozenset()


@attrs.define(eq=False, kw_only=True)
class PreemptionExecutor:
    """
    Preempts for pods while it runs.

    Attributes:
        budgets: all PodDisruptionBudgets there are.
        clock: seconds that never jump, the queue's time.
        give_up: lets a pod go back to the queue whose Binding waits to be sent; False for all others.
        errors: reports unexpected exceptions.
    """

    cluster: Cluster
    queue: SchedulingQueue
    evictor: Evictor
    reporter: PodReporter
    metrics: Metrics
    budgets: Callable[[], Sequence[DisruptionBudget]]
    clock: Callable[[], float]
    give_up: Callable[[str], bool]
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    _evictions: anyio.abc.TaskGroup | None = attrs.field(default=None, init=False)
    _stopped: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Carry out what is decided, until stopped."""
        async with anyio.create_task_group() as self._evictions:
            task_status.started()
            await self._stopped.wait()

    def stop(self) -> None:
        """Let `run` end once all who are to leave have been asked."""
        self._stopped.set()

    def adopt(self, queued: QueuedPod, profile: Profile) -> None:
        """
        Take over what the pod's status says it was promised, if there is room for it: before a restart, or by others.

        What was promised here comes first, for pods have left for it.
        """
        pod = queued.pod
        if not pod.nominated_node_name or self.cluster.nomination(pod.uid) is not None:
            return
        nomination = rebuilt(self.cluster, pod, profile)
        if nomination is not None:
            self.cluster.nominate(pod.nominated_node_name, nomination)

    def recheck(self, node_name: str) -> None:
        """Take back what can no longer be kept of the promises on a node, since another pod has come to it."""
        node_info = self.cluster.node(node_name)
        if node_info is None or not node_info.nominated:
            return
        lost = [each.pod for each in node_info.nominated if not can_be_kept(node_info, each)]
        for pod in lost:
            self.nomination_lost(pod)
        if lost:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, *lost)  # a part of it may suit others

    def nomination_lost(self, pod: Pod) -> None:
        """Let a pod look anew, because what it was promised is another's, or gone with the node."""
        node_name = self.cluster.clear_nomination(pod.uid)
        log.info("Nominated node is lost; trying pod anew", v=2, pod=pod.key, node=node_name or "")
        self.reporter.displaced(pod)
        self.queue.activate(pod.uid, self.clock())

    async def post_filter(self, queued: QueuedPod, refused: FitError, profile: Profile) -> PostFilter:
        """Look for pods to ask to leave, and begin to; returns before they have left."""
        self.metrics.preemption_attempted()
        self.queue.keep_events(queued)
        pod = queued.pod
        found: Preemption | NoPreemption | None = None
        turn_ends = self.clock() + _LONGEST_TURN
        for found in search(self.cluster, pod, profile, refused=refused, budgets=self.budgets()):
            if found is None and self.clock() >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + _LONGEST_TURN
        if isinstance(found, Preemption):
            nomination = confirmed(self.cluster, pod, profile, found) if pod.uid in self.queue else None
            if nomination is not None:
                return self._begin(pod, found.node_name, nomination)
            queued.missed = True  # what was found is no longer so: look again after the backoff
            return PostFilter()
        if found is None:
            raise AssertionError("a search ends with an answer")
        change = self._give_up(pod) if found.gives_up else KEEP
        return PostFilter(found.text, nomination=change, plugins=found.plugins)

    def _begin(self, pod: Pod, node_name: str, nomination: Nomination) -> PostFilter:
        """Promise the space and start asking; no event can come in between."""
        displaced = self._promised_to_lower(pod, node_name)
        for lower in displaced:
            self.nomination_lost(lower)
        if self.cluster.clear_nomination(pod.uid) is not None or displaced:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, *displaced)  # what they were promised may suit others
        self.cluster.nominate(node_name, nomination)
        pod_infos = [self.cluster.pod_info(uid) for uid in sorted(nomination.victims)]
        victims = [pod_info.pod for pod_info in pod_infos if pod_info is not None and not pod_info.pod.terminating]
        log.info(
            "Preempting pods for a pod of higher priority",
            v=2,
            pod=pod.key,
            node=node_name,
            numVictims=len(nomination.victims),
            numVictimsToDelete=len(victims),
        )
        if not victims:
            return PostFilter(nomination=Nominate(node_name))
        self.metrics.preempted(len(nomination.victims))
        if self._evictions is None:
            raise RuntimeError("a preemptor that does not run cannot preempt")
        self._evictions.start_soon(self._carry_out, pod, node_name, victims)
        return PostFilter(nomination=Nominate(node_name), held=True)

    def _promised_to_lower(self, pod: Pod, node_name: str) -> list[Pod]:
        node_info = self.cluster.node(node_name)
        nominations = node_info.nominated if node_info is not None else ()
        return [nomination.pod for nomination in nominations if nomination.pod.priority < pod.priority]

    def _give_up(self, pod: Pod) -> NominationChange:
        """Take back what the pod was promised: no node can be made to fit."""
        if self.cluster.clear_nomination(pod.uid) is not None:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod)
            return CLEAR
        return CLEAR if pod.nominated_node_name else KEEP

    async def _carry_out(self, pod: Pod, node_name: str, victims: Sequence[Pod]) -> None:
        """Ask all victims at once; then let the pod wait for their end, or look anew if one could not be asked."""
        asked: list[Pod] = []
        async with anyio.create_task_group() as requests:
            for victim in victims:
                requests.start_soon(self._evict, pod, node_name, victim, asked)
        try:
            if len(asked) < len(victims):
                promise = self.cluster.nomination(pod.uid)
                if promise is not None:
                    self.cluster.nominate(promise[0], attrs.evolve(promise[1], victims=frozenset()))
                self.queue.activate(pod.uid, self.clock())  # held, so it is noted as missed
        except Exception as error:  # noqa: BLE001 - one pod's; it must not stay held
            self.errors.report(error, task="preemption", pod=pod.key)
        self.queue.release(pod.uid, self.clock())

    async def _evict(self, pod: Pod, node_name: str, victim: Pod, asked: list[Pod]) -> None:
        try:
            # One that is not on its node yet need not be deleted (upstream: `WaitingPod.Preempt`).
            if self.give_up(victim.uid) or await self.evictor.evict(victim, scheduler_name=pod.scheduler_name):
                asked.append(victim)
                log.info("Preempted pod", v=2, pod=victim.key, preemptor=pod.key, node=node_name)
                self.reporter.preempted(victim, pod, node_name)
        except Exception as error:  # noqa: BLE001 - one victim's: it counts as not asked unless it was
            self.errors.report(error, task="preemption", pod=victim.key)

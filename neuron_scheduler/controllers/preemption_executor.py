"""
Carries preemption out: search, nominate, and evict the victims, while other pods are decided.

    FitError --search--> Preemption --confirmed--> nominate --> PATCH, DELETE each victim --> release
                  or --> NoPreemption: the text that is appended to the refusal

Nothing awaits between the confirmation and the nomination, so no pod is evicted for an outdated state of the cluster.
A few workers evict the victims of all pods, and a victim that has to wait for its next try keeps none of them. The pod
is held in the queue until the evictions of all its victims have been requested; then it waits for their end
(upstream's asynchronous preemption, `framework/preemption/executor.go`). Refuses to choose the victims: that is
`scheduling.preemption`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import anyio
import anyio.abc
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination, with_pod, without_pods
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.controllers.turn import LONGEST_TURN
from neuron_scheduler.delaying_queue import DelayingQueue
from neuron_scheduler.kube.writes.evictor import Eviction
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.nomination import CLEAR, KEEP, Nominate, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.node_resources_fit import without_other_resources
from neuron_scheduler.scheduling.preemption.comparison import NoPreemption, Preemption
from neuron_scheduler.scheduling.preemption.nominations import can_be_kept, confirmed, rebuilt
from neuron_scheduler.scheduling.preemption.search import search
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

WORKERS: Final = 8  # evictions at once; `kube.http.pools` has the connections for them
SHARE: Final = 6  # of them, for the victims in one namespace

log = logs.logger(__name__)


class Evictor(Protocol):
    """Deletes pods."""

    async def proceed(self, eviction: Eviction) -> float:
        """Send what is to be sent now; return the seconds after which to call it again, if the outcome is not known."""


class PodReporter(Protocol):
    """Reports to the owners of pods what preemption does to them."""

    def preempted(self, victim: Pod, preemptor: Pod, node_name: str) -> None:
        """Report that the pod is evicted for another one."""

    def nomination_lost(self, pod: Pod) -> None:
        """Remove the nominated node from the pod's status."""


@attrs.frozen
class PostFilter:
    """
    What became of a pod that fits nowhere.

    Attributes:
        text: why no pod is evicted; empty if some are.
        nomination: what its status is to say about its nominated node.
        held: its victims are being evicted; it must not be tried before all of them have been asked.
        plugins: those that would refuse it even without the pods of lower priority.
    """

    text: str = ""
    nomination: NominationChange = KEEP
    held: bool = False
    plugins: frozenset[str] = frozenset()


@attrs.define(eq=False)
class _Round:
    """
    The evictions for one pod.

    Attributes:
        left: victims whose outcome is not known yet.
        failed: one of them could not be evicted, although it was to be.
    """

    pod: Pod
    node_name: str
    left: int
    failed: bool = False


@attrs.frozen(eq=False)
class _Victim:
    """A victim, and the pod for which it is evicted."""

    round: _Round
    eviction: Eviction

    @property
    def pod(self) -> Pod:
        """The pod that is evicted."""
        return self.eviction.victim


@attrs.define(eq=False, kw_only=True)
class PreemptionExecutor:
    """
    Preempts for pods while it runs.

    Attributes:
        budgets: returns all PodDisruptionBudgets.
        clock: seconds that never jump, the queue's time.
        give_up: puts a pod whose Binding is not sent yet back into the queue; False for all other pods.
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
    _rounds: anyio.abc.TaskGroup | None = attrs.field(default=None, init=False)
    _victims: DelayingQueue[_Victim] = attrs.field(init=False)
    _stopped: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._victims = DelayingQueue(clock=self.clock, share=SHARE)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Evict until stopped."""
        async with anyio.create_task_group() as self._rounds:
            for _ in range(WORKERS):
                self._rounds.start_soon(self._victims.serve, self._evict)
            task_status.started()
            await self._stopped.wait()
            self._victims.close()

    def stop(self) -> None:
        """End `run` when all evictions have been requested."""
        self._stopped.set()

    def adopt(self, queued: QueuedPod, profile: Profile) -> None:
        """
        Restore a nomination that is known from the pod's status only, if the pod fits there: after a restart, or if
        another component has nominated the node.

        A nomination of this process comes first, because pods have been evicted for it.
        """
        pod = queued.pod
        if not pod.nominated_node_name or self.cluster.nomination(pod.uid) is not None:
            return
        nomination = rebuilt(self.cluster, pod, profile)
        if nomination is not None:
            self.cluster.nominate(pod.nominated_node_name, nomination)

    def recheck(self, node_name: str) -> None:
        """Drop the nominations that a node cannot keep any more, because it or one of its pods has changed."""
        node_info = self.cluster.node(node_name)
        if node_info is None or not node_info.nominations:
            return
        lost = self._lost(node_info)
        for pod in lost:
            self.nomination_lost(pod)
        if lost:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, *lost)  # other pods may fit into a part of the space

    def nomination_lost(self, pod: Pod) -> None:
        """Try a pod again that has lost its nomination, to another pod or with the node; only its owner writes that."""
        node_name = self.cluster.clear_nomination(pod.uid)
        if pod.uid not in self.queue:
            return  # kube-scheduler tries it again
        log.info("Pod has lost its nominated node; trying it again", v=2, pod=pod.key, node=node_name or "")
        self.reporter.nomination_lost(pod)
        self.queue.activate(pod.uid, self.clock())

    async def post_filter(self, queued: QueuedPod, refused: FitError, profile: Profile) -> PostFilter:
        """Search for victims and begin to evict them; returns before they have ended."""
        self.metrics.preemption_attempted()
        self.queue.keep_events(queued)
        pod = queued.pod
        result: Preemption | NoPreemption | None = None
        turn_ends = self.clock() + LONGEST_TURN
        for result in search(self.cluster, pod, profile, refused=refused, budgets=self.budgets()):
            if result is None and self.clock() >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + LONGEST_TURN
        if isinstance(result, Preemption):
            nomination = confirmed(self.cluster, pod, profile, result) if pod.uid in self.queue else None
            if nomination is not None:
                return self._begin(pod, result.node_name, nomination)
            queued.missed = True  # the result is outdated: search again after the backoff
            return PostFilter()
        if result is None:
            raise AssertionError("a search ends with a result")
        change = self._drop_nomination(pod) if result.gives_up else KEEP
        return PostFilter(result.text, nomination=change, plugins=result.plugins)

    def _lost(self, node_info: NodeInfo) -> list[Pod]:
        """
        Return the pods whose nominations a node cannot keep beside the others; those of higher priority come first.

        Beside the others, a nomination of kube-scheduler's is judged by that only which it was made by.
        """
        lost, row = list[Pod](), node_info
        for nomination in sorted(map(self._current, node_info.nominations), key=lambda each: -each.pod.priority):
            pod = nomination.pod
            judged = pod if pod.uid in self.queue else without_other_resources(pod)
            if can_be_kept(node_info, nomination) and can_be_kept(row, attrs.evolve(nomination, pod=judged)):
                row = without_pods(row, nomination.victims & row.pod_infos.keys())
                row = with_pod(row, PodInfo(pod, cores=nomination.cores, volumes=nomination.volumes))
            else:
                lost.append(pod)
        return lost

    def _current(self, nomination: Nomination) -> Nomination:
        """
        Return a nomination with the pod's present state: since then it may tolerate more.

        A pod that kube-scheduler schedules was nominated without a look at its host ports, which is not ours to judge:
        its nomination would be dropped and made again with each change of the node.
        """
        queued = self.queue.get(nomination.pod.uid)
        pod = queued.pod if queued is not None else attrs.evolve(nomination.pod, host_ports=())
        return attrs.evolve(nomination, pod=pod)

    def _begin(self, pod: Pod, node_name: str, nomination: Nomination) -> PostFilter:
        """Nominate the node and start the evictions; no event can come in between."""
        losers = self._nominated_of_lower_priority(pod, node_name)
        for loser in losers:
            self.nomination_lost(loser)
        if self.cluster.clear_nomination(pod.uid) is not None or losers:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, *losers)  # other pods may fit into their space
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
        if self._rounds is None:
            raise RuntimeError("a preemption executor that does not run cannot preempt")
        self._rounds.start_soon(self._evict_all, _Round(pod, node_name, left=len(victims)), victims)
        return PostFilter(nomination=Nominate(node_name), held=True)

    def _nominated_of_lower_priority(self, pod: Pod, node_name: str) -> list[Pod]:
        node_info = self.cluster.node(node_name)
        nominations = node_info.nominations if node_info is not None else ()
        return [nomination.pod for nomination in nominations if nomination.pod.priority < pod.priority]

    def _drop_nomination(self, pod: Pod) -> NominationChange:
        """Drop the pod's nomination, because no eviction can make it fit anywhere; return what to write."""
        if self.cluster.clear_nomination(pod.uid) is not None:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod)
            return CLEAR
        return CLEAR if pod.nominated_node_name else KEEP

    async def _evict_all(self, asked: _Round, victims: Sequence[Pod]) -> None:
        """Evict all victims, as soon as there are workers; a task, so that the pod is held before it is released."""
        for pod in victims:
            victim = _Victim(asked, Eviction(pod, asked.pod.scheduler_name))
            if not self._is_needed(victim):
                self._done(asked)
                continue
            try:
                # A pod that is not on its node yet need not be deleted (upstream: `WaitingPod.Preempt`).
                if self.give_up(pod.uid):
                    victim.eviction.evicted = True
            except Exception as error:  # noqa: BLE001 - it is one victim's error
                self._crashed(victim, error)
            if victim.eviction.evicted is None:
                self._victims.add(victim, pod.namespace, self.clock())
            else:
                self._ended(victim)

    async def _evict(self, victim: _Victim) -> None:
        """Evict a victim, or put it back until its next try is due."""
        if not self._is_needed(victim):
            self._done(victim.round)
            return
        pause = 0.0
        try:
            pause = await self.evictor.proceed(victim.eviction)
        except Exception as error:  # noqa: BLE001 - it is one victim's error
            self._crashed(victim, error)
        if victim.eviction.evicted is None:
            self._victims.add(victim, victim.pod.namespace, self.clock() + pause)
        else:
            self._ended(victim)

    def _is_needed(self, victim: _Victim) -> bool:
        """
        Return whether the pod's space is still kept for the preempting pod; the node may have been cordoned meanwhile.

        A victim whose status has the reason is evicted in any case: its owner has been told so. A DELETE has been sent
        by then, which may have succeeded although its answer was lost; only the next one shows what to report. If only
        the answer to the reason was lost, the pod stays, and Kubernetes takes the reason back after two minutes.
        """
        if victim.eviction.explained:
            return True
        asked = victim.round
        node_name, nomination = self.cluster.nomination(asked.pod.uid) or ("", None)
        return nomination is not None and node_name == asked.node_name and victim.pod.uid in nomination.victims

    def _crashed(self, victim: _Victim, error: Exception) -> None:
        victim.eviction.evicted = False
        self.errors.report(error, task="preemption", pod=victim.pod.key)

    def _ended(self, victim: _Victim) -> None:
        """Report an eviction, or note that it has failed."""
        asked, pod = victim.round, victim.round.pod
        if victim.eviction.evicted:
            log.info("Preempted pod", v=2, pod=victim.pod.key, preemptor=pod.key, node=asked.node_name)
            try:
                self.reporter.preempted(victim.pod, pod, asked.node_name)
            except Exception as error:  # noqa: BLE001 - the pod is evicted all the same
                self.errors.report(error, task="preemption", pod=victim.pod.key)
        asked.failed |= not victim.eviction.evicted
        self._done(asked)

    def _done(self, asked: _Round) -> None:
        """Count a victim; after the last one the pod waits for their end, or for a backoff if one has failed."""
        asked.left -= 1
        if not asked.left:
            self._release(asked)

    def _release(self, asked: _Round) -> None:
        pod = asked.pod
        try:
            nominated = self.cluster.nomination(pod.uid) if asked.failed else None
            if nominated is not None:
                self.cluster.nominate(nominated[0], attrs.evolve(nominated[1], victims=frozenset()))
        except Exception as error:  # noqa: BLE001 - it is one pod's error; the pod must not stay held
            self.errors.report(error, task="preemption", pod=pod.key)
        self.queue.release(pod.uid, self.clock(), failed=asked.failed)

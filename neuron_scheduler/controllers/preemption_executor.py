"""
Carries preemption out: search, nominate, and evict the victims, while other pods are decided.

    FitError --search--> Preemption --confirmed--> nominate --> `victim_evictions` --> release
                  or --> NoPreemption: the text that is appended to the refusal

Nothing awaits between the confirmation and the nomination, so no pod is evicted for an outdated state of the cluster.
A nomination that its node cannot keep any more is given up, which ends its evictions, too. Refuses to choose the
victims: that is `scheduling.preemption`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import anyio.abc
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers import victim_evictions
from neuron_scheduler.controllers.turn import LONGEST_TURN
from neuron_scheduler.controllers.victim_evictions import Evictor, VictimEvictions
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.nomination import CLEAR, KEEP, Nominate, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.preemption.comparison import NoPreemption, Preemption
from neuron_scheduler.scheduling.preemption.nominations import confirmed, lost_nominations, rebuilt
from neuron_scheduler.scheduling.preemption.search import search
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

log = logs.logger(__name__)


class PodReporter(victim_evictions.PodReporter, Protocol):
    """Reports to the owners of pods what preemption does to them."""

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
        alone: this is not true of pods that are like it, because its status names a node.
    """

    text: str = ""
    nomination: NominationChange = KEEP
    held: bool = False
    plugins: frozenset[str] = frozenset()
    alone: bool = False


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
    _evictions: VictimEvictions = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._evictions = VictimEvictions(
            cluster=self.cluster,
            queue=self.queue,
            evictor=self.evictor,
            reporter=self.reporter,
            metrics=self.metrics,
            clock=self.clock,
            give_up=self.give_up,
            errors=self.errors,
        )

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Evict until stopped."""
        await self._evictions.run(task_status=task_status)

    def stop(self) -> None:
        """End `run` when all evictions have been requested."""
        self._evictions.stop()

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
        lost = lost_nominations(node_info, self._waiting)
        for pod in lost:
            self.nomination_lost(pod)
        if lost:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, *lost)  # other pods may fit into a part of the space

    def nomination_lost(self, pod: Pod) -> None:
        """Try a pod again that has lost its nomination, to another pod or with the node; only its owner writes that."""
        node_name = self.cluster.clear_nomination(pod.uid) or ""
        queued = self.queue.get(pod.uid)
        if queued is None:
            return  # kube-scheduler tries it again
        queued.given_up = node_name
        log.info("Pod has lost its nominated node; trying it again", v=2, pod=pod.key, node=node_name)
        self.reporter.nomination_lost(pod)
        self.queue.activate(pod.uid, self.clock())

    async def post_filter(self, queued: QueuedPod, refused: FitError, profile: Profile) -> PostFilter:
        """Search for victims and begin to evict them; returns before they have ended."""
        self.metrics.preemption_attempted()
        self.queue.keep_events(queued)
        result: Preemption | NoPreemption | None = None
        turn_ends = self.clock() + LONGEST_TURN
        for result in search(self.cluster, _nominated(queued), profile, refused=refused, budgets=self.budgets()):
            if result is None and self.clock() >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + LONGEST_TURN
        pod = queued.pod  # it may ask for more than when the search began
        if isinstance(result, Preemption):
            nomination = confirmed(self.cluster, pod, profile, result) if self.queue.holds(queued) else None
            if nomination is not None:
                queued.given_up = ""
                return self._begin(pod, result.node_name, nomination)
            queued.missed = True  # the result is outdated: search again after the backoff
            return PostFilter()
        if result is None:
            raise AssertionError("a search ends with a result")
        change = self._drop_nomination(queued) if result.gives_up else KEEP
        alone = _nominated(queued).nominated_node_name != ""
        return PostFilter(result.text, nomination=change, plugins=result.plugins, alone=alone)

    def _waiting(self, uid: str) -> Pod | None:
        """Return the present state of a pod of our queue."""
        queued = self.queue.get(uid)
        return None if queued is None else queued.pod

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
        self._evictions.begin(pod, node_name, victims)
        return PostFilter(nomination=Nominate(node_name), held=True)

    def _nominated_of_lower_priority(self, pod: Pod, node_name: str) -> list[Pod]:
        node_info = self.cluster.node(node_name)
        nominations = node_info.nominations if node_info is not None else ()
        return [nomination.pod for nomination in nominations if nomination.pod.priority < pod.priority]

    def _drop_nomination(self, queued: QueuedPod) -> NominationChange:
        """Drop the pod's nomination, because no eviction can make it fit anywhere; return what to write."""
        pod = queued.pod
        node_name = self.cluster.clear_nomination(pod.uid)
        queued.given_up = node_name or pod.nominated_node_name  # the status may not name it yet
        if node_name is not None:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod)
            return CLEAR
        return CLEAR if pod.nominated_node_name else KEEP


def _nominated(queued: QueuedPod) -> Pod:
    """Return a pod without the nominated node that has been given up, as its status will say."""
    given_up = queued.given_up and queued.pod.nominated_node_name == queued.given_up
    return attrs.evolve(queued.pod, nominated_node_name="") if given_up else queued.pod

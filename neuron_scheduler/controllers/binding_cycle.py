"""
From an assumed decision to its outcome: the pod's volumes, its Binding, and what both mean for cluster and queue.

Upstream: `bindingCycle` in `pkg/scheduler/schedule_one.go`. Bindings are tried for the first time by many workers, in
the order of the decisions; one that has to wait for another pod of its node (`allocate_fence`) occupies none meanwhile.
One without a definite outcome leaves them at once: a few other workers send it again when it is due, and serve the
namespaces in turns. So it keeps its pod's place and occupies no worker of the first tries. Refuses to decide.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

import anyio
import attrs
from anyio.abc import TaskGroup

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.controllers.allocate_fence import AllocateFence
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.delaying_queue import DelayingQueue
from neuron_scheduler.kube.writes.binder import Binding, BindOutcome, Bound, Fenced, Gone, InDoubt, Refused
from neuron_scheduler.model.annotations import AWS_NEURON_IDS, NEURON_ALLOC_TIME
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.recheck import still_takes
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.queue.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.hints import Change
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod, matters_for_scheduling
from neuron_scheduler.scheduling.queue.scheduling_queue import BINDER, SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import taken_back
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from neuron_scheduler.work_queue import WorkQueue

log = logs.logger(__name__)

_RETRIES_AT_ONCE = 8  # of Bindings in doubt; these and the first tries together need fewer connections than there are
_RETRIES_OF_A_NAMESPACE = 4
_MOST_DOUBTS = 16  # of a namespace; with more, the retrying workers send its first tries too, which delay no others
_TOLD_FROM = 4  # tries before a log line and an Event; the next ones after 8, 16, ...


class Binder(Protocol):
    """Commits one decision at the API server."""

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome | InDoubt:
        """Send the Binding once."""

    async def again(self, binding: Binding) -> BindOutcome | InDoubt:
        """Send the identical Binding once more."""


class PodReporter(Protocol):
    """Tells the pod's owner what became of its Binding: Event and condition."""

    def scheduled(self, pod: Pod, node_name: str, placement: Placement | None) -> None:
        """Tell that the pod is bound, and to which ids."""

    def failed(self, pod: Pod, message: str) -> None:
        """Tell that an attempt ended in an error."""

    def in_doubt(self, pod: Pod, message: str) -> None:
        """Tell that the Binding is in doubt: the pod may be bound or not."""

    def withdraw(self, uid: str) -> None:
        """Drop the pod's condition if it is not written yet; the pod is about to be bound."""


class VolumeBinder(Protocol):
    """Binds a pod's volumes before the pod."""

    def reserve(self, pod: Pod, node_name: str) -> VolumePlan | None:
        """Assume what the pod's volumes need on the node; None if they need nothing."""

    def release(self, plan: VolumePlan) -> None:
        """Take back what was assumed."""

    async def prepare(self, pod: Pod, plan: VolumePlan) -> BindOutcome | None:
        """Carry out the plan and wait; None if the pod can be bound now."""


@attrs.frozen
class _Doubt:
    """A commitment whose Binding is in doubt (`binding` is None before its first try)."""

    commitment: Commitment
    binding: Binding | None = None


@attrs.define(eq=False, kw_only=True)
class BindingCycle:
    """
    Commits decisions while it runs.

    Attributes:
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds, for NEURON_ALLOC_TIME.
        may_bind: False once the Lease may be lost.
        wake: called when the scheduling loop may have something to do.
        errors: reports unexpected exceptions.
        concurrency: Bindings that are tried for the first time at once.
        fenced: whether Bindings wait where the device plugin could confuse two pods.
        fence: where they wait.
    """

    cluster: Cluster
    queue: SchedulingQueue
    binder: Binder
    volumes: VolumeBinder
    reporter: PodReporter
    metrics: Metrics
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    may_bind: Callable[[], bool]
    wake: Callable[[], None]
    errors: UnexpectedErrors
    concurrency: int
    fenced: bool = True
    fence: AllocateFence = attrs.field(init=False)
    _decided: WorkQueue[Commitment] = attrs.field(init=False)
    _doubts: DelayingQueue[_Doubt] = attrs.field(init=False)
    _doubtful: Counter[str] = attrs.field(factory=Counter, init=False)  # by namespace
    _preparing: TaskGroup | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._decided = WorkQueue(self.concurrency)
        self._doubts = DelayingQueue(clock=self.clock, share=_RETRIES_OF_A_NAMESPACE)
        self.fence = AllocateFence(
            cluster=self.cluster,
            clock=self.clock,
            wall_clock=self.wall_clock,
            send=self._decided.push,
            changed=self._changed,
            settle=self._settle,
            crashed=self._fence_crashed,
            enabled=self.fenced,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Commit what is given inside the block; after it, wait until every Binding that was sent has its outcome."""
        async with anyio.create_task_group() as retries:
            for _ in range(_RETRIES_AT_ONCE):
                retries.start_soon(self._doubts.serve, self._resolve)
            async with anyio.create_task_group() as binders:
                for _ in range(self.concurrency):
                    binders.start_soon(self._commit_each)
                async with anyio.create_task_group() as self._preparing:
                    self._preparing.start_soon(self.fence.watch_the_clock)
                    yield
                    self._preparing.cancel_scope.cancel()  # the next leader finds what was written of their volumes
                self.fence.clear()
                self._decided.close()
            self._doubts.close()

    async def give(self, commitment: Commitment) -> None:
        """Take a decision that is assumed; waits while many are on their way."""
        if commitment.plan is None:
            await self._queue(commitment)
        elif self._preparing is None:
            raise RuntimeError("a binding cycle that does not run cannot bind volumes")
        else:
            self._preparing.start_soon(self._prepare, commitment, commitment.plan)

    async def _queue(self, commitment: Commitment) -> None:
        try:
            may_be_sent = self.fence.take(commitment)
        except Exception as error:  # noqa: BLE001 - one pod's
            self._fence_crashed(commitment, error)
            return
        if may_be_sent:
            await self._decided.give(commitment)

    async def _prepare(self, commitment: Commitment, plan: VolumePlan) -> None:
        """Bind a pod's volumes, however long it takes, and then the pod; no other pod waits for it."""
        try:
            outcome = await self.volumes.prepare(commitment.pod, plan)
        except Exception as error:  # noqa: BLE001 - one pod's; what was written of its volumes is found again
            outcome = self._surprise(commitment, error, "binding volumes")
        if outcome is None:
            await self._queue(commitment)
        else:
            self._settle(commitment, outcome)

    async def _commit_each(self) -> None:
        while (commitment := await self._decided.next()) is not None:
            if self._doubtful and self._doubtful[commitment.pod.namespace] >= _MOST_DOUBTS:
                self._doubt(_Doubt(commitment), 0.0)
                self.fence.delayed(commitment)
            else:
                self._conclude(commitment, await self._bind(commitment))

    async def _resolve(self, doubt: _Doubt) -> None:
        """Try a Binding in doubt once more."""
        commitment, binding = doubt.commitment, doubt.binding
        self._doubtful[commitment.pod.namespace] -= 1
        if not self._doubtful[commitment.pod.namespace]:
            del self._doubtful[commitment.pod.namespace]
        if binding is None:
            self._conclude(commitment, await self._bind(commitment))
            return
        self.metrics.retried("binding")
        self._conclude(commitment, await self.binder.again(binding))

    async def _bind(self, commitment: Commitment) -> BindOutcome | InDoubt:
        pod, annotations = commitment.queued.pod, commitment.annotations
        try:
            self.reporter.withdraw(pod.uid)
            if AWS_NEURON_IDS in annotations:
                annotations = {**annotations, NEURON_ALLOC_TIME: str(self.fence.stamp(commitment))}
            extension_log.executing(self.cluster, pod, commitment.decision, annotations)
            return await self.binder.bind(pod, commitment.node_name, annotations)
        except Exception as error:  # noqa: BLE001 - nothing was sent: the binder tells of no exception after that
            return self._surprise(commitment, error, "binding")

    def _conclude(self, commitment: Commitment, outcome: BindOutcome | InDoubt) -> None:
        if not isinstance(outcome, InDoubt):
            self._settle(commitment, outcome)
            self.fence.settled(commitment, outcome)
            return
        self.fence.delayed(commitment)
        if self._doubts.closed and not self.may_bind():
            log.warning("Binding is left unresolved; its pod stays assumed", pod=commitment.pod.key)
        else:
            self._doubt(_Doubt(commitment, outcome.binding), outcome.pause)
            try:
                self._tell_doubt(commitment, outcome.binding)
            except Exception as error:  # noqa: BLE001 - one pod's, which is tried again all the same
                self.errors.report(error, task="binding", pod=commitment.pod.key)

    def _doubt(self, doubt: _Doubt, pause: float) -> None:
        """Try the pod's Binding again after a pause in seconds; the assumption stays."""
        namespace = doubt.commitment.pod.namespace
        self._doubtful[namespace] += 1
        self._doubts.add(doubt, namespace, self.clock() + pause)

    def _tell_doubt(self, commitment: Commitment, binding: Binding) -> None:
        """Report, after some tries and then ever more seldom, that a Binding is in doubt."""
        tries = binding.tries
        if tries < _TOLD_FROM or tries & (tries - 1):
            return
        pod, node_name = commitment.pod, commitment.decision.node_name
        log.warning(
            "Binding has no definite outcome, sending it again",
            pod=pod.key,
            node=node_name,
            tries=tries,
            inDoubt=len(self._doubts),
            err=binding.problem,
        )
        self.reporter.in_doubt(
            pod,
            f"Binding to {node_name} has no definite outcome after {tries} tries; it is sent again, and the pod keeps "
            f"its place: {binding.problem}",
        )

    def _settle(self, commitment: Commitment, outcome: BindOutcome) -> None:
        """Apply a definite outcome to cluster and queue; after an exception a pod that is not bound is tried again."""
        try:
            self._take(commitment, outcome)
        except Exception as error:  # noqa: BLE001 - one pod's
            self.crashed(commitment.queued, error)

    def _take(self, commitment: Commitment, outcome: BindOutcome) -> None:
        match outcome:
            case Bound():
                self._bound(commitment)
            case Gone():
                self.queue.remove(commitment.pod.uid)
                self._forget(commitment)
            case Refused(message=message, until_changed=until_changed):
                self._forget(commitment)
                self._failed(commitment, message, until_changed=until_changed)
            case Fenced():
                self._forget(commitment)
                self.queue.failed(commitment.queued, self.clock())

    def _changed(self, commitment: Commitment) -> BindOutcome | None:
        """Return what becomes of a pod that waited to be bound and cannot be bound as decided any more; else None."""
        try:
            return self._obstacle(commitment)
        except Exception as error:  # noqa: BLE001 - one pod's
            return self._surprise(commitment, error, "binding")

    def _obstacle(self, commitment: Commitment) -> BindOutcome | None:
        pod, node_info = commitment.queued.pod, self.cluster.node(commitment.node_name)
        if pod.uid not in self.queue:
            return Gone()  # deleted, about to be, or bound by somebody else
        if node_info is None:
            return Refused(0, f'node "{commitment.node_name}" not found', retryable=True)
        placement = commitment.decision.placement
        cores = 0 if placement is None else placement.cores
        if matters_for_scheduling(commitment.pod, pod) or not still_takes(node_info, pod, cores):
            return Fenced()
        return None

    def _fence_crashed(self, commitment: Commitment, error: Exception) -> None:
        self._settle(commitment, self._surprise(commitment, error, "allocate fence"))

    def _surprise(self, commitment: Commitment, error: Exception, task: str) -> Refused:
        return Refused(0, self.errors.report(error, task=task, pod=commitment.pod.key), retryable=True)

    def crashed(self, queued: QueuedPod, error: Exception) -> None:
        """
        Handle an exception in an attempt, or in applying its outcome, as the pod's error.

        What the attempt assumed is forgotten unless the pod has left the queue, which it does as soon as it is known to
        be bound. A step that fails as well does not keep the others from being done.
        """
        pod, now = queued.pod, self.clock()
        message = self.errors.report(error, task="scheduling", pod=pod.key)
        if pod.uid not in self.queue:
            return
        for step in (
            partial(self.cluster.forget, pod.uid),
            partial(self.queue.failed, queued, now),
            partial(self.metrics.attempted, "error", pod.scheduler_name, 0.0),
            partial(self.reporter.failed, pod, message),
        ):
            try:
                step()
            except Exception as another:  # noqa: BLE001 - as above
                self.errors.report(another, task="scheduling", pod=pod.key)

    def _bound(self, commitment: Commitment) -> None:
        now, queued, decision = self.clock(), commitment.queued, commitment.decision
        self.queue.remove(commitment.pod.uid)
        self.metrics.attempted("scheduled", commitment.pod.scheduler_name, now - commitment.started)
        first = queued.since if queued.first_active is None else queued.first_active
        self.metrics.scheduled(attempts=queued.attempts, seconds=now - first)
        ids = {}
        if decision.placement is not None and commitment.pod.neuron is not None:
            ids = {f"{commitment.pod.neuron.unit}s": ",".join(map(str, decision.placement.ids))}
        log.info(
            "Successfully bound pod to node",
            v=2,
            pod=commitment.pod.key,
            node=decision.node_name,
            evaluatedNodes=decision.evaluated,
            feasibleNodes=decision.feasible,
            **ids,
        )
        extension_log.executed(self.cluster, commitment.pod, decision)
        self.reporter.scheduled(commitment.pod, decision.node_name, decision.placement)

    def _failed(self, commitment: Commitment, message: str, *, until_changed: bool) -> None:
        now = self.clock()
        self.metrics.attempted("error", commitment.pod.scheduler_name, now - commitment.started)
        log.error("Error scheduling pod; retrying", pod=commitment.pod.key, err=message)
        if commitment.pod.uid in self.queue:  # else it was bound by someone else, or deleted, meanwhile
            if until_changed:
                self.queue.unschedulable(commitment.queued, frozenset({BINDER}), now)
            else:
                self.queue.failed(commitment.queued, now)
            self.reporter.failed(commitment.pod, message)

    def _forget(self, commitment: Commitment) -> None:
        """Free what was assumed; others may be waiting for it."""
        self.cluster.forget(commitment.pod.uid)
        if commitment.plan is not None:
            self.volumes.release(commitment.plan)
            for event in taken_back(commitment.plan):
                self.queue.note_storage(event.event, event.claim)
        note_freed(self.cluster, self.queue, commitment.pod, commitment.decision.node_name)
        self.wake()


def note_freed(cluster: Cluster, queue: SchedulingQueue, pod: Pod, node_name: str) -> None:
    """Tell the queue that a pod leaves, or will not take, space on a node."""
    node_info = cluster.node(node_name)
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, on=None if node_info is None else Change(node_info))

"""
From an assumed decision to its definite outcome: bind the pod's volumes, then send its Binding until it is answered.

Upstream: `bindingCycle` in `pkg/scheduler/schedule_one.go`. Many workers send Bindings for the first time, in the order
of the decisions. A Binding that waits for another pod (`allocate_fence`) occupies no worker. A Binding in doubt keeps
its pod's place; a few other workers send it again when it is due, and serve the namespaces in turns. If its node is
gone or another machine, it is not sent again, and the pod says what became of it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import attrs
from anyio.abc import TaskGroup

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.controllers.allocate_fence import AllocateFence
from neuron_scheduler.controllers.commitment import Commitment, has_place, note_freed, obstacle, refused_by
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.volume_binder import VolumeBinder
from neuron_scheduler.kube.writes.binder import Binder, Binding, BindOutcome, Bound, Fenced, Gone, InDoubt, Refused
from neuron_scheduler.kube.writes.work_queue import DelayingQueue, Waiting, turn, wake_one
from neuron_scheduler.model.annotations import AWS_NEURON_IDS, NEURON_ALLOC_TIME
from neuron_scheduler.scheduling.cycle.volume_plan import release
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import events_of_release
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

if TYPE_CHECKING:
    from neuron_scheduler.controllers.claim_binder import ClaimBinder

log = logs.logger(__name__)

_RETRIES_AT_ONCE = 8  # of Bindings in doubt; these and the first tries together need fewer connections than there are
_RETRIES_OF_A_NAMESPACE = 4
_MOST_DOUBTS = 16  # of a namespace; with more, the retrying workers send its first tries too, which delay no others
_REPORTED_FROM = 4  # tries before a log line and an Event; the next ones after 8, 16, ...


@attrs.frozen
class _Doubt:
    """A commitment whose Binding is in doubt (`binding` is None before its first try)."""

    commitment: Commitment
    binding: Binding | None = None


@attrs.define(eq=False, kw_only=True)
class BindingCycle:
    """
    Sends the Bindings of decisions while it runs.

    Attributes:
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds, for NEURON_ALLOC_TIME.
        may_bind: False once the Lease may be lost.
        concurrency: maximum of concurrent first tries.
        fenced: whether Bindings wait where the device plugin could confuse two pods.
        open: whether commitments are taken: it runs, and is not about to stop.
    """

    cluster: Cluster
    queue: SchedulingQueue
    binder: Binder
    volumes: VolumeBinder
    claims: "ClaimBinder | None" = None
    reporter: PodReporter
    metrics: Metrics
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    may_bind: Callable[[], bool]
    errors: UnexpectedErrors
    concurrency: int
    fenced: bool = True
    fence: AllocateFence = attrs.field(init=False)
    open: bool = attrs.field(default=False, init=False)
    _decided: asyncio.Queue[Commitment | None] = attrs.field(factory=asyncio.Queue, init=False)  # None ends a binder
    _givers: Waiting = attrs.field(factory=deque, init=False)  # that wait for room there
    _doubts: DelayingQueue[_Doubt] = attrs.field(init=False)
    _doubtful: Counter[str] = attrs.field(factory=Counter, init=False)  # by namespace
    _preparing: TaskGroup = attrs.field(init=False)  # while it runs

    def __attrs_post_init__(self) -> None:
        self._doubts = DelayingQueue(clock=self.clock, share=_RETRIES_OF_A_NAMESPACE)
        self.fence = AllocateFence(
            cluster=self.cluster,
            clock=self.clock,
            wall_clock=self.wall_clock,
            on_free=self._decided.put_nowait,
            on_withdrawn=self.settle,
            on_held=self.reporter.report_held,
            errors=self.errors,
            enabled=self.fenced,
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Commit decisions inside the block; after it, wait until every Binding that was sent has its outcome."""
        async with anyio.create_task_group() as retries:
            for _ in range(_RETRIES_AT_ONCE):
                retries.start_soon(self._doubts.serve, self._resolve)
            async with anyio.create_task_group() as binders:
                for _ in range(self.concurrency):
                    binders.start_soon(self._commit_each)
                async with anyio.create_task_group() as self._preparing:
                    self._preparing.start_soon(self.fence.watch_the_clock)
                    self.open = True
                    try:
                        yield
                    finally:
                        self.open = False
                    self._preparing.cancel_scope.cancel()  # the next leader finds the volume writes that were done
                self.fence.clear()
                for _ in range(self.concurrency):
                    self._decided.put_nowait(None)
            self._doubts.close()

    async def give(self, commitment: Commitment) -> None:
        """Take a decision that is assumed; waits while the queue of first tries is full."""
        if commitment.plan is None and not commitment.claims:
            await self._enqueue(commitment)
        else:
            self._preparing.start_soon(self._prepare, commitment)

    @property
    def backlog(self) -> float:
        """How many times as many Bindings wait for their first try as are tried at once."""
        return self._decided.qsize() / self.concurrency

    def push(self, commitment: Commitment) -> None:
        """Take a decision that is assumed, for a pod whose volumes are bound; the caller limits their number."""
        if not self.open:
            self.settle(commitment, Fenced())
        elif self.fence.take(commitment):
            self._decided.put_nowait(commitment)

    async def _enqueue(self, commitment: Commitment) -> None:
        if self.fence.take(commitment):
            while self._decided.qsize() >= self.concurrency:
                await turn(self._givers)
            self._decided.put_nowait(commitment)

    async def _prepare(self, commitment: Commitment) -> None:
        """Bind a pod's volumes and write its claims, however long that takes, and then the pod; no other pod waits."""
        outcome: BindOutcome | None = commitment.refusal  # nothing is written for a pod that cannot be bound
        try:
            if outcome is None and commitment.plan is not None:
                outcome = await self.volumes.prepare(commitment.pod, commitment.plan)
            if outcome is None and commitment.claims and self.claims is not None:
                outcome = await self.claims.prepare(commitment.pod, commitment.claims)
        except Exception as error:  # noqa: BLE001 - it is one pod's error; the writes are found again
            outcome = refused_by(error, commitment, self.errors, task="binding volumes or claims")
        if outcome is None:
            outcome = obstacle(self.cluster, commitment, self.errors)
        if outcome is None:
            await self._enqueue(commitment)
        else:
            self.settle(commitment, outcome)

    async def _commit_each(self) -> None:
        while (commitment := await self._decided.get()) is not None:
            wake_one(self._givers)
            if self._doubtful and self._doubtful[commitment.pod.namespace] >= _MOST_DOUBTS:
                self._doubt(_Doubt(commitment), 0.0)
                self.fence.on_delayed(commitment)
            else:
                in_group = commitment.pod.group is not None  # it may have fallen apart while the Binding waited
                found = obstacle(self.cluster, commitment, self.errors) if in_group else None
                self._conclude(commitment, await self._bind(commitment) if found is None else found)

    async def _resolve(self, doubt: _Doubt) -> None:
        commitment, binding = doubt.commitment, doubt.binding
        self._doubtful[commitment.pod.namespace] -= 1
        if not self._doubtful[commitment.pod.namespace]:
            del self._doubtful[commitment.pod.namespace]
        keeps_place = binding is not None and has_place(self.cluster, commitment)
        found = None if keeps_place else obstacle(self.cluster, commitment, self.errors)
        if binding is None:
            self._conclude(commitment, await self._bind(commitment) if found is None else found)
            return
        self.metrics.count_retry("binding")
        self._conclude(commitment, await self.binder.try_again(binding, found))

    async def _bind(self, commitment: Commitment) -> BindOutcome | InDoubt:
        pod, annotations = commitment.requester.pod, commitment.annotations
        try:
            self.reporter.withdraw(pod.uid)
            if AWS_NEURON_IDS in annotations:
                annotations = {**annotations, NEURON_ALLOC_TIME: str(self.fence.stamp(commitment))}
            if commitment.lines.steps.is_enabled:
                extension_log.write_bind_start(self.cluster, pod, commitment.decision, annotations, commitment.lines)
            return await self.binder.bind(pod, commitment.node_name, annotations)
        except Exception as error:  # noqa: BLE001 - nothing was sent: after that the binder raises no exception
            return refused_by(error, commitment, self.errors, task="binding")

    def _conclude(self, commitment: Commitment, outcome: BindOutcome | InDoubt) -> None:
        if not isinstance(outcome, InDoubt):
            self.settle(commitment, outcome)
            self.fence.on_outcome(commitment, outcome)
            return
        self.fence.on_delayed(commitment)
        if self._doubts.closed and not self.may_bind():
            log.warning("Binding is left in doubt; its pod stays assumed", pod=commitment.pod.key)
        else:
            self._doubt(_Doubt(commitment, outcome.binding), outcome.pause)
            with self.errors.contain(task="binding", pod=commitment.pod.key):  # the Binding is sent again anyway
                self._report_doubt(commitment, outcome.binding)

    def _doubt(self, doubt: _Doubt, pause: float) -> None:
        namespace = doubt.commitment.pod.namespace
        self._doubtful[namespace] += 1
        self._doubts.add(doubt, namespace, self.clock() + pause)

    def _report_doubt(self, commitment: Commitment, binding: Binding) -> None:
        tries = binding.tries
        if tries < _REPORTED_FROM or tries & (tries - 1):
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
        self.reporter.report_doubt(
            pod,
            f"Binding to {node_name} has no definite outcome after {tries} tries; it is sent again, and the pod keeps "
            f"its place: {binding.problem}",
        )

    def settle(self, commitment: Commitment, outcome: BindOutcome) -> None:
        try:
            self._apply(commitment, outcome)
        except Exception as error:  # noqa: BLE001 - it is one pod's error
            commitment.requester.on_crashed(error)

    def _apply(self, commitment: Commitment, outcome: BindOutcome) -> None:
        requester = commitment.requester
        match outcome:
            case Bound():
                requester.on_bound(commitment)
                self._log_bound(commitment)
            case Gone():
                requester.on_gone()
                self._forget(commitment)
            case Refused() as refusal:
                self._forget(commitment)
                requester.on_refused(commitment, refusal)
            case Fenced():
                self._forget(commitment)
                requester.on_fenced(commitment)

    def _log_bound(self, commitment: Commitment) -> None:
        pod, decision, ids = commitment.pod, commitment.decision, {}
        if decision.placement is not None and pod.neuron is not None:
            ids = {f"{pod.neuron.unit}s": ",".join(map(str, decision.placement.ids))}
        log.info(
            "Successfully bound pod to node",
            v=2,
            pod=pod.key,
            node=decision.node_name,
            evaluatedNodes=decision.evaluated,
            feasibleNodes=decision.feasible,
            **ids,
        )
        if commitment.lines.steps.is_enabled:
            extension_log.write_bind_end(self.cluster, pod, decision, commitment.lines)

    def _forget(self, commitment: Commitment) -> None:
        self.cluster.forget(commitment.pod.uid)
        if self.claims is not None and commitment.claims:
            self.claims.release(commitment.pod)
        if commitment.plan is not None:
            release(self.cluster, commitment.plan)
            for event in events_of_release(commitment.plan):
                self.queue.note(event.event, claim=event.claim)
        note_freed(self.cluster, self.queue, commitment.pod, commitment.decision.node_name)

"""
Evicts the victims of preemptions: PATCH of the reason, then DELETE, with a few workers for the victims of all pods.

A victim that has to wait for its next try keeps no worker. Whether a victim has to leave is asked again before each
request: the pod may not wait for its space any more, and no other victim leaves for a pod whose victims cannot all be
evicted (upstream cancels the rest, too). The pod is held in the queue until the evictions of all its victims have been
requested; then it waits for their end (upstream's asynchronous preemption, `framework/preemption/executor.go`). Refuses
to choose victims, and to nominate: `preemption_executor` does.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.abc
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.delaying_queue import DelayingQueue
from neuron_scheduler.kube.writes.evictor import Eviction
from neuron_scheduler.model.pod import Pod
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
    """Reports to the owners of victims why they leave."""

    def preempted(self, victim: Pod, preemptor: Pod, node_name: str) -> None:
        """Report that the pod is evicted for another one."""


@attrs.define(eq=False)
class _Round:
    """
    The evictions for one pod.

    Attributes:
        left: victims whose outcome is not known yet.
        evicted: how many were evicted.
        failed: one of them could not be evicted, although it was to be.
    """

    pod: Pod
    node_name: str
    left: int
    evicted: int = 0
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
class VictimEvictions:
    """
    Evicts while it runs.

    Attributes:
        clock: seconds that never jump, the queue's time.
        give_up: puts a pod whose Binding is not sent yet back into the queue; False for all other pods.
        errors: reports unexpected exceptions.
    """

    cluster: Cluster
    queue: SchedulingQueue
    evictor: Evictor
    reporter: PodReporter
    metrics: Metrics
    clock: Callable[[], float]
    give_up: Callable[[str], bool]
    errors: UnexpectedErrors
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

    def begin(self, pod: Pod, node_name: str, victims: Sequence[Pod]) -> None:
        """
        Evict the victims of a pod's nomination, then release the pod, which the caller puts into the queue as held.

        Raises:
            RuntimeError: it does not run.
        """
        if self._rounds is None:
            raise RuntimeError("a preemption executor that does not run cannot preempt")
        self._rounds.start_soon(self._evict_all, _Round(pod, node_name, left=len(victims)), victims)

    async def _evict_all(self, asked: _Round, victims: Sequence[Pod]) -> None:
        """Evict all victims, as soon as there are workers; a task, so that the pod is held before it is released."""
        for pod in victims:
            is_needed = partial(self._is_needed, asked, pod)
            victim = _Victim(asked, Eviction(pod, asked.pod.scheduler_name, is_needed))
            if not is_needed():
                self._spared(victim)
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
        if not victim.eviction.is_needed():
            self._spared(victim)
            return
        pause = 0.0
        try:
            pause = await self.evictor.proceed(victim.eviction)
        except Exception as error:  # noqa: BLE001 - it is one victim's error
            self._crashed(victim, error)
        if victim.eviction.evicted is None:
            self._victims.add(victim, victim.pod.namespace, self.clock() + pause)
        elif victim.eviction.needless:
            self._spared(victim)
        else:
            self._ended(victim)

    def _is_needed(self, asked: _Round, victim: Pod) -> bool:
        """
        Return whether a victim has to leave: its space is kept for the preempting pod, and it is still there.

        The node may have been cordoned meanwhile. A victim whose Binding failed is somewhere else, or waits.
        """
        node_name, nomination = self.cluster.nomination(asked.pod.uid) or ("", None)
        if asked.failed or nomination is None or node_name != asked.node_name or victim.uid not in nomination.victims:
            return False
        return self.cluster.node_of(victim.uid) == node_name and not self._is_leaving(victim)

    def _is_leaving(self, victim: Pod) -> bool:
        pod_info = self.cluster.pod_info(victim.uid)
        return pod_info is None or pod_info.pod.terminating

    def _spared(self, victim: _Victim) -> None:
        """Leave a victim alone that need not be evicted; it may leave because of a DELETE that had no answer."""
        if victim.eviction.in_doubt and self._is_leaving(victim.pod):
            self._report(victim)
        self._done(victim.round)

    def _crashed(self, victim: _Victim, error: Exception) -> None:
        victim.eviction.evicted = False
        self.errors.report(error, task="preemption", pod=victim.pod.key)

    def _ended(self, victim: _Victim) -> None:
        """Report an eviction, or note that it has failed; a pod that had gone by itself is not reported."""
        if victim.eviction.evicted and not victim.eviction.gone:
            self._report(victim)
        victim.round.failed |= not victim.eviction.evicted
        self._done(victim.round)

    def _report(self, victim: _Victim) -> None:
        asked = victim.round
        asked.evicted += 1
        log.info("Preempted pod", v=2, pod=victim.pod.key, preemptor=asked.pod.key, node=asked.node_name)
        try:
            self.reporter.preempted(victim.pod, asked.pod, asked.node_name)
        except Exception as error:  # noqa: BLE001 - the pod is evicted all the same
            self.errors.report(error, task="preemption", pod=victim.pod.key)

    def _done(self, asked: _Round) -> None:
        """Count a victim; after the last one the pod waits for their end, or for a backoff if one has failed."""
        asked.left -= 1
        if not asked.left:
            self._release(asked)

    def _release(self, asked: _Round) -> None:
        pod = asked.pod
        try:
            if asked.evicted:
                self.metrics.preempted(asked.evicted)
            nominated = self.cluster.nomination(pod.uid) if asked.failed else None
            if nominated is not None:
                self.cluster.nominate(nominated[0], attrs.evolve(nominated[1], victims=frozenset()))
        except Exception as error:  # noqa: BLE001 - it is one pod's error; the pod must not stay held
            self.errors.report(error, task="preemption", pod=pod.key)
        self.queue.release(pod.uid, self.clock(), failed=asked.failed)

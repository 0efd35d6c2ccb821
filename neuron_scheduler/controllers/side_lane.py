"""
Builds the indexes for pods that need long, so other pods do not wait for them.

A pod with many terms about other pods is compared with all of them: up to some seconds in a large cluster. That
happens here, one pod at a time, in turns with the scheduling loop, which then schedules the pod next.
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Final

import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.writes.work_queue import DelayingQueue
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup, asks_much
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import run_in_turns

_MOST_COMPARISONS: Final = 100_000
"""With other pods, in the turns of the loop: a tenth of a second."""
_MOST_COUNTED: Final = 10_000
"""Nodes, for each unlike claim: all pods with claims are tried again after most changes of volumes and nodes."""


@attrs.define(eq=False, kw_only=True)
class SideLane:
    """
    Builds the missing indexes for one pod after the other.

    Attributes:
        ready: pods that are ready for the loop; some may have left the queue since.
        on_ready: called when a pod is ready for the loop.
        on_crash: called with an exception in preparing for a pod; puts the pod back into the queue.
    """

    cluster: Cluster
    queue: SchedulingQueue
    profiles: Mapping[str, Profile]
    warmup: IndexWarmup
    clock: Callable[[], float]
    on_ready: Callable[[], None]
    on_crash: Callable[[QueuedPod, Exception], None]
    _waiting: DelayingQueue[QueuedPod] = attrs.field(init=False)
    ready: deque[QueuedPod] = attrs.field(factory=deque, init=False)

    @_waiting.default
    def _take_turns(self) -> DelayingQueue[QueuedPod]:
        return DelayingQueue(clock=self.clock, share=1)

    def takes(self, pod: Pod) -> bool:
        """Return whether it may take long to count what a pod asks about other pods, or about free volumes."""
        if asks_much(pod):
            return True
        cluster, constraints = self.cluster, pod.constraints
        terms = 0 if constraints is NO_CONSTRAINTS else constraints.comparisons
        if pod.neuron is not None and not constraints.volume_claims and terms * cluster.pod_count <= _MOST_COMPARISONS:
            return False  # without Neuron, a pod is compared with those of its workload, too
        most = _MOST_COUNTED if constraints.volume_claims else _MOST_COMPARISONS
        return self.warmup.comparisons(cluster, pod, self.profiles[pod.scheduler_name]) > most

    def put(self, queued: QueuedPod) -> None:
        """Take a popped pod; `run` prepares for it, in turns of the namespaces. Those that wait are in the queue."""
        self._waiting.add(queued, queued.pod.namespace, self.clock())

    def next(self) -> QueuedPod | None:
        """Return a pod that is ready, if any is still in flight; the cluster has hardly changed since."""
        while self.ready:
            queued = self.ready.popleft()
            if self.queue.holds(queued):
                return queued
        return None

    async def run(self) -> None:
        await self._waiting.serve(self.prepare)

    async def prepare(self, queued: QueuedPod) -> None:
        """Prepare for a popped pod; if changes come too fast, it is tried again after its backoff."""
        await anyio.lowlevel.checkpoint()  # thousands may wait for the same, which is there once it is built for one
        try:
            queued.prepared = not await run_in_turns(self._steps(queued), self.clock)
            if queued.prepared:
                self.ready.append(queued)
                self.on_ready()
            else:
                self.queue.put_back_failed(queued, self.clock())
        except Exception as error:  # noqa: BLE001 - it is one pod's error
            self.on_crash(queued, error)

    def _steps(self, queued: QueuedPod) -> Generator[None, None, bool | None]:
        """Prepare for a pod until it is gone: a tenant may create and delete without end."""
        steps = self.warmup.prepare(self.cluster, queued.pod, self.profiles[queued.pod.scheduler_name])
        while self.queue.holds(queued):
            try:
                next(steps)
            except StopIteration as end:
                answer: bool | None = end.value
                return answer
            yield
        return None

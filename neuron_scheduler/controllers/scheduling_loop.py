"""
The loop: pop a pod, let it be tried, hand its commitment over; a member of a group is tried with the others.

Upstream: `ScheduleOne` in `pkg/scheduler/schedule_one.go`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.binding_cycle import BindingCycle
from neuron_scheduler.controllers.group_attempt import GroupAttempts
from neuron_scheduler.controllers.pod_attempt import PodAttempts
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.controllers.side_lane import SideLane
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import LONGEST_TURN

if TYPE_CHECKING:
    from neuron_scheduler.controllers.turns import Turns

_LONGEST_IDLE: Final = 5.0
"""Seconds after which an idle loop looks at the queue again, to show its liveness."""
LONGEST_WAIT: Final = 0.5
"""Seconds for which single pods wait for a group of their priority that is being placed."""
_PAUSE: Final = 0.1
"""Seconds between two checks whether a Binding may be started."""


@attrs.define(eq=False, kw_only=True)
class SchedulingLoop:
    """
    Schedules the pods of the queue while it runs.

    Attributes:
        may_bind: False while the Lease may be lost; nothing is decided then.
        wake_up: set when the queue has changed, or a pod is ready that needed long to prepare for.
        turns: gives turns; None if no profile says after how long.
        looked_at: when the loop last looked at the queue, on `clock`; None before it runs.
    """

    cluster: Cluster
    queue: SchedulingQueue
    attempts: PodAttempts
    group_attempts: GroupAttempts
    side_lane: SideLane
    binding_cycle: BindingCycle
    preemption_executor: PreemptionExecutor
    clock: Callable[[], float]
    may_bind: Callable[[], bool]
    wake_up: asyncio.Event
    turns: "Turns | None" = None
    looked_at: float | None = attrs.field(default=None, init=False)
    stopping: bool = attrs.field(default=False, init=False)
    _singles_wait_since: float = attrs.field(default=inf, init=False)  # while groups are tried one after the other

    def stop(self) -> None:
        """End `run` once every Binding on its way is resolved."""
        self.stopping = True
        self.wake_up.set()

    async def run(self) -> None:
        """Schedule until stopped; returns when no Binding is on its way."""
        self.looked_at = self.clock()
        async with (
            anyio.create_task_group() as preempting,
            self.binding_cycle.run(),
            anyio.create_task_group() as preparing,
        ):
            await preempting.start(self.preemption_executor.run)
            preparing.start_soon(self.side_lane.run)
            await self.preemption_executor.adopt_all(self.attempts.profiles)
            preparing.start_soon(self.group_attempts.look_at_held_groups)
            if self.turns is not None:
                await preparing.start(self.turns.run)
            await self._schedule_each()
            preparing.cancel_scope.cancel()
            self.preemption_executor.stop()

    async def _schedule_each(self) -> None:
        turn_ends, of_groups = self.clock() + LONGEST_TURN, self.binding_cycle.fence.of_groups
        while not self.stopping:
            if not self.may_bind():
                await anyio.sleep(_PAUSE)  # a renewal that is late succeeds, or the Lease is lost and the process ends
                continue
            now = self.looked_at = self.clock()
            queued = (self.side_lane.next() if self.side_lane.ready else None) or self.queue.pop(now)
            if (self.queue.next_time() != -inf) if queued is None else (queued.pod.group is None):
                self._singles_wait_since = inf
            if queued is None and not of_groups:
                await self._idle(now)
                continue
            if queued is not None:
                await self._attempt(queued)
            if of_groups:
                await self.binding_cycle.give(of_groups.popitem(last=False)[1])
            if self.clock() >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + LONGEST_TURN
        while of_groups:
            await self.binding_cycle.give(of_groups.popitem(last=False)[1])

    async def _pause(self, priority: int, *, between: bool = False) -> None:
        """Let other tasks run in or between groups' attempts, and if these take long, decide single pods meanwhile."""
        await anyio.lowlevel.checkpoint()
        turn_ends = self.clock() + LONGEST_TURN
        while self._singles_wait_since + LONGEST_WAIT < self.clock() < turn_ends and self.may_bind():
            if (queued := self.queue.pop_single(priority, self.clock() if between else None)) is None:
                return
            await self._attempt(queued, None if between else self.side_lane.ready)

    async def _attempt(self, queued: QueuedPod, aside: deque[QueuedPod] | None = None) -> None:
        """Try a pod; one that no node takes now is put aside, if it is not to be refused."""
        try:
            if not queued.prepared and self.side_lane.takes(queued.pod):
                self.side_lane.put(queued)
            elif queued.pod.group is not None and (group := self.cluster.groups.group_to_plan(queued.pod)) is not None:
                self._singles_wait_since = min(self._singles_wait_since, self.clock())
                pause = partial(self._pause, queued.pod.priority)
                await self.group_attempts.attempt(queued, group.key, pause)
                await pause(between=True)
            elif (commitment := await self.attempts.attempt(queued, aside)) is not None:
                await self.binding_cycle.give(commitment)
        except Exception as error:  # noqa: BLE001 - it is one pod's error, never the loop's
            self.attempts.handle_crash(queued, error)

    async def _idle(self, now: float) -> None:
        """Wait until the queue changes or a backoff is over; nothing can happen between `pop` and this call."""
        self.wake_up.clear()
        upcoming = self.queue.next_time()
        with anyio.move_on_after(_LONGEST_IDLE if upcoming is None else min(max(0.0, upcoming - now), _LONGEST_IDLE)):
            await self.wake_up.wait()

"""
Events that come while a popped pod is being decided, so that none is missed when the pod is refused.

Upstream: `inFlightEvents` in `pkg/scheduler/backend/queue/active_queue.go`, for every popped pod. Here most decisions
are one synchronous step, in which no event can come. Only the search for victims takes longer, for one pod at a time.
"""

from collections.abc import Sequence

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.hints import NodeChange
from neuron_scheduler.scheduling.queue.pending_events import Group, PendingEvents, RowOf
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod


@attrs.define(eq=False)
class InFlightEvents:
    """
    Events for the one pod whose decision takes a while.

    Attributes:
        queued: the pod; None if there is none, and no event needs to be noted.
        events: what has happened since `begin`.
    """

    queued: QueuedPod | None = None
    events: PendingEvents = attrs.field(factory=PendingEvents)

    def begin(self, queued: QueuedPod) -> None:
        """Note events for this pod from now on."""
        self.queued, self.events = queued, PendingEvents()

    def end(self, queued: QueuedPod) -> None:
        """Note no more events if they were for this pod."""
        if self.queued is queued:
            self.queued, self.events = None, PendingEvents()

    def note(self, event: ClusterEvent, pods: Sequence[Pod], on: NodeChange | None, claim: str) -> None:
        """Note an event, unless it happened to the pod itself: space that was kept for it was free for it before."""
        if self.queued is None:
            return
        others = [pod for pod in pods if pod.uid != self.queued.pod.uid]
        if others or not pods:
            self.events.note(event, others, on, claim)

    def may_help(self, queued: QueuedPod, group: Group, row: RowOf) -> bool:
        """Return whether one of the events may help the pod, now that it is known what refused it."""
        wake_ups = self.events.wake_ups((group,), row) if self.queued is queued else ()
        return any(wake_up is not None and wake_up.concerns(queued.pod) for wake_up in wake_ups)

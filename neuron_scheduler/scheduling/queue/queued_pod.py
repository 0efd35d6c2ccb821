"""
One waiting pod: where it waits, its attempts so far, and which changes of it are worth another try.

Upstream: `QueuedPodInfo` in `pkg/scheduler/framework/types.go`, `PodSchedulingPropertiesChange` in
`pkg/scheduler/framework/events.go`. Refuses to know other pods.
"""

import enum

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cause import Cause


class Place(enum.StrEnum):
    """Where a pod waits; the values are the labels of `scheduler_pending_pods`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


@attrs.define(eq=False)
class QueuedPod:
    """
    A waiting pod and its history.

    Attributes:
        since: when it came, or its last attempt ended; seconds on the queue's clock, like `first_active`.
        arrival: the order in which pods came; smaller is earlier.
        first_active: when it could first have been scheduled, without gated time.
        attempts: scheduling attempts so far.
        refusals, errors: how many in a row; the backoff is computed from them. A refusal resets the errors.
        held: nothing wakes it before its release.
        missed: an event that could have helped, or a change of the pod itself, came while it was in flight or held.
        prepared: the indexes for it have just been built (`side_lane`).
        cause: what it waits for since its last attempt.
        given_up: the node whose space is not kept for it any more; its status may name it still.
    """

    pod: Pod
    since: float
    arrival: tuple[float, ...] = ()
    place: Place = Place.GATED
    first_active: float | None = None
    attempts: int = 0
    refusals: int = 0
    errors: int = 0
    held: bool = False
    missed: bool = False
    prepared: bool = False
    cause: Cause = Cause.UNTRIED
    given_up: str = ""

    @property
    def rank(self) -> tuple[int, tuple[float, ...]]:
        """Sort key: higher priority first, then the earlier arrival, however often the pod was refused."""
        return -self.pod.priority, self.arrival


def matters_for_scheduling(before: Pod, after: Pod) -> bool:
    """Return whether anything has changed apart from status and metadata that no plugin reads."""
    return before != attrs.evolve(
        after,
        resource_version=before.resource_version,
        allocation=before.allocation,
        annotations_size=before.annotations_size,
        scheduled=before.scheduled,
        nominated_node_name=before.nominated_node_name,
        observed_generation=before.observed_generation,
        started=before.started,
        preempted=before.preempted,
        admitted=before.admitted,
    )

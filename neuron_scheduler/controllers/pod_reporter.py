"""
Tell a pod's owner what became of an attempt: an Event and the PodScheduled condition, in kube-scheduler's words.

Upstream: `handleSchedulingFailure` and `bindingCycle` in `pkg/scheduler/schedule_one.go`. A thousand waiting pods
that are tried again and again would drown etcd, so an answer that differs from the last one only in numbers is an
Event at most every 30 s (the condition writer keeps the same pace); a changed reason is told at once. What a new leader
finds wrong with thousands of bound pods must not come before the Events of its own: it is told of some of them.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

import attrs

from neuron_scheduler.kube.http.rate_limit import TokenBucket
from neuron_scheduler.kube.writes.condition_writer import NUMBERS_PAUSE
from neuron_scheduler.kube.writes.pod_condition import SCHEDULER_ERROR, UNSCHEDULABLE, shape
from neuron_scheduler.model.nomination import CLEAR, KEEP, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement

OBSERVED_AT_ONCE: Final = 200
"""Events about pods that others have bound; what is beyond is told by the log and the metrics only."""
OBSERVED_PER_SECOND: Final = 2.0


class Recorder(Protocol):
    """Queues Events."""

    def record(self, pod: Pod, *, type: str, reason: str, action: str, note: str, related: Pod | None = None) -> None:  # noqa: A002 - the field's name
        """Queue one; never waits."""


class Conditions(Protocol):
    """Writes conditions."""

    def set(self, pod: Pod, *, reason: str, message: str, nomination: NominationChange = KEEP) -> None:
        """Let the pod's condition be False with this reason; never waits."""

    def clear_nomination(self, pod: Pod) -> None:
        """Let the pod's status name no node, and leave its condition as it is."""

    def forget(self, uid: str) -> None:
        """Write nothing more about a pod that is gone."""


@attrs.define(eq=False, kw_only=True)
class PodReporter:
    """
    Remembers what each waiting pod was told last, as (what it was apart from numbers, when).

    Attributes:
        speaks: whether this replica is the one that tells what all of them see.
    """

    recorder: Recorder
    conditions: Conditions
    clock: Callable[[], float]
    speaks: Callable[[], bool]
    _told: dict[str, tuple[tuple[str, tuple[str, ...]], float]] = attrs.field(factory=dict, init=False)
    _observed: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._observed = TokenBucket(self.clock, OBSERVED_PER_SECOND, OBSERVED_AT_ONCE)

    def scheduled(self, pod: Pod, node_name: str, placement: Placement | None) -> None:
        """Tell that the pod is bound, and to which ids; the API server has set the condition itself."""
        self._told.pop(pod.uid, None)
        self.recorder.record(
            pod,
            type="Normal",
            reason="Scheduled",
            action="Binding",
            note=f"Successfully assigned {pod.key} to {node_name}{_with_ids(pod, placement)}",
        )

    def unschedulable(
        self, pod: Pod, message: str, *, new_node_cannot_help: bool, nomination: NominationChange = KEEP
    ) -> None:
        """
        Tell why no node takes the pod now.

        `new_node_cannot_help` keeps autoscalers from buying nodes for it; `nomination` is what its status then says
        about the node that others leave for it.
        """
        self._refused(pod, message, SCHEDULER_ERROR if new_node_cannot_help else UNSCHEDULABLE, nomination)

    def failed(self, pod: Pod, message: str) -> None:
        """Tell that an attempt ended in an error and is repeated; what the pod was promised is void."""
        self._refused(pod, message, SCHEDULER_ERROR, CLEAR if pod.nominated_node_name else KEEP)

    def preempted(self, victim: Pod, preemptor: Pod, node_name: str) -> None:
        """Tell a pod that it has to leave for another."""
        note = f"Preempted by pod {preemptor.uid} on node {node_name}"
        self.recorder.record(
            victim, type="Normal", reason="Preempted", action="Preempting", note=note, related=preemptor
        )

    def displaced(self, pod: Pod) -> None:
        """Let the pod's status name no node any more: what it was promised is another's."""
        self.conditions.clear_nomination(pod)

    def double_booked(self, pod: Pod, rival: Pod) -> None:
        """Warn that another pod claims the same cores; every core counts as held until both are gone."""
        if self.speaks() and self._observed.take_now():
            note = f"Neuron cores of this pod are also claimed by {rival.key}; delete one of the two"
            self.recorder.record(
                pod, type="Warning", reason="NeuronConflict", action="Observing", note=note, related=rival
            )

    def allocation_unknown(self, pod: Pod, problem: str, advice: str) -> None:
        """Warn that the devices of a bound pod are unknown, and what that costs others."""
        if self.speaks() and self._observed.take_now():
            note = (
                f"The Neuron devices of this pod are unknown: {problem}. Until it ends, node {pod.node_name} gets no"
                " pod that asks for more than one device or core, but fewer than all (unless --unknown-allocations is"
                f" count-only); {advice}"
            )
            self.recorder.record(pod, type="Warning", reason="NeuronAllocationUnknown", action="Observing", note=note)

    def in_doubt(self, pod: Pod, message: str) -> None:
        """Warn that the Binding is in doubt; the condition stays as it is, because the pod may be bound."""
        self.recorder.record(pod, type="Warning", reason="FailedBinding", action="Binding", note=message)

    def withdraw(self, uid: str) -> None:
        """Drop the pod's condition if it is not written yet; the pod is about to be bound."""
        self.conditions.forget(uid)

    def forget(self, uid: str) -> None:
        """Let go of a pod that is gone."""
        self._told.pop(uid, None)
        self.conditions.forget(uid)

    def _refused(self, pod: Pod, message: str, reason: str, nomination: NominationChange) -> None:
        self.conditions.set(pod, reason=reason, message=message, nomination=nomination)
        now, answer = self.clock(), (reason, shape(message))
        told = self._told.get(pod.uid)
        if told is not None and told[0] == answer and now - told[1] < NUMBERS_PAUSE:
            return
        self._told[pod.uid] = (answer, now)
        self.recorder.record(pod, type="Warning", reason="FailedScheduling", action="Scheduling", note=message)


def _with_ids(pod: Pod, placement: Placement | None) -> str:
    """Return ` (devices 4-7)`, ` (core 5)` or ` (devices 0-3, 8)`; empty for a pod without Neuron."""
    if placement is None or pod.neuron is None:
        return ""
    return f" ({pod.neuron.unit}{'' if len(placement.ids) == 1 else 's'} {_runs(placement.ids)})"


def _runs(ids: Iterable[int]) -> str:
    """Return ascending ids with each run of neighbours as its first and last: `0-3, 8`."""
    runs: list[list[int]] = []
    for number in ids:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)

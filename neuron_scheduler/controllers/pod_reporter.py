"""
Report to a pod's owner how an attempt ended: an Event and the PodScheduled condition, in kube-scheduler's words.

Upstream: `handleSchedulingFailure` and `bindingCycle` in `pkg/scheduler/schedule_one.go`. A changed reason is reported
at once. To spare etcd, a message that differs only in numbers becomes an Event at most every 30 s, and an equal one
every five minutes.
"""

from collections.abc import Callable
from typing import ClassVar, Final

import attrs

from neuron_scheduler.cluster.changes import Change, Kinds, PodGone
from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.writes.condition_writer import NUMBERS_PAUSE, SCHEDULER_ERROR, UNSCHEDULABLE, ConditionWriter
from neuron_scheduler.kube.writes.event_recorder import EventRecorder
from neuron_scheduler.model.nomination import CLEAR, KEEP, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import shape
from neuron_scheduler.neuron.annotations import ids_in_words
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.telemetry.line_formats import printable

REPEATED_PAUSE: Final = 300.0  # seconds between Events with the same message
OBSERVED_AT_ONCE: Final = 200
"""Events about bound pods with a problem; above this rate they are only in the log and the metrics."""
OBSERVED_PER_SECOND: Final = 2.0


@attrs.define(eq=False, kw_only=True)
class PodReporter:
    """
    Reports, and remembers the last report about each waiting pod: its content without numbers, its text and its time.

    Attributes:
        may_bind: whether this replica is the leader; only the leader reports what all replicas observe.
    """

    OBSERVES: ClassVar[Kinds] = (PodGone,)

    recorder: EventRecorder
    conditions: ConditionWriter
    clock: Callable[[], float]
    may_bind: Callable[[], bool]
    _last: dict[str, tuple[tuple[str, tuple[str, ...]], str, float]] = attrs.field(factory=dict, init=False)
    _observed: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._observed = TokenBucket(self.clock, OBSERVED_PER_SECOND, OBSERVED_AT_ONCE)

    def report_scheduled(self, pod: Pod, node_name: str, placement: Placement | None) -> None:
        self._last.pop(pod.uid, None)
        self.recorder.record(
            pod,
            type="Normal",
            reason="Scheduled",
            action="Binding",
            note=f"Successfully assigned {pod.key} to {node_name}{_with_ids(pod, placement)}",
        )

    def report_allocated(self, pod: Pod, node_name: str, placement: Placement) -> None:
        """Report the ids of a pod of kube-scheduler's, which itself reports the Binding."""
        note = f"Allocated Neuron {_ids(pod, placement)} on {node_name}"
        self.recorder.record(pod, type="Normal", reason="NeuronAllocated", action="Binding", note=note)

    def report_unschedulable(
        self, pod: Pod, message: str, *, new_node_cannot_help: bool, nomination: NominationChange = KEEP
    ) -> None:
        """Report why no node takes the pod now; `new_node_cannot_help` keeps autoscalers from adding nodes for it."""
        self._report_refusal(pod, message, SCHEDULER_ERROR if new_node_cannot_help else UNSCHEDULABLE, nomination)

    def report_failure(self, pod: Pod, message: str) -> None:
        """Report that an attempt ended in an error and is repeated; the pod loses its nomination."""
        self._report_refusal(pod, message, SCHEDULER_ERROR, CLEAR if pod.nominated_node_name else KEEP)

    def report_wait(self, pod: Pod, reason: str, message: str) -> None:
        """Report, if it is news, for whom or what a pod waits before it is tried; no autoscaler is to buy for it."""
        message, last = printable(message), self.conditions.last(pod)
        if last is not None and last.message == message:
            return
        self.conditions.set(pod, reason=reason, message=message)
        if self._note_if_news(pod, reason, message):
            self.recorder.record(pod, type="Normal", reason=reason, action="Scheduling", note=message)

    def report_preemption(self, victim: Pod, preemptor: Pod, node_name: str) -> None:
        note = f"Preempted by pod {preemptor.uid} on node {node_name}"
        if victim.group is not None and victim.node_name != node_name:
            note += f": group {printable(str(victim.group.key))} needs the members that leave there"
        self.recorder.record(
            victim, type="Normal", reason="Preempted", action="Preempting", note=note, related=preemptor
        )

    def clear_nomination(self, pod: Pod) -> None:
        self.conditions.clear_nomination(pod)

    def report_double_booking(self, pod: Pod, rival: Pod) -> None:
        """
        Warn that another pod claims the same cores; each of them counts as held until both pods are gone.

        Whoever may read the Event may not be allowed to see a pod of another namespace: the log names it.
        """
        if self.may_bind() and self._observed.take_now():
            near = pod.namespace == rival.namespace
            other = rival.key if near else "a pod of another namespace"
            what = "Devices" if pod.devices else "Neuron cores"  # a claim may hold another driver's, too
            note = f"{what} of this pod are also claimed by {other}; delete one of the two"
            self.recorder.record(
                pod,
                type="Warning",
                reason="NeuronConflict",
                action="Observing",
                note=note,
                related=rival if near else None,
            )

    def report_unknown_allocation(self, pod: Pod, problem: str, advice: str) -> None:
        if self.may_bind() and self._observed.take_now():
            note = (
                f"The Neuron devices of this pod are unknown: {problem}. Until it ends, node {pod.node_name} gets no"
                f" pod that asks for more than one device or core, but fewer than all; {advice}"
            )
            self.recorder.record(pod, type="Warning", reason="NeuronAllocationUnknown", action="Observing", note=note)

    def report_held(self, pod: Pod, node_name: str, behind: Pod) -> None:
        """Say why a pod that has been decided is not bound yet: the device plugin could confuse it with another one."""
        other = f"pod {behind.key}" if behind.namespace == pod.namespace else "a pod of another namespace"
        wait = f"The Binding waits, 120 s at most, until {other} has started there"
        note = f"Node {node_name} is chosen. {wait}: the device plugin could confuse their devices"
        self.recorder.record(pod, type="Normal", reason="WaitingForAllocation", action="Binding", note=note)

    def report_doubt(self, pod: Pod, message: str) -> None:
        """Warn that the Binding is in doubt; the condition stays as it is, because the pod may be bound."""
        self.recorder.record(pod, type="Warning", reason="FailedBinding", action="Binding", note=message)

    def report_capacity(self, pod: Pod, reason: str, note: str, *, type: str = "Warning") -> None:  # noqa: A002 - the field's name
        """Report that an autoscaler is asked for a machine for the pod, or why it is not asked any more."""
        self.recorder.record(pod, type=type, reason=reason, action="Scheduling", note=note)

    def report_turn(self, pod: Pod, note: str) -> None:
        self.recorder.record(pod, type="Normal", reason="NeuronReserved", action="Scheduling", note=note)

    def withdraw(self, uid: str) -> None:
        """Drop the pod's condition if it is not written yet; the pod is about to be bound."""
        if uid in self.conditions.entries:
            self.conditions.forget(uid)

    def observe(self, change: Change) -> None:
        if isinstance(change, PodGone):
            self._last.pop(change.pod.uid, None)
            self.conditions.forget(change.pod.uid)

    def _report_refusal(self, pod: Pod, message: str, reason: str, nomination: NominationChange) -> None:
        message = printable(message)  # tenants choose names in it: of groups, topologies, volumes
        self.conditions.set(pod, reason=reason, message=message, nomination=nomination)
        if self._note_if_news(pod, reason, message):
            self.recorder.record(pod, type="Warning", reason="FailedScheduling", action="Scheduling", note=message)

    def _note_if_news(self, pod: Pod, reason: str, message: str) -> bool:
        """Note a report, and return whether it differs from the last one in more than numbers, or that is long ago."""
        now, content = self.clock(), (reason, shape(message))
        last_content, last_message, told_at = self._last.get(pod.uid, (None, "", 0.0))
        pause = REPEATED_PAUSE if message == last_message else NUMBERS_PAUSE
        if content == last_content and now - told_at < pause:
            return False
        self._last[pod.uid] = (content, message, now)
        return True


def _with_ids(pod: Pod, placement: Placement | None) -> str:
    """Return ` (devices 4-7)`; empty for a pod without Neuron."""
    return "" if placement is None or pod.neuron is None else f" ({_ids(pod, placement)})"


def _ids(pod: Pod, placement: Placement) -> str:
    """Return `devices 4-7`, `core 5` or `devices 0-3, 8`."""
    return ids_in_words(placement.ids, "" if pod.neuron is None else pod.neuron.unit)

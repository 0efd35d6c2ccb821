"""What questions are answered from: the parts of the process, its profiles, and its last decisions."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers import RecentDecision
from neuron_scheduler.explain.why import ids_text, summary_of
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue

STANDBY: Final = "This replica is on standby: it counts the space kept for waiting pods as free. Ask the active one."
BESIDE_KUBE_SCHEDULER: Final = (
    "kube-scheduler decides this pod: only what it asks neuron-scheduler about is considered here, which is Neuron"
    " devices, their nodes, and the resources of pods that are about to be bound."
)
MOST_DECISIONS: Final = 256


@attrs.define(eq=False, kw_only=True)
class DecisionRing:
    """
    The last decisions of the scheduling loop, for people who look at what happens now.

    Noting one costs a microsecond: what the loop has made already is kept as it is, and becomes an answer when somebody
    asks.

    Attributes:
        now: seconds since the epoch.
    """

    now: Callable[[], float]
    _noted: deque[tuple[float, Pod, Decision | FitError]] = attrs.field(
        factory=lambda: deque(maxlen=MOST_DECISIONS), init=False
    )

    def note(self, pod: Pod, decision: Decision | FitError) -> None:
        self._noted.append((self.now(), pod, decision))

    def latest(self) -> list[RecentDecision]:
        return [_line(*noted) for noted in reversed(self._noted)]


def _line(at: float, pod: Pod, decision: Decision | FitError) -> RecentDecision:
    if isinstance(decision, FitError):
        return RecentDecision(at, summary_of(pod), cause=decision.cause.value, message=decision.text)
    node = f"{decision.node_name}{ids_text(decision.ids, pod)}"
    message = f"{decision.feasible} of {decision.evaluated} nodes fit; it gets {node}."
    return RecentDecision(at, summary_of(pod), decision.node_name, decision.ids, message=message)


@attrs.frozen(eq=False)
class ServedProfiles:
    """
    The profiles of this process.

    Attributes:
        by_name: those of its own queue, by scheduler name; the first one also answers for other schedulers' pods.
        extender: for kube-scheduler's pods, where there is no queue.
    """

    by_name: Mapping[str, Profile]
    extender: Profile

    def of(self, scheduler_name: str) -> Profile:
        return self.by_name.get(scheduler_name) or next(iter(self.by_name.values()), self.extender)

    @property
    def first(self) -> str:
        """The scheduler name of pods that name none."""
        return next(iter(self.by_name), "")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know of every decision."""
        return () if self.by_name else (BESIDE_KUBE_SCHEDULER,)


@attrs.frozen(eq=False, kw_only=True)
class AnswerSources:
    """
    What questions are answered from.

    Attributes:
        pod_of: the last known state of a pod by its key; None if there is none.
        unserved: the pending pods with Neuron of other schedulers.
        profiles: with which pods are decided.
        decisions: those that this process has made lately.
        sync_problem: says what this process does not know yet, None if it knows all.
        leads: whether this replica is the active one.
        clock: seconds, monotonic.
        capacity_request_of: one sentence on the machine requested for a pod; empty if there is nothing to say. None if
            its profile requests none.
    """

    cluster: Cluster
    queue: SchedulingQueue
    pod_of: Callable[[str], Pod | None]
    unserved: Callable[[], Sequence[Pod]]
    profiles: ServedProfiles
    decisions: DecisionRing
    sync_problem: Callable[[], str | None]
    leads: Callable[[], bool]
    clock: Callable[[], float]
    capacity_request_of: Callable[[Pod], str | None]

    def notes(self) -> tuple[str, ...]:
        return () if self.leads() else (STANDBY,)

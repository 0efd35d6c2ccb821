"""
What would have happened with another profile: the recorded pods, nodes and ends, with decisions of our own.

A pod comes when it was first decided about, and holds its devices as long as it did then; one that did not end holds
them to the end. A refused pod is tried again after each change that may help it, by priority and then by arrival.
Preemption, backoffs and the time that a Binding takes are left out: compare two simulations, not one with what was.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from math import inf
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers.replay_report import Waits
from neuron_scheduler.explain.placing import assume
from neuron_scheduler.journal import changes
from neuron_scheduler.journal.changes import Change
from neuron_scheduler.journal.records import At, Decided, Record, Started
from neuron_scheduler.journal.replay import apply
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.plugins.registry import PLUGINS
from neuron_scheduler.scheduling.queue.signature import Signature, signature_of

_EVERY_PLUGIN: Final = frozenset(plugin.name for plugin in PLUGINS)


@attrs.frozen
class Stay:
    """
    A pod of ours, as it was recorded.

    Attributes:
        came: when it was first decided about, seconds since the epoch.
        seconds: how long it was on its node; None if its end was not recorded.
    """

    pod: Pod
    came: float
    seconds: float | None


@attrs.frozen
class Course:
    """
    What a journal says apart from its decisions.

    Attributes:
        changes: of nodes, of storage, of pods that others have placed or that were there before; with their times.
        ends: when the last record was made.
    """

    stays: tuple[Stay, ...]
    changes: tuple[tuple[float, Change], ...]
    ends: float


@attrs.define(eq=False)
class _Reading:
    """Divides the records of a journal into stays and other changes."""

    now: float = 0.0
    pods: dict[str, Decided] = attrs.field(factory=dict)  # the first decision, by uid
    on_node_since: dict[str, float] = attrs.field(factory=dict)
    left: dict[str, float] = attrs.field(factory=dict)
    others: list[tuple[float, Change]] = attrs.field(factory=list)
    files: int = 0

    def take(self, record: Record) -> None:
        match record:
            case Started(at=at):
                self.files, self.now = self.files + 1, at
            case At(at=at):
                self.now = at
            case Decided():
                self.now = max(self.now, record.at)
                self.pods.setdefault(record.pod.uid, record)
            case changes.PutPod(pod=pod) | changes.Assume(pod=pod) if pod.uid in self.pods:
                self.on_node_since.setdefault(pod.uid, self.now)
                self.left.pop(pod.uid, None)
            case changes.RemovePod(uid=uid) if uid in self.pods:
                self.left[uid] = self.now
            case changes.Assume() | changes.Nominate() | changes.ClearNomination():
                pass
            case changes.AssumeVolume() | changes.RestoreVolume():
                pass
            case _ if isinstance(record, Change):
                self.others.append((self.now, record))

    def course(self) -> Course:
        stays = []
        for uid, decided in self.pods.items():
            since, left = self.on_node_since.get(uid), self.left.get(uid)
            seconds = None if since is None or left is None else left - since
            stays.append(Stay(decided.pod, decided.at, seconds))
        return Course(tuple(sorted(stays, key=lambda stay: stay.came)), tuple(self.others), self.now)


@attrs.define(eq=False)
class _Waiting:
    """A pod without a node, and when it is to go, which is only known once it has one."""

    stay: Stay
    order: tuple[int, float, int]


@attrs.define(eq=False)
class _Simulation:
    """Plays a course; times are seconds since the epoch."""

    profiles: Mapping[str, Profile]
    cluster: Cluster = attrs.field(factory=Cluster)
    _waiting: list[_Waiting] = attrs.field(factory=list)
    _ends: list[tuple[float, int, str]] = attrs.field(factory=list)
    _number: Iterator[int] = attrs.field(factory=count)
    _waits: list[float] = attrs.field(factory=list)
    _pods: int = 0

    def play(self, course: Course) -> Waits:
        arrivals, others = list(course.stays[::-1]), list(course.changes[::-1])
        while arrivals or others or self._ends:
            end = self._ends[0][0] if self._ends else inf
            change = others[-1][0] if others else inf
            arrival = arrivals[-1].came if arrivals else inf
            now = min(end, change, arrival)
            if now > course.ends:
                break
            if now == change:
                apply(others.pop()[1], self.cluster)
                while others and others[-1][0] == now:
                    apply(others.pop()[1], self.cluster)
                self._try_waiting(now)
            elif now == end:
                self.cluster.remove_pod(heapq.heappop(self._ends)[2])
                self._try_waiting(now)
            else:
                self._arrive(arrivals.pop(), now)
        never = [course.ends - waiting.stay.came for waiting in self._waiting]
        waits = self._waits + never
        return Waits(self._pods, len(waits), len(never), sum(waits), max(waits, default=0.0))

    def _arrive(self, stay: Stay, now: float) -> None:
        self._pods += 1
        if not self._place(stay, now):
            self._waiting.append(_Waiting(stay, (-stay.pod.priority, stay.came, next(self._number))))
            self._waiting.sort(key=lambda waiting: waiting.order)

    def _try_waiting(self, now: float) -> None:
        """Try the waiting pods in order; of pods that are refused alike, only the first."""
        refused, remaining = set[Signature](), []
        for waiting in self._waiting:
            signature = signature_of(waiting.stay.pod, _EVERY_PLUGIN)
            if signature not in refused and self._place(waiting.stay, now):
                self._waits.append(now - waiting.stay.came)
                continue
            refused.add(signature)
            remaining.append(waiting)
        self._waiting = remaining

    def _place(self, stay: Stay, now: float) -> bool:
        pod = stay.pod
        result = schedule_pod(self.cluster, pod, self.profiles[pod.scheduler_name])
        if isinstance(result, FitError):
            return False
        assume(self.cluster, pod, result)
        if stay.seconds is not None:
            heapq.heappush(self._ends, (now + stay.seconds, next(self._number), pod.uid))
        return True


def simulate(course: Course, profiles: Mapping[str, Profile]) -> Waits:
    """
    Return how the pods of a course would have fared with these profiles; pods of other names are left out.

    Raises:
        ConfigurationError: a change does not fit the cluster.
    """
    stays = tuple(stay for stay in course.stays if stay.pod.scheduler_name in profiles)
    return _Simulation(profiles).play(attrs.evolve(course, stays=stays))


def course_of(records: Iterable[Record]) -> Course:
    """Return what a journal says apart from its decisions."""
    reading = _Reading()
    for record in records:
        reading.take(record)
    return reading.course()

"""
Which machines the waiting pods need beside those that the autoscaler adds by itself, and which requests they need not.

    hidden, others = what fits by count on existing nodes, and what does not      (`counting`)
    on a fork without the pods that are about to go:
        all pods where the scheduler would place them now
        machines of open requests: the pods that they were asked for
        hidden pods that have waited too long for others' machines, on what these machines have left
        machines that the autoscaler adds for the others
        hidden pods on what these machines have left
        hidden pods without a place: the needs                                     (`packing`, `whole_machine`)

Requests keep their pods from one plan to the next, so the same cluster gets the same answer, and nothing is asked for
and withdrawn in turn. Refuses to look at pods without Neuron, and to evict anything.
"""

from collections import Counter
from collections.abc import Generator, Iterable
from typing import Final

import attrs

from neuron_scheduler.capacity.counting import counted, is_seen
from neuron_scheduler.capacity.groups import Groups, grouped
from neuron_scheduler.capacity.limits import Owner, owner_of
from neuron_scheduler.capacity.lines import Line, leave
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.offers import names_a_node, offers_of
from neuron_scheduler.capacity.open_requests import OpenRequests
from neuron_scheduler.capacity.packing import Packing
from neuron_scheduler.capacity.question import Plan, Question, WaitingPod
from neuron_scheduler.capacity.shortages import Shortages
from neuron_scheduler.capacity.survey import Survey, surveyed
from neuron_scheduler.capacity.whole_machine import Scopes, Terms, has_room_by_count, machine_need
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU

MOST_EXPECTED: Final = 512
"""Machines that the autoscaler is expected to add by itself; of more it does not matter what they have left."""
PODS_A_STEP: Final = 1000
LINES_A_STEP: Final = 500
NO_TYPE: Final = "no instance type that it allows can hold it"
NAMED_NODE: Final = "it requires a node by its name, and autoscalers add no node for such a pod"
CROWDED: Final = "machines for as many other pods of its namespace as limits allow are needed first"
SHARED: Final = "it fits on a machine that the autoscaler adds for other pods"
ROOM_BY_COUNT: Final = "a node has room for a whole machine by count, so the autoscaler would add none"


def planned(question: Question) -> Generator[None, None, Plan]:
    """
    Return what the waiting pods need; equal questions get equal answers.

    A step takes a few milliseconds at most. All of it is about the cluster as it is at the first step.
    """
    base = question.cluster.fork()
    seen: list[WaitingPod] = []
    for number, waiting in enumerate(question.waiting):
        if number % PODS_A_STEP == 0:
            yield
        if _is_seen(base, waiting.pod):
            seen.append(waiting)
    if not seen:
        return Plan(serving={}, surplus=tuple(question.open), hopeless={})
    planning = yield from _prepared(question, base, seen)
    yield from planning.place_on_existing()
    yield from planning.fill_open_requests()
    yield from planning.share_with_the_overdue()
    yield from planning.expect_others_machines()
    yield from planning.share_what_is_left()
    yield from planning.ask_for_the_rest()
    plan = planning.plan()
    yield from planning.released()
    return plan


def _is_seen(cluster: Cluster, pod: Pod) -> bool:
    """Return whether a pod with Neuron waits for a place, and autoscalers see it."""
    if pod.neuron is None or not is_seen(pod):
        return False
    return cluster.nomination(pod.uid) is None and cluster.node_of(pod.uid) is None


def _prepared(question: Question, base: Cluster, seen: list[WaitingPod]) -> Generator[None, None, "_Planning"]:
    """Look at the cluster, and count what the autoscaler counts."""
    survey = yield from surveyed(base.view)
    pods = [waiting.pod for waiting in seen]
    types = [name for need in question.open.values() for name in need.instance_types]
    offers = yield from offers_of(base.view, pods, types)
    count = yield from counted(base.fork(), pods, question.profile_of, offers)
    groups = yield from grouped(question, base, seen, count)
    fork = base.fork()
    yield
    for uid in survey.terminating:
        if uid not in question.stuck:
            fork.remove_pod(uid)
        yield
    return _Planning(question, base, survey, groups, Packing(fork, offers), [waiting.pod for waiting in seen])


@attrs.define(eq=False)
class _Planning:
    """A plan on its way: each step takes the pods that it finds a place for from their lines."""

    _question: Question
    _base: Cluster
    _survey: Survey
    _groups: Groups
    _packing: Packing
    _seen: list[Pod]  # the most urgent first
    _needs: list[MachineNeed] = attrs.field(factory=list)
    _hopeless: dict[str, str] = attrs.field(factory=dict)
    _crowds: set[Owner] = attrs.field(factory=set)
    _without_place: set[str] = attrs.field(factory=set)
    _settled: Cluster = attrs.field(init=False)  # after what fits on existing nodes
    _requests: OpenRequests = attrs.field(init=False)

    def place_on_existing(self) -> Generator[None, None, None]:
        """Place the pods that the scheduler would place now, the most urgent first."""
        line_of: dict[str, Line] = {}
        for number, line in enumerate(self._groups.all):
            line_of.update(dict.fromkeys([pod.uid for pod in line.pods], line))
            if number % LINES_A_STEP == 0:
                yield
        refused: set[int] = set()
        for pod in self._seen:
            line = line_of[pod.uid]
            if id(line) in refused:
                continue
            if (yield from self._packing.place(line, pod)):
                line.pods.popleft()
            else:
                refused.add(id(line))
        self._settled = self._packing.fork.fork()
        self._requests = OpenRequests(self._packing, self._question.open)
        yield

    def fill_open_requests(self) -> Generator[None, None, None]:
        """Give the machine of each open request the pods that it was asked for."""
        yield from self._requests.fill(self._groups.hidden)

    def share_with_the_overdue(self) -> Generator[None, None, None]:
        """Place pods that no longer count on others' machines, as long as there are none."""
        yield from self._share(self._groups.overdue)

    def expect_others_machines(self) -> Generator[None, None, None]:
        """Add the machines that the autoscaler adds by itself."""
        yield from self._packing.opened(self._groups.others, most=MOST_EXPECTED)

    def share_what_is_left(self) -> Generator[None, None, None]:
        """Place hidden pods on what the new machines have left, those first for which machines may be asked for."""
        yield from self._share(self._groups.ripe, SHARED)
        yield from self._share(self._groups.unripe)
        self._requests.trust(self._groups.hidden)
        for number, line in enumerate(self._groups.hidden):
            self._without_place.update([pod.uid for pod in line.pods])
            if number % LINES_A_STEP == 0:
                yield

    def ask_for_the_rest(self) -> Generator[None, None, None]:
        """Pack the pods without a place onto machines, as long as so many are of interest."""
        shortages = Shortages(self._base)
        lines = yield from self._narrow_ones_first((yield from self._served_by_machines(shortages)))
        rank = {pod.uid: position for position, pod in enumerate(self._seen)}
        yield
        cpu = tuple(sorted({waiting.pod.requests.get(CPU, 0) for waiting in self._question.waiting}))
        terms = Terms(names=self._survey.names(self._seen), cpu=cpu, rank=rank, shortage=shortages.clauses)
        scopes = Scopes(self._packing)
        while lines and len(self._needs) < self._question.most_needs:
            machines, unserved = yield from self._packing.opened(lines, scopes.joins, most=1)
            for line in unserved:
                self._give_up(line.pods, NO_TYPE)
            lines = [line for line in lines if line.pods and line not in unserved]
            for packed in machines:
                yield from self._keep((yield from machine_need(self._packing, packed, terms)))
                lines = yield from self._without_crowds(lines)
        self._needs.sort(key=lambda need: rank[need.pods[0].uid])

    def plan(self) -> Plan:
        """Return what was found."""
        serving = self._requests.serving()
        surplus = tuple(name for name in self._question.open if name not in serving)
        return Plan(
            needs=tuple(self._needs),
            serving=serving,
            surplus=surplus,
            hopeless=self._hopeless,
            without_place=frozenset(self._without_place),
            leaving=self._survey.terminating,
        )

    def released(self) -> Generator[None, None, None]:
        """Let go of the lines in pieces: to free thousands of them takes longer than a step may."""
        lines = self._groups.all
        self._groups.clear()
        while lines:
            del lines[-LINES_A_STEP:]
            yield

    def _share(self, lines: Iterable[Line], reason: str = "") -> Generator[None, None, None]:
        """Place pods on machines that are to come; `reason` is why none is asked for those on others' machines."""
        for line in lines:
            while line.pods and (node_name := (yield from self._packing.place(line, line.pods[0]))):
                pod = line.pods.popleft()
                if not self._requests.note(node_name, pod) and reason:
                    self._hopeless[pod.uid] = reason

    def _served_by_machines(self, shortages: Shortages) -> Generator[None, None, list[Line]]:
        """Return the lines whose pods may be asked for; of the others it is said why not."""
        lines: dict[int, Line] = {}
        for number, line in enumerate([*self._groups.overdue, *self._groups.ripe]):
            if line.pods:
                named = names_a_node(line.pods[0].constraints)
                objection = NAMED_NODE if named else (yield from shortages.objection(line))
                if not objection:
                    lines[number] = line
                self._give_up(line.pods if objection else (), objection)
        return [*lines.values()]

    def _narrow_ones_first(self, lines: list[Line]) -> Generator[None, None, list[Line]]:
        """
        Return the lines with those first that few machines take; the order of lines that as many take stays.

        Pods that may be in any zone fill the machines of those that may not. The other way round they would have
        machines of their own, beside those that are needed in any case.
        """
        taking: dict[int, int] = {}
        for line in lines:
            taking[id(line)] = len((yield from self._packing.taking(line, line.pods[0])))
        return sorted(lines, key=lambda line: taking[id(line)])

    def _without_crowds(self, lines: list[Line]) -> Generator[None, None, list[Line]]:
        """Return the lines without the pods of a namespace for which enough machines are needed already."""
        counts = Counter(owner_of(need) for need in self._needs)
        crowds = {
            owner_of(need) for need in self._needs if counts[owner_of(need)] >= self._question.most_of(need.pods[0])
        }
        for line in lines if crowds - self._crowds else ():
            crowded = [pod for pod in line.pods if Owner(pod.scheduler_name, pod.namespace) in crowds]
            self._give_up(crowded, CROWDED)
            leave((line,), [pod.uid for pod in crowded])
            yield
        self._crowds = crowds
        return [line for line in lines if line.pods]

    def _keep(self, need: MachineNeed) -> Generator[None, None, None]:
        """Keep a need, unless an existing node would make the autoscaler add nothing."""
        profile = self._question.profile_of(need.pattern)
        empty_by_count = has_room_by_count(self._base, need, profile)
        yield
        if empty_by_count & has_room_by_count(self._settled, need, profile):
            self._give_up(need.pods, ROOM_BY_COUNT)
        else:
            self._needs.append(need)
        yield

    def _give_up(self, pods: Iterable[Pod], reason: str) -> None:
        for pod in pods:
            self._hopeless[pod.uid] = reason

"""
Gives turns: who gets one, for how long, and what is said of it.

A request of whole machines, of one pod or of a group with a topology, that has waited longer than its profile's bound
gets one, the first in the queue's order, one at a time for each kind of request. A turn ends with its pods, when they
are placed, when a pod of higher priority takes the space or the node cannot keep it (both drop the nomination), when
its nodes are free and its pods do not go there, and after two hours in which no holder left. Nothing is stored: a new
leader gives the same turns again.
"""

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Any, Final

import anyio
import anyio.abc
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.commitment import note_freed
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import PodGroup
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.trial import ChangedError
from neuron_scheduler.scheduling.groups.gang import gang_of
from neuron_scheduler.scheduling.groups.regions import fixed_domains
from neuron_scheduler.scheduling.groups.turn import Nodes, are_as_chosen, nodes_that_drain_first
from neuron_scheduler.scheduling.preemption.nominations import had_turn, turn_text
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import run_in_turns
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

LOOK_AT_TURNS: Final = 60.0
"""Seconds between two looks at who waits."""
WITHOUT_PROGRESS: Final = 7200.0
"""Seconds without a holder that leaves after which a turn ends."""
_MOST_TRIED: Final = 4
"""Requests of one kind that are looked at each time: the first may ask for nodes that they cannot get."""
_PODS_A_STEP: Final = 256

log = logs.logger(__name__)
_Kind = tuple[Hashable, int, str]


@attrs.frozen
class Applicant:
    """A pod by its uid, or a group by its key: the pods that need a node each, in a domain if the topology has one."""

    key: Hashable
    pods: tuple[Pod, ...]
    topology: str = ""
    domain: str = ""


@attrs.define(eq=False)
class _GivenTurn:
    """A turn; `left` holders were there at the last look, and one had left at `progressed`."""

    applicant: Applicant
    nodes: Nodes
    left: int
    progressed: float


@attrs.define(eq=False, kw_only=True)
class Turns:
    """
    Gives turns while it runs.

    Attributes:
        bounds: seconds, by scheduler name; 0: its pods get no turns.
        report: tells the owner of a pod that it has a turn now.
    """

    cluster: Cluster
    queue: SchedulingQueue
    profiles: Mapping[str, Profile]
    bounds: Mapping[str, float]
    warmup: IndexWarmup
    pod_list: PodList
    report: Callable[[Pod, str], None]
    clock: Callable[[], float]
    errors: UnexpectedErrors
    _given: dict[_Kind, _GivenTurn] = attrs.field(factory=dict, init=False)
    _in_vain: dict[Hashable, float] = attrs.field(factory=dict, init=False)  # when a turn ended without progress
    _tried: dict[_Kind, int] = attrs.field(factory=dict, init=False)  # how many of a kind were looked at in vain

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Keep first what the last leader kept, before any pod is tried."""
        await self._look()
        task_status.started()
        while True:
            await anyio.sleep(LOOK_AT_TURNS)
            await self._look()

    async def _look(self) -> None:
        if self.pod_list.is_open:
            return  # nodes may look fuller than they are
        with self.errors.contain(task="turns", pod=""):  # pods are scheduled all the same
            await run_in_turns(self.review(), self.clock)

    def review(self) -> Generator[None, None, None]:
        """End the turns whose reason has ended, and give those that are due."""
        for kind, given in [*self._given.items()]:
            in_flight = any(self._place_of(pod) is Place.IN_FLIGHT for pod in given.applicant.pods)
            if not (in_flight or self._goes_on(given)):
                self._end(kind)
        applicants = yield from self._applicants()
        tried, self._tried = self._tried, {}
        for kind in applicants.keys() - self._given.keys():
            of_kind = applicants[kind]
            first = tried.get(kind, 0) % len(of_kind)
            for applicant in of_kind[first : first + _MOST_TRIED]:
                if (yield from self._give(applicant)):
                    break
            else:
                self._tried[kind] = min(first + _MOST_TRIED, len(of_kind))

    def _applicants(self) -> Generator[None, None, Mapping[_Kind, Sequence[Applicant]]]:
        """Return who may have a turn by kind, the most urgent first; those first whose conditions say that they do."""
        ranked, keys, by_kind = list[tuple[Any, Applicant]](), set[Hashable](), dict[_Kind, list[Applicant]]()
        for number, queued in enumerate(self.queue.pods(), start=1):
            group = self.cluster.groups.group_of(queued.pod)
            key = queued.pod.uid if group is None else group.key
            if queued.pod.neuron is not None and key not in keys and self._has_waited(queued, key):
                keys.add(key)
                applicant = Applicant(key, (queued.pod,)) if group is None else self._group_applicant(group)
                if applicant is not None and all(map(self._may_wait, applicant.pods)):
                    ranked.append(((not had_turn(queued.pod), *queued.rank), applicant))
            if number % _PODS_A_STEP == 0:
                yield
        for _, applicant in sorted(ranked, key=lambda entry: entry[0]):
            by_kind.setdefault(_kind_of(applicant), []).append(applicant)
        return by_kind

    def _has_waited(self, queued: QueuedPod, key: Hashable) -> bool:
        bound, now = self.bounds.get(queued.pod.scheduler_name, 0.0), self.clock()
        if not bound or queued.first_active is None or now - self._in_vain.get(key, -bound) < bound:
            return False
        return had_turn(queued.pod) or now - queued.first_active >= bound

    def _group_applicant(self, group: PodGroup) -> Applicant | None:
        """Return what a group needs in one domain; None if it may go anywhere, or if its members differ."""
        if not group.topology or self.queue.groups.is_held(group.key):
            return None
        try:
            gang = gang_of(self.cluster, [queued.pod for queued in self.queue.groups.waiting_members(group.key)])
        except ChangedError:
            return None
        inside = [pod for pod in gang.waiting if pod.neuron is not None and pod.uid not in gang.unconstrained]
        pods = sorted(inside, key=lambda pod: pod.rank)[: gang.missing_count]
        domain = fixed_domains(self.cluster, gang).get(group.topology)
        is_said = group.least or group.expected  # else nobody knows whether more will come
        if domain == "" or (gang.still_to_come and is_said) or len({(pod.neuron, pod.priority) for pod in pods}) != 1:
            return None
        return Applicant(group.key, tuple(pods), group.topology, domain or "")

    def _may_wait(self, pod: Pod) -> bool:
        """Return whether a pod is at rest in the queue, and no space is nominated for it by eviction."""
        queued, is_placed = self.queue.get(pod.uid), self.cluster.node_of(pod.uid) is not None
        if queued is None or queued.is_preempting or is_placed or self._place_of(pod) in (Place.GATED, Place.IN_FLIGHT):
            return False
        return not pod.nominated_node_name and not self.cluster.is_nominated(pod.uid)

    def _place_of(self, pod: Pod) -> Place | None:
        queued = self.queue.get(pod.uid)
        return None if queued is None else queued.place

    def _goes_on(self, given: _GivenTurn) -> bool:
        """Return whether all nodes are kept still, and holders leave."""
        now = self.clock()
        if not all(self.cluster.has_turn(pod.uid) for pod in given.applicant.pods):
            return False
        left = self._holders_left(given.nodes)
        is_useless = left == given.left == 0  # free for a look long, and something else keeps its pods from there
        if left < given.left:
            given.left, given.progressed = left, now
        if not is_useless and now - given.progressed < WITHOUT_PROGRESS:
            return True
        recent = {key: at for key, at in self._in_vain.items() if now - at < max(self.bounds.values())}
        self._in_vain = recent | {given.applicant.key: now}
        return False

    def _holders_left(self, nodes: Nodes) -> int:
        return sum(self.cluster.node_of(uid) == name for name, kept in nodes for uid in kept.victims)

    def _give(self, applicant: Applicant) -> Generator[None, None, bool]:
        """Keep the nodes that drain first; return whether there are any."""
        pods, topology, domain = applicant.pods, applicant.topology, applicant.domain
        profile, first = self.profiles[pods[0].scheduler_name], pods[0]
        yield from self.warmup.prepare_refusal(self.cluster, first, profile)
        had_it = had_turn(first)
        nodes = yield from nodes_that_drain_first(
            self.cluster, pods, profile, topology=topology, domain=domain, had_it=had_it
        )
        # Nothing awaits from here on.
        if not nodes or not all(map(self._may_wait, pods)) or not are_as_chosen(self.cluster, nodes):
            return False
        for name, nomination in nodes:
            self.cluster.nominate(name, nomination)
        self._given[_kind_of(applicant)] = _GivenTurn(applicant, nodes, self._holders_left(nodes), self.clock())
        log.info("Nodes are kept for a pod as they come free", pod=first.key, nodes=len(nodes))
        if not had_it:
            self.report(first, turn_text(self.cluster, first))
        self.queue.activate(first.uid, self.clock())  # its condition is to say so
        return True

    def _end(self, kind: _Kind) -> None:
        for pod in self._given.pop(kind).applicant.pods:
            if self.cluster.has_turn(pod.uid):
                note_freed(self.cluster, self.queue, pod, self.cluster.clear_nomination(pod.uid) or "")
            self.queue.activate(pod.uid, self.clock())  # its condition is to say so no more


def _kind_of(applicant: Applicant) -> _Kind:
    """Return what turns of one kind have in common."""
    neuron = applicant.pods[0].neuron
    return neuron and (neuron.unit, neuron.total), len(applicant.pods), applicant.topology

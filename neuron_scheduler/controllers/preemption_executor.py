"""
Carries preemption out: search, nominate, and evict the victims, while other pods are decided.

    FitError --search--> Preemption --confirmed--> nominate --> evict (PATCH of the reason, DELETE) --> release
                  or --> NoPreemption: the text that is appended to the refusal

Nothing awaits between confirmation and nomination, so no pod is evicted for an outdated state of the cluster. Giving up
a nomination ends its evictions, too. The queue holds the pod until the evictions of all victims have been requested
(upstream's asynchronous preemption, `framework/preemption/executor.go`).
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

import anyio
import anyio.abc
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.changes import Change, Kinds, NodeChanged, NodeGone, PodGone, SpaceChanged
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers.allocate_fence import AllocateFence
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.kube.writes.evictor import Eviction, Evictor
from neuron_scheduler.kube.writes.work_queue import DelayingQueue
from neuron_scheduler.model.nomination import CLEAR, KEEP, Nominate, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.model.wording import count_text, few
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.cycle.trial import ChangedError
from neuron_scheduler.scheduling.groups.gang import Gang
from neuron_scheduler.scheduling.groups.preemption import GroupPreemption, search_for_group
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance
from neuron_scheduler.scheduling.preemption.nominations import (
    confirm,
    is_still_possible,
    lost_nominations,
    rebuild,
)
from neuron_scheduler.scheduling.preemption.search import NoPreemption, Preemption, search
from neuron_scheduler.scheduling.preemption.units import Units
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import Pause, run, run_in_turns
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

WORKERS: Final = 24  # evictions at once; `kube.http.pools` has the connections for them
SHARE: Final = 18  # of them, for the victims in one namespace
LASTING: Final = 300.0
"""Seconds for which nobody tries to evict a pod again that the API server has refused to delete."""
_LOOK: Final = 0.1
"""Seconds between two looks whether such a pod has left."""

_PAUSE: Final = 1.0
"""Seconds before the rest of a group is asked to leave again."""

_ROWS_A_STEP: Final = 256
REFUSED: Final = "The API server lately refused to delete {} of lower priority."

log = logs.logger(__name__)


@attrs.frozen
class PostFilter:
    """
    What became of a pod that fits nowhere.

    Attributes:
        text: why no pod is evicted; empty if some are.
        nomination: what its status is to say about its nominated node.
        held: its victims are being evicted.
        plugins: those whose answer has to change; empty for those that refused it.
        alone: this is not true of pods that are like it, because its status names a node.
    """

    text: str = ""
    nomination: NominationChange = KEEP
    held: bool = False
    plugins: frozenset[str] = frozenset()
    alone: bool = False


@attrs.define(eq=False)
class _Round:
    """
    The evictions for a pod, or for members of a group that get room together; `left` victims have no outcome yet.

    Attributes:
        places: the names of the nodes that were nominated for them, by uid.
        preemptors: which of them gets a victim's space, by the victim's uid. Other pods leave because they cannot run
            without a victim, on whatever node.
        spared: a victim stays that was to leave, because its space is not needed any more.
        broken: the groups that lose too many and of which a member has left: they go whole, whoever needs the space.
        followers: places of the rounds that take members of the same groups, and leave the others to this one.
        looked_at: `Cluster.ended_nominations` when all members were last known to hold their places.
    """

    places: Mapping[str, str]
    preemptors: Mapping[str, Pod]
    left: int
    evicted: int = 0
    failed: bool = False
    spared: bool = False
    broken: set[GroupKey] = attrs.field(factory=set)
    followers: list[Mapping[str, str]] = attrs.field(factory=list)
    looked_at: int = -1


@attrs.frozen(eq=False)
class _Victim:
    """A victim, and the pod that gets its space."""

    round: _Round
    preemptor: Pod
    eviction: Eviction

    @property
    def pod(self) -> Pod:
        return self.eviction.victim


@attrs.define(eq=False, kw_only=True)
class PreemptionExecutor:
    """
    Preempts for pods while it runs; a few workers evict the victims of all of them.

    Whether a victim has to leave is asked again before each request: the pod may not wait for its space any more. No
    further victim leaves for a pod whose victims cannot all be evicted (upstream cancels the rest, too).
    """

    OBSERVES: ClassVar[Kinds] = (SpaceChanged, NodeChanged, NodeGone, PodGone)

    cluster: Cluster
    queue: SchedulingQueue
    evictor: Evictor
    reporter: PodReporter
    metrics: Metrics
    pod_list: PodList
    fence: AllocateFence
    clock: Callable[[], float]
    errors: UnexpectedErrors
    _rounds: anyio.abc.TaskGroup = attrs.field(init=False)  # while it runs
    _victims: DelayingQueue[_Victim] = attrs.field(init=False)
    _breaking: dict[GroupKey, _Round] = attrs.field(factory=dict, init=False)  # who evicts the rest of a group
    _half_gone: set[GroupKey] = attrs.field(factory=set, init=False)  # of which members have left, and others have not
    _refused: dict[str, float] = attrs.field(factory=dict, init=False)  # until when nobody tries again, by uid
    _stopped: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._victims = DelayingQueue(clock=self.clock, share=SHARE)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with anyio.create_task_group() as self._rounds:
            for _ in range(WORKERS):
                self._rounds.start_soon(self._victims.serve, self._evict)
            task_status.started()
            await self._stopped.wait()
            self._victims.close()

    def stop(self) -> None:
        self._stopped.set()

    def observe(self, change: Change) -> None:
        match change:
            case SpaceChanged(node_name):
                self.recheck(node_name)
            case NodeChanged(lost=lost) | NodeGone(lost=lost):
                for pod in lost:
                    self.handle_lost_nomination(pod)
            case PodGone(pod):
                self._refused.pop(pod.uid, None)

    async def adopt_all(self, profiles: Mapping[str, Profile]) -> None:
        """Restore what the last leader has nominated, before any pod is tried that would take the space."""
        await run_in_turns(self.adopt_each(self.queue.pods(), profiles), self.clock)
        await self._adopt_half_gone()

    async def _adopt_half_gone(self) -> None:
        """Go on with groups that cannot run without members that the last leader has evicted, for whatever pod."""
        ending = defaultdict[GroupKey, list[Pod]](list)
        for number, row in enumerate([*self.cluster.view.rows()]):
            for pod in (pod_info.pod for pod_info in row.pod_infos.values()):
                if pod.group is not None and pod.terminating and pod.preempted:
                    ending[pod.group.key].append(pod)
            if number % _ROWS_A_STEP == 0:
                await anyio.lowlevel.checkpoint()
        for key, pods in ending.items():
            if key not in self._breaking and Units(self.cluster).lost_by(pods):
                self._half_gone.add(key)
                self._hold(key, is_ending=True)
                asked = _Round({}, {pods[0].uid: pods[0]}, left=0, broken={key})
                self._rounds.start_soon(self._end_groups, asked)

    def adopt_each(self, waiting: Iterable[QueuedPod], profiles: Mapping[str, Profile]) -> Generator[None, None, None]:
        """Adopt what is nominated for each pod; yields when other tasks may run."""
        warmup = IndexWarmup()
        for queued in sorted(waiting, key=lambda queued: queued.rank):
            pod, profile = queued.pod, profiles[queued.pod.scheduler_name]
            if pod.nominated_node_name and self.queue.holds(queued):
                with self.errors.contain(task="preemption", pod=pod.key):
                    if self.cluster.nomination(pod.uid) is None:
                        yield from warmup.prepare(self.cluster, pod, profile)
                    if self.queue.holds(queued):
                        self.adopt(queued, profile)
                yield

    def adopt(self, queued: QueuedPod, profile: Profile) -> None:
        """Restore a nomination that only the pod's status shows, such as after a restart, if the pod fits there."""
        pod = queued.pod
        if self.cluster.nomination(pod.uid) is not None or pod.nominated_node_name == queued.given_up:
            return  # pods have been evicted for it, or its status is not written yet
        nomination = rebuild(self.cluster, pod, profile)
        if nomination is not None:
            self.cluster.nominate(pod.nominated_node_name, nomination)
            run(self._evict_for({pod.uid: pod.nominated_node_name}))  # of their groups some may be left

    def recheck(self, node_name: str) -> None:
        """Drop the nominations that a node cannot keep any more, because it or one of its pods has changed."""
        node_info = self.cluster.node(node_name)
        if node_info is None or not node_info.nominations or self.pod_list.put_off(SpaceChanged(node_name)):
            return
        lost = lost_nominations(node_info, self._queued_pod)
        for pod in lost:
            self.handle_lost_nomination(pod)
        if lost:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, *lost)  # other pods may fit into a part of the space

    def handle_lost_nomination(self, pod: Pod) -> None:
        """Try a pod again that has lost its nomination, to another pod or with the node."""
        node_name = self.cluster.clear_nomination(pod.uid) or ""
        queued = self.queue.get(pod.uid)
        if queued is None:
            return  # kube-scheduler tries it again
        queued.given_up = node_name
        log.info("Pod has lost its nominated node; trying it again", v=2, pod=pod.key, node=node_name)
        self.reporter.clear_nomination(pod)
        self.queue.activate(pod.uid, self.clock())

    async def post_filter(self, queued: QueuedPod, refused: FitError, profile: Profile) -> PostFilter:
        """Search for victims and begin to evict them; returns before they have ended."""
        self.metrics.count_preemption_attempt()
        self.queue.keep_events(queued)
        self._expire_refusals()
        steps = search(self.cluster, _without_given_up_nomination(queued), profile, refused=refused)
        result = await run_in_turns(steps, self.clock)
        pod = queued.pod  # it may ask for more than when the search began
        if isinstance(result, Preemption):
            nomination = confirm(self.cluster, pod, profile, result) if self.queue.holds(queued) else None
            if nomination is not None:
                queued.given_up = ""
                self._nominate(result.node_name, nomination)
                is_held = run(self._evict_for({pod.uid: result.node_name}))
                return PostFilter(nomination=Nominate(result.node_name), held=is_held)
            queued.missed = True  # the result is outdated: search again after the backoff
            return PostFilter()
        gives_up = result.gives_up and not self.cluster.has_turn(pod.uid)
        change = self._drop_nomination(queued) if gives_up else KEEP
        alone = _without_given_up_nomination(queued).nominated_node_name != ""
        return PostFilter(self._text_of(result, pod), nomination=change, plugins=result.plugins, alone=alone)

    def _expire_refusals(self) -> None:
        for uid in [uid for uid, until in self._refused.items() if until <= self.clock()]:
            self.cluster.set_evictable(uid, is_evictable=True)

    def _text_of(self, result: NoPreemption, pod: Pod) -> str:
        """Return why no pod is evicted, with the number of pods that the API server has refused to delete lately."""
        kept = [pod_info for pod_info in map(self.cluster.pod_info, self._refused) if pod_info is not None]
        count = sum(pod_info.pod.priority < pod.priority and not pod_info.is_evictable for pod_info in kept)
        return f"{result.text} {REFUSED.format(count_text(count, 'pod'))}" if count and result.gives_up else result.text

    def _queued_pod(self, uid: str) -> Pod | None:
        queued = self.queue.get(uid)
        return None if queued is None else queued.pod

    async def post_filter_group(
        self, members: Sequence[QueuedPod], gang: Gang, profile: Profile, pause: Pause, *, is_second: bool = False
    ) -> Mapping[str, PostFilter]:
        """
        As `post_filter`, for the missing members of a group: all get a place, or nobody is evicted.

        Single pods are decided in its pauses, and may take what the search has found; they wait for a second one then.
        Returns what became of each member, by uid; only of those that have a place, if there are any.

        Raises:
            ChangedError: a member or node has changed meanwhile, or room has come.
        """
        self.metrics.count_preemption_attempt()
        self._expire_refusals()
        steps = search_for_group(self.cluster, gang, profile)
        result = await run_in_turns(steps, self.clock, pause)
        if isinstance(result, NoPreemption):
            after = PostFilter(self._text_of(result, members[0].pod))
            return dict.fromkeys((member.pod.uid for member in members), after)
        places = {uid: name for uid, (name, _) in result.places.items()}
        if not result.victims.pods:  # they fit: the plan takes them in another order, or space is kept elsewhere
            in_vain = all((self.cluster.nomination(uid) or ("",))[0] == name for uid, name in places.items())
            for member in members:
                self._drop_nomination(member)
            if in_vain:
                return {}
        is_nominated = await run_in_turns(self._nominate_all(members, result), self.clock)
        if not is_nominated and result.victims.pods and not is_second:
            return await self.post_filter_group(members, gang, profile, anyio.lowlevel.checkpoint, is_second=True)
        if not is_nominated or not result.victims.pods:
            raise ChangedError
        is_held = await run_in_turns(self._evict_for(places), self.clock)
        for member in members:  # before the first outcome, which may come while they are put back
            member.is_preempting = is_held and member.pod.uid in places
        return {uid: PostFilter(nomination=Nominate(name), held=is_held) for uid, name in places.items()}

    def _nominate_all(self, members: Sequence[QueuedPod], found: GroupPreemption) -> Generator[None, None, bool]:
        """Nominate a node for each member that has a place; return whether all hold it, else none does."""
        waiting = {member.pod.uid: member for member in members}
        for uid, member in waiting.items():
            if self.cluster.clear_nomination(uid) is not None:  # perhaps where another has its place now
                self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, member.pod)
            yield
        for uid, (name, nomination) in found.places.items():
            node_info = self.cluster.node(name)
            if node_info is None or not (self.queue.holds(waiting[uid]) and is_still_possible(node_info, nomination)):
                break
            waiting[uid].given_up = ""
            self._nominate(name, nomination)
            yield
        else:
            for name in dict.fromkeys(name for name, _ in found.places.values()):
                self.recheck(name)  # kube-scheduler may have nominated a pod there meanwhile
                yield
            if self.cluster.nominees_among(waiting.keys()) == found.places.keys() and not self._is_held(members[0].pod):
                return True
        for uid, (_, nomination) in found.places.items():
            if self.cluster.clear_nomination(uid) is not None:
                self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, nomination.pod)
            yield
        return False

    def _is_held(self, pod: Pod) -> bool:
        """Return whether a pod's group has too few members."""
        return pod.group is not None and self.queue.groups.is_held(pod.group.key)

    def _nominate(self, node_name: str, nomination: Nomination) -> None:
        """Nominate a node; pods of lower priority lose the space that is nominated for them there."""
        pod = nomination.pod
        node_info = self.cluster.node(node_name)
        nominations = node_info.nominations if node_info is not None else ()
        losers = [nomination.pod for nomination in nominations if nomination.pod.priority < pod.priority]
        for loser in losers:
            self.handle_lost_nomination(loser)
        if self.cluster.clear_nomination(pod.uid) is not None or losers:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, *losers)  # other pods may fit into their space
        self.cluster.nominate(node_name, nomination)

    def _evict_for(self, places: Mapping[str, str]) -> Generator[None, None, bool]:
        """Start the evictions for pods that are nominated; return whether there are any."""
        preemptors = dict[str, Pod]()  # by the uid of the victim
        for uid in places:
            _, nomination = self.cluster.nomination(uid) or ("", None)
            if nomination is not None:
                for victim in sorted(nomination.victims):
                    preemptors.setdefault(victim, nomination.pod)
            yield
        pod_infos = [self.cluster.pod_info(uid) for uid in preemptors]
        leaving = [pod_info.pod for pod_info in pod_infos if pod_info is not None]
        yield
        lost = [unit.key for unit in Units(self.cluster).lost_by(leaving)]
        members = [self.cluster.placed_groups.of(key).pods for key in lost if key not in self._breaking]
        others = [pod for pods in members for uid, pod in pods.items() if uid not in preemptors]
        victims = [*(pod for pod in leaving if not pod.terminating), *others]
        if preemptors:
            log.info(
                "Preempting pods for a pod of higher priority",
                v=2,
                pod=next(iter(preemptors.values())).key,
                node=few(sorted({*places.values()})),
                numVictims=len(preemptors) + len(others),
                numVictimsToDelete=len(victims),
            )
        if not victims:
            return False
        for budget in DisruptionAllowance(self.cluster.budgets).spent_on(victims):
            self.cluster.budgets.spend(budget)  # for the next search, until the disruption controller has counted them
        asked = _Round(places, preemptors, left=len(victims))
        for key in lost:
            if self._breaking.setdefault(key, asked) is not asked:
                self._breaking[key].followers.append(places)
            self._hold(key, is_ending=True)
        self._rounds.start_soon(self._evict_all, asked, victims)
        return True

    def _drop_nomination(self, queued: QueuedPod) -> NominationChange:
        """Drop the pod's nomination, because no eviction can make it fit anywhere; return what to write."""
        pod = queued.pod
        node_name = self.cluster.clear_nomination(pod.uid)
        queued.given_up = node_name or pod.nominated_node_name  # the status may not name it yet
        if node_name is not None:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod)
            return CLEAR
        return CLEAR if pod.nominated_node_name else KEEP

    async def _evict_all(self, asked: _Round, victims: Sequence[Pod]) -> None:
        """
        Evict all victims, as soon as there are workers; a task, so that pods are held before they are released.

        Those that were refused before are asked alone: the others would leave in vain if they still are.
        """
        first = [pod for pod in victims if pod.uid in self._refused]
        others = (pod for pod in victims if pod.uid not in self._refused)
        preemptor_of_others = next(iter(asked.preemptors.values()))
        for number, pod in enumerate([*first, *others]):
            while asked.left > len(victims) - len(first) and number >= len(first):
                if self._stopped.is_set():
                    return
                await anyio.sleep(_LOOK)
            preemptor = asked.preemptors.get(pod.uid, preemptor_of_others)
            is_needed = partial(self._is_needed, asked, preemptor, pod)
            victim = _Victim(asked, preemptor, Eviction(pod, preemptor.scheduler_name, is_needed))
            if not is_needed():
                await self._spare(victim)
                continue
            try:
                # A pod that is not on its node yet need not be deleted (upstream: `WaitingPod.Preempt`).
                if self.fence.give_up(pod.uid):
                    victim.eviction.evicted = True
            except Exception as error:  # noqa: BLE001 - it is one victim's error
                self._report_crash(victim, error)
            if victim.eviction.evicted is None:
                self._victims.add(victim, pod.namespace, self.clock())
            else:
                await self._finish(victim)
            if len(asked.places) > 1 or pod.uid not in asked.preemptors:
                await anyio.lowlevel.checkpoint()  # a group may have thousands of victims, or be one

    def _hold(self, key: GroupKey, *, is_ending: bool) -> None:
        """Hold the members of a group that wait while the others leave, or end that."""
        ending = self.queue.groups.ending
        (ending.add if is_ending else ending.discard)(key)
        self.queue.group_changed(key, self.clock())

    async def _end_groups(self, asked: _Round) -> None:
        """Evict, after a pause, what is left of groups that cannot run without those that have left in a round."""
        members = [pod for key in asked.broken for pod in self.cluster.placed_groups.of(key).pods.values()]
        found = [self.cluster.pod_info(pod.uid) for pod in members if not self._is_leaving(pod)]
        left = [pod_info.pod for pod_info in found if pod_info is not None and pod_info.is_evictable]
        if not left:
            self._half_gone -= asked.broken
            for key in asked.broken:
                self._hold(key, is_ending=False)
            return
        with anyio.move_on_after(_PAUSE):
            await self._stopped.wait()
            return
        preemptor = next(iter(asked.preemptors.values()))
        again = _Round({}, dict.fromkeys((pod.uid for pod in left), preemptor), len(left), broken={*asked.broken})
        await self._evict_all(again, left)

    async def _evict(self, victim: _Victim) -> None:
        if not victim.eviction.is_needed():
            await self._spare(victim)
            return
        pause = 0.0
        try:
            pause = await self.evictor.proceed(victim.eviction)
        except Exception as error:  # noqa: BLE001 - it is one victim's error
            self._report_crash(victim, error)
        if victim.eviction.evicted is None:
            self._victims.add(victim, victim.pod.namespace, self.clock() + pause)
        elif victim.eviction.needless:
            await self._spare(victim)
        else:
            await self._finish(victim)

    def _is_needed(self, asked: _Round, preemptor: Pod, victim: Pod) -> bool:
        """
        Return whether a victim has to leave: its space is kept for the preempting pod, and it is still there.

        Of a group that gets room together, all others must have their places, too.
        """
        if self._is_leaving(victim):
            return False
        if victim.group is not None and victim.group.key in asked.broken:
            return True
        if asked.failed:
            return False
        node_name, nomination = self.cluster.nomination(preemptor.uid) or ("", None)
        is_there = node_name == asked.places[preemptor.uid] and not self._is_held(preemptor)
        if nomination is None or nomination.awaited or not is_there:
            return False
        if asked.looked_at != self.cluster.ended_nominations:  # else none can have lost its place
            if self.cluster.nominees_among(asked.places.keys()) != asked.places.keys():
                return False
            asked.looked_at = self.cluster.ended_nominations
        return victim.uid not in asked.preemptors or victim.uid in nomination.victims

    def _is_leaving(self, victim: Pod) -> bool:
        """Return whether a victim leaves its node, or has left it, whoever asked for that."""
        pod_info = self.cluster.pod_info(victim.uid)
        return pod_info is None or pod_info.pod.terminating or pod_info.pod.node_name != victim.node_name

    async def _spare(self, victim: _Victim) -> None:
        """Leave a victim alone that need not be evicted; a DELETE without an answer may still evict it."""
        is_leaving = self._is_leaving(victim.pod)
        if victim.eviction.in_doubt and is_leaving:
            self._report(victim)
        if not is_leaving:
            self.cluster.budgets.take_back(victim.pod)
        victim.round.spared |= not is_leaving
        await self._count_down(victim.round)

    def _report_crash(self, victim: _Victim, error: Exception) -> None:
        victim.eviction.evicted = False
        self.errors.report(error, task="preemption", pod=victim.pod.key)

    async def _finish(self, victim: _Victim) -> None:
        """Report an eviction, or note its failure; a pod that had gone by itself is not reported."""
        if victim.eviction.evicted and not victim.eviction.gone:
            self._report(victim)
        if not victim.eviction.evicted:
            self.cluster.budgets.take_back(victim.pod)
        victim.round.failed |= not victim.eviction.evicted
        if victim.eviction.refused:
            self._refused[victim.pod.uid] = self.clock() + LASTING
            self.cluster.set_evictable(victim.pod.uid, is_evictable=False)
        await self._count_down(victim.round)

    def _report(self, victim: _Victim) -> None:
        asked, group = victim.round, victim.pod.group
        asked.evicted += 1
        if group is not None and group.key in self._breaking:
            self._breaking[group.key].broken.add(group.key)
        preemptor = victim.preemptor
        node_name = asked.places.get(preemptor.uid, victim.pod.node_name)
        log.info("Preempted pod", v=2, pod=victim.pod.key, preemptor=preemptor.key, node=node_name)
        with self.errors.contain(task="preemption", pod=victim.pod.key):  # the pod is evicted all the same
            self.reporter.report_preemption(victim.pod, preemptor, node_name)

    async def _count_down(self, asked: _Round) -> None:
        """Count a victim; after the last one the pod waits for their end, or for a backoff if one has failed."""
        asked.left -= 1
        if not asked.left:
            await run_in_turns(self._release(asked), self.clock)

    def _release(self, asked: _Round) -> Generator[None, None, None]:
        if asked.evicted:
            self.metrics.observe_victims(asked.evicted)
        for key in [key for key, each in self._breaking.items() if each is asked]:
            del self._breaking[key]
            if key not in asked.broken | self._half_gone:
                self._hold(key, is_ending=False)
            for places in asked.followers if key not in asked.broken else ():
                yield from self._evict_for(places)
        if asked.broken:
            self._half_gone |= asked.broken
            self._rounds.start_soon(self._end_groups, asked)
        for uid in asked.places if asked.failed or asked.spared else ():
            name, nomination = self.cluster.nomination(uid) or ("", None)
            if nomination is not None and nomination.victims:
                self.cluster.nominate(name, attrs.evolve(nomination, victims=frozenset()))
            yield
        for name in dict.fromkeys(asked.places.values() if asked.spared else ()):
            with self.errors.contain(task="preemption", pod=name):  # no pod must stay held
                self.recheck(name)  # nobody leaves for them any more, so they are tried again at once
            yield
        for uid in asked.places:
            self.queue.release(uid, self.clock(), failed=asked.failed)
            yield


def _without_given_up_nomination(queued: QueuedPod) -> Pod:
    """Return a pod without the nominated node that has been given up, as its status will say."""
    given_up = queued.given_up and queued.pod.nominated_node_name == queued.given_up
    return attrs.evolve(queued.pod, nominated_node_name="") if given_up else queued.pod

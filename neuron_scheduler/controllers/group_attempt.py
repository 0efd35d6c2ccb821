"""
A group's attempt: decide its members as one, and assume all of them or none.

Other tasks run during a decision; if a member is gone or changed at its end, the group is tried again. A group that
finds no room evicts pods for all missing members, or nobody. While too few members exist, none of them is bound and no
space is kept for them.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Final

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.allocate_fence import AllocateFence
from neuron_scheduler.controllers.commitment import Commitment, note_freed
from neuron_scheduler.controllers.pod_attempt import PodAttempts
from neuron_scheduler.controllers.preemption_executor import PostFilter
from neuron_scheduler.model.nomination import CLEAR, KEEP, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on
from neuron_scheduler.scheduling.cycle.trial import AssumedPod, ChangedError, give_back
from neuron_scheduler.scheduling.groups.gang import Gang, GroupPlan, GroupRefusal, gang_of, held_text
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.groups.preemption import waits_for_victims
from neuron_scheduler.scheduling.preemption.nominations import turn_text
from neuron_scheduler.scheduling.preemption.search import WAITING
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod, matters_for_scheduling
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import Pause, run_in_turns
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.line_formats import printable

WAITING_FOR_GROUP: Final = "WaitingForGroup"
"""Reason of the condition and the Event of a pod whose group has too few members."""
NO_ROOM: Final = "Unable to schedule pod group; too few members fit at once; waiting"
LOOK_AT_GROUPS: Final = 1.0
"""Seconds between two looks at the groups that have too few members."""
_HELD_IN_SILENCE: Final = 5.0
"""Seconds for which nothing is said of such a group: its members are being created."""

log = logs.logger(__name__)


@attrs.frozen(eq=False, kw_only=True)
class GroupAttempts:
    """Tries groups; members end as single pods do (`attempts`)."""

    cluster: Cluster
    queue: SchedulingQueue
    clock: Callable[[], float]
    attempts: PodAttempts
    fence: AllocateFence

    async def attempt(self, queued: QueuedPod, key: GroupKey, pause: Pause) -> None:
        self.queue.keep_events(queued)
        companions = await run_in_turns(self.queue.take_companions(key, self.clock()), self.clock, pause)
        await self.attempts.wait_for_list()
        adopting = self.attempts.preemption_executor.adopt_each((queued, *companions), self.attempts.profiles)
        await run_in_turns(adopting, self.clock, pause)
        await anyio.lowlevel.checkpoint()  # what follows takes milliseconds for thousands of members
        started, commitments, held_count = self.clock(), list[Commitment](), 0
        members = [member for member in (queued, *companions) if self.queue.holds(member)]
        try:
            gang = gang_of(self.cluster, [member.pod for member in members])
            profile = self.attempts.profiles[queued.pod.scheduler_name]
            self._require_all(gang, len(gang.waiting))
            await pause()  # likewise
            is_waiting = await run_in_turns(waits_for_victims(self.cluster, gang.waiting), self.clock, pause)
            found = await run_in_turns(plan_group(self.cluster, gang, profile, self.attempts.warmup), self.clock, pause)
            if isinstance(found, GroupPlan):
                await pause()  # likewise
                commitments = await run_in_turns(self._assume_group(members, found, gang, started), self.clock, pause)
            else:
                after = await self._make_room(members, gang, found, profile, pause, is_waiting=is_waiting)
                held_count = sum(each.held for each in after.values())
                steps = self._put_group_back(members, gang, found, after, started, is_waiting=is_waiting)
                await run_in_turns(steps, self.clock, pause)
        except ChangedError:
            await run_in_turns(self._retry_group(members), self.clock, pause)
        except Exception as error:  # noqa: BLE001 - it is one group's error
            for member in members:
                self.attempts.handle_crash(member, error)
        in_vain = 1 - (len(commitments) or held_count) / max(len(members), 1)
        if in_vain:
            seconds = in_vain * (self.clock() - started)
            self.queue.groups.charge(key, queued.pod.priority, seconds, self.clock())
        self.fence.of_groups.update((commitment.pod.uid, commitment) for commitment in commitments)

    def _require_all(self, gang: Gang, count: int) -> None:
        """
        Raise ChangedError if the group is complete, or needs more than so many of its members and another one waits.

        It is in the side lane, or its controller has made it anew: it does not count as missing.
        """
        others = self.queue.groups.waiting_uids(gang.group.key).difference([pod.uid for pod in gang.waiting])
        is_enough = 0 < gang.group.least <= len(gang.placed) + count
        is_awaited = not is_enough and any(self.cluster.node_of(uid) is None for uid in others)
        if is_awaited or self.cluster.groups.is_complete(gang.group):
            raise ChangedError

    def _assume_group(
        self, members: list[QueuedPod], plan: GroupPlan, gang: Gang, started: float
    ) -> Generator[None, None, list[Commitment]]:
        by_uid = {member.pod.uid: member for member in members}
        held, commitments = self.queue.groups.is_held(gang.group.key), list[Commitment]()
        try:
            if gang.group.least:
                self._require_all(gang, len(plan.members))
            if held or not all(self._is_as_decided(by_uid[taken.pod.uid], taken) for taken in plan.members):
                raise ChangedError  # noqa: TRY301 - undone like any other error
            self.attempts.metrics.observe_decision(self.clock() - started)
            for taken in plan.members:
                for listener in self.attempts.listeners:
                    listener(taken.pod, taken.decision)
                commitments.append(self.attempts.commit(by_uid[taken.pod.uid], taken, started))
                yield
        except Exception:
            for taken in plan.members:
                give_back(self.cluster, taken)
                yield
            raise
        for pod, refused in plan.left_out:
            self.attempts.handle_unschedulable(by_uid[pod.uid], refused, PostFilter(alone=True), started)
            yield
        return commitments

    def _retry_group(self, members: list[QueuedPod]) -> Generator[None, None, None]:
        for member in members:
            self.queue.put_back_failed(member, self.clock())
            yield

    def _is_as_decided(self, member: QueuedPod, taken: AssumedPod) -> bool:
        pod = taken.pod
        changed = member.pod is not pod and matters_for_scheduling(pod, member.pod)
        return self.queue.holds(member) and self.cluster.is_assumed(pod.uid) and not changed

    async def _make_room(
        self,
        members: list[QueuedPod],
        gang: Gang,
        refusal: GroupRefusal,
        profile: Profile,
        pause: Pause,
        *,
        is_waiting: bool,
    ) -> Mapping[str, PostFilter]:
        """Evict pods for the missing members, unless what refuses the group is not a lack of room."""
        if refusal.reason.pod_reason:
            return {}
        if is_waiting:  # as the plan has seen it: a victim that has gone since is an event
            return {member.pod.uid: PostFilter(f"preemption: {WAITING}") for member in members}
        return await self.attempts.preemption_executor.post_filter_group(members, gang, profile, pause)

    def _put_group_back(
        self,
        members: list[QueuedPod],
        gang: Gang,
        refusal: GroupRefusal,
        after: Mapping[str, PostFilter],
        started: float,
        *,
        is_waiting: bool,
    ) -> Generator[None, None, None]:
        """Put a refused group back, and report why; `after` says what preemption has done for its members."""
        refused = refusal.fit_error(gang)
        if self.cluster.has_nominations:
            refused = attrs.evolve(refused, turn=turn_text(self.cluster, members[0].pod))
        group, text = printable(str(gang.group.key)), printable(refused.text)  # tenants choose the name
        log.info(NO_ROOM, v=2, group=group, members=len(members), err=text)
        for member in members:
            pod, now = member.pod, self.clock()
            if not self.queue.holds(member):
                continue
            mine = after.get(pod.uid, PostFilter())
            is_kept = is_waiting or mine.nomination is not KEEP or self.cluster.has_turn(pod.uid)
            if not (is_kept or (gang.placed and self._takes_it_still(pod))):  # as when space was kept
                mine = attrs.evolve(mine, nomination=self._keep_nothing(member))
            told = attrs.evolve(refused, preemption=mine.text)
            self.queue.put_back_refused(
                member,
                refused.plugins,
                now,
                is_preempting=member.is_preempting,
                has_nomination=self.cluster.is_nominated(pod.uid),
                waits_for=refusal.plugins_for(pod),
                together=True,
                cause=refused.cause,
            )
            for listener in self.attempts.listeners:
                listener(pod, told)
            self.attempts.metrics.count_attempt("unschedulable", pod.scheduler_name, now - started)
            self.attempts.reporter.report_unschedulable(
                pod, told.text, new_node_cannot_help=refused.new_node_cannot_help, nomination=mine.nomination
            )
            yield

    def _takes_it_still(self, pod: Pod) -> bool:
        """Return whether the node whose space is kept for a pod, if any is, would take it."""
        node_name, _ = self.cluster.nomination(pod.uid) or ("", None)
        profile = self.attempts.profiles[pod.scheduler_name]
        return not node_name or isinstance(decide_on(self.cluster, pod, profile, node_name), Decision)

    def _keep_nothing(self, member: QueuedPod) -> NominationChange:
        """Keep no space for a member; return what its status is to say of that."""
        pod = member.pod
        node_name = self.cluster.clear_nomination(pod.uid)
        if node_name is not None:
            note_freed(self.cluster, self.queue, pod, node_name)
        member.given_up = node_name or pod.nominated_node_name
        return CLEAR if pod.nominated_node_name else KEEP

    async def look_at_held_groups(self) -> None:
        while True:
            await anyio.sleep(LOOK_AT_GROUPS)
            await run_in_turns(self._hold_groups(), self.clock)

    def _hold_groups(self) -> Generator[None, None, None]:
        """Bind no member of a group that waits for members, keep no space for it, and say how many exist."""
        groups = self.queue.groups
        untold, groups.untold = groups.untold, {}
        for key, since in untold.items():
            is_to_be_said = is_told = self.clock() - since >= _HELD_IN_SILENCE
            text = held_text(self.cluster.groups, key)
            for member in groups.waiting_members(key):
                pod = member.pod
                if groups.is_held(key):
                    is_told &= member.place is Place.GATED
                    self.fence.recheck(pod.uid)
                    if self._keep_nothing(member) is CLEAR:
                        self.attempts.reporter.clear_nomination(pod)
                    if is_to_be_said:
                        self.attempts.reporter.report_wait(pod, WAITING_FOR_GROUP, text)
                yield
            if groups.is_held(key) and not is_told:
                groups.untold[key] = since

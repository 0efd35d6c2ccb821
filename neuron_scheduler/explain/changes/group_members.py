"""
What would let a refused group in if all its members were changed alike, or if other pods went.

TOLERATION: all tolerate the taints of some node, the fewest first.

SELECTOR: all drop keys of the node selector, or requirements of the required node affinity, as few as suffice.

DEPARTURE: pods of several nodes end or are evicted, if at most four members lack room. For each member that does not
fit as a single pod, those of one node are chosen as for a single pod. So the set may be larger than needed.

Each is offered only if the scheduler's own plan then places the group.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers import ChangeKind, SuggestedChange
from neuron_scheduler.explain.changes import pod_spec
from neuron_scheduler.explain.changes.departure import MOST_GONE, Leavers, departure, find_leavers
from neuron_scheduler.explain.changes.refused_pod import RefusedPod, with_template
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import few
from neuron_scheduler.neuron.catalog import family_of
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup, asks_much
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.cycle.what_if import Placer
from neuron_scheduler.scheduling.groups.gang import Gang, GroupPlan, GroupRefusal
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.groups.regions import without_pod_terms

MOST_TRIED: Final = 4
"""Changes of a kind, since a plan takes long; members for which pods leave."""
MOST_PLANNED: Final = 4000
"""Members in all plans for one answer."""


@attrs.define(eq=False)
class RefusedGroup:
    """
    A refused group in its cluster.

    Attributes:
        cluster: a fork that nobody changes.
        left: how many more members may be planned.
    """

    cluster: Cluster
    gang: Gang
    profile: Profile
    refusal: GroupRefusal
    left: int = attrs.field(default=MOST_PLANNED, init=False)

    def plan(self, fork: Cluster, gang: Gang) -> Generator[None, None, GroupPlan | None]:
        """Return the plan for the group on a fork; None if too few members fit, or if too many were planned before."""
        found = (yield from plan_group(fork, gang, self.profile, IndexWarmup())) if self.left > 0 else None
        self.left -= len(gang.waiting)
        return found if isinstance(found, GroupPlan) else None

    def plan_with(self, change: Callable[[Pod], Pod]) -> Generator[None, None, GroupPlan | None]:
        """Return the plan for the group with all waiting members changed."""
        changed = attrs.evolve(self.gang, waiting=tuple(map(change, self.gang.waiting)))
        return (yield from self.plan(self.cluster.fork(), changed))


def end_of_evicted(group: RefusedGroup) -> Generator[None, None, SuggestedChange | None]:
    """Return the end of the pods that are evicted for the group already, if it then fits."""
    nominated = dict.fromkeys(member.nominated_node_name for member in group.gang.waiting)
    rows = filter(None, map(group.cluster.node, nominated))
    ending = ((row, [info.pod for info in row.pod_infos.values() if info.pod.terminating]) for row in rows)
    return (yield from _end_of(group, [leavers for leavers in ending if leavers[1]]))


def _end_of(group: RefusedGroup, gone: Sequence[Leavers]) -> Generator[None, None, SuggestedChange | None]:
    """Return the end of some pods, if the group then fits."""
    without = group.cluster.fork()
    for pod in (pod for _, pods in gone for pod in pods):
        without.remove_pod(pod.uid)
        yield
    if not gone or not (yield from group.plan(without, group.gang)):
        return None
    refused = RefusedPod(group.cluster, group.gang.waiting[0], group.profile, group.refusal.reason)
    return departure(refused, gone, ("the group", "fits"))


def changes_of_members(group: RefusedGroup) -> Generator[None, None, list[SuggestedChange]]:
    """Return what was found, in the order of the kinds; yields whenever other tasks may run."""
    if group.refusal.reason.pod_reason or asks_much(group.gang.waiting[0]):
        return []
    found = [(yield from _departure(group)), (yield from _toleration(group)), (yield from _selector(group))]
    return [change for change in found if change is not None]


def _departure(group: RefusedGroup) -> Generator[None, None, SuggestedChange | None]:
    gone, placer = list[Leavers](), Placer(trial := group.cluster.fork())
    is_near = group.gang.missing_count - group.refusal.fitting <= MOST_TRIED
    for member in group.gang.waiting[: group.gang.missing_count] if is_near else ():
        alone = without_pod_terms(member)
        if isinstance((yield from placer.place(alone, group.profile)), Decision):
            continue
        found, _ = yield from find_leavers(RefusedPod(trial, alone, group.profile, group.refusal.reason))
        if found is None or sum(len(pods) for _, pods in (*gone, found)) > MOST_GONE:
            return None
        gone.append(found)
        for pod in found[1]:
            trial.remove_pod(pod.uid)
        if not placer.place_on(alone, group.profile, found[0].node.name):
            return None
    return (yield from _end_of(group, gone))


def _toleration(group: RefusedGroup) -> Generator[None, None, SuggestedChange | None]:
    member = without_pod_terms(group.gang.waiting[0])
    sets = yield from pod_spec.tolerable_taints(RefusedPod(group.cluster, member, group.profile, group.refusal.reason))
    for taints in sets[:MOST_TRIED]:
        if (yield from group.plan_with(partial(pod_spec.with_tolerations, taints=taints))):
            return pod_spec.toleration(member, taints, " in all members: the group then fits")
    return None


def _selector(group: RefusedGroup) -> Generator[None, None, SuggestedChange | None]:
    member = group.gang.waiting[0]
    dropped = pod_spec.parts_without_types(member)
    if not 0 < len(dropped) <= MOST_TRIED or not (yield from _fits_without(group, dropped)):
        return None
    for part in dropped:
        fewer = [each for each in dropped if each != part]
        if fewer and (yield from _fits_without(group, fewer)):
            dropped = fewer
    named = [pod_spec.part_text(member, part) for part in dropped]
    sentence = f"Drop {few(named)} from the required nodes of all members: the group then fits."
    return SuggestedChange(ChangeKind.SELECTOR, with_template(sentence, member), detail="; ".join(named))


def _fits_without(group: RefusedGroup, dropped: Sequence[pod_spec.Part]) -> Generator[None, None, bool]:
    """Return whether the group fits without these rules, and on machines of the families that it means."""
    plan = yield from group.plan_with(lambda pod: pod_spec.without_parts(pod, dropped))
    rows = [group.cluster.node(taken.decision.node_name) for taken in plan.members] if plan else []
    families = pod_spec.families_meant(group.cluster.view, group.gang.waiting[0])
    return bool(rows) and all(row is not None and family_of(row.node.instance_type) in families for row in rows)

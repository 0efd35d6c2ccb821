"""
Which pods to evict, so that all missing members of a group get a place at once; nobody if one of them gets none.

    a fork of the cluster
      --> each member, the choosiest first: a free place, or the cheapest victims of one node, which leave the fork
      --> a few members: could one of the victims stay, if the group were planned without the others?
      --> GroupPreemption: a node and its cores for each member, and who has to leave that node

Each member's victims are those of a single pod (`scheduling.preemption.search`), with what the budgets allow beside the
victims before. A group with a required domain tries a few of them, and the cheapest counts. Upstream: KEP-5710.
"""

from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination, evictable
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import ULTRASERVER_4, ULTRASERVER_PLACES
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.filters import walk
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup, asks_much
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError
from neuron_scheduler.scheduling.cycle.signature import signature_of
from neuron_scheduler.scheduling.cycle.trial import AssumedPod, Trial
from neuron_scheduler.scheduling.groups.gang import Gang, GroupPlan, gang_of, neuron_total_of
from neuron_scheduler.scheduling.groups.plan import MOST_SEARCHED, OUTSIDE, kinds_of, plan_group
from neuron_scheduler.scheduling.groups.regions import (
    MOST_DOMAINS,
    Domain,
    DomainRoom,
    fixed_domains,
    nodes_in,
    room_of,
    rooms_for,
    takes_whole,
    without_pod_terms,
)
from neuron_scheduler.scheduling.plugins.contract import Filter, Refusal
from neuron_scheduler.scheduling.plugins.registry import COUNTING_PODS, GROUP_TOPOLOGY
from neuron_scheduler.scheduling.preemption.search import (
    ASKS_MUCH,
    NEVER,
    NoPreemption,
    Preemption,
    WithoutLowerPriority,
    prepare_rounds,
    search,
)
from neuron_scheduler.scheduling.preemption.units import Units
from neuron_scheduler.scheduling.preemption.victims import Victims, by_importance, importance_of

_MOST_SPARED: Final = 32
"""Victims for a few members of which each is asked whether it could stay."""
_AT_ONCE: Final = 256
"""Victims that are put in order, or counted, in one step."""
_MOST_EMPTIED: Final = 64
"""Nodes that are looked at without their pods of lower priority, where the members cannot be placed one by one."""
_NOT_ALL: Final = "preemption: without all pods of lower priority, {} of {} missing members would have room."


@attrs.frozen
class GroupPreemption:
    """
    A place for each member that needs one.

    Attributes:
        places: by the uid of a member the name of a node, and the nomination with the victims that leave it.
        victims: all of them.
    """

    places: Mapping[str, tuple[str, Nomination]]
    victims: Victims


def search_for_group(
    cluster: Cluster, gang: Gang, profile: Profile
) -> Generator[None, None, GroupPreemption | NoPreemption]:
    """
    Return the places of the missing members and the victims for them; the cluster may change when this yields.

    Raises:
        ChangedError: a member is gone, and the group is to be tried again.
    """
    reason = _not_eligible(gang)
    if reason:
        return NoPreemption(f"preemption: {reason}")
    kinds = yield from kinds_of(cluster, gang)
    search_steps = _GroupSearch(cluster, gang, profile, Units(cluster), kinds)
    best, most = yield from search_steps.cheapest()
    if len(gang.waiting) <= MOST_SEARCHED and (best is None or search_steps.may_share(best)):
        best = yield from search_steps.with_fewer(best)
    return best or NoPreemption(_NOT_ALL.format(most, gang.missing_count), gives_up=True)


def waits_for_victims(cluster: Cluster, pods: Iterable[Pod]) -> Generator[None, None, bool]:
    """Return whether pods that leave for one of these are still there."""
    for pod in pods:
        name, nomination = cluster.nomination(pod.uid) or ("", None)
        node_info = None if nomination is None or nomination.awaited else cluster.node(name)
        if nomination is not None and node_info is not None and nomination.victims & node_info.pod_infos.keys():
            return True
        yield
    return False


def _not_eligible(gang: Gang) -> str:
    """Return why no pod may be evicted for this group now; empty if they may."""
    if any(pod.never_preempts for pod in gang.waiting):
        return NEVER
    return ASKS_MUCH if any(map(asks_much, gang.waiting)) else ""


@attrs.define(eq=False)
class _GroupSearch:
    """The search for one group; each try is made on a fork of its own."""

    cluster: Cluster
    gang: Gang
    profile: Profile
    units: Units
    kinds: Mapping[str, int]

    def cheapest(self) -> Generator[None, None, tuple[GroupPreemption | None, int]]:
        """Return the cheapest result of all domains, and how many members have a place at most."""
        best: GroupPreemption | None = None
        most, members = 0, (yield from self._choosiest_first())
        domains = yield from self._domains(members)
        for first, *_ in self._by_kind(members) if len(domains) > 1 else ():
            yield from prepare_rounds(self.cluster, first, self.profile)
        for domain in domains:
            fork = yield from self._fork()
            room = _Room(Trial(fork), self.gang, self.profile, domain, Units(fork))
            most = max(most, (yield from room.place(members)))
            if len(room.trial.pods) >= self.gang.missing_count:
                found = yield from self._result(room.trial.pods, room.gone)
                best = found if best is None or found.victims.cost < best.victims.cost else best
        return best, most

    def _fork(self) -> Generator[None, None, Cluster]:
        """Return a fork that keeps no space for the members, as after evictions that failed: any of them may get it."""
        fork = self.cluster.fork()
        for pod in self.gang.waiting if fork.has_nominations else ():
            fork.clear_nomination(pod.uid)
            yield
        return fork

    def with_fewer(self, found: GroupPreemption | None) -> Generator[None, None, GroupPreemption | None]:
        """
        Return a result in which no victim could stay; also one for members that only a plan can place.

        The budgets' pods are spared first, then the most important ones, as upstream does.
        """
        found = found or (yield from self._by_plan())
        victims = () if found is None else found.victims.pods
        if len(victims) > _MOST_SPARED:
            return found
        violating, lost = self.units.allowance.violating_uids(victims), self.units.lost_by(victims)
        members = {unit.key: self.cluster.placed_groups.of(unit.key).pods for unit in lost}
        together = {pod.uid: key for key, pods in members.items() for pod in victims if pod.uid in pods}
        parts = dict.fromkeys(together.get(victim.uid, victim.uid) for victim in victims)
        for part in sorted(parts, key=lambda part: part not in violating):
            fewer = [victim for victim in victims if part not in (victim.uid, together.get(victim.uid))]
            without = None if self.units.others_of(fewer) else (yield from self._places_without(fewer))
            if without is not None:
                victims, found = without.victims.pods, without
        return found

    def _by_plan(self) -> Generator[None, None, GroupPreemption | None]:
        """Return places that a plan finds without any pods of lower priority."""
        nodes = NO_NODES
        for first, *_ in self._by_kind(self.gang.waiting):
            nodes |= yield from self._nodes_without_lower(first)
        view = self.cluster.view
        rows = [view.row(slot) for slot in islice(slots_of(nodes & view.live), _MOST_EMPTIED)]
        return (yield from self._places_without([pod for row in rows for pod in self._lower(row)]))

    def _places_without(self, gone: Sequence[Pod]) -> Generator[None, None, GroupPreemption | None]:
        """
        Return the places that a plan finds without some pods, or fewer of them; None if there are none.

        A pod leaves for a place on its node, or with its group: others stay, and the plan is made again beside them.
        """
        while plan := (yield from self._plan_without(gone)):
            nodes = {taken.decision.node_name for taken in plan.members}
            victims = [pod for pod in gone if pod.node_name in nodes]
            victims += self.units.others_of(victims)
            if {pod.uid for pod in victims} == {pod.uid for pod in gone}:
                return (yield from self._result(plan.members, gone))
            gone = victims
        return None

    def _lower(self, node_info: NodeInfo) -> list[Pod]:
        priority = self.gang.waiting[0].priority
        pods = (node_info.pod_infos[uid].pod for uid in evictable(node_info, priority))
        return [pod for pod in pods if self.units.may_leave(pod, priority)]

    def _plan_without(self, gone: Iterable[Pod]) -> Generator[None, None, GroupPlan | None]:
        """Return a plan for the group on a fork without some pods; None if there is none."""
        fork = yield from self._fork()
        for victim in gone:
            let_go(fork, victim)
            yield
        found = yield from plan_group(fork, gang_of(fork, self.gang.waiting), self.profile, IndexWarmup())
        return found if isinstance(found, GroupPlan) else None

    def _result(self, taken: Iterable[AssumedPod], gone: Sequence[Pod]) -> Generator[None, None, GroupPreemption]:
        runs, victims = list[tuple[Pod, ...]](), list[Pod]()
        for first in range(0, len(gone), _AT_ONCE):
            runs.append(by_importance(gone[first : first + _AT_ONCE]))
            yield
        left, violations, leaving = dict[str, int](), 0, dict[str, set[str]]()
        by_all = merge(*runs, key=importance_of)
        while some := list(islice(by_all, _AT_ONCE)):
            victims += some
            violations += len(self.units.allowance.violating_uids(some, left))
            for victim in some:
                leaving.setdefault(victim.node_name, set()).add(victim.uid)
            yield
        places = dict[str, tuple[str, Nomination]]()
        for members in (yield from self._by_rank(taken)):
            for (*_, member), (*_, other) in zip(*(sorted(members, key=itemgetter(at)) for at in (0, 1)), strict=True):
                pod, name = member.pod, other.decision.node_name
                places[pod.uid] = name, Nomination(pod, other.decision.cores, frozenset(leaving.get(name, ())))
                yield
        return GroupPreemption(places, Victims(tuple(victims), violations))

    def _by_rank(
        self, taken: Iterable[AssumedPod]
    ) -> Generator[None, None, Iterable[Sequence[tuple[int, list[str], AssumedPod]]]]:
        """Return lists of members that may change places: on whole machines, ranks follow places in an UltraServer."""
        order = {pod.uid: number for number, pod in enumerate(self.gang.waiting)}
        equal = dict[Hashable, list[tuple[int, list[str], AssumedPod]]]()
        for each in taken:
            kind = _on_its_own(each.pod) if self._is_whole(each.pod, each.decision.node_name) else each.pod.uid
            equal.setdefault(kind, []).append((order[each.pod.uid], self._place_of(each.decision), each))
            yield
        return equal.values()

    def _is_whole(self, pod: Pod, node_name: str) -> bool:
        row = self.cluster.node(node_name)
        return row is not None and takes_whole(row, pod)

    def _place_of(self, decision: Decision) -> list[str]:
        row = self.cluster.node(decision.node_name)
        labels = {} if row is None else row.node.labels
        return [labels.get(key, "") for key in (ULTRASERVER_4, ULTRASERVER_PLACES[ULTRASERVER_4])]

    def may_share(self, found: GroupPreemption) -> bool:
        """Return whether fewer victims might do: not if equal members take whole machines, all that were emptied."""
        places = [(nomination.pod, name) for name, nomination in found.places.values()]
        emptied = {victim.node_name for victim in found.victims.pods} - {name for _, name in places}
        is_whole = all(self._is_whole(pod, name) for pod, name in places)
        return bool(emptied) or not is_whole or len(self._by_kind(self.gang.waiting)) > 1

    def _choosiest_first(self) -> Generator[None, None, Sequence[Pod]]:
        """Return the members as they are placed: if they differ, those first that fewest nodes take."""
        kinds = self._by_kind(self.gang.waiting)
        if len(kinds) == 1:
            return self.gang.waiting
        counts = dict[int, int]()
        for first, *_ in kinds:
            counts[self.kinds[first.uid]] = (yield from self._nodes_without_lower(first)).bit_count()
        return sorted(self.gang.waiting, key=lambda pod: counts[self.kinds[pod.uid]])

    def _nodes_without_lower(self, pod: Pod) -> Generator[None, None, NodeSet]:
        """Return the nodes that would take a member by itself if all pods of lower priority left."""
        by_itself, overlay = without_pod_terms(pod), WithoutLowerPriority(pod.priority)

        def ask(view: View, *, every_filter: bool = False) -> NodeSet:
            ignored = COUNTING_PODS
            return walk(view, by_itself, self.profile, view.live, ignored_plugins=ignored, every_filter=every_filter)[0]

        yield from self.cluster.view.prepare(lambda view: ask(view.with_overlay(overlay), every_filter=True))
        return ask(self.cluster.view.with_overlay(overlay))

    def _by_kind(self, pods: Iterable[Pod]) -> Sequence[Sequence[Pod]]:
        """Return the pods by kind, the largest first."""
        kinds = dict[int, list[Pod]]()
        for pod in pods:
            kinds.setdefault(self.kinds[pod.uid], []).append(pod)
        return sorted(kinds.values(), key=lambda pods: -neuron_total_of(pods[0]))

    def _domains(self, members: Sequence[Pod]) -> Generator[None, None, Sequence[Domain | None]]:
        """Return the domains to try, those with the most free room first; one None if there is no required one."""
        key, needed = self.gang.group.topology, self.gang.missing_count
        if not key:
            return [None]
        fixed = fixed_domains(self.cluster, self.gang)
        if key in fixed:
            return [(key, fixed[key])] if fixed[key] else []
        inside = [pod for pod in members if pod.uid not in self.gang.unconstrained]
        if not inside:
            return [None]
        largest, *smaller = self._by_kind(inside)
        nodes = yield from self._nodes_without_lower(largest[0])
        view = self.cluster.view
        rooms = list[Mapping[str, DomainRoom]]()
        for rows in (view, view.with_overlay(WithoutLowerPriority(largest[0].priority))):
            yield from rows.prepare(lambda view: view.postings(room_of(largest[0])))
            rooms.append((yield from rooms_for(rows, largest[0], nodes).by_domain(key)))
        free, room = rooms

        def room_in(value: str, rooms: Mapping[str, DomainRoom]) -> int:
            return min(rooms[value].room, len(largest)) if value in rooms else 0

        enough = [str(value) for value in view.domains(key).values if smaller or room_in(str(value), room) >= needed]
        enough.sort(key=lambda value: (-room_in(value, room), -room_in(value, free), value))
        return [(key, value) for value in enough[:MOST_DOMAINS]]


@attrs.define(eq=False)
class _Room:
    """
    One try: the members are placed on a fork, from which their victims leave.

    Attributes:
        units: of the fork, whose budgets are without what the victims so far have used up.
        gone: the victims so far.
    """

    trial: Trial
    gang: Gang
    profile: Profile
    domain: Domain | None
    units: Units
    gone: list[Pod] = attrs.field(factory=list)
    warmup: IndexWarmup = attrs.field(factory=IndexWarmup)

    def place(self, members: Sequence[Pod]) -> Generator[None, None, int]:
        """Place members until there are enough, or too few are left; return how many have a place."""
        needed = self.gang.missing_count
        inside, outside = self._profile_inside(), self.profile
        for left, pod in zip(range(len(members), 0, -1), members, strict=True):
            if len(self.trial.pods) + left < needed or len(self.trial.pods) >= needed:
                break
            yield from self._place(pod, outside if pod.uid in self.gang.unconstrained else inside)
        return len(self.trial.pods)

    def _place(self, pod: Pod, profile: Profile) -> Generator[None, None, None]:
        cluster = self.trial.cluster
        yield from self.warmup.prepare(cluster, pod, profile)
        result = self.trial.place(pod, profile)
        yield
        if isinstance(result, Decision) or result.pod_refusal is not None:
            return
        yield from self.warmup.prepare_refusal(cluster, pod, profile)
        alone = attrs.evolve(pod, nominated_node_name="")
        refused = FitError(cluster.view.node_count)
        self.units = Units(cluster, self.units.leaving)
        found = yield from search(cluster, alone, profile, refused=refused, units=self.units)
        if isinstance(found, Preemption):
            for victim in (*found.victims.pods, *self.units.others_of(found.victims.pods)):
                self._let_go(victim)
                yield  # a whole group of thousands may leave
            yield from self.warmup.prepare(cluster, pod, profile)
            slot = cluster.view.slot(found.node_name)
            self.trial.place(pod, profile, NO_NODES if slot is None else 1 << slot)

    def _let_go(self, victim: Pod) -> None:
        fork = self.trial.cluster
        let_go(fork, victim)
        self.gone.append(victim)
        for key in self.units.allowance.counted_by(victim):  # the others stay the same, and so do the rows' answers
            budget = fork.budgets.of(victim.namespace).by_key[key]
            fork.budgets.put(attrs.evolve(budget, allowed=budget.allowed - 1))

    def _profile_inside(self) -> Profile:
        """Return the profile that refuses all nodes outside of the domain."""
        domain = self.domain
        if domain is None:
            return self.profile

        def refuse(view: View, _: Pod, among: NodeSet) -> Sequence[Refusal]:
            return (Refusal(GROUP_TOPOLOGY, OUTSIDE, less(among, nodes_in(view, domain)), unresolvable=True),)

        return attrs.evolve(self.profile, filters=(Filter(refuse), *self.profile.filters))


def let_go(fork: Cluster, victim: Pod) -> None:
    fork.remove_pod(victim.uid)
    fork.groups.remove(victim.uid)


def _on_its_own(pod: Pod) -> Hashable:
    """Return what members have in common that differ only in what they say about other pods."""
    constraints = attrs.evolve(pod.constraints, affinity=(), anti_affinity=(), spread=())
    return signature_of(attrs.evolve(pod, constraints=constraints), frozenset())

r"""
The plan for a group: its members are placed on the cluster one after the other, enough of them or none.

    rooms --> regions, the best first --> a trial in each: choosiest member first, then by rank --> GroupPlan
                                              \--> members that differ, or look at each other: a bounded search
                                              \--> GroupRefusal: how many fit at once, and why the next one does not

It is a generator that yields where other tasks may run. Meanwhile the members that are placed so far hold their space.
A trial that fails leaves no trace.
"""

from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Final, cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, from_slots, less
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import ULTRASERVER_PLACES
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.pod_group import Dialect
from neuron_scheduler.model.selectors import LabelSelector, PodAffinityTerm
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.scheduling.cycle.filters import nodes_that_fit
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, NoNode, fit_error, select_node
from neuron_scheduler.scheduling.cycle.signature import signature_of
from neuron_scheduler.scheduling.cycle.trial import ChangedError, Trial
from neuron_scheduler.scheduling.groups.gang import Gang, GroupPlan, GroupRefusal, complaint_about, neuron_total_of
from neuron_scheduler.scheduling.groups.regions import (
    ANYWHERE,
    LEVELS,
    NOWHERE,
    Domain,
    PodRoom,
    Region,
    RegionSteps,
    Rooms,
    empty_machines,
    fixed_domains,
    in_one,
    nodes_in,
    own_term,
    regions,
    room_of,
    rooms_for,
    without_pod_terms,
)
from neuron_scheduler.scheduling.plugins import intact_ultra_servers
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import Preference, Refusal
from neuron_scheduler.scheduling.plugins.neuron_topology import machines
from neuron_scheduler.scheduling.plugins.registry import GROUP_TOPOLOGY

OUTSIDE: Final = "node(s) were outside of the group's domain"
_AT_ONCE: Final = 16
"""Members that are looked at, or taken back, in one step."""
_FEW: Final = 16
"""Up to so many small members are placed without counting for how many there is room."""
_MOST_COUNTED: Final = 8
"""Sizes of members for which the room is counted."""
_MOST_ROOMY: Final = 8
"""Domains among which a refusal looks for one that takes a member."""
MOST_DECISIONS: Final = 400
"""Decisions for one group, beside one for each member; what has not been found then counts as not to be had."""
MOST_SEARCHED: Final = 8
"""Members of the largest group that is searched for."""
_NO_PLUGIN: Final = frozenset[str]()  # a signature for plugins that look at no labels

_Kind = int
"""A number that members have in common that are alike."""


def plan_group(
    cluster: Cluster, gang: Gang, profile: Profile, warmup: IndexWarmup
) -> Generator[None, None, GroupPlan | GroupRefusal]:
    """
    Place a group; its members are then assumed in the cluster.

    Raises:
        ChangedError: a member or its node changed in a pause, and the group is to be tried again.
    """
    trial = Trial(cluster)
    try:
        kinds = yield from kinds_of(cluster, gang)
        return (yield from _Planner(trial, gang, profile, warmup, kinds).run())
    except ChangedError:
        yield from _undo(trial, 0)
        raise
    except BaseException:
        trial.undo()
        raise


def kinds_of(cluster: Cluster, gang: Gang) -> Generator[None, None, Mapping[str, _Kind]]:
    """
    Return the kind of each member by its uid; one with a nomination is like no other.

    Labels count only where a member selects by them: each member has a label with its number.
    """
    kinds, numbers = dict[str, _Kind](), dict[Hashable, int]()
    keys = _selected_by({id(pod.constraints): pod.constraints for pod in gang.waiting}.values())
    for count, pod in enumerate(gang.waiting, start=1):
        kind: Hashable = pod.uid
        if cluster.nomination(pod.uid) is None:
            kind = signature_of(pod, _NO_PLUGIN), tuple(map(pod.labels.get, keys))
        kinds[pod.uid] = numbers.setdefault(kind, len(numbers))
        if count % _AT_ONCE == 0:
            yield
    return kinds


def _selected_by(constraints: Iterable[Constraints]) -> tuple[str, ...]:
    selectors = list[LabelSelector | None]()
    for constrained in constraints:
        selectors += [term.selector for term in constrained.terms_about_pods]
        selectors += [constraint.selector for constraint in constrained.spread]
    return tuple({key.key: None for selector in selectors if selector is not None for key in selector.requirements})


@attrs.define(eq=False)
class _Planner:
    """Tries one region after the other."""

    trial: Trial
    gang: Gang
    profile: Profile
    warmup: IndexWarmup
    kinds: Mapping[str, _Kind]
    _nodes: dict[_Kind, NodeSet] = attrs.field(factory=dict)
    _tried: dict[Region, None] = attrs.field(factory=dict)
    _main: PodRoom | None = None
    _best: int = -1
    _best_region: Region = NOWHERE
    _by_place: dict[str, Profile] = attrs.field(factory=dict)

    @property
    def cluster(self) -> Cluster:
        return self.trial.cluster

    def run(self) -> Generator[None, None, GroupPlan | GroupRefusal]:
        yield from self.cluster.view.prepare(lambda view: view.domains(self.gang.group.topology))
        lacking = complaint_about(self.cluster, self.gang) or (yield from self._reason_not_to_begin())
        yield
        if lacking is not None:
            return GroupRefusal(0, lacking)
        enough = (yield from self._place_enough()) or (yield from self._place_by_affinity())
        enough = enough or (yield from self._search())
        return (yield from (self._add_the_others() if enough else self._refuse()))

    def _reason_not_to_begin(self) -> Generator[None, None, FitError | None]:
        """Return why a LeaderWorkerSet's group does not begin; None if all members have room, those to come, too."""
        gang, group = self.gang, self.gang.group
        if group.key.dialect is not Dialect.LEADER_WORKER_SET or gang.placed or not group.expected:
            return None
        asking = [pod for pod in gang.waiting if pod.neuron is not None]
        members = len(asking) + gang.still_to_come
        others = 0 if group.topology else (yield from self._awaited_by_others())
        if not asking or members + others == len(asking):
            return None  # what comes later is not known, or nothing comes
        equal = self._largest_first(asking)[0]
        room = yield from (yield from self._rooms_for(equal)).most(group.topology)
        empty = yield from empty_machines(self.cluster.view, equal[0]).most(group.topology)
        if room >= members + others or empty < members:  # those to come ask for less than the leader, or fit nowhere
            return None
        if group.topology:
            text = _no_domain_text(group.topology, members, room)
        else:
            text = f"room for {room} such pods, and the group needs {members}"
            text += f", beside {others} that started groups of the namespace await" if others else ""
        exist = f"{len(gang.waiting)} of {group.expected} members of group {group.key} exist"
        exist += ", and all must have room without evictions:"
        nodes = self.cluster.view.node_count
        return FitError(nodes, plugins=frozenset({GROUP_TOPOLOGY}), pod_reason=text, cause=Cause.CAPACITY, group=exist)

    def _awaited_by_others(self) -> Generator[None, None, int]:
        """Return how many members will come of the namespace's other groups that have begun."""
        groups, total = self.cluster.groups, 0
        for key in [*groups.other_groups(self.gang.group.key)]:
            placed = sum(self.cluster.node_of(uid) is not None for uid in groups.members(key))
            total += max(groups.group(key).expected - placed, 0) if placed else 0
            yield
        return total

    def _place_enough(self) -> Generator[None, None, bool]:
        """Place as many members as there must be, or more; return whether that succeeds."""
        rest = yield from self._choosiest_first(self.gang.waiting)
        needed = max(self.gang.missing_count, 1)
        for wanted in dict.fromkeys((len(rest), needed)):
            if (yield from self._place_in_a_region(rest, wanted, needed)):
                return True
        return not self.gang.missing_count

    def _place_by_affinity(self) -> Generator[None, None, bool]:
        """
        Place the members of each affinity to themselves in one domain with room for them; return whether enough fit.

        The order above puts the first of them where it fits best, and the others must follow it there. A group that
        has a domain has tried all of them.
        """
        alone, parts = list[Pod](), dict[PodAffinityTerm, list[Pod]]()
        for pods in self._by_kind(() if self.gang.group.topology else self.gang.waiting):
            term = own_term(pods[0])
            (alone if term is None else parts.setdefault(term, [])).extend(pods)
        for term, pods in sorted(parts.items(), key=lambda part: -len(part[1])):
            before, rooms = len(self.trial.pods), (yield from self._rooms_for(self._largest_first(pods)[0]))
            for region in in_one(rooms, term.topology_key, len(pods)):
                if region is not None and self.trial.decisions < self._most:
                    if not (yield from self._place(pods, region)):
                        break
                    yield from _undo(self.trial, before)
                yield
        yield from self._place(alone if parts else (), ANYWHERE)
        if len(self.trial.pods) >= max(self.gang.missing_count, 1):
            return True
        yield from _undo(self.trial, 0)
        return False

    @property
    def _most(self) -> int:
        return len(self.gang.waiting) + MOST_DECISIONS

    def _choosiest_first(self, pods: Sequence[Pod]) -> Generator[None, None, Sequence[Pod]]:
        """Return pods in the order in which they are placed: if they differ, those first that fewest nodes take."""
        kinds = self._by_kind(pods)
        if len(kinds) < 2:  # equal ones need no count
            return pods
        counts = dict[_Kind, int]()
        for first, *_ in kinds:
            counts[self.kinds[first.uid]] = (yield from self._nodes_for(first)).bit_count()
        kept = self.cluster.nominees_among({pod.uid for pod in pods})
        return sorted(pods, key=lambda pod: (pod.uid not in kept, counts[self.kinds[pod.uid]]))

    def _nodes_for(self, pod: Pod) -> Generator[None, None, NodeSet]:
        """Return the nodes that take a pod by itself."""
        kind = self.kinds[pod.uid]
        if kind not in self._nodes:
            by_itself = without_pod_terms(pod)
            yield from self.warmup.prepare(self.cluster, by_itself, self.profile)
            with self.cluster.without_nomination(pod.uid):
                self._nodes[kind] = nodes_that_fit(
                    self.cluster, by_itself, self.profile.steps_for(by_itself), self.cluster.view.live
                )
            yield
        return self._nodes[kind]

    def _place_in_a_region(self, rest: Sequence[Pod], wanted: int, needed: int) -> Generator[None, None, bool]:
        self._tried.clear()
        for region in self._regions(rest, wanted, needed):
            if region is not None and region not in self._tried:
                if self.trial.decisions >= self._most:
                    return False
                self._tried[region] = None
                yield from self._place(rest, region)
                if len(self.trial.pods) > self._best:
                    self._best, self._best_region = len(self.trial.pods), region
                if len(self.trial.pods) >= needed:
                    return True
                yield from _undo(self.trial, 0)
            yield
        return False

    def _regions(self, rest: Sequence[Pod], wanted: int, needed: int) -> RegionSteps:
        """Yield the regions to try, or None for a pause; none if there is certainly no room."""
        gang, required, others = self.gang, self.gang.group.topology, len(rest)
        inside = [pod for pod in rest if pod.uid not in gang.unconstrained]
        yield from self.cluster.view.prepare(machines)
        few = not required and others <= _FEW and not any(map(self._may_take_whole, rest))
        if few or not inside:
            yield ANYWHERE  # the trial itself costs less than to count the room
            return
        yield None
        fixed = fixed_domains(self.cluster, gang)
        yield None
        asking = any(pod.neuron is not None for pod in inside)
        if required and gang.still_to_come and not asking:  # its workers will ask for machines
            yield from self.cluster.view.prepare(lambda view: view.column(intact_ultra_servers.whole_free))
            nodes = yield from self._nodes_for(inside[0])
            free = self.cluster.view.column(intact_ultra_servers.whole_free).at_least(1, self.cluster.view.live)
            rooms = Rooms(self.cluster.view, whole=True, each=[nodes], numbers=[(1, free)])
            yield from regions(gang, rooms, 0, fixed)
        each = [self._nodes.get(self.kinds[first.uid], self.cluster.view.live) for first, *_ in self._by_kind(inside)]
        for pods in self._largest_first(inside):
            yield None
            if others < needed:
                return  # at least one of the members before is needed, and the regions with room for it were tried
            others -= len(pods)
            rooms = yield from self._rooms_for(pods, each if needed == len(rest) else ())
            self._main = room_of(pods[0])
            if len(pods) < len(rest) or rooms.total >= wanted:
                yield from regions(gang, rooms, min(len(pods), wanted), fixed, needed - others)

    def _largest_first(self, pods: Sequence[Pod]) -> Sequence[Sequence[Pod]]:
        """Return the pods for which the room is counted, in lists of those that ask for the same, the largest first."""
        equal = dict[PodRoom, list[Pod]]()
        for first, *others in self._by_kind(pods):
            equal.setdefault(room_of(first), []).extend((first, *others))
        return sorted(equal.values(), key=lambda pods: (-neuron_total_of(pods[0]), -len(pods)))[:_MOST_COUNTED]

    def _rooms_for(self, pods: Sequence[Pod], each: Sequence[NodeSet] = ()) -> Generator[None, None, Rooms]:
        """Return the room for pods that ask for the same, on the nodes that take one of them."""
        nodes, room = NO_NODES, room_of(pods[0])
        for first, *_ in self._by_kind(pods):
            nodes |= yield from self._nodes_for(first)

        def ask(view: View) -> None:
            view.postings(room)
            for key in LEVELS:
                view.domains(key)
            for place in ULTRASERVER_PLACES.values():
                view.integer_postings(place)

        yield from self.cluster.view.prepare(ask)
        return rooms_for(self.cluster.view, pods[0], nodes, each)

    def _may_take_whole(self, pod: Pod) -> bool:
        """Return whether a pod takes all of some machine of the fleet."""
        neuron, kinds = pod.neuron, cast(Iterable[Machine], machines(self.cluster.view).values)
        return neuron is not None and any(machine.size(neuron.unit) == neuron.total for machine in kinds)

    def _search(self) -> Generator[None, None, bool]:
        """Search for a placement, if the order in which members are placed may matter, and if it is not hopeless."""
        if 1 < len(self.gang.waiting) <= MOST_SEARCHED and self._differ(self.gang.waiting):
            members = yield from self._choosiest_first(self.gang.waiting)
            domains = dict.fromkeys(region.within for region in self._tried)
            for within in domains if None not in domains else (None,):
                search = _Search(self.trial, self.profile, within, self.gang, self.kinds, self._most)
                if (yield from search.run(self._by_kind(members))):
                    self._best_region = Region(within)
                    return True
        return False

    def _place(self, pods: Sequence[Pod], region: Region) -> Generator[None, None, Sequence[Pod]]:
        """Place pods in a region, and try again those that others may have let in; return those without a place."""
        left, filled = pods, 0
        while True:
            trying, left, refused, before = left, list[Pod](), set[_Kind](), len(self.trial.pods)
            for pod in trying:
                kind = self.kinds[pod.uid]
                in_slice = pod.uid not in self.gang.unconstrained and room_of(pod) is self._main
                domain = region.domain_for(filled) if in_slice else region.within
                if kind not in refused and (yield from self._place_one(pod, domain)):
                    filled += in_slice
                else:
                    refused.add(kind)
                    left.append(pod)
            if len(self.trial.pods) == before or not left or self.trial.decisions >= self._most:
                return left

    def _place_one(self, pod: Pod, domain: Domain | None) -> Generator[None, None, bool]:
        """Place one pod in a domain, or anywhere if that does not matter to it, if a node takes it."""
        if pod.uid in self.gang.unconstrained:
            domain = None
        yield from self.warmup.prepare(self.cluster, pod, self.profile)
        profile = self.profile if pod.neuron is None else self._profile(domain)
        result = self.trial.place(pod, profile, nodes_in(self.cluster.view, domain))
        yield
        return isinstance(result, Decision)

    def _profile(self, domain: Domain | None) -> Profile:
        """Return the profile that fills an UltraServer in the order of its places."""
        key = domain[0] if domain is not None else ""
        if key not in ULTRASERVER_PLACES:
            return self.profile
        if key not in self._by_place:
            others = [each for each in self.profile.preferences if each.name != intact_ultra_servers.NAME]
            preference = Preference(intact_ultra_servers.NAME, intact_ultra_servers.by_place(key))
            self._by_place[key] = attrs.evolve(self.profile, preferences=(*others, preference))
        return self._by_place[key]

    def _differ(self, pods: Sequence[Pod]) -> bool:
        """Return whether the order in which the pods are placed may matter; not to equal ones of one domain."""
        topology = self.gang.group.topology
        return len(self._by_kind(pods)) > 1 or any(
            constraints.anti_affinity
            or constraints.spread
            or any(term.topology_key != topology for term in constraints.affinity)
            for constraints in {id(pod.constraints): pod.constraints for pod in pods}.values()
        )

    def _by_kind(self, pods: Sequence[Pod]) -> Sequence[Sequence[Pod]]:
        kinds = dict[_Kind, list[Pod]]()
        for pod in pods:
            kinds.setdefault(self.kinds[pod.uid], []).append(pod)
        return [*kinds.values()]

    def _add_the_others(self) -> Generator[None, None, GroupPlan]:
        """Place the members beyond the count where they fit, and return the plan."""
        taken = {taken.pod.uid for taken in self.trial.pods}
        home = Region(self._best_region.within) if self.gang.group.topology else ANYWHERE
        reasons = dict[_Kind, FitError]()
        others = yield from self._place([pod for pod in self.gang.waiting if pod.uid not in taken], home)
        yield
        for pod in others:  # what comes free in these pauses is theirs
            kind = self.kinds[pod.uid]
            if kind not in reasons and not (yield from self._place_one(pod, home.within)):
                reasons[kind] = yield from self._reason(pod, home)
        taken = {taken.pod.uid for taken in self.trial.pods}
        left_out = [(pod, reasons[self.kinds[pod.uid]]) for pod in others if pod.uid not in taken]
        yield
        self.trial.check()
        return GroupPlan(tuple(self.trial.pods), tuple(left_out))

    def _refuse(self) -> Generator[None, None, GroupPlan | GroupRefusal]:
        """Place as many as fit once more, and say why the next one does not."""
        if self._best <= 0:
            self._best_region = yield from self._roomiest_region()
        region = self._best_region
        left = yield from self._place((yield from self._choosiest_first(self.gang.waiting)), region)
        for pod in left:  # those placed since may have let it in
            if not (yield from self._place_one(pod, region.within)):
                break
        fitting_at_once = len(self.trial.pods)
        if fitting_at_once >= self.gang.missing_count:  # room has come in a pause
            return (yield from self._add_the_others())
        reason = self._with_domain((yield from self._reason(pod, region)), pod)
        yield from _undo(self.trial, 0)
        return GroupRefusal(fitting_at_once, reason, pod.name if len(self._by_kind(self.gang.waiting)) > 1 else "")

    def _with_domain(self, reason: FitError, pod: Pod) -> FitError:
        """Return a reason that names the domain that is too small, in place of what is free elsewhere."""
        gang, topology = self.gang, self.gang.group.topology
        short = reason.cause in (Cause.CAPACITY, Cause.FRAGMENTATION)
        if not topology or gang.placed or pod.uid in gang.unconstrained or not short:
            return reason
        inside, fitting = (
            [each for each in pods if each.uid not in gang.unconstrained]
            for pods in (gang.waiting, [taken.pod for taken in self.trial.pods])
        )
        text = _no_domain_text(topology, min(len(inside), gang.missing_count), len(fitting))
        return attrs.evolve(reason, hint=f"{reason.cause.capitalize()}: {text}.")

    def _roomiest_region(self) -> Generator[None, None, Region]:
        """Return where most members fit, if no region has been tried because all have too little room."""
        topology, fixed = self.gang.group.topology, fixed_domains(self.cluster, self.gang)
        if not topology:
            return ANYWHERE
        if topology in fixed:
            return Region((topology, fixed[topology])) if fixed[topology] else NOWHERE
        for pods in self._largest_first([pod for pod in self.gang.waiting if pod.uid not in self.gang.unconstrained]):
            rooms = yield from self._rooms_for(pods)
            domains = yield from rooms.by_domain(topology)
            roomiest = nlargest(_MOST_ROOMY, domains.values(), key=lambda domain: domain.room)
            for domain in roomiest:  # its rules about other pods may keep a member from the first ones
                if (yield from self._place_one(pods[0], (topology, domain.value))):
                    yield from _undo(self.trial, 0)
                    return Region((topology, domain.value))
            if roomiest:
                return Region((topology, roomiest[0].value))
        return self._best_region

    def _reason(self, pod: Pod, region: Region) -> Generator[None, None, FitError]:
        """Return why a pod finds no place beside those that are placed."""
        yield from self.warmup.prepare_refusal(self.cluster, pod, self.profile)
        among = nodes_in(self.cluster.view, None if pod.uid in self.gang.unconstrained else region.within)
        no_node = select_node(self.cluster, pod, self.profile, among)
        if not isinstance(no_node, NoNode):
            raise ChangedError
        with self.cluster.without_nomination(pod.uid):
            fits = nodes_that_fit(self.cluster, pod, self.profile.steps_for(pod), self.cluster.view.live)
        outside = less(fits, among)
        refused = (Refusal(GROUP_TOPOLOGY, OUTSIDE, outside),) if outside else ()
        no_node = attrs.evolve(no_node, too_late=(*no_node.too_late, *refused))
        return fit_error(self.cluster, pod, self.profile, no_node)


def _no_domain_text(topology: str, members: int, room: int) -> str:
    return f"no {topology} has room for all {members} members of the group, the roomiest for {room}"


def _undo(trial: Trial, down_to: int) -> Generator[None, None, None]:
    """Take the last pods of a trial back until so many are left, a few at a time."""
    while len(trial.pods) > down_to:
        trial.undo(max(down_to, len(trial.pods) - _AT_ONCE))
        yield


@attrs.define(eq=False)
class _Search:
    """
    Looks for a placement depth first, where members differ or look at each other and the greedy order found none.

    Each step places one more member of some kind on some node. A state that was reached before, in whatever order, is
    not tried again.
    """

    trial: Trial
    profile: Profile
    within: Domain | None
    gang: Gang
    kinds: Mapping[str, _Kind]
    most: int
    _seen: set[frozenset[Hashable]] = attrs.field(factory=set)

    def run(self, kinds: Sequence[Sequence[Pod]]) -> Generator[None, None, bool]:
        """Return whether enough members are placed now; if not, the trial is as before."""
        if len(self.trial.pods) >= self.gang.missing_count:
            return True
        before = len(self.trial.pods)
        all_needed = before + sum(map(len, kinds)) == self.gang.missing_count
        for index, (pod, *others) in enumerate(kinds):
            rest = [*kinds[:index], *([others] if others else []), *kinds[index + 1 :]]
            tried = list[str]()
            while self.trial.decisions < self.most:
                result = self.trial.place(pod, self.profile, self._untried_nodes(pod, tried))
                yield
                if isinstance(result, NoNode):
                    if all_needed and not (self._order_matters(kinds) and (tried or self._may_be_let_in(pod, rest))):
                        return False
                    break
                tried.append(result.node_name)
                if self._note_if_new() and (yield from self.run(rest)):
                    return True
                self.trial.undo(before)
        return False

    def _may_be_let_in(self, pod: Pod, rest: Iterable[Iterable[Pod]]) -> bool:
        """Return whether a pod that has no place may get one once others are placed, which then keep no other space."""
        cluster, by_itself = self.trial.cluster, without_pod_terms(pod)
        if any(cluster.nomination(other.uid) is not None for others in rest for other in others):
            return True
        return bool(nodes_that_fit(cluster, by_itself, self.profile.steps_for(by_itself), self._untried_nodes(pod, ())))

    def _order_matters(self, kinds: Iterable[Iterable[Pod]]) -> bool:
        """Return whether one of the pods may let in another, or keep it out; else each can be the first of them."""
        nomination = self.trial.cluster.nomination
        return any(
            nomination(pod.uid) is not None or without_pod_terms(pod) is not pod for pods in kinds for pod in pods
        )

    def _untried_nodes(self, pod: Pod, tried: Sequence[str]) -> NodeSet:
        view, within = self.trial.cluster.view, None if pod.uid in self.gang.unconstrained else self.within
        slots = [slot for slot in map(view.slot, tried) if slot is not None]
        return less(nodes_in(view, within), from_slots(slots, max(slots) + 1) if slots else NO_NODES)

    def _note_if_new(self) -> bool:
        """Return whether this state is reached for the first time: which kinds are on which nodes and cores."""
        counts = Counter(
            (
                self.kinds.get(taken.pod.uid),
                taken.decision.node_name,
                taken.decision.placement and taken.decision.placement.cores,
            )
            for taken in self.trial.pods
        )
        state = frozenset(counts.items())
        new = state not in self._seen
        self._seen.add(state)
        return new

"""
Which machines the waiting pods need beside those that the autoscaler adds by itself, and which requests they need not.

    hidden, others = what fits by count on existing nodes, and what does not      (`packing`)
    on a fork without the pods that are about to go:
        all pods where the scheduler would place them now
        machines of open requests: the pods that they were asked for
        hidden pods that have waited too long for others' machines, on what these machines have left
        machines that the autoscaler adds for the others
        hidden pods on what these machines have left
        hidden pods without a place: the needs                                     (`packing`)

Requests keep their pods from one plan to the next, so the same cluster gets the same answer, and nothing is asked for
and withdrawn in turn.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

import attrs

from neuron_scheduler.capacity.planning.packing import (
    Line,
    Load,
    Offer,
    Packed,
    Packing,
    hidden,
    is_seen,
    lines_of,
    names_a_node,
    offers_of,
)
from neuron_scheduler.capacity.planning.requests import MachineNeed, Owner
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_NAMES, Resources, add
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.neuron_shortage import neuron_shortage
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, diagnosis, select_node
from neuron_scheduler.scheduling.plugins.cause import Cause

MOST_NEEDS: Final = 64
"""
Machines that one plan asks for at most: no limit of a profile lets so many be asked for at once.

A plan does not stop at the limits: the pods of the machines beyond them are told which limit it is, and are counted.
"""
MOST_EXPECTED: Final = 128
"""Machines that the autoscaler is expected to add by itself; of more it does not matter what they have left."""
_PODS_A_STEP: Final = 500
_ROWS_A_STEP: Final = 100
_TENTHS_FOR_OTHERS: Final = 9
"""Of the cpu of an empty machine, how much a request takes at most to come before pods of others."""

NO_TYPE: Final = "no instance type that it allows can hold it"
NAMED_NODE: Final = "it requires a node by its name, and autoscalers add no node for such a pod"
CROWDED: Final = "machines for as many other pods of its namespace as limits allow are needed first"
SHARED: Final = "it fits on a machine that the autoscaler adds for other pods"
FITS_NOW: Final = "it fits now, and is about to be tried"

_SERVED_BY_A_MACHINE: Final = frozenset({Cause.FRAGMENTATION, Cause.CAPACITY})
"""A pod that waits for the second is hidden if pods with cores hold its devices, or the reverse."""
MAY_BE_SERVED: Final = _SERVED_BY_A_MACHINE | {Cause.UNKNOWN_HOLDER}
"""A pod that waits for anything else is no case; of a pod that waits for the third, the other nodes decide."""


@attrs.frozen
class WaitingPod:
    """
    A pod that waits in the queue, whether its profile asks for machines or not: others' pods take up room as well.

    Attributes:
        pod: as it was last seen, with its condition.
        may_ask: it has waited long enough, its profile asks for machines, and no machine for it was given up lately.
        expects_own: the autoscaler may still add a machine for it, or for others beside whom it has room; false after
            it has waited so long for one that none will come.
    """

    pod: Pod
    may_ask: bool = True
    expects_own: bool = True


@attrs.frozen(kw_only=True)
class Situation:
    """
    What the plan starts from: which machines do the waiting pods need?

    Attributes:
        cluster: as it is now; the plan works on forks of it.
        waiting: all pods that wait, the most urgent first. Only those that an autoscaler sees matter: their condition
            has the reason `Unschedulable`, and they have no nominated node.
        profile_of: the profile that decides a pod.
        open: the requests that are out, and those whose machine is on its way or not ready yet, by their id, the oldest
            first. A request whose machine takes pods already is none of them.
        most_of: how many machines are of interest that are for a pod's profile and namespace, as limits count them: no
            namespace keeps the plan from looking at the others.
        most_needs: new machines that are of interest.
    """

    cluster: Cluster
    waiting: Sequence[WaitingPod]
    profile_of: Callable[[Pod], Profile]
    open: Mapping[str, MachineNeed]
    most_of: Callable[[Pod], int]
    most_needs: int = MOST_NEEDS


@attrs.frozen(kw_only=True)
class Plan:
    """
    What the waiting pods need.

    Attributes:
        needs: machines to be asked for beside the open requests; the one with the most urgent pod comes first.
        serving: the uids of the pods that would be on the machine of each open request that has any.
        surplus: open requests whose machine no pod needs.
        hopeless: why no machine is asked for, by the uid of a pod that may ask, and needs one.
    """

    needs: tuple[MachineNeed, ...] = ()
    serving: Mapping[str, tuple[str, ...]]
    surplus: tuple[str, ...] = ()
    hopeless: Mapping[str, str]


def planned(situation: Situation) -> Generator[None, None, Plan]:
    """
    Return what the waiting pods need; equal situations get equal plans.

    A step takes a few milliseconds at most. All of it is about the cluster as it is at the first step.
    """
    base = situation.cluster.fork()
    seen: list[WaitingPod] = []
    for number, waiting in enumerate(situation.waiting):
        if number % _PODS_A_STEP == 0:
            yield
        if _is_seen(base, waiting.pod):
            seen.append(waiting)
    if not seen:
        return Plan(serving={}, surplus=tuple(situation.open), hopeless={})
    planning = yield from _prepared(situation, base, seen)
    yield from planning.place_on_existing()
    yield from planning.fill_open_requests()
    yield from planning.share(planning.lines["overdue"])
    yield from planning.expect_others_machines()
    yield from planning.share(planning.lines["ripe"], SHARED)
    yield from planning.share(planning.lines["unripe"])
    yield from planning.ask_for_the_rest()
    plan = planning.plan()
    yield from planning.released()
    return plan


def _is_seen(cluster: Cluster, pod: Pod) -> bool:
    """Return whether a pod with Neuron waits for a place, and autoscalers see it."""
    if pod.neuron is None or not is_seen(pod):
        return False
    return cluster.nomination(pod.uid) is None and cluster.node_of(pod.uid) is None


def _prepared(situation: Situation, base: Cluster, seen: Sequence[WaitingPod]) -> Generator[None, None, "_Planning"]:
    """Look at the cluster, and count what the autoscaler counts."""
    leaving, units = yield from _surveyed(base.view)
    pods = [waiting.pod for waiting in seen]
    units[""] = {pod.neuron.resource for pod in pods if pod.neuron is not None}
    types = [name for need in situation.open.values() for name in need.instance_types]
    offers = yield from offers_of(base.view, pods, types)
    unseen_need = yield from hidden(base.fork(), pods, situation.profile_of)
    groups: dict[str, list[Pod]] = {}
    for waiting in seen:
        groups.setdefault(_group_of(waiting, is_hidden=waiting.pod.uid in unseen_need), []).append(waiting.pod)
    lines: dict[str, list[Line]] = {}
    for name in _GROUPS:
        lines[name] = yield from lines_of(base, groups.get(name, ()), situation.profile_of)
    fork = base.fork()
    yield
    for uid in leaving:
        fork.remove_pod(uid)
        yield
    return _Planning(situation, base, lines, Packing(fork, offers), pods, units)


_GROUPS: Final = ("overdue", "ripe", "unripe", "others", "rest")
_HIDDEN: Final = _GROUPS[:3]


def _group_of(waiting: WaitingPod, *, is_hidden: bool) -> str:
    """
    Return what the autoscaler does for a pod, and whether a machine may be asked for it.

    overdue: hidden, and it has waited so long that it counts on no machine that the autoscaler adds for others: pods
        for which it never adds one may come again and again.
    ripe: hidden, and a machine may be asked for.
    unripe: hidden, and it is too early to ask.
    others: the autoscaler adds a machine for it by itself.
    rest: it should have done so, and nothing came.
    """
    if not is_hidden:
        return "others" if waiting.expects_own else "rest"
    if not waiting.may_ask:
        return "unripe"
    return "ripe" if waiting.expects_own else "overdue"


def _surveyed(view: View) -> Generator[None, None, tuple[tuple[str, ...], dict[str, set[str]]]]:
    """
    Look at all nodes, a few at a time; the cluster must not change meanwhile.

    Returns the uids of the pods that are about to go, and the resources by which pods ask for Neuron, by the label
    value of the type on whose nodes they are.
    """
    leaving: list[str] = []
    units: dict[str, set[str]] = {}
    for position, node_info in enumerate(view.rows(), start=1):
        in_use = units.setdefault(node_info.node.labels.get(INSTANCE_TYPE_LABEL, ""), set())
        for uid, pod_info in node_info.pod_infos.items():
            if pod_info.pod.terminating:
                leaving.append(uid)
            if pod_info.pod.neuron is not None:
                in_use.add(pod_info.pod.neuron.resource)
        if position % _ROWS_A_STEP == 0:
            yield
    return tuple(leaving), units


@attrs.define(eq=False)
class _Planning:
    """A plan on its way: each step takes the pods that it finds a place for from their lines."""

    _situation: Situation
    _base: Cluster
    lines: dict[str, list[Line]]  # by group
    _packing: Packing
    _seen: list[Pod]  # the most urgent first
    _units: Mapping[str, set[str]]  # in which Neuron is asked for, by instance type; of waiting pods under ""
    _needs: list[MachineNeed] = attrs.field(factory=list)
    _hopeless: dict[str, str] = attrs.field(factory=dict)
    _request_on: dict[str, str] = attrs.field(factory=dict)  # by the name of its machine on the fork
    _serving: dict[str, list[str]] = attrs.field(factory=dict)  # uids, by request

    @property
    def _hidden(self) -> list[Line]:
        return [line for name in _HIDDEN for line in self.lines[name]]

    def place_on_existing(self) -> Generator[None, None, None]:
        """Place the pods that the scheduler would place now, the most urgent first."""
        lines = [line for group in self.lines.values() for line in group]
        line_of = {pod.uid: line for line in lines for pod in line.pods}
        refused: set[int] = set()
        for pod in self._seen:
            line = line_of[pod.uid]
            if id(line) not in refused and not (yield from self._packing.place(line)):
                refused.add(id(line))

    def fill_open_requests(self) -> Generator[None, None, None]:
        """
        Add the machine of each open request, and give it those of its pods that still wait.

        They are believed to be served by it, also where the type is not known, or where pods depend on each other: no
        machine is asked for a pod as long as the last one is out.
        """
        for name, need in self._situation.open.items():
            offer = next((offer for offer in self._packing.offers if _meets(offer, need)), None)
            node_name = "" if offer is None else self._packing.join(offer)
            if node_name:
                self._request_on[node_name] = name
            uids = {pod.uid for pod in need.pods}
            for line in self._hidden:
                own = [pod for pod in line.pods if pod.uid in uids]
                for pod in own:
                    if node_name:
                        self._packing.place_on(line, pod, node_name)
                        yield
                    self._serving.setdefault(name, []).append(pod.uid)
                if own:
                    line.leave(pod.uid for pod in own)
            yield

    def share(self, lines: Iterable[Line], reason: str = "") -> Generator[None, None, None]:
        """Place pods on machines that are to come; `reason` is why none is asked for those on others' machines."""
        for line in lines:
            while line.pods:
                pod = line.pods[0]
                node_name = yield from self._packing.place(line)
                if not node_name:
                    break
                if node_name in self._request_on:
                    self._serving.setdefault(self._request_on[node_name], []).append(pod.uid)
                elif reason:
                    self._hopeless[pod.uid] = reason

    def expect_others_machines(self) -> Generator[None, None, None]:
        """Add the machines that the autoscaler adds by itself."""
        for _ in range(MOST_EXPECTED):
            others = [line for line in self.lines["others"] if line.pods]
            if not others:
                return
            if (yield from self._packing.opened(others)) is None:
                others[0].pods.clear()  # no machine takes them

    def ask_for_the_rest(self) -> Generator[None, None, None]:
        """
        Pack the pods without a place onto machines, as long as so many are of interest.

        Lines come first that few machines take: pods that may be in any zone fill the machines of those that may not.
        The other way round they would have machines of their own, beside those that are needed in any case.
        """
        shortages = yield from self._served_by_machines()
        taking: dict[int, int] = {}
        for line, _ in shortages:
            taking[id(line)] = len((yield from self._packing.taking(line, line.pods[0])))
        shortage_of = {id(line): text for line, text in shortages}
        lines = sorted([line for line, _ in shortages], key=lambda line: taking[id(line)])
        rank = {pod.uid: position for position, pod in enumerate(self._seen)}
        while lines and len(self._needs) < self._situation.most_needs:
            packed = yield from self._packing.opened(lines)
            if packed is None:
                self._give_up(lines[0].pods, NO_TYPE)
                lines[0].pods.clear()
            else:
                in_order = sorted(packed.load, key=lambda placed: rank[placed[1].uid])
                self._keep(packed, tuple(pod for _, pod in in_order), shortage_of[id(in_order[0][0])])
            self._leave_crowds_out(lines)
            lines = [line for line in lines if line.pods]
        self._needs.sort(key=lambda need: rank[need.pods[0].uid])

    def plan(self) -> Plan:
        """Return what was found."""
        return Plan(
            needs=tuple(self._needs),
            serving={name: tuple(uids) for name, uids in self._serving.items()},
            surplus=tuple(name for name in self._situation.open if name not in self._serving),
            hopeless=self._hopeless,
        )

    def released(self) -> Generator[None, None, None]:
        """Let go of the lines in pieces: to free thousands of them takes longer than a step may."""
        lines = [line for group in self.lines.values() for line in group]
        self.lines.clear()
        while lines:
            del lines[-_PODS_A_STEP:]
            yield

    def _served_by_machines(self) -> Generator[None, None, list[tuple[Line, str]]]:
        """Return the lines whose pods may be asked for, and why they wait; of the others it is said why not."""
        lines: list[tuple[Line, str]] = []
        warmup = IndexWarmup()
        for line in (*self.lines["overdue"], *self.lines["ripe"]):
            if not line.pods:
                continue
            if names_a_node(line.pods[0].constraints):
                objection, shortage = NAMED_NODE, ""
            else:
                objection, shortage = yield from _shortage(self._base, line, warmup)
            if objection:
                self._give_up(line.pods, objection)
            else:
                lines.append((line, shortage))
        return lines

    def _leave_crowds_out(self, lines: Iterable[Line]) -> None:
        """Take the pods of a namespace for which enough machines are needed already from the lines."""
        counts = Counter(need.owner for need in self._needs)
        crowds = {need.owner for need in self._needs if counts[need.owner] >= self._situation.most_of(need.pods[0])}
        for line in lines if crowds else ():
            crowded = [pod for pod in line.pods if Owner(pod.scheduler_name, pod.namespace) in crowds]
            if crowded:
                self._give_up(crowded, CROWDED)
                line.leave(pod.uid for pod in crowded)

    def _keep(self, packed: Packed, pods: tuple[Pod, ...], shortage: str) -> None:
        """Keep the need for a machine; `pods` are its pods, the most urgent first, and `shortage` is why they wait."""
        total = reduce(add, [pod.requests for pod in pods])
        holding = [offer for offer in packed.alike if offer is packed.offer or _holds(offer, total)]
        types = tuple(dict.fromkeys(offer.instance_type for offer in (packed.offer, *holding)))
        names = {line.request.resource for line, _ in packed.load} | self._units[""]
        names = names.union(*(self._units.get(each, ()) for each in types))
        waiting = sorted({waiting.pod.requests.get(CPU, 0) for waiting in self._situation.waiting})
        need = MachineNeed(
            instance_types=types,
            silicon={name: amount for name, amount in packed.offer.silicon.items() if name in names},
            host=_host(total, pods, holding, waiting),
            zones=_zones(packed.load, holding, self._packing.offers),
            pods=pods,
            pattern=packed.load[0][1],
            shortage=shortage,
        )
        self._needs.append(need)

    def _give_up(self, pods: Iterable[Pod], reason: str) -> None:
        for pod in pods:
            self._hopeless[pod.uid] = reason


def _shortage(cluster: Cluster, line: Line, warmup: IndexWarmup) -> Generator[None, None, tuple[str, str]]:
    """
    Return why no machine is asked for the pods of a line, and why they wait, in clauses; the first is empty if one is.

    A machine is the remedy where devices or cores are free in pieces, and where pods that ask in the other unit hold
    them: autoscalers count devices and cores apart. It is none for a fault that people must mend, such as pods with
    unknown ids; but one such pod is no reason to ask for none where enough is free in pieces on nodes without them.
    """
    pod, profile = line.pods[0], line.profile
    yield from warmup.of(cluster, pod, profile)
    result = select_node(cluster, pod, profile)
    yield
    if isinstance(result, Decision):
        return FITS_NOW, ""
    yield from warmup.of_refusal(cluster, pod, profile)
    found = diagnosis(cluster, pod, profile, result)
    yield
    shortage, cause = neuron_shortage(cluster, pod, profile, found.refusals), found.fit_error.cause
    in_pieces_elsewhere = shortage is not None and shortage.cause is Cause.FRAGMENTATION
    if cause not in _SERVED_BY_A_MACHINE and not (cause is Cause.UNKNOWN_HOLDER and in_pieces_elsewhere):
        return f"a new machine is not the remedy for what it waits for ({cause.replace('_', ' ')})", ""
    return "", "" if shortage is None else shortage.sentence.partition(": ")[2].removesuffix(".")


def _meets(offer: Offer, need: MachineNeed) -> bool:
    """Return whether a machine is what is asked for, and has all the silicon."""
    return need.is_met_by(offer.fresh.node) and all(
        offer.silicon.get(name, 0) >= amount for name, amount in need.silicon.items()
    )


def _holds(offer: Offer, total: Resources) -> bool:
    """Return whether the host of a machine has all that pods ask for together."""
    return all(offer.row.free(name) >= amount for name, amount in total.items() if name not in NEURON_NAMES)


def _host(total: Resources, pods: Sequence[Pod], offers: Iterable[Offer], waiting: Sequence[int]) -> Resources:
    """
    Return all but Neuron: the sum of the pods', and more cpu than any pod that waits and that the machine could hold.

    Karpenter places pods in descending order of cpu. For the sake of others' pods a part of the cpu is left: its own
    estimate of what a new machine has may be lower than what a node of the type has. Other resources decide what is
    bought: on AWS it adds network interfaces for EFA only if `vpc.amazonaws.com/efa` is requested. `waiting` has the
    cpu of all pods that wait, in ascending order.
    """
    cpu, memory = (min(offer.row.free(name) for offer in offers) for name in (CPU, MEMORY))
    held = waiting[: bisect_right(waiting, cpu)]
    before_others = min(held[-1] + 1 if held else 0, cpu * _TENTHS_FOR_OTHERS // 10)
    most = max(pod.requests.get(CPU, 0) for pod in pods)
    host = {
        **{name: amount for name, amount in total.items() if name not in NEURON_NAMES},
        CPU: max(min(max(total.get(CPU, 0), most + 1), cpu), before_others),
        MEMORY: min(total.get(MEMORY, 0), memory),
    }
    return {name: amount for name, amount in host.items() if amount}


def _zones(load: Load, holding: Sequence[Offer], offers: Iterable[Offer]) -> tuple[str, ...]:
    """Return the zones that must be asked for; none where every zone is open to every pod of the machine."""
    types = {offer.instance_type for offer in holding}
    zones = {offer.zone for offer in holding} - {""}
    existing = {offer.zone for offer in offers if offer.instance_type in types} - {""}
    bound = any(_zone_matters(pod) for _, pod in load)
    return tuple(sorted(zones)) if bound or not zones >= existing else ()


def _zone_matters(pod: Pod) -> bool:
    """Return whether volumes or other pods may close some zones to a pod; its node selector is carried as it is."""
    constraints = pod.constraints
    if constraints.volume_claims or constraints.inline_volumes:
        return True
    keys = {term.topology_key for term in (*constraints.affinity, *constraints.anti_affinity)}
    keys |= {constraint.topology_key for constraint in constraints.spread if constraint.hard}
    return bool(keys - {HOSTNAME_LABEL})

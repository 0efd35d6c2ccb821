"""
Which machines waiting pods need beside those that the autoscaler adds by itself, and which requests are needless.

    hidden, others = what fits by count on existing nodes, and what does not      (`packing`)
    on a fork without the pods that are about to go:
        all pods where the scheduler would place them now
        machines that are asked for: the pods that they were asked for
        hidden pods that have waited too long for others' machines, on what these machines have left
        machines that the autoscaler adds for the others
        hidden pods on what these machines have left
        hidden pods without a place, if a machine may be asked for them: the needs   (`packing`)

Requests keep their pods from one plan to the next, so nothing is asked for and withdrawn in turn.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

import attrs

from neuron_scheduler.capacity.planning.need import LimitOwner, MachineNeed
from neuron_scheduler.capacity.planning.packing import (
    PackedMachine,
    Packing,
    PackingLine,
    has_named_node,
    has_pod_terms,
    hidden_pods,
    is_seen,
    lines_of,
)
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, nodes_of_type
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, NEURON_NAMES, Resources, add
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.what_if import prepare_for_fresh

MOST_NEEDS: Final = 64
"""Machines that one plan asks for at most; the next round goes on."""
MOST_OF_OWNER: Final = 4
"""The same for the pods of one namespace: no namespace keeps the plan from looking at the others."""
MOST_EXPECTED: Final = 128
"""Machines that the autoscaler is expected to add by itself; of more it does not matter what they have left."""
_PODS_A_STEP: Final = 500
_ROWS_A_STEP: Final = 100
_TENTHS_FOR_OTHERS: Final = 9
"""Of the cpu of an empty machine, how much a request takes at most to come before pods of others."""

NO_TYPE: Final = "no instance type that it allows can hold it"
NAMED_NODE: Final = "it requires a node by its name, and autoscalers add no node for such a pod"
CROWDED: Final = "machines for other pods of its namespace are needed first"
SHARED: Final = "it fits on a machine that the autoscaler adds for other pods"

_HIDDEN: Final = ("alone", "overdue", "hidden")
_GROUPS: Final = (*_HIDDEN, "others")
"""Pods for which the autoscaler adds nothing, overdue or not, and those for which it does."""


@attrs.frozen
class UnplacedPod:
    """
    A pod that waits in the queue, whether its profile asks for machines or not: others' pods take up room as well.

    Attributes:
        may_bind: it has waited long enough, its profile asks for machines, and no machine for it was given up lately.
        overdue: it has waited so long that machines for other pods no longer count for it. Pods that never get one may
            come again and again.
        alone: a machine that it was to share did not come, perhaps for another pod: only pods like it share one now.
    """

    pod: Pod
    may_bind: bool = True
    overdue: bool = False
    alone: bool = False


@attrs.frozen(kw_only=True)
class MachinePlan:
    """
    What the waiting pods need.

    Attributes:
        needs: machines to be asked for beside those that are coming; the one with the most urgent pod comes first.
        serving: the uids of the pods on each machine that is coming; empty if no pod needs it.
        hopeless: why no machine is asked for, by the uid of a pod that needs one.
    """

    needs: tuple[MachineNeed, ...] = ()
    serving: Mapping[str, tuple[str, ...]]
    hopeless: Mapping[str, str]


def plan_machines(
    cluster: Cluster,
    waiting: Sequence[UnplacedPod],
    coming: Mapping[str, MachineNeed],
    profile_of: Callable[[Pod], Profile],
) -> Generator[None, None, MachinePlan]:
    """
    Return what the waiting pods need; equal situations get equal plans.

    All of it is about the cluster as it is when its indexes are ready; the plan makes forks of that.

    Args:
        cluster: as it is now.
        waiting: all pods that wait, the most urgent first; only those that an autoscaler sees matter.
        coming: the machines that are asked for or not ready yet, by the name of their request, the oldest first.
        profile_of: the profile that decides a pod.
    """
    yield from prepare_for_fresh(cluster.view)  # not of the fork, which is thrown away
    base = cluster.fork()
    seen: list[UnplacedPod] = []
    for number, each in enumerate(waiting):
        if number % _PODS_A_STEP == 0:
            yield
        if is_seen(base, each.pod):
            seen.append(each)
    if not seen:
        return MachinePlan(serving=dict.fromkeys(coming, ()), hopeless={})
    most_cpu = max(each.pod.requests.get(CPU, 0) for each in waiting)
    planning = yield from _prepare(base, seen, profile_of, most_cpu)
    yield from planning.place_on_existing()
    yield from planning.fill(coming)
    yield from planning.share(planning.lines["overdue"])
    yield from planning.expect_others_machines()
    yield from planning.share(planning.lines["hidden"])
    yield from planning.ask_for_the_rest()
    return planning.plan()


def _prepare(
    base: Cluster, seen: Sequence[UnplacedPod], profile_of: Callable[[Pod], Profile], most_cpu: int
) -> Generator[None, None, "_Planning"]:
    leaving, units = yield from _survey(base.view)
    pods = [waiting.pod for waiting in seen]
    units |= {("", pod.neuron.resource) for pod in pods if pod.neuron is not None}
    unseen_need = yield from hidden_pods(base.fork(), pods, profile_of)
    groups: dict[str, list[Pod]] = {}
    for number, waiting in enumerate(seen):
        if number % _PODS_A_STEP == 0:
            yield
        hidden = "alone" if waiting.alone else "overdue" if waiting.overdue else "hidden"
        name = hidden if waiting.pod.uid in unseen_need else "others"
        groups.setdefault(name, []).append(waiting.pod)
    lines: dict[str, list[PackingLine]] = {}
    for name in _GROUPS:
        lines[name] = yield from lines_of(base, groups.get(name, ()), profile_of)
    fork = base.fork()
    yield
    for uid in leaving:
        fork.remove_pod(uid)
        yield
    return _Planning(lines, Packing(fork, base.view), seen, units, most_cpu)


def _survey(view: View) -> Generator[None, None, tuple[list[str], set[tuple[str, str]]]]:
    """Return the uids of leaving pods, and the instance types with the resources requested there."""
    leaving: list[str] = []
    units: set[tuple[str, str]] = set()
    for position, node_info in enumerate(view.rows(), start=1):
        instance_type = node_info.node.labels.get(INSTANCE_TYPE_LABEL, "")
        for uid, pod_info in node_info.pod_infos.items():
            if pod_info.pod.terminating:
                leaving.append(uid)
            if pod_info.pod.neuron is not None:
                units.add((instance_type, pod_info.pod.neuron.resource))
        if position % _ROWS_A_STEP == 0:
            yield
    return leaving, units


@attrs.define(eq=False)
class _Planning:
    """A plan on its way: each step takes the pods that it finds a place for from their lines."""

    lines: dict[str, list[PackingLine]]  # by group
    _packing: Packing
    _seen: Sequence[UnplacedPod]  # the most urgent first
    _units: set[tuple[str, str]]  # in which Neuron is asked for, by instance type; of waiting pods under ""
    _most_cpu: int  # that any pod asks for
    _needs: list[MachineNeed] = attrs.field(factory=list)
    _hopeless: dict[str, str] = attrs.field(factory=dict)
    _request_on: dict[str, str] = attrs.field(factory=dict)  # by the name of its machine on the fork
    _serving: dict[str, list[str]] = attrs.field(factory=dict)  # uids, by request

    @property
    def _hidden(self) -> list[PackingLine]:
        return [line for group in _HIDDEN for line in self.lines[group]]

    def place_on_existing(self) -> Generator[None, None, None]:
        lines = [line for group in self.lines.values() for line in group]
        line_of = {pod.uid: line for line in lines for pod in line.pods}
        refused: set[int] = set()
        for waiting in self._seen:
            line = line_of[waiting.pod.uid]
            if id(line) not in refused and not (yield from self._packing.place(line)):
                refused.add(id(line))

    def fill(self, coming: Mapping[str, MachineNeed]) -> Generator[None, None, None]:
        """Add the machine of each request for those of its pods that still wait: it is believed to serve them."""
        for name, need in coming.items():
            machines = yield from self._packing.machines_like((need.instance_type.removeprefix("ml."),), need.pattern)
            machine = next((fresh for fresh in machines if need.is_met_by(fresh.node)), None)
            node_name = "" if machine is None else self._packing.join(machine)
            self._request_on[node_name] = name
            serving = self._serving[name] = list[str]()
            uids = {pod.uid for pod in need.pods}
            for line in self._hidden:
                own = [pod for pod in line.pods if pod.uid in uids]
                for pod in own if node_name else ():
                    self._packing.place_on(line, pod, node_name)
                    yield
                serving += [pod.uid for pod in own]
                line.leave(own)
            yield

    def share(self, lines: Iterable[PackingLine]) -> Generator[None, None, None]:
        """Place hidden pods on machines that are to come; none is asked for those on others' machines."""
        for line in lines:
            while line.pods:
                pod = line.pods[0]
                node_name = yield from self._packing.place(line)
                if not node_name:
                    break
                if node_name in self._request_on:
                    self._serving[self._request_on[node_name]].append(pod.uid)
                else:
                    self._hopeless[pod.uid] = SHARED

    def expect_others_machines(self) -> Generator[None, None, None]:
        for _ in range(MOST_EXPECTED):
            others = [line for line in self.lines["others"] if line.pods]
            if not others:
                return
            if (yield from self._packing.open_machine(others)) is None:
                others[0].pods.clear()  # no machine takes them

    def ask_for_the_rest(self) -> Generator[None, None, None]:
        """
        Pack the pods without a place for which a machine may be asked for onto machines.

        Lines that few machines take come first: pods of any zone fill the machines of those bound to one.
        """
        rank = {waiting.pod.uid: position for position, waiting in enumerate(self._seen)}
        asking = {waiting.pod.uid for waiting in self._seen if waiting.may_bind}
        groups: dict[int, frozenset[Hashable]] = {}  # of nodes that take a line's pods
        for line in self._hidden:
            line.pods = deque(pod for pod in line.pods if pod.uid in asking)
            if line.pods and has_named_node(line.pods[0].constraints):
                self._leave_out(line, [*line.pods], NAMED_NODE)
            if line.pods:
                machines = yield from self._packing.machines_for(line, line.pods[0])
                groups[id(line)] = frozenset(fresh.node_group for fresh in machines)
        lines = sorted([line for line in self._hidden if line.pods], key=lambda line: len(groups[id(line)]))
        counts, alone = Counter[LimitOwner](), {id(line) for line in self.lines["alone"]}

        def may_share(line: PackingLine) -> bool:  # beside one that is alone, only to the same places
            if not alone & {id(line), id(lines[0])}:
                return True
            one, other = lines[0].pods[0], line.pods[0]
            alike = one.tolerations == other.tolerations and one.constraints == other.constraints
            return line is lines[0] or (alike and groups[id(line)] == groups[id(lines[0])])

        while lines and len(self._needs) < MOST_NEEDS:
            packed = yield from self._packing.open_machine([line for line in lines if may_share(line)])
            if packed is None:
                self._leave_out(lines[0], [*lines[0].pods], NO_TYPE)
            else:
                owner = self._keep(packed, tuple(sorted(packed.pods, key=lambda pod: rank[pod.uid])))
                counts[owner] += 1
                for line in lines if counts[owner] >= MOST_OF_OWNER else ():
                    self._leave_out(line, [pod for pod in line.pods if _owner_of(pod) == owner], CROWDED)
            lines = [line for line in lines if line.pods]
        self._needs.sort(key=lambda need: rank[need.pods[0].uid])

    def plan(self) -> MachinePlan:
        serving = {name: tuple(uids) for name, uids in self._serving.items()}
        return MachinePlan(needs=tuple(self._needs), serving=serving, hopeless=self._hopeless)

    def _leave_out(self, line: PackingLine, pods: Sequence[Pod], reason: str) -> None:
        self._hopeless |= dict.fromkeys((pod.uid for pod in pods), reason)
        line.leave(pods)

    def _keep(self, packed: PackedMachine, pods: tuple[Pod, ...]) -> LimitOwner:
        """Keep the need for a machine, and return whose it is; `pods` are its pods, the most urgent first."""
        name, has = packed.machine.node.labels[INSTANCE_TYPE_LABEL], packed.machine.node.allocatable
        units = [unit for unit in NEURON_NAMES if {(name, unit), ("", unit)} & self._units]
        need = MachineNeed(
            owner=_owner_of(pods[0]),
            instance_type=name,
            silicon={unit: has[unit] for unit in units if has.get(unit, 0) > 0},
            host=self._host(reduce(add, [pod.requests for pod in pods]), packed.alike),
            zones=_zones(packed, self._packing.view),
            pods=pods,
            pattern=packed.pods[0],
        )
        self._needs.append(need)
        return need.owner

    def _host(self, total: Resources, machines: Sequence[FreshNode]) -> Resources:
        """
        Return all but Neuron: the sum of the pods', and more cpu than any pod that waits.

        A part of the cpu is left, because Karpenter may estimate less of it for a new machine than a node of the type
        has. Other resources decide what is bought: on AWS it adds network interfaces for EFA only on request.
        """
        cpu = min(fresh.row.free(CPU) for fresh in machines)
        host = {
            **{name: amount for name, amount in total.items() if name not in NEURON_NAMES},
            CPU: max(total.get(CPU, 0), min(self._most_cpu + 1, cpu * _TENTHS_FOR_OTHERS // 10)),
        }
        return {name: amount for name, amount in host.items() if amount}


def _owner_of(pod: Pod) -> LimitOwner:
    return LimitOwner(pod.scheduler_name, pod.namespace)


def _zones(packed: PackedMachine, view: View) -> tuple[str, ...]:
    """Return the zones that must be asked for; none where every zone is open to every pod of the machine."""
    zones, by_zone = {fresh.zone for fresh in packed.alike} - {""}, view.label_postings(ZONE_LABEL)
    of_type = nodes_of_type(view, packed.machine.node.instance_type)
    needs = [pod.constraints for pod in packed.pods]
    bound = any(each.volume_claims or each.inline_volumes or has_pod_terms(each) for each in needs)
    bound |= any(by_zone.get(zone) & of_type for zone in by_zone.values if zone not in zones)
    return tuple(sorted(zones)) if bound else ()

"""
Combinations that seeds meet too rarely by chance, although each was found in a review or on a real cluster.

One seed in sixteen has one of the cases of what never works on top of what it has anyway, in turn; another one in
sixteen has one of leaders and pods, a third one of news. Some faults last for ever: they concern one namespace, or one
version of a table, and the promises hold for all other pods. The other seeds stay as they are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final

import attrs

from tests.simulation.deeds import (
    Annotate,
    AnnotateLease,
    BindElsewhere,
    Cordon,
    CreateNamespace,
    CreateNode,
    CreateOnNode,
    CreatePod,
    DeleteNode,
    DeletePod,
    RecreatePod,
    RewriteIds,
    StopServer,
    Taint,
)
from tests.simulation.fault_choices import bearable, between_leaders, longest
from tests.simulation.http_faults import LATE, PAUSE, TOO_LARGE, VERSION, WEBHOOK
from tests.simulation.oracles.kept_leases import STEP
from tests.simulation.pod_plans import PodPlan
from tests.simulation.poison import NESTED_NODE, NESTED_POD, Poison, Spoil
from tests.simulation.scenario import Deed, Fault, Scenario

HOOKED: Final = ("hooked-a", "hooked-b")
"""Namespaces for whose pods a webhook fails, or which are too large: no other scheduler could bind them either."""
TOO_MANY: Final = 64
"""Devices that no node has."""
_BEGINNING: Final = 0.1
"""Seconds in which namespaces and budgets are created."""


def more(scenario: Scenario, deeds: Iterable[Deed] = (), faults: Iterable[Fault] = ()) -> Scenario:
    """Return a scenario with some more deeds and faults."""
    return attrs.evolve(scenario, deeds=(*scenario.deeds, *deeds), faults=(*scenario.faults, *faults))


def alone(scenario: Scenario, *, until: float, **fields: object) -> Scenario:
    """Return a scenario with other fields, no faults, and no deeds until a time, so that there is room for a case."""
    other = attrs.evolve(scenario, faults=(), **fields)  # type: ignore[arg-type]  # fields
    kept = [deed for deed in scenario.deeds if deed.at < _BEGINNING or until < deed.at < other.quiet_at]
    return attrs.evolve(other, deeds=tuple(kept))


def always(scenario: Scenario, kind: str, target: str, seconds: float = 0.0, chance: float = 1.0) -> Fault:
    """Return a fault that strikes until the quiet."""
    return Fault(kind=kind, at=0.0, until=scenario.quiet_at, target=target, chance=chance, seconds=seconds)


def once(kind: str, at: float, number: int, seconds: float = 0.0) -> Fault:
    return Fault(kind=kind, at=at, until=at, target=f"scheduler-{number}", seconds=seconds)


def scheduler_1_leads() -> Fault:
    """Return a fault after which that replica leads, whichever came first: the other one is asked to end."""
    return once("terminated", 3.0, 0)


def small(name: str, at: float, **fields: object) -> CreatePod:
    """Return the creation of a pod that fits on any node."""
    return CreatePod(at=round(at, 3), pod=PodPlan(name=name, cpu=0, tolerant=True, **fields))  # type: ignore[arg-type]  # fields


def pods(name: str, count: int, at: float, **fields: object) -> list[CreatePod]:
    """Return the creation of equal pods at one moment; each asks for a device if nothing else is given."""
    asked = {"devices": (1,), "cpu": 0, **fields}
    return [CreatePod(at=round(at, 3), pod=PodPlan(name=f"{name}{n}", **asked)) for n in range(count)]  # type: ignore[arg-type]  # fields


def hooked(scenario: Scenario, kind: str, target: str, deeds: Iterable[Deed]) -> Scenario:
    """Return a scenario in which something fails for ever for the pods of `HOOKED`."""
    namespaces = [CreateNamespace(at=0.0, name=name) for name in HOOKED]
    faults = [Fault(kind=kind, at=0.0, until=scenario.ends_at, target=target, detail=namespace) for namespace in HOOKED]
    return more(scenario, [*namespaces, *deeds], faults)


_LEASE: Final = (15.0, 10.0, 2.0)
_QUIET: Final = 40.0
_ENDS: Final = 85.0


def _a_pause_at_a_slow_lease(scenario: Scenario, dice: Random) -> Scenario:
    """
    Requests about the Lease are lost for a while, and the leader pauses when one succeeds again.

    A pod comes so long before that the loop looks for others in the pause: before the answer, and after the deadline.
    """
    case = alone(scenario, until=30.0, replicas=2, fenced=True, lease=_LEASE, quiet_at=_QUIET, ends_at=_ENDS)
    faults, news = [scheduler_1_leads(), always(case, "answer late", "lease", 1.2)], list[Deed]()
    for at in (round(dice.uniform(7, 9), 3), round(dice.uniform(21, 23), 3)):
        faults.append(Fault(kind="request lost", at=at, until=round(at + 5.5, 3), target="lease"))
        faults.append(once("stopped", round(at + 7, 3), 1, 3.3))
        news += [small(f"s{at:.0f}", at + 2.1), *(small(f"s{at:.0f}-{n}", at + 8.5 + n / 10) for n in range(30))]
    return more(case, news, faults)


def _a_standstill_at_a_slow_lease(scenario: Scenario, dice: Random) -> Scenario:
    """The leader stands still until another replica leads, and then the answer to its last renewal comes."""
    case = alone(scenario, until=30.0, replicas=2, fenced=True, lease=_LEASE, quiet_at=_QUIET, ends_at=_ENDS)
    stop = once("stopped", round(dice.uniform(14, 16), 3), 1, 22.0)
    news = [small(f"s{n}", dice.uniform(8, _QUIET - 1)) for n in range(12)]
    return more(case, news, [scheduler_1_leads(), stop, always(case, "answer late", "lease", 3.0)])


def _a_leader_is_cut_off(scenario: Scenario, dice: Random) -> Scenario:
    """The answers about the Lease are slow, then the leader has no network; the Lease is short for its deadline."""
    lease, cut_off = (11.0, 10.0, 2.0), round(dice.uniform(10, 12), 3)
    case = alone(scenario, until=30.0, replicas=2, fenced=True, lease=lease, quiet_at=_QUIET, ends_at=_ENDS)
    cut = Fault(kind="connection cut", at=cut_off, until=cut_off + 15, target="scheduler-1")
    slow = Fault(kind="answer late", at=0.0, until=cut_off, target="lease", seconds=2.5)
    news = [small(f"s{n}", dice.uniform(8, _QUIET - 1)) for n in range(12)]
    return more(case, news, [scheduler_1_leads(), slow, cut, attrs.evolve(cut, kind="connection refused")])


def _long_steps(scenario: Scenario, dice: Random) -> Scenario:
    """One step of each scheduler's loop takes more than half of the renew deadline: a huge object, or a busy node."""
    seconds = round(STEP * scenario.lease[1], 2)
    case = alone(scenario, until=30.0, replicas=2, fenced=True, quiet_at=_QUIET, ends_at=_ENDS)
    steps = [once("long step", round(dice.uniform(4, 6) + 17 * n, 3), n, seconds) for n in range(2)]
    return more(case, [small(f"s{n}", dice.uniform(4, _QUIET - 1)) for n in range(6)], steps)


def _asked_twice_to_end(scenario: Scenario, dice: Random) -> Scenario:
    """
    A leader with Bindings on their way is asked to end, and soon after to hurry; more urgent pods come in between.

    There is no fence, so the Bindings may be carried out when the next replica leads already.
    """
    case = alone(scenario, until=30.0, replicas=2, fenced=False, quiet_at=_QUIET, ends_at=_ENDS)
    at, kind = round(dice.uniform(10, 12), 3), scenario.nodes[0][1]
    late = always(case, LATE, "bindings", round(between_leaders(scenario) / 2 - 0.1, 2), 0.8)
    deeds = [*pods("a", 6, at - 0.2, instance_type=kind)]
    deeds += pods("b", 6, at + 0.2, instance_type=kind, priority="urgent")
    return more(case, deeds, [scheduler_1_leads(), once("terminated", at, 1), once("terminated", at + 0.3, 1), late])


def _handover_in_a_long_step(scenario: Scenario, dice: Random) -> Scenario:
    """A leader ends while a step of the other replica takes long, and pods come all the time."""
    case = alone(scenario, until=30.0, replicas=2, fenced=True, quiet_at=_QUIET, ends_at=_ENDS)
    faults, news = [scheduler_1_leads()], list[Deed]()
    for leader, at in ((1, dice.uniform(9, 10)), (0, dice.uniform(17, 18)), (1, dice.uniform(25, 26))):
        faults += [once("long step", round(at, 3), 1 - leader, 2.5), once("terminated", round(at + 0.1, 3), leader)]
        news += [small(f"s{at:.0f}-{n}", at + 0.1 + n / 10) for n in range(24)]
    return more(case, news, faults)


def _start_in_a_handover(scenario: Scenario, dice: Random) -> Scenario:
    """
    A replica starts, and lists slowly; the leader's last Bindings are carried out before its list comes, and it ends.

    The watch is late, too. The node has room for the urgent pods, or for the others.
    """
    nodes = (("n1", "trn1.32xlarge"),)
    times = {"lease": _LEASE, "quiet_at": _QUIET, "ends_at": _ENDS}
    case = alone(scenario, until=30.0, replicas=2, fenced=True, page_size=0, nodes=nodes, **times)
    faults = [
        scheduler_1_leads(),
        once("killed", 12.0, 0),
        Fault(kind=LATE, at=16.0, until=18.0, target="bindings", seconds=1.8),
        Fault(kind="answer late", at=12.0, until=22.0, target="lists", seconds=3.0),
        Fault(kind="watch late", at=15.0, until=30.0, target="pods", seconds=2.0),
        once("terminated", round(dice.uniform(18.2, 18.4), 3), 1),
    ]
    deeds = [*pods("hold", 8, 0.5), *pods("q", 1, 16.3, devices=(8,), priority="urgent")]
    return more(case, [*deeds, *pods("y", 1, 16.35, devices=(8,))], faults)


def _requests_queue(scenario: Scenario, dice: Random) -> Scenario:
    """Requests wait somewhere, and some of them are carried out when nobody waits for the answer any more."""
    kinds = dice.choice((("bindings",), ("bindings",), ("statuses",), ("deletes", "statuses"), ("lease",), ("",)))
    seconds = round(min(dice.choice((1.5, 4.0, 12.0, 30.0)), longest(scenario)), 2)
    chance = dice.choice((0.1, 0.3, 0.7))
    faults = [always(scenario, LATE, kind, seconds, chance) for kind in kinds]
    return bearable(more(scenario, faults=faults))


def _notes_on_the_lease(scenario: Scenario, dice: Random) -> Scenario:
    """Somebody annotates the Lease now and then."""
    return more(scenario, [AnnotateLease(at=round(dice.uniform(3, scenario.quiet_at - 1), 3)) for _ in range(4)])


_OF_LEADERS: Final = (
    *(_a_pause_at_a_slow_lease, _a_standstill_at_a_slow_lease, _long_steps, _asked_twice_to_end),
    *(_handover_in_a_long_step, _start_in_a_handover, _notes_on_the_lease, _requests_queue, _a_leader_is_cut_off),
)


_NODES: Final = (("n1", "trn1.32xlarge"), ("n2", "trn1.32xlarge"))


def _pods_without_ids_while_bindings_wait(scenario: Scenario, dice: Random) -> Scenario:
    """Bindings wait for slow kubelets, and meanwhile users put pods on the nodes themselves, which end later."""
    case = alone(scenario, until=99.0, nodes=_NODES, quiet_at=_QUIET, ends_at=_ENDS)
    deeds: list[Deed] = [*pods("w", 4, dice.uniform(4, 5), devices=(4,))]
    for number, (at, (node, _)) in enumerate(zip((6.5, 22.0), _NODES, strict=True)):
        plan = PodPlan(name=f"static{number}", devices=(1,), cpu=0, seconds=12.0)
        deeds.append(CreateOnNode(at=round(at + dice.uniform(0, 1), 3), pod=plan, node=node))
    return more(case, deeds, [always(case, "kubelet slow", "", 12.0)])


def _nominations_that_cannot_be_kept(scenario: Scenario, dice: Random) -> Scenario:
    """
    The only node is freed for an urgent pod, and then does not take it: somebody puts a pod there, or taints the node.

    One of the victims never ends, so nothing else wakes the urgent pod. Others fit beside what is there.
    """
    case = alone(scenario, until=99.0, nodes=_NODES[:1], quiet_at=_QUIET, ends_at=_ENDS)
    stays = PodPlan(name="stays", devices=(1,), cpu=0, priority="low", finalized=True, grace=1)
    deeds: list[Deed] = [CreatePod(at=0.5, pod=stays), *pods("low", 15, 0.5, priority="low", grace=1)]
    deeds += pods("urgent", 1, 8.0, devices=(16,), priority="urgent")
    at, there = round(dice.uniform(14, 16), 3), PodPlan(name="there", devices=(1,), cpu=0, priority="urgent")
    refusing: tuple[Deed, ...] = (
        CreateOnNode(at=at, pod=there, node="n1"),
        Taint(at=at, node="n1", effect="NoSchedule"),
        Cordon(at=at, node="n1"),
    )
    deeds += [dice.choice(refusing), *(small(f"s{n}", at + dice.uniform(1, 20), devices=(1,)) for n in range(4))]
    return more(case, deeds)


_OF_NEWS: Final = (
    _pods_without_ids_while_bindings_wait,
    _nominations_that_cannot_be_kept,
)


def _changes_in_an_outage(scenario: Scenario, dice: Random) -> Scenario:
    """While no API server can be reached, pods and a node go, and others come under their names."""
    at = round(dice.uniform(8, 10), 3)
    case = alone(scenario, until=at + 8, api_servers=1)
    deeds: list[Deed] = [StopServer(at=at, server="api-1", seconds=6.0)]
    deeds += pods("o", 12, 0.5)
    for number in range(8):
        moment = round(at + dice.uniform(0.5, 5.5), 3)
        plan = PodPlan(name=f"o{number}", devices=(1,), cpu=0)
        again, gone = RecreatePod(at=moment, pod=plan), DeletePod(at=moment, name=plan.name, forced=True)
        deeds.append(again if number % 2 else gone)
    name, instance_type = scenario.nodes[-1]
    deeds += [DeleteNode(at=at + 1, node=name), CreateNode(at=at + 2, node=name, instance_type=instance_type)]
    return more(case, deeds)


def _a_rival_scheduler(scenario: Scenario, dice: Random) -> Scenario:
    """A second scheduler serves the same name: it binds some pods first. Users name nodes; machines are slow."""
    nodes = (("n1", "trn1.32xlarge"), ("n2", "trn1.32xlarge"))
    case = alone(scenario, until=99.0, nodes=nodes, quiet_at=_QUIET, ends_at=_ENDS)
    deeds: list[Deed] = [
        CreateOnNode(at=round(dice.uniform(0.1, 3), 3), pod=PodPlan(name=f"static{n}", devices=(1,), cpu=0), node=name)
        for n, (name, _) in enumerate(nodes)
    ]
    for number in range(16):
        at = round(dice.uniform(0.5, 30), 3)
        deeds += pods(f"p{number}-", 1, at, devices=(dice.choice((1, 4, 4)),))
        if dice.random() < 0.4:
            taken = round(at + dice.uniform(0.0005, 0.3), 4)
            deeds.append(BindElsewhere(at=taken, name=f"p{number}-0", node=dice.choice(nodes)[0]))
    deeds += pods("waits", 2, 31.0, devices=(16,))
    deeds += [BindElsewhere(at=31.0 + dice.uniform(0.001, 0.005), name=f"waits{n}", node="n1") for n in range(2)]
    busy = [always(case, LATE, "bindings", 0.5, chance=0.6), always(case, "kubelet slow", "", 12.0, chance=0.5)]
    return more(case, deeds, busy)


def _rewritten_allocations(scenario: Scenario, dice: Random) -> Scenario:
    """Somebody who may do so, as no policy is installed, writes other ids to pods that run, and takes that back."""
    case = alone(scenario, until=26.0, fenced=False, nodes=(("n1", "trn1.32xlarge"),), quiet_at=_QUIET, ends_at=_ENDS)
    at = round(dice.uniform(6, 8), 3)
    names = [f"r{number}" for number in range(14)]
    deeds: list[Deed] = [*pods("r", 14, 0.5), *pods("w", 6, at + 1)]
    deeds += [RewriteIds(at=at, name=name) for name in names]
    deeds += [RewriteIds(at=at + 16, name=name, ends=True) for name in names]
    return more(case, deeds)


def _victims_come_again(scenario: Scenario, dice: Random) -> Scenario:
    """Victims are deleted and created again under their names while they are being asked to leave; answers take 2 s."""
    case = alone(scenario, until=30.0, nodes=(("n1", "trn1.32xlarge"),), quiet_at=_QUIET, ends_at=_ENDS)
    low = pods("low", 16, 0.5, priority="low", grace=1)
    urgent = [
        CreatePod(at=round(6 + n / 2, 3), pod=PodPlan(name=f"urgent{n}", devices=(1,), cpu=0, priority="urgent"))
        for n in range(12)
    ]
    again = [RecreatePod(at=round(dice.uniform(7, 14), 3), pod=deed.pod) for deed in low]
    return more(case, [*low, *urgent, *again], [always(case, "answer late", "statuses", 2.0)])


def _many_victims(scenario: Scenario, dice: Random) -> Scenario:
    """Pods that need whole nodes come to nodes full of small ones, and the answers about the victims take 3 s."""
    nodes = tuple((f"n{number}", "trn1.32xlarge") for number in range(1, 6))
    case = alone(scenario, until=30.0, nodes=nodes, quiet_at=_QUIET, ends_at=_ENDS)
    deeds: list[Deed] = [*pods("low", 160, 0.5, devices=(), cores=(1,), priority="low", grace=1)]
    deeds += pods("urgent", 5, dice.uniform(8, 9), devices=(16,), priority="urgent")
    faults = [
        Fault(kind="answer late", at=5, until=24, target=target, seconds=3.0) for target in ("statuses", "deletes")
    ]
    return more(case, deeds, faults)


def _pages_of_a_proxy(scenario: Scenario, dice: Random) -> Scenario:
    """Lists come in small pages, some of them are a proxy's, and watches break off at versions that are too old."""
    nodes = (("n1", "trn1.32xlarge"),)
    case = alone(scenario, until=99.0, nodes=nodes, page_size=3, quiet_at=_QUIET, ends_at=_ENDS)
    deeds: list[Deed] = [*pods("holds", 16, 0.5), *pods("a", 6, 2.0)]
    deeds += [Annotate(at=round(dice.uniform(3, 30), 3), name=f"holds{dice.randrange(16)}") for _ in range(20)]
    page = dice.choice(("proxy answers", "proxy answers after"))
    refused = attrs.evolve(always(case, "watch refused", "pods", chance=0.25), detail="410")
    return more(case, deeds, [always(case, page, "lists", chance=0.2), refused])


def _a_proxy_refuses_what_was_done(scenario: Scenario, dice: Random) -> Scenario:
    """
    A proxy whose session has expired, or that has too much to do, answers in the server's place, after the commit.

    The rights to bind come and go, so the repeat may be refused; the watch is late.
    """
    case = alone(scenario, until=99.0, nodes=(("n1", "trn1.32xlarge"),), quiet_at=_QUIET, ends_at=_ENDS)
    deeds = [small(f"p{n}", dice.uniform(0.5, 20), devices=(dice.choice((1, 1, 4)),), seconds=8.0) for n in range(40)]
    page = always(case, "proxy answers after", "bindings", chance=0.25)
    rights = attrs.evolve(always(case, "server refuses", "bindings", chance=0.3), detail="403 rights")
    pages = [attrs.evolve(page, detail=code) for code in ("401", "403", "429")]
    return more(case, deeds, [*pages, rights, always(case, "watch late", "pods", 2.0, 0.3)])


def _no_right_to_bind(scenario: Scenario, dice: Random) -> Scenario:
    """The rights to bind are missing for a while."""
    at = round(dice.uniform(3, 4), 3)
    case = alone(scenario, until=at + 24, quiet_at=_QUIET, ends_at=_ENDS)
    fault = Fault(kind="server refuses", at=at, until=at + 22, target="bindings", detail="403 rights")
    return more(case, [small(f"s{n}", dice.uniform(at, at + 3)) for n in range(4)], [fault])


def _large_pods_in_the_way(scenario: Scenario, dice: Random) -> Scenario:
    """Pods that are too large to be bound come together with others, for whom there is no room beside them."""
    case = alone(scenario, until=99.0, nodes=(("n1", "trn1.32xlarge"),))
    at = dice.uniform(4, 9)
    large = pods("h", 2, at, devices=(8,), priority="urgent", namespace=HOOKED[0])
    return hooked(case, TOO_LARGE, "bindings", [*large, *pods("s", 4, at, devices=(4,))])


def _deep_pods_in_doubt(scenario: Scenario, dice: Random) -> Scenario:
    """Pods whose managedFields are too deep for a decoder are bound, and the answers are lost."""
    deep = [Poison(at=round(dice.uniform(2, 9), 3), kind=NESTED_POD, name=f"deep{n}") for n in range(6)]
    return more(scenario, deep, [always(scenario, "answer lost", "bindings", chance=0.6)])


def _no_status_can_be_written(scenario: Scenario, dice: Random) -> Scenario:
    """The server cannot write why pods wait, and then refuses to, until all is quiet."""
    quiet = scenario.quiet_at
    code = dice.choice(("500", "503", "504"))
    fails = Fault(kind="server refuses", at=quiet - 8, until=quiet - 4, target="statuses", detail=code)
    refuses = attrs.evolve(fails, at=quiet - 4, until=quiet, detail="403 rights")
    waiting = [CreatePod(at=quiet - 7 + n, pod=PodPlan(name=f"w{n}", devices=(TOO_MANY,))) for n in range(4)]
    return more(scenario, waiting, [fails, refuses])


_OF_PODS: Final = (
    *(_changes_in_an_outage, _a_rival_scheduler, _rewritten_allocations, _victims_come_again, _many_victims),
    *(_pages_of_a_proxy, _a_proxy_refuses_what_was_done, _no_right_to_bind, _large_pods_in_the_way),
    *(_deep_pods_in_doubt, _no_status_can_be_written),
)


EVERY: Final = 16


def with_hard_case(scenario: Scenario) -> Scenario:
    """Return a scenario with a hard case, if its seed has one."""
    cases = TURNS.get(scenario.seed % EVERY)
    if cases is None:
        return scenario
    case = cases[scenario.seed // EVERY % len(cases)]
    scenario = case(scenario, Random(f"{scenario.seed}/hard case"))
    return attrs.evolve(scenario, deeds=tuple(sorted(scenario.deeds, key=lambda deed: deed.at)))


def _nested(scenario: Scenario, dice: Random) -> Scenario:
    """A pod and a node whose managedFields are nested too deeply for a decoder."""
    at = round(dice.uniform(2, scenario.quiet_at / 2), 3)
    return more(
        scenario, [Poison(at=at, kind=NESTED_POD, name="deep"), Poison(at=at + 1, kind=NESTED_NODE, name="deep-node")]
    )


def _bindings_that_never_work(scenario: Scenario, dice: Random) -> Scenario:
    """More pods than there are workers for Bindings cannot be bound."""
    pods = [small(f"h{number}", dice.uniform(1, 3), namespace=HOOKED[number % 2]) for number in range(6)]
    late = [small(f"s{number}", scenario.quiet_at - dice.uniform(1, 9)) for number in range(3)]
    return hooked(attrs.evolve(scenario, bind_concurrency=2), WEBHOOK, "bindings", [*pods, *late])


def _pods_that_are_too_large(scenario: Scenario, dice: Random) -> Scenario:
    pods = [small(f"h{number}", dice.uniform(1, 9), namespace=HOOKED[number % 2]) for number in range(3)]
    return hooked(scenario, TOO_LARGE, "bindings", pods)


def _conditions_that_never_work(scenario: Scenario, dice: Random) -> Scenario:
    """More pods than there are writers of conditions cannot be told why they wait."""
    pods = [
        CreatePod(
            at=round(dice.uniform(1, 3), 3),
            pod=PodPlan(name=f"h{number}", namespace=HOOKED[number % 2], devices=(TOO_MANY,)),
        )
        for number in range(12)
    ]
    waits = CreatePod(at=scenario.quiet_at - 3, pod=PodPlan(name="waits", devices=(TOO_MANY,)))
    return hooked(scenario, WEBHOOK, "statuses", [*pods, waits])


def _late_conditions(scenario: Scenario, dice: Random) -> Scenario:
    """Conditions are written seconds after they were sent: many pods are bound by then."""
    return more(scenario, faults=[always(scenario, LATE, "statuses", dice.choice((2.0, 6.0)), 0.7)])


def _broken_version(scenario: Scenario, dice: Random) -> Scenario:
    """No watch of pods from one version works any more."""
    at = round(dice.uniform(5, scenario.quiet_at - 6), 3)
    fault = Fault(kind=VERSION, at=at, until=at + 5, target="pods", detail="500")
    pods = [small(f"s{number}", dice.uniform(at, at + 5)) for number in range(4)]
    return more(attrs.evolve(scenario, api_servers=1), pods, [fault])


def _silent_at_the_end(scenario: Scenario, dice: Random) -> Scenario:
    """All watches of pods die without a word, right before the last pods come."""
    quiet = scenario.quiet_at
    fault = Fault(kind="watch silent", at=quiet - 8, until=quiet, target="pods")
    return more(scenario, [small(f"s{n}", dice.uniform(quiet - 7, quiet - 1)) for n in range(4)], [fault])


def _asked_to_wait_for_hours(scenario: Scenario, dice: Random) -> Scenario:
    """A proxy's Retry-After, or the server's, is meant for others."""
    quiet, target = scenario.quiet_at, dice.choice(("bindings", ""))
    fault = Fault(kind=PAUSE, at=quiet - 6, until=quiet, target=target, seconds=7200.0)
    return more(scenario, [small(f"s{n}", dice.uniform(quiet - 5, quiet - 1)) for n in range(4)], [fault])


def _takeover_during_a_list(scenario: Scenario, dice: Random) -> Scenario:
    """A follower lists slowly while the leader's last Bindings are committed, and takes over before the answer."""
    quiet = scenario.quiet_at
    faults = [
        Fault(kind=LATE, at=16.0, until=16.9, target="bindings", seconds=3.5),
        Fault(kind="watch refused", at=16.9, until=17.3, target="pods", detail="410"),
        Fault(kind="answer late", at=16.9, until=quiet, target="lists", seconds=5.0),
        Fault(kind="watch late", at=20.5, until=quiet, target="pods", seconds=1.0),
        Fault(kind="terminated", at=21.0, until=21.0, target=f"scheduler-{dice.choice((0, 1))}"),
    ]
    plan = PodPlan(name="", devices=(1,), instance_type=scenario.nodes[0][1])
    last = [CreatePod(at=16.4, pod=attrs.evolve(plan, name=f"t{n}")) for n in range(5)]
    news = small("news", 17.0)
    urgent = [CreatePod(at=17.02, pod=attrs.evolve(plan, name=f"x{n}", priority="urgent")) for n in range(6)]
    kept = [deed for deed in scenario.deeds if deed.at < 0.1 or deed.at > 23]  # so that there is room for these pods
    alone = attrs.evolve(scenario, replicas=2, page_size=0, fenced=True, deeds=tuple(kept), faults=())
    return more(alone, [*last, news, *urgent], faults)


def _victims_of_a_late_leader(scenario: Scenario, dice: Random) -> Scenario:
    """
    The leader of a full node stands still while it asks victims to leave, until its Lease is too old; answers take 3 s.

    When it goes on, some answers have come: the next request of a victim would be sent before the leader ends.
    """
    at = round(dice.uniform(11, 12), 3)
    stopped = [
        Fault(kind="stopped", at=at, until=at, target=f"scheduler-{number}", seconds=14.0) for number in range(2)
    ]
    faults = [*stopped, always(scenario, "answer late", "statuses", 3.0)]
    low = [CreatePod(at=0.5, pod=PodPlan(name=f"low{n}", devices=(1,), priority="low", grace=1)) for n in range(16)]
    urgent = [
        CreatePod(at=round(at - 5 + n / 2, 3), pod=PodPlan(name=f"urgent{n}", devices=(1,), priority="urgent"))
        for n in range(12)
    ]
    kept = [deed for deed in scenario.deeds if deed.at < 0.1 or deed.at > at + 20]
    full = attrs.evolve(scenario, nodes=(("n1", "trn1.32xlarge"),), deeds=tuple(kept))  # so that each needs a victim
    alone = attrs.evolve(full, replicas=2, fenced=True, lease=(15.0, 10.0, 2.0), faults=())
    return more(alone, [*low, *urgent], faults)


def _unreadable_holders(scenario: Scenario, _dice: Random) -> Scenario:
    """Pods that hold devices become unreadable, and only then a new process reads them for the first time."""
    at, kind = round(scenario.quiet_at / 3, 3), scenario.nodes[0][1]
    holders = [f"u{number}" for number in range(10)]
    plan = PodPlan(name="", devices=(1,), instance_type=kind)
    pods = [CreatePod(at=0.5, pod=attrs.evolve(plan, name=name)) for name in holders]
    later = [CreatePod(at=at + 5, pod=attrs.evolve(plan, name=f"v{number}")) for number in range(12)]
    spoilt = [Spoil(at=at, name=name) for name in holders]
    readable = [Spoil(at=scenario.quiet_at - 2, name=name, ends=True) for name in holders]
    killed = [
        Fault(kind="killed", at=at + 1, until=at + 1, target=f"scheduler-{number}")
        for number in range(scenario.replicas)
    ]
    kept = [deed for deed in scenario.deeds if deed.at < 0.1 or deed.at > at + 5]
    return more(attrs.evolve(scenario, deeds=tuple(kept)), [*pods, *later, *spoilt, *readable], killed)


Case = Callable[[Scenario, Random], Scenario]
_OF_WHAT_NEVER_WORKS: Final = (
    *(_nested, _bindings_that_never_work, _pods_that_are_too_large, _conditions_that_never_work, _late_conditions),
    *(_broken_version, _silent_at_the_end, _asked_to_wait_for_hours, _takeover_during_a_list),
    *(_victims_of_a_late_leader, _unreadable_holders),
)
TURNS: Final[Mapping[int, Sequence[Case]]] = {
    11: _OF_WHAT_NEVER_WORKS,
    1: (*_OF_LEADERS, *_OF_PODS),
    8: _OF_NEWS,
}
"""By what is left when a seed is divided by `EVERY`."""

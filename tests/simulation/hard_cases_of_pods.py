"""
Hard cases of pods and of what is known about them: outages, rivals, proxies, and users who do what they may.

Each was found on a real cluster, or is what happens on any day when rights, webhooks and second schedulers are set up.
Refuses to do anything to the replicas.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from tests.simulation.case_parts import HOOKED, TOO_MANY, alone, always, hooked, more, pods, small
from tests.simulation.deeds import Annotate, BindElsewhere, CreateOnNode, CreatePod, DeletePod, RecreatePod, RewriteIds
from tests.simulation.deeds_of_machines import StopServer
from tests.simulation.deeds_of_nodes import CreateNode, DeleteNode
from tests.simulation.http_faults import LATE, TOO_LARGE
from tests.simulation.pod_plans import PodPlan
from tests.simulation.poison import NESTED_POD, Poison
from tests.simulation.scenario import Deed, Fault, Scenario

_QUIET: Final = 40.0
_ENDS: Final = 85.0


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
    page = dice.choice(("answered with a page", "page after"))
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


CASES: Final[tuple[Callable[[Scenario, Random], Scenario], ...]] = (
    *(_changes_in_an_outage, _a_rival_scheduler, _rewritten_allocations, _victims_come_again, _many_victims),
    *(_pages_of_a_proxy, _a_proxy_refuses_what_was_done, _no_right_to_bind, _large_pods_in_the_way),
    *(_deep_pods_in_doubt, _no_status_can_be_written),
)

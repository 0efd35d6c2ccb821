"""
Combinations that seeds meet too rarely by chance, although each was found in a review or on a real cluster.

One seed in sixteen has one of `CASES` on top of what it has anyway, in turn, another one in sixteen has one of those of
`hard_cases_of_leaders` and `hard_cases_of_pods`, a third one has one of `hard_cases_of_news`, and a fourth one has one
of `hard_cases_of_watches`. Some faults last for ever: they concern one namespace, or one version of a table, and the
promises hold for all other pods. Refuses to touch the other seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

import attrs

from tests.simulation import hard_cases_of_leaders, hard_cases_of_news, hard_cases_of_pods, hard_cases_of_watches
from tests.simulation.case_parts import HOOKED, TOO_MANY, always, hooked, more, small
from tests.simulation.deeds import CreatePod
from tests.simulation.http_faults import LATE, PAUSE, TOO_LARGE, VERSION, WEBHOOK
from tests.simulation.pod_plans import PodPlan
from tests.simulation.poison import NESTED_NODE, NESTED_POD, Poison, Spoil
from tests.simulation.scenario import Fault, Scenario

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
    """The thread of the Lease stands still while the leader of a full node asks victims to leave; answers take 3 s."""
    at = round(dice.uniform(6, 7), 3)
    stopped = [
        Fault(kind="lease thread stopped", at=at, until=at, target=f"scheduler-{number}", seconds=13.0)
        for number in range(2)
    ]
    faults = [*stopped, always(scenario, "answer late", "statuses", 3.0)]
    low = [CreatePod(at=0.5, pod=PodPlan(name=f"low{n}", devices=(1,), priority="low", grace=1)) for n in range(16)]
    urgent = [
        CreatePod(at=round(at + 5 + n / 2, 3), pod=PodPlan(name=f"urgent{n}", devices=(1,), priority="urgent"))
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
CASES: Final[tuple[Case, ...]] = (
    *(_nested, _bindings_that_never_work, _pods_that_are_too_large, _conditions_that_never_work, _late_conditions),
    *(_broken_version, _silent_at_the_end, _asked_to_wait_for_hours, _takeover_during_a_list),
    *(_victims_of_a_late_leader, _unreadable_holders),
)
TURNS: Final[Mapping[int, Sequence[Case]]] = {
    11: CASES,
    1: (*hard_cases_of_leaders.CASES, *hard_cases_of_pods.CASES),
    8: hard_cases_of_news.CASES,
    14: hard_cases_of_watches.CASES,
}
"""By what is left when a seed is divided by `EVERY`."""

"""
Groups in states that seeds meet too rarely by chance, although each was found in a review or on a real cluster.

Nothing else goes wrong in them, so the oracles are strict. All but the first two are on a few machines, so that each
pod decides whether another one fits.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import attrs

from tests.simulation.deed_choices import OTHER_NAMESPACE
from tests.simulation.deeds import Apply, CreateNamespace, CreatePod, DeleteNamespace, DeletePod, LabelNode
from tests.simulation.hard_cases import alone, always, more
from tests.simulation.pod_plans import ULTRASERVER, PodPlan
from tests.simulation.scenario import Deed, Scenario
from tests.support.controllers import (
    JobSet,
    LeaderWorkerSet,
    Object,
    StatefulSet,
    Workload,
    admitted_job,
    mpi_job,
    plain_pods,
    serving,
)

KIND: Final = "trn1.32xlarge"
SLOW: Final = (0.000_5, 0.002, 0.005)
"""Seconds for a look at the clock."""
PAIR: Final = ULTRASERVER.replace("-4", "-2")
_QUIET: Final = 40.0
_FLEET: Final = 20
"""Nodes on which no search finds by chance what an order finds at once."""


def member(name: str, at: float, least: int, *, devices: int = 16, **fields: object) -> CreatePod:
    """Return the creation of a member of the group with the first letter of its name."""
    plan = PodPlan(name=name, devices=(devices,), cpu=0, group=name[0], least=least)
    return CreatePod(at=round(at, 3), pod=attrs.evolve(plan, **fields))  # type: ignore[arg-type]  # fields


def single(name: str, at: float, *, devices: int = 4, seconds: float = 0.0) -> CreatePod:
    """Return the creation of a pod of another namespace."""
    plan = PodPlan(name=name, namespace=OTHER_NAMESPACE, devices=(devices,), cpu=0, seconds=seconds)
    return CreatePod(at=round(at, 3), pod=plan)


def _ultraserver(scenario: Scenario) -> Iterator[Deed]:
    for name, _ in scenario.nodes:
        yield LabelNode(at=0.05, node=name, labels=((ULTRASERVER, "u1"),))


def _case(scenario: Scenario, nodes: int, per_look: float = 0.0) -> Scenario:
    names = tuple((f"n{number}", KIND) for number in range(1, nodes + 1))
    fields = {"controllers": False, "per_look": per_look, "quiet_at": _QUIET, "ends_at": 2 * _QUIET + 5}
    return alone(scenario, until=99.0, nodes=names, replicas=1, page_size=0, bind_concurrency=48, **fields)


def _a_choosy_member(scenario: Scenario, dice: Random) -> Scenario:
    """Workers fill whole machines, and one that may only be on the oldest comes last; all fit."""
    at, workers = dice.uniform(1, 9), dice.choice((4, 5, 8))
    deeds = [member(f"g{n}", at, workers + 1) for n in range(workers)]
    choosy = member("g-last", at + 0.01, workers + 1, node="n1")
    return more(_case(scenario, _FLEET), [*deeds, choosy])


def _members_that_differ(scenario: Scenario, dice: Random) -> Scenario:
    """Groups of which no two members are alike fit if their choosy ones are placed first, or never; others come."""
    deeds: list[Deed] = [single(f"s{n}", 4 + n / 2) for n in range(30)]
    for name in "gh":
        at, choosy = dice.uniform(1, 9), dice.choice((2, 5))
        deeds += [member(f"{name}{n}", at, 10 + choosy, devices=4, cpu=100 + n) for n in range(10)]
        deeds += [member(f"{name}-{n}", at, 10 + choosy, devices=4, cpu=200 + n, node="n1") for n in range(choosy)]
    return more(_case(scenario, _FLEET, SLOW[0]), deeds)


def _later_members(scenario: Scenario, dice: Random) -> Scenario:
    """Older pods of others wait while later members of a complete group do; machines become free one by one."""
    deeds: list[Deed] = [member(f"g{n}", 0.5, 2, devices=4) for n in range(2)]
    deeds += [single(f"f{n}", 1, seconds=dice.uniform(9, 12) + 10 * n) for n in range(2)]
    deeds += [single(f"s{n}", 3) for n in range(2)]
    deeds += [member(f"g-later{n}", dice.uniform(4, 5), 2, devices=4) for n in range(3)]
    return more(_case(scenario, 1), deeds)


def _departures_at_the_fence(scenario: Scenario, dice: Random) -> Scenario:
    """Members wait until the kubelet has admitted another pod, and all but one of them are deleted meanwhile."""
    case = _case(scenario, 1)
    deeds = [single("x", 1.0), *(member(f"g{n}", 2 + n / 100, 3, devices=4) for n in range(3))]
    gone = [DeletePod(at=round(dice.uniform(4, 9), 3), name=f"g{n}", forced=True) for n in dice.sample(range(3), 2)]
    return more(case, [*deeds, *gone], [always(case, "kubelet slow", "", 25.0)])


def _one_goes_after_the_other(scenario: Scenario, dice: Random) -> Scenario:
    """Members of an inferred group that fills its machines go more often than it waits for news; one more waits."""
    case, pause = _case(scenario, 4), dice.uniform(0.4, 0.7)
    deeds = [member(f"g{n}", 1.0, 0, devices=1) for n in range(64)]
    gone = [DeletePod(at=round(10 + n * pause, 3), name=f"g{n}", forced=True) for n in range(40)]
    return more(case, [*_ultraserver(case), *deeds, member("g-late", 9.0, 0, devices=1), *gone])


def _a_member_for_a_moment(scenario: Scenario, dice: Random) -> Scenario:
    """Three members of four wait, and say so; a fourth comes, is refused with them, and goes at once."""
    deeds: list[Deed] = [member(f"{name}{n}", 1.0, 4) for name in "abcdef" for n in range(3)]
    for number, name in enumerate("abcdef"):
        at = 9 + number * 4
        gone = DeletePod(at=round(at + dice.uniform(0.02, 0.9), 3), name=f"{name}3", forced=True)
        deeds += [member(f"{name}3", at, 4), gone]
    return more(_case(scenario, 3), deeds)


def _counts_that_differ(scenario: Scenario, dice: Random) -> Scenario:
    """A group whose members say different counts, on as many machines as it has members at first."""
    counts, at = dice.choice(((4, 4, 2), (2, 4, 4), (2, 4, 4, 4), (4, 2, 4))), dice.uniform(1, 5)
    return more(_case(scenario, 3), [member(f"g{n}", at + n / 100, least) for n, least in enumerate(counts)])


def _a_wish_to_be_together(scenario: Scenario, dice: Random) -> Scenario:
    """More pods than there is room for prefer to be together: as many run as without the wish."""
    case = _case(scenario, 3)
    deeds = [member(f"g{n}", dice.uniform(1, 3), 0, prefers=True) for n in range(5)]
    return more(case, [*_ultraserver(case), *deeds])


def _all_vanish(scenario: Scenario, dice: Random) -> Scenario:
    """Groups that do not fit are gone before their plans are at an end: one change takes both members."""
    deeds = list[Deed]()
    for space in (f"leaves-{number}" for number in range(48)):
        at = dice.uniform(3, 36)
        gone = round(at + dice.uniform(0, 0.15), 3)
        deeds += [CreateNamespace(at=0.0, name=space), DeleteNamespace(at=gone, name=space)]
        deeds += [member(f"g{n}", at, 2, namespace=space) for n in range(2)]
    return more(_case(scenario, 1, dice.choice(SLOW)), deeds)


def _build(name: str, *, neuron: int, **rest: Any) -> Object:
    """Return a pod for a controller's model."""
    pod: Object = PodPlan(name=name, devices=(neuron,) if neuron else (), cpu=0).manifest
    words = {key: {**pod["metadata"][key], **rest.pop(key, {})} for key in ("labels", "annotations")}
    return pod | {"metadata": pod["metadata"] | words, "spec": pod["spec"] | rest}


def _fleet(names: Sequence[str]) -> Iterator[Deed]:
    """Yield the labels of nodes that have the names of their UltraServers and their places there."""
    for name in names:
        server, _, place = name.partition("-")
        labels = {f"{ULTRASERVER}": server, f"{PAIR}": f"{server}-{int(place) // 2}"}
        yield LabelNode(at=0.05, node=name, labels=tuple(labels.items()))


_SEVEN: Final = (*(f"aaa-{place}" for place in range(4)), *(f"bbb-{place}" for place in range(3)))
_ODD: Final = ("bbb-2", "bbb-0", "bbb-1", "aaa-0", "aaa-1")
_LWS: Final = partial(LeaderWorkerSet, build=_build, name="lws")
_JOBSET: Final = JobSet(build=_build, name="jobset", jobs=2, size=2, topology=PAIR)
_WORKLOADS: Final[Sequence[tuple[Sequence[str], str, Workload, int]]] = (
    (_ODD, "JobSet of 2 x 2, exclusive", _JOBSET, 4),
    (_ODD, "JobSet of 2 x 2, exclusive, that Kueue has admitted", admitted_job(_JOBSET, "jobset"), 4),
    (_SEVEN, "LeaderWorkerSet of 5 x 4, LeaderReady", _LWS(replicas=5, size=4, when_ready=True), 0),
    (_SEVEN, "LeaderWorkerSet of 2 x 4, exclusive", _LWS(replicas=2, size=4, topology=ULTRASERVER), 4),
    (_SEVEN, "LeaderWorkerSet of 2 x 3", _LWS(replicas=2, size=3), 6),
    (_SEVEN, "StatefulSet of 3 in Kueue", serving(StatefulSet(build=_build, name="set", replicas=3), "set", 3), 3),
    (_SEVEN, "4 pods in Kueue", plain_pods(_build, "plain", 4), 4),
    (_ODD[:3], "4 pods in Kueue, one too many", plain_pods(_build, "plain", 4), 0),
    (_SEVEN, "MPIJob of 8 halves in an UltraServer", mpi_job(_build, "mpi", 8, 8, ULTRASERVER), 8),
)


def _a_controller(scenario: Scenario, dice: Random, *, number: int) -> Scenario:
    """A workload, as its controller makes it, on machines that it has for itself."""
    names, text, workload, expects = _WORKLOADS[number]
    case = _case(scenario, 0, dice.choice((0.0, SLOW[0])))
    case = attrs.evolve(case, nodes=tuple((name, KIND) for name in names))
    applied = Apply(at=round(dice.uniform(3, 6), 3), workload=workload, text=text, expects=expects)
    return more(case, [*_fleet(names), applied])


CASES: Final[Sequence[Callable[[Scenario, Random], Scenario]]] = (
    *(_a_choosy_member, _members_that_differ, _later_members, _departures_at_the_fence, _one_goes_after_the_other),
    *(_a_member_for_a_moment, _counts_that_differ, _a_wish_to_be_together, _all_vanish),
    *(partial(_a_controller, number=number) for number in range(len(_WORKLOADS))),
)

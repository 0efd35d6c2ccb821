"""
Hard cases of news between a decision and its effect: lists that are damaged, and pods that others put on the node.

Each was found by many seeds, or in a review. Refuses to do anything to requests that write.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulation.case_parts import alone, always, more, once, pods, small
from tests.simulation.deeds import CreateOnNode, CreatePod
from tests.simulation.deeds_of_nodes import Cordon, Taint
from tests.simulation.pod_plans import PodPlan
from tests.simulation.scenario import Deed, Scenario

_NODES: Final = (("n1", "trn1.32xlarge"), ("n2", "trn1.32xlarge"))
_QUIET: Final = 40.0
_ENDS: Final = 85.0


def damaged_lists(scenario: Scenario, dice: Random) -> Scenario:
    """
    Replicas take turns, so each lists again and again, in small pages; some are damaged. The only node is full.

    The pods that wait come first in a list, so they are known where one ends too early.
    """
    case = alone(scenario, until=99.0, nodes=_NODES[:1], replicas=2, page_size=3, quiet_at=_QUIET, ends_at=_ENDS)
    deeds = [*pods("holds", 16, 0.5), *pods("asks", 3, 4.0), small("asks-more", dice.uniform(20, 30), devices=(1,))]
    turns = [once("terminated", round(at + dice.uniform(0, 2), 3), at // 3 % 2) for at in range(5, 36, 3)]
    return more(case, deeds, [*turns, always(case, "answer garbled", "lists", chance=dice.choice((0.1, 0.2)))])


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


CASES: Final[tuple[Callable[[Scenario, Random], Scenario], ...]] = (
    damaged_lists,
    _pods_without_ids_while_bindings_wait,
    _nominations_that_cannot_be_kept,
)

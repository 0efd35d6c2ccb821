"""What holds in every cluster: plans are the same for the same situation, and requests are not asked for in turns."""

from random import Random
from typing import Final

import attrs
import pytest

from neuron_scheduler.capacity.planning.need import MachineNeed
from neuron_scheduler.capacity.planning.packing import looks_at_pods
from neuron_scheduler.capacity.planning.plan import Plan, WaitingPod
from neuron_scheduler.cluster.cluster import Cluster
from tests.capacity.planning.random_worlds import some_cluster, some_pods
from tests.capacity.planning.worlds import plan_for
from tests.support.thoroughness import examples

SEEDS: Final = range(examples(40))
MOST_ROUNDS: Final = 4


def rounds(cluster: Cluster, pods: list[WaitingPod]) -> list[Plan]:
    """Ask for what each plan needs, and withdraw what it does not, until nothing changes; the last plan is empty."""
    coming: dict[str, MachineNeed] = {}
    plans: list[Plan] = []
    while not plans or plans[-1].needs or not all(plans[-1].serving.values()):
        assert len(plans) < MOST_ROUNDS
        plan = plan_for(cluster, pods, coming=coming)
        plans.append(plan)
        coming = {name: need for name, need in coming.items() if plan.serving[name]}
        coming |= {f"{len(plans)}-{number}": need for number, need in enumerate(plan.needs)}
    return plans


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_cluster_gets_the_same_plan(seed: int) -> None:
    """A plan depends on nothing but the situation."""
    dice = Random(seed)
    cluster, pods = some_cluster(dice), some_pods(dice)
    assert plan_for(cluster, pods) == plan_for(cluster, pods)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_asked_for_stays(seed: int) -> None:
    """Once the needs are asked for, nothing more is needed, and nothing is surplus; pods that look at no others."""
    dice = Random(seed)
    cluster = some_cluster(dice)
    pods = [waiting for waiting in some_pods(dice) if not looks_at_pods(waiting.pod.constraints)]
    assert len(rounds(cluster, pods)) <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_pods_that_depend_on_each_other_settle_as_well(seed: int) -> None:
    """After a few rounds nothing changes; no pod is asked for again while its request is out."""
    dice = Random(seed)
    cluster, pods = some_cluster(dice), some_pods(dice)
    asked: set[str] = set()
    for plan in rounds(cluster, pods):
        needed = {pod.uid for need in plan.needs for pod in need.pods}
        assert not needed & asked
        asked |= needed


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pod_that_may_ask_is_accounted_for(seed: int) -> None:
    """A need names only pods that may ask, each once, and at least one; who is hopeless has no need."""
    dice = Random(seed)
    cluster, pods = some_cluster(dice), some_pods(dice)
    plan = plan_for(cluster, pods)
    named = [pod.uid for need in plan.needs for pod in need.pods]
    assert len(named) == len({*named})
    assert {*named} <= {waiting.pod.uid for waiting in pods if waiting.may_ask}
    assert all(need.pods and need.pattern in need.pods and need.silicon for need in plan.needs)
    assert not {*named} & plan.hopeless.keys()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pod_that_goes_is_no_reason_to_ask(seed: int) -> None:
    """With fewer pods nothing more is asked for beside the open requests; pods that look at no others."""
    dice = Random(seed)
    cluster = some_cluster(dice)
    pods = [attrs.evolve(each, overdue=True) for each in some_pods(dice) if not looks_at_pods(each.pod.constraints)]
    needs = plan_for(cluster, pods).needs
    served = {pod.uid for need in needs for pod in need.pods}
    fewer = [waiting for waiting in pods if waiting.pod.uid in served and dice.random() < 0.5]
    plan = plan_for(cluster, fewer, coming={f"r{number}": need for number, need in enumerate(needs)})
    assert plan.needs == ()

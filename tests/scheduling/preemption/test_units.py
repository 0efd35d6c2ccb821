"""Groups of thousands among the victims: what a search costs does not grow with their members."""

import gc
import sys
from collections.abc import Callable
from types import FrameType

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.preemption.search import Preemption, search
from neuron_scheduler.scheduling.preemption.units import Units
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import with_budgets

NODES = 110


def world(members: int, least: int) -> Cluster:
    """Return full nodes, each with one of the group's members; the others are on a node whose object is gone."""
    cluster, group = Cluster(), PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "g"), least=least)
    for number in range(NODES):
        cluster.put_node(node(f"n{number}", "trn1.32xlarge", created=number))
    for number in range(members):
        name, devices = (f"n{number}", 16) if number < NODES else ("gone", 0)
        labels = {"app": "a", "index": str(number)}
        each = pod(f"p{number}", on=name, devices=devices, ids=range(devices), group=group, labels=labels)
        cluster.put_pod(each)
        cluster.groups.put(each)
    return cluster


def calls_of(play: Callable[[], None]) -> int:
    calls = 0

    def see(_frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(see)
    gc.disable()  # hypothesis counts collections by a callback, which would be calls, too
    try:
        play()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@pytest.mark.parametrize("needs_all", [False, True])
def test_the_calls_of_a_search_do_not_grow_with_the_members_or_with_budgets_elsewhere(needs_all: bool) -> None:
    selector = LabelSelector((Requirement("app", Operator.IN, ("a",)),))
    budget = DisruptionBudget("b", "default", "b", selector, allowed=1 << 20)

    def calls_with(members: int, elsewhere: int) -> list[int]:
        others = [attrs.evolve(budget, namespace=f"other{number}") for number in range(elsewhere)]
        cluster = with_budgets(world(members, least=members if needs_all else 2), [budget, *others])

        def play() -> None:
            preemptor = pod("preemptor", devices=16, priority=9)
            refused = FitError(cluster.view.node_count)
            found = run(search(cluster, preemptor, default_profile("s"), refused=refused))
            assert isinstance(found, Preemption)

        play()
        calls = [calls_of(play)]
        cluster.budgets.put(attrs.evolve(budget, allowed=1 << 19))
        cluster.budgets.remove(others[0])
        return [*calls, calls_of(play)]

    assert calls_with(NODES + 10, 10) == calls_with(NODES + 2000, 2000)


def test_a_member_of_high_priority_protects_no_others() -> None:
    """A group that needs all of its members leaves as one; with one of another priority, each leaves by its own."""
    cluster, preemptor = world(NODES, least=NODES), pod("preemptor", devices=16, priority=9)
    high = pod("high", on="n0", priority=9, group=PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "g"), least=NODES))
    for count in (NODES, 1):
        refused = FitError(cluster.view.node_count)
        found = run(search(cluster, preemptor, default_profile("s"), refused=refused))
        assert isinstance(found, Preemption)
        units = Units(cluster)
        assert len(found.victims.pods) + len(units.others_of(found.victims.pods)) == count
        cluster.put_pod(high)
        cluster.groups.put(high)


def test_a_new_run_is_no_part_of_the_unit_that_was_evicted() -> None:
    """Its pods were created after the old ones had been asked to end; an old one that stays has to leave, too."""
    cluster, group = Cluster(), PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "g"), least=2)
    old, new = (pod(name, on="n", group=group, created=created) for name, created in (("old", 1.0), ("new", 60.0)))
    ending = pod("ending", on="n", group=group, created=1.0, terminating=True, preempted=50.0)
    for member, lost in ((new, []), (old, [group.key])):
        cluster.put_pod(member)
        cluster.groups.put(member)
        assert [unit.key for unit in Units(cluster).lost_by([ending])] == lost
        cluster.remove_pod(member.uid)
        cluster.groups.remove(member.uid)

"""Pods that come after a machine was asked for: a request that they make needless is withdrawn."""

from collections.abc import Mapping
from random import Random

import attrs
import pytest

from neuron_scheduler.capacity.fewer_requests import planned_with_fewest
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.plan import SHARED
from neuron_scheduler.capacity.question import Plan, WaitingPod
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from tests.capacity.test_with_an_autoscaler import World, some_world
from tests.capacity.worlds import TRN1, broken, cluster_of, plan_for, question_of, to_the_end, waiting
from tests.support.thoroughness import examples


def fewest(
    cluster: Cluster, pods: list[WaitingPod], requests: Mapping[str, MachineNeed], awaited: frozenset[str] | None = None
) -> Plan:
    """Return the plan, all open requests being awaited unless something else is said."""
    waited_for = frozenset(requests) if awaited is None else awaited
    return to_the_end(planned_with_fewest(question_of(cluster, pods, open_requests=requests, awaited=waited_for)))


@attrs.define
class Late:
    """A machine was asked for `first`, which fits by count; then `second` came, for which an autoscaler adds one."""

    cluster: Cluster = attrs.field(factory=lambda: cluster_of(broken("a")))
    first: WaitingPod = attrs.field(factory=lambda: WaitingPod(waiting("first", 8, cpu=1000)))
    second: WaitingPod = attrs.field(factory=lambda: WaitingPod(waiting("second", 8)))
    requests: dict[str, MachineNeed] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Ask."""
        (need,) = plan_for(self.cluster, [self.first]).needs
        self.requests = {"r": need}


def test_a_pod_for_which_the_autoscaler_adds_a_machine_that_takes_both() -> None:
    """The request is withdrawn, and not asked for again by the next plan."""
    late = Late()
    plan = fewest(late.cluster, [late.first, late.second], late.requests)
    assert (plan.surplus, plan.serving, plan.needs) == (("r",), {}, ())
    plan = fewest(late.cluster, [late.first, late.second], {})
    assert (plan.needs, plan.hopeless) == ((), {"uid-first": SHARED})


@pytest.mark.parametrize(
    ("others", "awaited"),
    [
        pytest.param([], {"r"}, id="no pod has come"),
        pytest.param([WaitingPod(waiting("second", 8), expects_own=False)], {"r"}, id="no machine came for it"),
        pytest.param([WaitingPod(waiting("second", 8))], set(), id="the machine has come"),
        pytest.param([WaitingPod(waiting("second", 16))], {"r"}, id="the other machine is full"),
    ],
)
@pytest.mark.parametrize("may_ask", [True, False])
def test_a_request_that_is_needed_stays(others: list[WaitingPod], awaited: set[str], *, may_ask: bool) -> None:
    """Also while its pod may not ask, as after a change of the leader: it would have no machine."""
    late = Late()
    pods = [attrs.evolve(late.first, may_ask=may_ask), *others]
    plan = fewest(late.cluster, pods, late.requests, frozenset(awaited))
    assert plan.surplus == ()
    assert plan.serving == {"r": ("uid-first",)}


def test_two_requests_whose_pods_have_room_on_one_machine() -> None:
    """Pods of both have gone: the one that is used less is withdrawn, of two that are used alike the newer one."""
    cluster = cluster_of(broken("a"), broken("b"), broken("c"))
    pods = [waiting(f"p{number}", 8) for number in range(3)]
    needs = plan_for(cluster, pods).needs
    requests = {f"r{number}": need for number, need in enumerate(needs)}
    assert [len(need.pods) for need in needs] == [2, 1]
    plan = fewest(cluster, [WaitingPod(pods[0]), WaitingPod(pods[2])], requests)
    assert (plan.surplus, plan.needs) == (("r1",), ())
    assert plan.serving == {"r0": ("uid-p0", "uid-p2")}


class LateWorld(World):
    """The plan beside an autoscaler that counts, with pods that come one after the other."""

    def plan(self) -> None:
        """Ask for what is needed, and withdraw what is not."""
        plan = fewest(self.cluster, [*map(WaitingPod, self.pods)], dict(self.requests))
        for name in plan.surplus:
            del self.requests[name]
        for need in plan.needs:
            self.numbers += 1
            self.requests[f"r{self.numbers:03}"] = need

    def play_late(self, late: list[Pod]) -> None:
        """Let the pods come, and go on until none waits; machines take long to come."""
        while late or self.pods:
            if late and self.dice.random() < 0.5:
                self.pods.append(late.pop(0))
            self.schedule()
            self.plan()
            self.buy()
            if self.dice.random() < 0.4:
                self.arrive()


@pytest.mark.parametrize("seed", range(examples(100)))
def test_pods_that_come_one_by_one(seed: int) -> None:
    """The machines that are bought are the fewest that hold the pods, as if all had come at once."""
    dice = Random(seed)
    world = some_world(dice, (TRN1,), (4, 8))
    late, needed = world.pods, -(-sum(each.neuron.total for each in world.pods if each.neuron) // 16)
    playing = LateWorld(world.cluster, [], world.types, dice)
    playing.play_late(late)
    assert playing.machines == needed

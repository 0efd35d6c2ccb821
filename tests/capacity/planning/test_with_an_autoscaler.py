"""
The plan beside an autoscaler that counts: together they buy the machines that the pods need, and no more.

Everything but the autoscaler (`tests.support.counting_autoscaler`) is real: the scheduler's decisions and the plan.
Each round the autoscaler looks, the plan asks and withdraws, and one machine of those on their way arrives.
"""

from random import Random
from typing import Final

import attrs
import pytest

from neuron_scheduler.capacity.planning.plan import WaitingPod
from neuron_scheduler.capacity.planning.requests import MachineNeed
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, NEURON_DEVICE
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.cycle.what_if import assume
from tests.capacity.planning.worlds import INF2, PROFILE, TRN1, broken, cluster_of, plan_for, waiting
from tests.support.builders import node
from tests.support.counting_autoscaler import InstanceType, Machine, Wish, bought
from tests.support.thoroughness import examples

NODE_CPU: Final = 128_000
MOST_ROUNDS: Final = 60
IN_PIECES: Final = {TRN1: (0, 5, 10, 15), INF2: (1, 4, 7, 10)}
OFFERED: Final = {TRN1: InstanceType(TRN1, 16, NODE_CPU), INF2: InstanceType(INF2, 12, NODE_CPU)}


@attrs.define
class World:
    """A cluster, the pods that wait, and the machines that were bought."""

    cluster: Cluster
    pods: list[Pod]
    types: tuple[str, ...]
    dice: Random
    requests: dict[str, MachineNeed] = attrs.field(factory=dict)
    coming: list[Machine] = attrs.field(factory=list)
    machines: int = 0
    numbers: int = 0

    def schedule(self) -> None:
        """Place all pods that fit."""
        for pod in list(self.pods):
            decision = schedule_pod(self.cluster, pod, PROFILE)
            if isinstance(decision, Decision):
                assume(self.cluster, pod, decision)
                self.pods.remove(pod)

    def buy(self) -> None:
        """Let the autoscaler look at the pods and the placeholders."""
        nodes = [
            Machine(info.node.name, info.node.instance_type, info.free(NEURON_DEVICE), info.free(CPU))
            for info in self.cluster.view.rows()
        ]
        wishes = [*map(wish_of, self.pods), *(placeholder(name, need) for name, need in self.requests.items())]
        left = [attrs.evolve(machine, wishes=()) for machine in self.coming]  # every round starts from nothing
        new = bought(wishes, nodes, left, [OFFERED[each] for each in self.types])
        self.machines += len(new)
        self.coming += new

    def plan(self) -> None:
        """Ask for what is needed, and withdraw what is not."""
        plan = plan_for(self.cluster, map(WaitingPod, self.pods), open_requests=self.requests)
        for name in plan.surplus:
            del self.requests[name]
        for need in plan.needs:
            self.numbers += 1
            self.requests[f"r{self.numbers:03}"] = need

    def arrive(self) -> None:
        """Let one of the machines join; a request that it meets is withdrawn."""
        if self.coming:
            machine = self.coming.pop(self.dice.randrange(len(self.coming)))
            self.numbers += 1
            joined = node(f"z{self.numbers:03}", machine.type, cpu=NODE_CPU, created=1e9 + self.numbers)
            self.cluster.put_node(joined)
            met = next((name for name, need in self.requests.items() if need.is_met_by(joined)), None)
            self.requests.pop(met or "", None)  # whatever the autoscaler has bought it for

    def play(self) -> None:
        """Go on until no pod waits."""
        for _ in range(MOST_ROUNDS):
            self.schedule()
            if not self.pods:
                return
            self.buy()
            self.plan()
            self.buy()
            self.arrive()
        pytest.fail(f"{len(self.pods)} pods still wait after {self.machines} machines")


def wish_of(pod: Pod) -> Wish:
    """Return what the autoscaler sees of a pod."""
    selected = pod.constraints.node_selector.get(INSTANCE_TYPE_LABEL)
    types = frozenset({selected}) if selected else frozenset[str]()
    return Wish(pod.name, pod.requests[NEURON_DEVICE], pod.requests.get(CPU, 0), pod.created, types)


def placeholder(name: str, need: MachineNeed) -> Wish:
    """Return what the autoscaler sees of a request."""
    types = frozenset(need.instance_types)
    return Wish(name, need.silicon[NEURON_DEVICE], need.host.get(CPU, 0), 1e6, types, placeholder=True)


def some_world(dice: Random, types: tuple[str, ...], sizes: tuple[int, ...]) -> World:
    """Return nodes in pieces, and pods of which no node has a block."""
    nodes = [
        broken(f"n{number}", instance_type, IN_PIECES[instance_type], cpu=NODE_CPU)
        for number, instance_type in enumerate(dice.choices(types, k=dice.randint(1, 4)))
    ]
    pods = [
        waiting(f"p{number}", dice.choice(sizes), cpu=dice.choice([0, 1_000, 4_000]), created=float(number))
        for number in range(dice.randint(1, 12))
    ]
    return World(cluster_of(*nodes), pods, types, dice)


def in_order_of_arrival(world: World) -> int:
    """Return how many machines a scheduler needs that gets a new one whenever the next pod fits nowhere."""
    fork, count = world.cluster.fork(), 0
    for pod in world.pods:
        decision = schedule_pod(fork, pod, PROFILE)
        if not isinstance(decision, Decision):
            count += 1
            selected = pod.constraints.node_selector[INSTANCE_TYPE_LABEL]
            fork.put_node(node(f"fresh{count:03}", selected, cpu=NODE_CPU, created=1e9 + count))
            decision = schedule_pod(fork, pod, PROFILE)
        assert isinstance(decision, Decision)
        assume(fork, pod, decision)
    return count


@pytest.mark.parametrize("seed", range(examples(40)))
def test_blocks_of_a_torus(seed: int) -> None:
    """With sizes that divide each other the machines bought are the fewest that hold the pods: their sum over 16."""
    world = some_world(Random(seed), (TRN1,), (4, 8, 16))
    needed = -(-sum(pod.requests[NEURON_DEVICE] for pod in world.pods) // 16)
    world.play()
    assert world.machines == needed


@pytest.mark.parametrize("seed", range(examples(40)))
def test_runs_on_a_line_and_blocks_of_a_torus(seed: int) -> None:
    """
    Runs on a line do not divide each other: at most one machine more is bought than pods need that come one by one.

    Each pod selects its type. That one more is rare: machines arrive in any order, and the most urgent pod takes the
    first, with which a larger one was packed.
    """
    dice = Random(seed)
    world = some_world(dice, (TRN1, INF2), (4, 8))
    world.pods = [selecting(pod, dice.choice((TRN1, INF2))) for pod in world.pods]
    sums = {each: sum(p.neuron.total for p in world.pods if p.neuron and is_for(p, each)) for each in OFFERED}
    fewest = sum(-(-sums[each] // OFFERED[each].devices) for each in OFFERED)
    most = in_order_of_arrival(world)
    world.play()
    assert fewest <= world.machines <= most + 1


def selecting(pod: Pod, instance_type: str) -> Pod:
    """Return the pod with a selector of its type."""
    constraints = attrs.evolve(pod.constraints, node_selector={INSTANCE_TYPE_LABEL: instance_type})
    return attrs.evolve(pod, constraints=constraints)


def is_for(pod: Pod, instance_type: str) -> bool:
    """Return whether a pod selects a type."""
    return pod.constraints.node_selector[INSTANCE_TYPE_LABEL] == instance_type

"""
The workload: nodes, pods and lifetimes, all fixed by a seed before any contender begins.

A run begins in the middle of the fleet's life: at second 0 pods are there for the whole load; they leave one after the
other while others come. Sizes and lifetimes are dealt out evenly, and the arrivals take exactly as long as the load
requires, so seeds differ in order only.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import attrs

from benchmarks.decision import SIZES
from neuron_scheduler.model.neuron_request import NeuronRequest, neuron_request
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ULTRASERVER_2, ULTRASERVER_4, ULTRASERVER_PLACES, Node
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Constraints, Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE, NEURON_DEVICE, PODS, Container
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.topology import illegal_count

SCHEDULER_NAME = "my-scheduler"
SPREAD = 0.7
"""How far a pod's cpu and memory are from the mean at most, as a share of it: half of the pods ask for little."""


@attrs.frozen
class Lifetimes:
    """
    A distribution of seconds: how long pods run.

    Attributes:
        knots: ascending quantiles at equal distances, from the shortest to the longest; linear between them.
    """

    knots: tuple[float, ...]

    def quantile(self, share: float) -> float:
        """Return the quantile: this share of the pods (0 to 1) runs at most so many seconds."""
        place = share * (len(self.knots) - 1)
        low = min(int(place), len(self.knots) - 2)
        return self.knots[low] + (self.knots[low + 1] - self.knots[low]) * (place - low)

    @property
    def mean(self) -> float:
        """Mean seconds."""
        return sum(low + high for low, high in pairwise(self.knots)) / (2 * (len(self.knots) - 1))

    def stratified(self, count: int, dice: random.Random) -> Sequence[float]:
        """Return so many lifetimes in random order, one from each of as many equal shares of the distribution."""
        lifetimes = [self.quantile((i + 0.5) / count) for i in range(count)]
        dice.shuffle(lifetimes)
        return lifetimes

    def remaining(self, dice: random.Random) -> float:
        """
        Return the remaining seconds of a pod that is running at a random moment.

        The chance to find a pod is proportional to its lifetime; every point of its life is equally likely.
        """
        while True:
            lifetime = self.quantile(dice.random())
            if dice.random() * self.knots[-1] < lifetime:
                return lifetime * dice.random()


# The table is from `openb_pod_list_default.csv` of the openb trace (Alibaba; published by HKUST with "Beware of
# Fragmentation", Weng et al., USENIX ATC '23; https://github.com/hkust-adsl/kubernetes-scheduler-simulator,
# Apache-2.0): deletion_time less scheduled_time of the 6,203 pods that asked for a GPU and were scheduled, without the
# longest 1 % (these last longer than any benchmark, and have 89 % of all time).
# fmt: off
OPENB = Lifetimes((
    4, 14, 20, 27, 29, 33, 36, 39, 42, 45, 47, 50, 51, 53, 54, 56, 59, 60, 62, 64, 66, 69, 72, 74, 76, 79, 83, 86,
    90, 92, 96, 102, 108, 112, 117, 121, 125, 129, 132, 137, 142, 146, 148, 151, 154, 159, 162, 166, 171, 177, 181,
    187, 192, 195, 198, 200, 202, 205, 210, 212, 216, 220, 223, 228, 233, 241, 245, 251, 259, 267, 273, 280, 287,
    294, 305, 314, 321, 331, 340, 351, 362, 370, 385, 404, 419, 428, 441, 459, 473, 490, 506, 514, 532, 540, 546,
    557, 568, 579, 597, 610, 629, 654, 672, 692, 715, 738, 756, 772, 787, 806, 824, 843, 865, 886, 905, 929, 937,
    944, 957, 973, 1002, 1032, 1057, 1081, 1115, 1132, 1155, 1174, 1199, 1216, 1239, 1276, 1303, 1333, 1365, 1398,
    1446, 1482, 1513, 1557, 1600, 1679, 1721, 1783, 1854, 1918, 1984, 2035, 2076, 2121, 2186, 2261, 2339, 2399,
    2480, 2556, 2664, 2762, 2880, 2996, 3127, 3225, 3391, 3542, 3621, 3662, 3760, 3879, 3991, 4057, 4124, 4207,
    4350, 4505, 4624, 4812, 5076, 5400, 5675, 6075, 6540, 7090, 7458, 7930, 8380, 9268, 10074, 10822, 11607, 12520,
    13638, 15091, 17140, 20124, 22860, 26470, 32553, 40817, 58239, 75210, 147608,
))
# fmt: on


@attrs.frozen
class Scenario:
    """
    A fleet and its requests.

    Attributes:
        fleet: number of nodes by instance type.
        work: each size's share of the devices in use, in any unit; so there are fewer large pods.
        resource: the resource that sizes count.
        pinned: each pod names an instance type that serves its size, in proportion to their devices.
        ultraservers: the nodes are in UltraServers of four, and so is each job of more devices than a node has; False:
            there are none. They are neighbours by age, or shuffled.
    """

    title: str
    fleet: Mapping[str, int]
    work: Mapping[int, float]
    resource: str = NEURON_DEVICE
    pinned: bool = False
    ultraservers: Literal[False, "neighbours", "shuffled"] = False


_MIXED = {"trn1.32xlarge": 24, "inf2.48xlarge": 24, "inf2.xlarge": 12}
_MIXED_WORK = {1: 10, 2: 8, 3: 8, 4: 16, 8: 18, 12: 16, 16: 24}
_ULTRA = {"trn2.48xlarge": 60}
_JOBS = {1: 10, 4: 15, 8: 20, 16: 25, 64: 30}
SCENARIOS: Mapping[str, Scenario] = {
    "torus": Scenario("60 trn1.32xlarge; 1, 4, 8 or 16 devices", {"trn1.32xlarge": 60}, {1: 1, 4: 3, 8: 4, 16: 4}),
    "ring": Scenario("60 inf2.48xlarge; 1 to 12 devices", {"inf2.48xlarge": 60}, dict.fromkeys(range(1, 13), 1)),
    "mixed": Scenario("24 trn1.32xlarge, 24 inf2.48xlarge, 12 inf2.xlarge; 1 to 16 devices", _MIXED, _MIXED_WORK),
    "pinned": Scenario("as mixed, each pod with a node selector", _MIXED, _MIXED_WORK, pinned=True),
    "cores": Scenario(
        "30 trn1.32xlarge, 30 inf2.48xlarge; 1 to 32 cores",
        {"trn1.32xlarge": 30, "inf2.48xlarge": 30},
        {1: 14, 2: 14, 3: 6, 4: 6, 6: 8, 8: 20, 16: 16, 32: 16},
        NEURON_CORE,
    ),
    "jobs": Scenario("60 trn2.48xlarge in UltraServers; 1 to 64 devices", _ULTRA, _JOBS, ultraservers="neighbours"),
    "shuffled": Scenario("as jobs, not neighbours by age", _ULTRA, _JOBS, ultraservers="shuffled"),
}


@attrs.frozen
class Demand:
    """
    How much cpu and memory pods ask for beside their devices.

    Attributes:
        cpu, memory: the share of a node's amount for all of its devices, on average; 0 for none. Of the types that
        serve a pod, the one with the least for each device counts.
    """

    cpu: float = 0.0
    memory: float = 0.0


@attrs.frozen
class Arrival:
    """
    A pod that arrives.

    Attributes:
        size: of its job, which is this pod alone, or `members` pods that run once all of them are placed.
        lifetime: how many seconds it runs.
    """

    at: float
    pod: Pod
    size: int
    lifetime: float
    members: int = 1

    @property
    def job(self) -> str:
        """The name of its job."""
        return self.pod.name.partition(".")[0]


@attrs.frozen
class Workload:
    """
    All events of a fleet, without the decisions.

    Attributes:
        capacity: devices or cores of the fleet.
        arrivals: by time; the run begins with those at second 0.
        requests: the different requests, with the number of pods of each.
        end: seconds; the last arrival is just before.
    """

    nodes: tuple[Node, ...]
    capacity: int
    arrivals: tuple[Arrival, ...]
    requests: Mapping[NeuronRequest, float]
    end: float


def nodes_of(scenario: Scenario) -> tuple[Node, ...]:
    """Return the fleet, with the types mixed by age."""
    made = [(i / count, kind, i) for kind, count in scenario.fleet.items() for i in range(count)]
    nodes = [_node(kind, f"{kind}-{i}", age) for age, (_, kind, i) in enumerate(sorted(made))]
    places = list(range(len(nodes)))
    if scenario.ultraservers == "shuffled":
        random.Random(0).shuffle(places)
    if scenario.ultraservers:
        nodes = [_in_an_ultraserver(node, place) for node, place in zip(nodes, places, strict=True)]
    return tuple(nodes)


def workload(
    scenario: Scenario,
    *,
    load: float,
    seed: int,
    pods: int,
    demand: Demand | None = None,
) -> Workload:
    """
    Return the workload of a load, with so many pods that arrive after second 0.

    The load is the sum of devices times seconds of all pods, divided by the fleet's devices times the seconds of the
    run.
    """
    dice = random.Random(seed)
    nodes = nodes_of(scenario)
    capacity = sum(node.allocatable[scenario.resource] for node in nodes)
    makes = _Maker(scenario, nodes, demand or Demand(), dice)
    arrivals: list[Arrival] = []
    standing = load * capacity
    while standing > 0:
        size = dice.choices(list(makes.weights), list(makes.weights.values()))[0]
        arrivals += makes.job(0.0, size, OPENB.remaining(dice))
        standing -= size
    sizes = _dealt(makes.weights, pods, dice)
    lasting = OPENB.stratified(pods, dice)
    end = sum(size * seconds for size, seconds in zip(sizes, lasting, strict=True)) / (load * capacity)
    times = sorted(dice.uniform(0.0, end) for _ in range(pods))
    for at, size, seconds in zip(times, sizes, lasting, strict=True):
        arrivals += makes.job(at, size, seconds)
    requests = Counter[NeuronRequest]()
    for size, share in makes.weights.items():
        requests[makes.request(makes.each(size))] += share  # type: ignore[assignment]  # shares are fractions
    return Workload(nodes, capacity, tuple(arrivals), requests, end)


@attrs.define(eq=False)
class _Maker:
    """Makes the pods of a scenario, one after the other."""

    scenario: Scenario
    nodes: Sequence[Node]
    demand: Demand
    dice: random.Random
    made: int = 0
    _types: dict[int, list[Node]] = attrs.field(factory=dict)

    @property
    def weights(self) -> Mapping[int, float]:
        """The share of the pods of each size."""
        by_size = {size: work / size for size, work in self.scenario.work.items()}
        return {size: weight / sum(by_size.values()) for size, weight in by_size.items()}

    def each(self, size: int) -> int:
        """Return the size of each pod of a job: a job that no node can take has pods that take whole nodes."""
        return min(size, max(node.allocatable[self.scenario.resource] for node in self.nodes))

    def job(self, at: float, size: int, lifetime: float) -> Iterator[Arrival]:
        """Yield the pods of the next job."""
        each, pod = self.each(size), self.pod(self.each(size))
        if each == size:
            yield Arrival(at, pod, size, lifetime)
            return
        count = size // each
        key = GroupKey(Dialect.COSCHEDULING, pod.namespace, pod.name)
        group = PodGroup(key, least=count, expected=count, topology=ULTRASERVER_4)
        for rank in range(count):
            name = f"{pod.name}.{rank}"
            member = attrs.evolve(pod, uid=name, name=name, group=group, rank=rank)
            yield Arrival(at, member, size, lifetime, members=count)

    def request(self, size: int) -> NeuronRequest:
        """Return the request for a size."""
        request = neuron_request([Container("main", {self.scenario.resource: size})])
        if request is None:
            raise ValueError("a size is above 0")
        return request

    def pod(self, size: int) -> Pod:
        """Return the next pod."""
        name, resource, constraints = f"pod-{self.made}", self.scenario.resource, NO_CONSTRAINTS
        self.made += 1
        serving = self._serving(size)
        if self.scenario.pinned:
            chosen = self._drawn(serving)
            serving = [chosen]
            constraints = Constraints(node_selector={INSTANCE_TYPE_LABEL: chosen.instance_type})
        amounts = {
            CPU: self._amount(CPU, self.demand.cpu, size, serving),
            MEMORY: self._amount(MEMORY, self.demand.memory, size, serving),
        }
        requests = {resource: size, **{other: amount for other, amount in amounts.items() if amount}}
        return Pod(
            uid=name,
            namespace="default",
            name=name,
            scheduler_name=SCHEDULER_NAME,
            requests=requests,
            neuron=self.request(size),
            neuron_containers=("main",),
            constraints=constraints,
        )

    def _serving(self, size: int) -> list[Node]:
        """Return a node of each type that serves a size."""
        serving = self._types.get(size)
        if serving is None:
            types = {node.instance_type: node for node in self.nodes}
            serving = self._types[size] = [node for node in types.values() if serves(node, self.request(size))]
        if not serving:
            raise ValueError(f"no node of the fleet serves {size}")
        return serving

    def _drawn(self, serving: Sequence[Node]) -> Node:
        """Return one of the types, in proportion to the devices of all its nodes."""
        fleet, resource = self.scenario.fleet, self.scenario.resource
        silicon = [fleet[node.instance_type] * node.allocatable[resource] for node in serving]
        return self.dice.choices(serving, silicon)[0]

    def _amount(self, resource: str, mean: float, size: int, serving: Sequence[Node]) -> int:
        """Draw one of two amounts around the mean, neither of them more than a node has."""
        if not mean:
            return 0
        silicon = self.scenario.resource
        node = min(serving, key=lambda node: node.allocatable[resource] / node.allocatable[silicon])
        share = size / node.allocatable[silicon]
        most = min(SPREAD * mean, 1 / share - mean)
        return int(node.allocatable[resource] * share * (mean + self.dice.choice((-most, most))))


def serves(node: Node, request: NeuronRequest) -> bool:
    """Return whether a request fits on an empty node."""
    machine = machine_of(node)
    return (
        machine is not None
        and node.allocatable.get(request.resource, 0) >= request.total
        and illegal_count(machine, request) is None
    )


def _node(kind: str, name: str, age: int) -> Node:
    cpu, memory, devices, cores = SIZES[kind]
    silicon = {NEURON_DEVICE: devices, NEURON_CORE: cores}
    return Node(
        uid=name,
        name=name,
        created=float(age),
        labels={INSTANCE_TYPE_LABEL: kind},
        allocatable={CPU: cpu * 1000, MEMORY: memory << 30, PODS: 110, **silicon},
        capacity=silicon,
    )


def _in_an_ultraserver(node: Node, place: int) -> Node:
    """Return a node with the labels of a place; those of four with the same quotient are neighbours."""
    labels = dict[str, str]()
    for key, size in ((ULTRASERVER_2, 2), (ULTRASERVER_4, 4)):
        labels |= {key: f"server-{place // size}", ULTRASERVER_PLACES[key]: str(place % size)}
    return attrs.evolve(node, labels={**node.labels, **labels})


def _dealt(weights: Mapping[int, float], count: int, dice: random.Random) -> list[int]:
    """Return sizes in random order, each in proportion to its weight."""
    sizes = list(_even(weights, count))
    dice.shuffle(sizes)
    return sizes


def _even(weights: Mapping[int, float], count: int) -> Iterator[int]:
    """Yield sizes so that the number of each is always as close to its share as whole numbers allow."""
    given = dict.fromkeys(weights, 0)
    for i in range(count):
        size = max(weights, key=lambda size: weights[size] * (i + 1) - given[size])
        given[size] += 1
        yield size

"""Rounds: which pods are asked for, when, and what is said about the others."""

from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.capacity.planning.plan import Plan
from neuron_scheduler.capacity.planning.requests import MachineNeed
from neuron_scheduler.capacity.requester import CapacityRequester, Limited
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.plugins.cause import Cause
from tests.capacity.test_machines import SETTINGS, World as Machines
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

TRN1 = "trn1.32xlarge"
SEEN = PodCondition("False", "Unschedulable")


def broken(*names: str) -> Cluster:
    """Return machines with 12 devices free, none of them beside three others."""
    holders = [pod(f"{name}-{i}", devices=1, on=name, ids=(i,)) for name in names for i in range(0, 16, 4)]
    return cluster_of([node(name, TRN1) for name in names], holders)


def need_for(*pods: Pod) -> MachineNeed:
    """Return the need for one machine."""
    return MachineNeed(instance_types=(TRN1,), silicon={NEURON_DEVICE: 16}, host={}, pods=pods)


@attrs.define(eq=False)
class World(Machines):
    """The same with rounds, on three broken machines; nothing is written, since no task of the orders runs."""

    cluster: Cluster = attrs.field(factory=lambda: broken("a", "b", "c"))
    leads: bool = True
    rounds: CapacityRequester = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Build what is tested."""
        super().__attrs_post_init__()
        self.rounds = CapacityRequester(
            machines=self.requests,
            profiles={"my-scheduler": default_profile("my-scheduler")},
            may_ask=lambda: self.leads,
        )
        self.requests.lead()

    def capacity_limited(self, pod: Pod, message: str) -> None:
        """Remember it."""
        self.told.append((pod.name, "limited", message))

    def refuse(self, *names: str, cause: Cause = Cause.FRAGMENTATION, **fields: Any) -> None:
        """Add pods of 4 devices, and refuse them."""
        for name in names:
            waiting = pod(name, **{"devices": 4, "scheduler_name": "my-scheduler", "scheduled": SEEN, **fields})
            self.queue.add(waiting, self.now)
            queued = self.queue.pop(self.now)
            assert queued is not None
            assert queued.pod.name == name
            self.queue.unschedulable(queued, frozenset({"NeuronTopology"}), self.now, cause=cause)

    async def round(self, at: float) -> int:
        """Make a round at a time; return how many requests are out then."""
        self.now = at
        await self.rounds._round_of(at)
        assert not self.surprises
        return len(self.requests.table)

    def count(self, state: str) -> int:
        """Return how many machines are in a state."""
        return self.rounds.counts()[state]


def said(world: World, uid: str) -> str | None:
    """Return what is said about a pod of our profile."""
    return world.rounds.said(pod(uid.removeprefix("uid-"), scheduler_name="my-scheduler"))


@pytest.fixture
def world() -> World:
    """Return three broken machines."""
    return World()


async def test_a_pod_waits_before_a_machine_is_asked_for(world: World) -> None:
    """60 s after it came, one machine is asked for, and not a second one in the next rounds."""
    world.refuse("four")
    assert await world.round(59.0) == 0
    assert said(world, "uid-four") == "The autoscaler is not asked for a machine yet: a pod waits first."
    for at in (60.0, 65.0, 130.0):
        assert await world.round(at) == 1
    assert said(world, "uid-four") == f"Asked the autoscaler for 1 {TRN1}."
    assert [(name, kind) for name, kind, _ in world.told] == [("four", "requested")]
    assert world.machines == {"uid-four": TRN1}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"cause": Cause.CAPACITY, "devices": 16}, id="the autoscaler sees it"),
        pytest.param({"cause": Cause.INVALID_COUNT, "devices": 7}, id="an illegal count"),
        pytest.param({"nominated_node_name": "a"}, id="preemption serves it"),
        pytest.param({"scheduled": PodCondition("False", "SchedulerError")}, id="no new node could help"),
        pytest.param({"devices": 0, "cpu": 1_000_000, "cause": Cause.RESOURCES}, id="not Neuron"),
    ],
)
async def test_whom_no_machine_is_asked_for(world: World, fields: dict[str, Any]) -> None:
    """Nothing is asked for pods that wait for something else."""
    world.refuse("other", **fields)
    assert await world.round(1000.0) == 0
    assert said(world, "uid-other") == ""


async def test_devices_that_are_held_as_cores() -> None:
    """Autoscalers count devices and cores apart: a pod that lacks devices fits by count beside pods with cores."""
    world = World(cluster=cluster_of([node("a", TRN1)], [pod("holder", cores=2, on="a", ids=(0, 1))]))
    world.refuse("sixteen", devices=16, cause=Cause.CAPACITY)
    assert await world.round(60.0) == 1
    assert world.machines == {"uid-sixteen": TRN1}


async def test_a_pod_with_unknown_ids_on_one_of_the_nodes(world: World) -> None:
    """The pod waits for that node, says its condition; the others are in pieces, so a machine is asked for."""
    world.cluster.put_node(node("x", TRN1))
    world.cluster.put_pod(pod("foreign", devices=2, on="x"))
    world.refuse("four", cause=Cause.UNKNOWN_HOLDER)
    assert await world.round(60.0) == 1


async def test_machines_are_asked_for_with_pauses(world: World) -> None:
    """A need that comes within the pause waits for its end."""
    world.refuse(*(f"first-{i}" for i in range(4)))
    assert await world.round(60.0) == 1
    world.refuse(*(f"second-{i}" for i in range(4)))
    world.now = 119.0
    for queued in world.queue.pods():
        queued.first_active = 0.0
    assert await world.round(119.0) == 1
    assert world.count("waiting") == 1
    assert said(world, "uid-second-0") == "The autoscaler is asked for a machine after a pause."
    assert await world.round(120.0) == 2
    assert world.count("waiting") == 0


async def test_limits_are_told_once() -> None:
    """The second machine waits for the first; an Event on each of its pods says why, once."""
    world = World(settings=attrs.evolve(SETTINGS, max_machines=1))
    world.refuse(*(f"p{i}" for i in range(8)))
    for at in (60.0, 120.0, 180.0):
        assert await world.round(at) == 1
        assert world.count("limited") == 1
    limited = [(name, text) for name, kind, text in world.told if kind == "limited"]
    assert len(limited) == 4
    told = "The autoscaler is not asked for a machine for this pod: the limit maxMachines (1) is reached"
    assert {text for _, text in limited} == {told}
    name = limited[0][0]
    reason = "The autoscaler is not asked for a machine: the limit maxMachines (1) is reached."
    assert said(world, f"uid-{name}") == reason


@pytest.mark.parametrize(
    ("deed", "want"),
    [
        pytest.param("binding", {"uid-p1", "uid-p2", "uid-p3"}, id="one is about to be bound"),
        pytest.param("deleting", {"uid-p1", "uid-p2", "uid-p3"}, id="one is gone"),
        pytest.param("binding all", set(), id="all are about to be bound"),
    ],
)
async def test_pods_that_get_a_place_while_the_plan_is_made(world: World, deed: str, want: set[str]) -> None:
    """A plan takes a while: a machine is asked for only for those that still wait, and the request is for them."""
    world.refuse(*(f"p{i}" for i in range(4)))
    world.now = 60.0
    waiting = [queued.pod for queued in world.queue.pods()]
    plan = Plan(needs=(need_for(*waiting),), serving={}, hopeless={})
    if deed == "deleting":
        world.queue.remove("uid-p0")
    else:
        for each in waiting if deed == "binding all" else waiting[:1]:
            world.cluster.put_pod(attrs.evolve(each, node_name="a"))
    world.rounds._apply(plan)
    assert {uid for request in world.requests.table.all() for uid in request.pods} == want
    for request in world.requests.table.all():
        world.rounds._apply(Plan(serving={request.name: ("uid-p0", "uid-p1")}, hopeless={}))
        assert request.pods == {"uid-p1"}


async def test_many_limited_pods_do_not_stop_the_loop(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Other tasks run between the pods of two machines, and there is one line for each machine."""
    caplog.set_level("INFO")
    needs = [need_for(*(pod(f"{machine}-{i}") for i in range(4))) for machine in "abc"]
    told: set[int] = set()

    async def watch() -> None:
        while True:
            told.add(len(world.told))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        for _ in range(2):
            await world.rounds._report_limits([Limited(need, "a limit: 5") for need in needs])
        tasks.cancel_scope.cancel()
    assert told >= {4, 8, 12}
    assert len(world.told) == 12
    assert len([line for line in caplog.messages if "A limit keeps" in line]) == 3


async def test_a_refusal_and_a_machine_that_was_given_up_are_told(world: World) -> None:
    """The sentence says why, and when it is tried again."""
    world.refuse("four")
    assert await world.round(60.0) == 1
    (request,) = world.requests.table.all()
    world.requests.declined(request.name, "no right")
    again = "it is asked for again in 60s"
    why = f"the API server refused it: no right; {again}"
    assert said(world, "uid-four") == f"The autoscaler is not asked for a machine: {why}."
    assert world.count("refused") == 1
    assert await world.round(119.0) == 0
    assert await world.round(120.0) == 1
    assert await world.round(1320.0) == 0
    assert (said(world, "uid-four") or "").endswith("no node has joined for it; it is asked for again in 20m.")
    assert await world.round(2519.0) == 0
    assert await world.round(2520.0) == 1


async def test_a_node_that_has_joined_is_told(world: World) -> None:
    """The sentence names it; no further machine is asked for while its pods wait for it."""
    world.refuse("four")
    assert await world.round(60.0) == 1
    world.join(node("new", TRN1, devices=0))
    assert said(world, "uid-four") == f"Asked the autoscaler for 1 {TRN1}: node new has joined."
    assert await world.round(125.0) == 1
    assert world.count("arriving") == 1


async def test_a_crowd_in_one_namespace() -> None:
    """A limit is told for one machine more than its namespace may have; of further ones it is said why, too."""
    world = World(settings=attrs.evolve(SETTINGS, max_machines_per_namespace=1))
    world.cluster.put_node(node("d", TRN1))
    for i in range(0, 16, 4):
        world.cluster.put_pod(pod(f"d-{i}", devices=1, on="d", ids=(i,)))
    world.refuse(*(f"p{i}" for i in range(12)))
    assert await world.round(60.0) == 1
    assert world.count("limited") == 1
    sentences = [said(world, f"uid-p{i}") or "" for i in range(12)]
    assert sum("maxMachinesPerNamespace (1) is reached" in each for each in sentences) == 4
    assert sum("as many other pods of its namespace" in each for each in sentences) == 4


async def test_a_replica_that_may_not_write(world: World) -> None:
    """It asks for nothing."""
    world.refuse("four")
    world.leads = False
    assert await world.round(60.0) == 0

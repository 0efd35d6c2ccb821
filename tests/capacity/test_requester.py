"""From rounds to placeholders: who is asked for and when, what nodes and the API server do, and what is said."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.capacity.machines import MachineRequest
from neuron_scheduler.capacity.planning.plan import MachinePlan
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.settings.profile_config import CapacityRequests
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from tests.capacity.asked import asked
from tests.capacity.model import placeholder as stored
from tests.capacity.planning.worlds import TRN1, UNSCHEDULABLE, broken, cluster_of
from tests.capacity.replica import Scheduler
from tests.support.builders import node, pod

WIDE: Final = CapacityRequests(
    max_machines=9, max_devices=999, max_machines_per_namespace=9, max_devices_per_namespace=999, image="pause"
)
NEW: Final = 1e9
"""When nodes join, in Unix time: after all placeholders were created."""
BOUND: Final = "A placeholder was bound to a node, deleting it"


@attrs.define(eq=False)
class World(Scheduler):
    """
    Three nodes in pieces, with a stand-in for the API server.

    Attributes:
        there: the placeholders on the API server by name, and whether autoscalers see them.
        failing: what the API server answers to every write; None if it accepts them.
    """

    api: Any = attrs.Factory(lambda self: self, takes_self=True)
    settings: CapacityRequests = WIDE
    cluster: Cluster = attrs.field(factory=lambda: cluster_of(broken("a"), broken("b"), broken("c")))
    now: float = 0.0
    surprises: list[str] = attrs.field(factory=list)
    there: dict[str, bool] = attrs.field(factory=dict)
    failing: Exception | None = None

    def clock(self) -> float:
        return self.now

    async def create(self, name: str, manifest: Mapping[str, Any]) -> Pod:
        """Create a placeholder."""
        self.accept()
        self.there[name] = False
        return stored(manifest, f"uid-of-{name}", 0.0)

    async def mark(self, name: str, _uid: str) -> None:
        """Let autoscalers see a placeholder."""
        self.accept()
        self.there[name] = True

    async def delete(self, name: str, _uid: str) -> None:
        """Delete a placeholder."""
        self.accept()
        self.there.pop(name, None)

    def accept(self) -> None:
        if self.failing is not None:
            raise self.failing

    def wait(self, *names: str, cause: Cause = Cause.FRAGMENTATION, **fields: Any) -> None:
        for name in names:
            own = {"devices": 4, "scheduler_name": "my-scheduler", "scheduled": UNSCHEDULABLE, **fields}
            self.refuse(pod(name, **own), cause)

    async def round(self, at: float) -> int:
        """Make a round at a time; return how many placeholders autoscalers see then."""
        self.now = at
        await self.rounds.round()
        await self.write()
        return sum(self.there.values())

    async def write(self) -> None:
        for name in [*self.machines.requests]:
            await self.machines._settle(name)

    async def ask(self, *names: str) -> MachineRequest:
        """Ask for a machine for pods that have waited, and return the request."""
        self.wait(*names)
        await self.round(self.now + 60.0)
        return next(request for request in self.machines.requests.values() if not request.ended)

    async def join(self, new: Node) -> None:
        """Let a node join, or change."""
        self.node_came(new)
        await self.write()

    def said(self, name: str) -> str:
        """Return what is said about a pod of our profile."""
        return self.rounds.request_sentence(pod(name, scheduler_name="my-scheduler")) or ""


@pytest.fixture
def world() -> World:
    """Return three nodes in pieces."""
    return World()


def placeholder(name: str = "capacity-x-0", *, by: str = "my-scheduler", **fields: Any) -> Pod:
    """Return a placeholder as the watch shows it."""
    labels = {"neuron-scheduler/placeholder": "true", "neuron-scheduler/requested-by": by}
    defaults = {
        "namespace": "neuron-scheduler-capacity",
        "scheduler_name": "neuron-scheduler-capacity",
        "labels": labels,
        "required_terms": (NodeSelectorTerm((Requirement(INSTANCE_TYPE_LABEL, Operator.IN, (TRN1,)),)),),
        "scheduled": UNSCHEDULABLE,
        "devices": 16,
        "created": 100.0,
    }
    return pod(name, **{**defaults, **fields})


async def test_a_pod_waits_before_a_machine_is_asked_for(world: World) -> None:
    """60 s after it came, one machine is asked for, and not a second one in the next rounds."""
    world.wait("four")
    for at, count in ((59.0, 0), (60.0, 1), (65.0, 1), (130.0, 1)):
        assert await world.round(at) == count
    assert world.said("four") == f"Asked the autoscaler for 1 {TRN1}."
    assert world.told == [("four", "Requested", f"Asked the autoscaler for 1 {TRN1}")]
    assert world.rounds.counts() == {"open": 1, "arriving": 0, "refused": 0, "limited": 0}
    world.queue.remove("uid-four")
    assert await world.round(135.0) == 0
    assert (world.ended, world.machines.requests) == (["withdrawn"], {})


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        pytest.param({"cause": Cause.UNKNOWN_HOLDER}, 1, id="a node has a pod with unknown ids"),
        pytest.param({"cause": Cause.CAPACITY}, 1, id="cores hold its devices"),
        pytest.param({"cause": Cause.CAPACITY, "devices": 16}, 0, id="the autoscaler sees it"),
        pytest.param({"cause": Cause.INVALID_COUNT, "devices": 7}, 0, id="an illegal count"),
        pytest.param({"nominated_node_name": "a"}, 0, id="preemption serves it"),
        pytest.param({"scheduled": PodCondition("False", "SchedulerError")}, 0, id="no new node could help"),
        pytest.param({"devices": 0, "cpu": 1_000_000, "cause": Cause.RESOURCES}, 0, id="not Neuron"),
    ],
)
async def test_for_whom_a_machine_is_asked(world: World, fields: dict[str, Any], count: int) -> None:
    """For pods that fit by count, and wait for a block."""
    world.wait("other", **fields)
    assert await world.round(1000.0) == count
    world.leads = False
    assert (await world.round(1001.0), world.ended) == (count, []), "a replica that may not write changes nothing"


async def test_limits_are_told_once() -> None:
    """The second machine waits for the first; an Event on each of its pods says why, once."""
    world = World(settings=attrs.evolve(WIDE, max_machines=1))
    world.wait(*(f"p{i}" for i in range(8)))
    for at in (60.0, 120.0, 180.0):
        assert await world.round(at) == 1
        assert world.rounds.counts()["limited"] == 1
    limited = [(name, text) for name, kind, text in world.told if kind == "Limited"]
    told = "The autoscaler is not asked for a machine{}: the limit maxMachines (1) is reached"
    assert [text for _, text in limited] == [told.format(" for this pod")] * 4
    assert world.said(limited[0][0]) == told.format("") + "."


@pytest.mark.parametrize("gone", [1, 4])
async def test_pods_that_get_a_place_while_the_plan_is_made(world: World, gone: int) -> None:
    """A plan takes a while: a machine is asked for only for those that still wait."""
    world.wait(*(f"p{i}" for i in range(4)))
    pods = tuple(queued.pod for queued in world.queue.pods())
    for each in pods[:gone]:
        world.cluster.put_pod(attrs.evolve(each, node_name="a"))
    world.rounds._apply(MachinePlan(needs=(asked(pods=pods, pattern=pods[0]),), serving={}, hopeless={}))
    uids = {uid for request in world.machines.requests.values() for uid in request.pods}
    assert uids == {each.uid for each in pods[gone:]}


async def test_pauses_after_refusals_and_vain_waits_double(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Both are told, and when it is asked again; refusals of one kind are one line; 4 hours are the most."""
    world.failing = ApiError(403, reason="Forbidden", message="exceeded quota", is_status=True)
    world.wait("four")
    at, refused = 60.0, "The autoscaler cannot be asked for a machine for this pod: exceeded quota"
    for pause in (60.0, 120.0, 240.0):
        assert await world.round(at) == 0
        assert world.told[-1] == ("four", "Refused", refused)
        assert world.rounds.counts()["refused"] == 1
        assert world.said("four").startswith(
            "The autoscaler is not asked for a machine: the API server refused it: exc"
        )
        assert await world.round(at + pause - 1) == 0
        at += pause
    assert len([line for line in caplog.messages if "refuses a request" in line]) == 1
    world.failing = None
    for pause in (1200.0, 2400.0, 4800.0, 9600.0, 14400.0, 14400.0):
        assert await world.round(at) == 1
        assert await world.round(at + 1200.0) == 0
        note = (
            f"Gave up the {TRN1} that the autoscaler was asked for: it has not served its pods within 20m: no node has"
        )
        assert world.told[-1] == ("four", "GivenUp", f"{note} joined for it")
        assert await world.round(at + 1200.0 + pause - 1) == 0
        at += 1200.0 + pause


async def test_a_machine_that_cannot_come_holds_others_up_once() -> None:
    """A group of nodes may be at its limit, and pods that need it may come again and again."""
    world = World(cluster=cluster_of(broken("a", labels={"pool": "full"}), broken("b")))
    world.wait("any")
    world.wait("any-larger", cpu=2000)
    for at, names in ((60.0, ["any", "any", "choosy"]), (2460.0, ["any", "any"])):
        world.wait(f"choosy-{at}", node_selector={"pool": "full"})
        assert await world.round(at) > 0
        (request,) = [each for each in world.machines.requests.values() if "uid-any" in each.pods]
        assert sorted(uid.partition("-")[2].partition("-")[0] for uid in request.pods) == names
        await world.round(at + 1200.0)


async def test_a_node_joins_and_serves(world: World) -> None:
    """The placeholder is deleted at once, although the node is not ready; the request ends with its first pod."""
    request = await world.ask("p0", "p1")
    await world.join(node("old", TRN1, created=-1.0, unschedulable=True))
    await world.join(node("team", TRN1, created=NEW, taints=(Taint("team", Effect.NO_SCHEDULE),)))
    assert world.there == {request.name: True}, "neither is the machine: one is older, one is of another group"
    await world.join(node("new", TRN1, devices=0, created=NEW))
    assert world.there == {}
    assert world.said("p0") == f"Asked the autoscaler for 1 {TRN1}: node new has joined."
    assert await world.round(125.0) == 0, "it is on its way"
    assert world.rounds.counts()["arriving"] == 1
    await world.join(node("new", TRN1, created=NEW))
    assert await world.round(130.0) == 0, "its pods are about to be placed"
    world.cluster.put_pod(pod("other", devices=16, on="new", ids=range(16)))
    assert await world.round(135.0) == 0
    assert world.ended == ["served"]
    assert [await world.round(at) for at in (194.0, 195.0)] == [0, 1], "others were faster"


async def test_a_machine_that_does_not_take_its_pods(world: World) -> None:
    """No further one is bought for them before it is given up: the next one may be the same."""
    await world.ask("a", "b")
    await world.join(node("new", TRN1, created=NEW, labels={"group": "small"}, pods=0))
    assert [await world.round(at) for at in (125.0, 1259.0, 1260.0, 2459.0)] == [0, 0, 0, 0]
    assert (world.ended, world.told[-1][2].rpartition("20m: ")[2]) == (["given_up"], "node new has joined for it")


async def test_a_node_that_goes_again(world: World) -> None:
    """The machine is given up at once."""
    await world.ask("a")
    await world.join(node("new", TRN1, created=NEW))
    world.cluster.remove_node("new")
    await world.round(61.0)
    assert (world.ended, world.told[-1][2].partition("for: ")[2]) == (["given_up"], "its node new is gone again")


@pytest.mark.parametrize("deed", ["delete", "bind"])
async def test_somebody_deletes_or_binds_a_placeholder(world: World, deed: str) -> None:
    """The request is given up; a placeholder that was bound is deleted."""
    request = await world.ask("p")
    mine = placeholder(request.name, uid=request.uid)
    world.show(mine)
    if deed == "delete":
        world.pod_went(mine.uid)
    else:
        world.pod_came(attrs.evolve(mine, node_name="a"))
    assert await world.round(61.0) == (1 if deed == "delete" else 0), "this world has not been told of a deletion"
    assert (world.ended, world.machines.requests) == (["given_up"], {})


async def test_what_cannot_be_deleted_counts_for_the_limits() -> None:
    """The autoscaler goes on buying for it; only when it is gone another machine may be asked for."""
    world = World(settings=attrs.evolve(WIDE, max_machines=1))
    request = await world.ask("p")
    world.failing = UnreachableError("no answer")
    world.queue.remove("uid-p")
    await world.round(65.0)
    world.wait("q")
    await world.round(125.0)
    assert (world.ended, world.rounds.counts()["limited"]) == (["withdrawn"], 1)
    world.failing = None
    await world.write()
    world.show(placeholder(request.name, uid=request.uid))  # the watch shows it late
    assert await world.round(130.0) == 1
    (now,) = world.machines.requests.values()
    assert now.pods == {"uid-q"}


async def test_a_takeover(world: World) -> None:
    """The next leader finds what was asked for, and what has come since; what no pod needs goes."""
    for name in ("x", "y", "z"):
        world.there[f"capacity-{name}-0"] = True
        world.show(placeholder(f"capacity-{name}-0"))
    world.show(placeholder("not-ours", namespace="default"))
    world.wait("five", "six", "seven", "eight", "nine")
    world.cluster.put_node(node("young", TRN1, devices=0, created=101.0))
    await world.round(0.0)
    assert world.there == {"capacity-y-0": True}
    assert [request.node_name for request in world.machines.requests.values()] == ["young", ""]
    assert sorted(len(request.pods) for request in world.machines.requests.values()) == [1, 4]


@pytest.mark.parametrize(
    ("found", "asks", "left"),
    [
        pytest.param(placeholder(scheduled=None), True, False, id="no autoscaler has seen it"),
        pytest.param(placeholder(terminating=True), True, False, id="it is being deleted"),
        pytest.param(placeholder(devices=0), True, False, id="it asks for no machine"),
        pytest.param(placeholder(required_terms=None), True, False, id="it asks for no type"),
        pytest.param(placeholder(on="a"), True, False, id="it was bound"),
        pytest.param(placeholder(), False, False, id="its profile asks no more"),
        pytest.param(placeholder(by="renamed"), True, True, id="another installation's, or an earlier name's"),
        pytest.param(placeholder(labels={}), True, True, id="no placeholder"),
    ],
)
async def test_what_is_not_taken_over(found: Pod, caplog: pytest.LogCaptureFixture, *, asks: bool, left: bool) -> None:
    """What is ours and of no use is deleted; the rest is left alone, and one line says so."""
    world = World(asks=asks, there={found.name: True})
    world.wait("four")
    world.show(found)
    for _ in range(2):
        await world.round(0.0)
        world.show(found)  # the watch is late
    assert world.there == ({found.name: True} if left else {})
    warnings = [line for line in caplog.messages if "left alone" in line or line == BOUND]
    assert len(warnings) == (bool(found.node_name) or (left and bool(found.labels)))

"""Bindings that must not overtake the deletion of a placeholder: how long they wait, and what happens meanwhile."""

from typing import Any, cast

import anyio
import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.controllers.withdrawal_fence import LONGEST, WithdrawalFence
from neuron_scheduler.kube.writes.binder import BindOutcome, Fenced, Gone
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

NAME = "capacity-u-0"


@attrs.define
class Requester:
    """Who asked for the node; the pod may stop waiting."""

    pod: Pod
    waits: bool = True


@attrs.define(eq=False)
class World:
    """A fence, and what it has let through and settled, by the names of pods."""

    now: float = 0.0
    sent: list[str] = attrs.field(factory=list)
    settled: list[tuple[str, BindOutcome]] = attrs.field(factory=list)
    surprises: list[str] = attrs.field(factory=list)
    behind: dict[str, str] = attrs.field(factory=dict)
    cluster: Cluster = attrs.field(factory=lambda: cluster_of([node("n")]))
    fence: WithdrawalFence = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Build the fence."""
        self.fence = WithdrawalFence(
            cluster=self.cluster,
            clock=lambda: self.now,
            send=lambda commitment: self.sent.append(commitment.pod.name),
            settle=lambda commitment, outcome: self.settled.append((commitment.pod.name, outcome)),
            errors=UnexpectedErrors(self.surprises.append),
            behind=lambda commitment: self.behind[commitment.pod.name],
        )

    def take(self, name: str, behind: str = NAME) -> tuple[bool, Requester]:
        """Take a Binding that has to wait for a request; return whether it may be sent now, and its requester."""
        self.behind[name] = behind
        requester = Requester(pod(name))
        self.cluster.put_pod(pod(name, on="n"))
        commitment = Commitment(
            requester=cast("Any", requester),  # the fence asks it for nothing else
            pod=requester.pod,
            annotations={},
            decision=Decision("n", None, 1, 1),
            started=0.0,
        )
        return self.fence.take(commitment), requester


@pytest.fixture
def world() -> World:
    """Return an empty fence."""
    return World()


def test_a_binding_waits_for_the_deletion(world: World) -> None:
    """All that wait for it go on in their order; the others do not wait."""
    assert [world.take(name)[0] for name in "ab"] == [False, False]
    assert world.take("c", behind="another") == (False, Requester(pod("c")))
    assert world.take("d", behind="")[0]
    assert not world.sent
    world.fence.withdrawn(NAME)
    assert world.sent == ["a", "b"]
    world.fence.withdrawn(NAME)
    assert world.sent == ["a", "b"]


def test_no_binding_waits_for_long(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An API server that does not delete keeps no pod from its node; a line says so."""
    world.take("a")
    world.now = LONGEST - 0.1
    world.take("b")
    world.fence.expire()
    assert not world.sent
    world.now = LONGEST
    world.fence.expire()
    assert world.sent == ["a", "b"]
    assert len(caplog.messages) == 1
    world.take("c")
    world.fence.expire()
    assert world.sent == ["a", "b"], "a later one waits anew"


def test_a_pod_that_is_gone_meanwhile(world: World) -> None:
    """Its Binding is settled and not sent."""
    _, requester = world.take("a")
    requester.waits = False
    world.fence.withdrawn(NAME)
    assert (world.sent, world.settled) == ([], [("a", Gone())])


def test_a_node_that_is_gone_meanwhile(world: World) -> None:
    """The pod needs another decision."""
    world.take("a")
    world.cluster.remove_node("n")
    world.fence.withdrawn(NAME)
    assert not world.sent
    assert [name for name, _ in world.settled] == ["a"]


def test_the_end_of_the_process(world: World) -> None:
    """Nothing more is sent."""
    world.take("a")
    world.fence.clear()
    world.now = LONGEST
    world.fence.expire()
    world.fence.withdrawn(NAME)
    assert (world.sent, world.settled) == ([], [("a", Fenced())])


def test_a_defect_keeps_no_pod_from_its_node(world: World) -> None:
    """The Binding is sent, and the defect is reported."""

    def broken(_: Commitment) -> str:
        raise RuntimeError("defect")

    world.fence.behind = broken
    assert world.take("a")[0]
    assert world.surprises == ["capacity request"]


async def test_the_clock_is_watched(world: World) -> None:
    """A Binding that comes while nothing waits is let through when its time is over."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.fence.watch_the_clock)
        await anyio.wait_all_tasks_blocked()
        world.take("a")
        world.now = LONGEST
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert world.sent == ["a"]

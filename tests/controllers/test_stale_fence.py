"""A refused Binding is explained if we hold the Lease; otherwise the server's message is kept."""

from pathlib import Path

import anyio
import attrs
import pytest
import yaml

from neuron_scheduler.controllers.stale_fence import LAG, PAUSE, QUIET, READ_EVERY, StaleFence
from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.writes.binder import NOT_THE_HOLDER
from neuron_scheduler.kube.writes.lease import Record

REFUSAL = "this scheduler does not hold the Lease kube-system/my-scheduler"
MANIFEST = Path(__file__).parents[2] / "manifests" / "base" / "admission_bindings.yaml"


@attrs.define(eq=False)
class World:
    """A Lease, a queue, a metric and a clock, with the object under test."""

    now: float = 0.0
    holder: str | Exception = "me"
    looks: int = 0
    paused: list[float] = attrs.field(factory=list)
    count: int = 0
    fence: StaleFence = attrs.field(init=False)

    key = "kube-system/my-scheduler"

    def __attrs_post_init__(self) -> None:
        self.fence = StaleFence(
            leases=self, identity="me", clock=lambda: self.now, pause=self.paused.append, counted=self.counted
        )

    async def get(self, *, within: float) -> Record:
        """Read the Lease."""
        assert within > 0
        self.looks += 1
        await anyio.lowlevel.checkpoint()
        if isinstance(self.holder, Exception):
            raise self.holder
        return Record(self.holder, 15)

    def counted(self) -> None:
        """Count a refusal."""
        self.count += 1

    async def refused(self, *, after: float = 0.0) -> bool:
        """Let a Binding be refused, seconds later; return whether it was explained."""
        self.now += after
        explanation = await self.fence.explained(REFUSAL)
        assert explanation == REFUSAL or "Restart kube-apiserver" in explanation
        return explanation != REFUSAL


async def test_a_server_that_stays_behind_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each refusal is counted and pauses the queue; the log has one line, and another after a quiet minute."""
    world = World()
    assert not await world.refused()
    assert not await world.refused(after=LAG - 0.1)
    assert not caplog.records
    assert await world.refused(after=0.1)
    assert [await world.refused(after=PAUSE) for _ in range(3)] == [True] * 3
    assert (world.count, world.paused) == (4, [LAG + PAUSE * (1 + n) for n in range(4)])
    assert len(caplog.records) == 1
    assert await world.refused(after=QUIET + 0.1)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("holder", ["another", "", ApiError(404), ApiError(503), UnreachableError("gone")])
async def test_a_lease_that_is_not_ours_explains_itself(holder: str | Exception) -> None:
    """The refusal is then correct, or its cause unknown; when the Lease is ours again, the time starts again."""
    world = World(holder=holder)
    assert not await world.refused()
    assert not await world.refused(after=LAG)
    world.holder = "me"
    assert not await world.refused(after=LAG)
    assert await world.refused(after=LAG)
    world.holder = holder
    assert not await world.refused(after=LAG)
    assert len(world.paused) == world.count == 1


async def test_one_look_serves_many_refusals() -> None:
    """Bindings that are refused together read the Lease once, also if the server does not answer."""
    for holder in ("me", UnreachableError("gone")):
        world = World(holder=holder)
        async with anyio.create_task_group() as tasks:
            for _ in range(48):
                tasks.start_soon(world.refused)
        assert world.looks == 1
        await world.refused(after=READ_EVERY)
        assert world.looks == 2


def test_the_policy_refuses_in_these_words() -> None:
    """The text that the binder looks for is in the manifest."""
    policy = next(yaml.safe_load_all(MANIFEST.read_text()))
    assert policy["spec"]["validations"][0]["message"] == REFUSAL
    assert REFUSAL.startswith(NOT_THE_HOLDER)

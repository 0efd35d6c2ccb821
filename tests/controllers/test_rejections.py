"""Nodes that reject pods are set aside for a while, and forgotten when they work again."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.cluster.changes import PodGone
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.controllers import rejections
from neuron_scheduler.controllers.rejections import LASTING, READS_AT_ONCE, Rejections, rejection
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.pod_reads import Failure
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.builders import node, pod
from tests.support.loops import watches_of
from tests.support.patience import PATIENCE
from tests.support.queueing import new_queue
from tests.telemetry.test_metrics import samples

NO_DEVICE = Failure("UnexpectedAdmissionError", "Pod was rejected: Allocate failed")
ROW = CoreMask(0xFF)  # the cores of four devices
UNREAD = "neuron_scheduler_rejections_unread_total"


@attrs.define(eq=False)
class World:
    """Two nodes, an API server that knows how pods ended, and a clock that stands still."""

    now: float = 1000.0
    leads: bool = True
    answers: dict[str, Failure | Exception | None] = attrs.field(factory=dict)
    asked: list[tuple[str, str]] = attrs.field(factory=list)
    cluster: Cluster = attrs.field(factory=Cluster)
    metrics: Metrics = attrs.field(factory=Metrics)
    rejections: Rejections = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        for name in "ab":
            self.cluster.put_node(node(name, "trn1.32xlarge"))
        self.rejections = Rejections(
            cluster=self.cluster,
            failure_of=self.read,
            metrics=self.metrics,
            version=lambda: "41",
            clock=lambda: self.now,
            may_bind=lambda: self.leads,
            errors=UnexpectedErrors(self.metrics.count_unexpected_error),
        )

    async def read(self, pod: Pod, version: str) -> Failure | None:
        """Return how a pod ended."""
        self.asked.append((pod.name, version))
        await anyio.lowlevel.checkpoint()
        answer = self.answers.get(pod.name, NO_DEVICE)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def leave(self, *pod_infos: PodInfo) -> None:
        """Let pods leave, and wait until the API server was asked about them."""
        for pod_info in pod_infos:
            self.rejections.observe(PodGone(pod_info.pod, pod_info, pod_info.pod.node_name))
        await anyio.wait_all_tasks_blocked()

    def aside(self, name: str = "a") -> CoreMask | None:
        """Return the cores that are set aside with a node, None if it is used as before."""
        self.rejections.expire()
        node_info = self.cluster.node(name)
        assert node_info is not None
        return node_info.set_aside

    def counted(self) -> dict[str, float]:
        """Return how many rejections were counted, by reason."""
        start = 'neuron_scheduler_pods_rejected_total{reason="'
        return {
            name.removeprefix(start).removesuffix('"}'): value
            for name, value in samples(self.metrics).items()
            if name.startswith(start)
        }


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    """Run the service in a world of its own."""
    world = World()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.rejections.run)
        await anyio.wait_all_tasks_blocked()
        yield world
        tasks.cancel_scope.cancel()


def pod_info(name: str = "p", *, on: str = "a", cores: CoreMask | None = ROW, **fields: Any) -> PodInfo:
    """Return a pod of four devices with what it was to get, as it was before it had started."""
    asked: Mapping[str, Any] = {"devices": 4} | fields
    return PodInfo(pod(name, on=on, **asked), cores=cores)


async def test_a_rejection_sets_node_and_ids_aside_for_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """The pod is read at the version of its last event; the rejection is counted and logged."""
    async with running() as world:
        await world.leave(pod_info(ids=range(4)))
        assert world.asked == [("p", "41")]
        assert world.aside() == ROW
        assert world.aside("b") is None
        assert world.rejections.set_aside_count == 1
        assert world.counted() == {"UnexpectedAdmissionError": 1}
        (record,) = caplog.records
        assert record.message == "Pod was rejected by its node"
        assert vars(record)["pairs"] == {
            "pod": "default/p",
            "node": "a",
            "ids": "0,1,2,3",
            "reason": "UnexpectedAdmissionError",
            "err": "Pod was rejected: Allocate failed",
            "setAsideSeconds": 300,
        }
        world.now += LASTING - 0.1
        assert world.aside() is not None
        world.now += 0.1
        assert world.aside() is None
        assert world.rejections.set_aside_count == 0


@pytest.mark.parametrize(
    ("failure", "want"),
    [
        (NO_DEVICE, "UnexpectedAdmissionError"),
        (Failure("TopologyAffinityError", ""), "TopologyAffinityError"),
        (Failure("OutOfaws.amazon.com/neuroncore", ""), "OutOfaws.amazon.com/neuroncore"),
        (Failure("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu"), "OutOfcpu"),
        (Failure("OutOfexample.com/gpu", ""), "OutOfExtendedResources"),
        (Failure("SysctlForbidden", "Pod was rejected: forbidden sysctl"), "Other"),
        (Failure("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"), ""),
        (Failure("", ""), ""),
    ],
)
def test_what_a_failure_means(failure: Failure, want: str) -> None:
    """The kubelet's reasons concern the node or the pod alone; other failures are no rejections."""
    assert rejection(failure) == want


@pytest.mark.parametrize(
    "failure", [Failure("AppArmor", "Pod was rejected: no such profile"), Failure("Error", "exit 1"), None]
)
async def test_nothing_is_set_aside(failure: Failure | None) -> None:
    """The pod would fail on every node, has run, or was deleted."""
    async with running() as world:
        world.answers["p"] = failure
        await world.leave(pod_info())
        assert world.aside() is None


async def test_who_is_asked_about() -> None:
    """Neuron pods of all schedulers, and no others: any tenant may bind one to a node; only the leader asks."""
    async with running() as world:
        await world.leave(
            pod_info("theirs", cores=None, scheduler_name="default-scheduler"),
            pod_info("plain", cores=NO_CORES, devices=0, scheduler_name="my-scheduler"),
        )
        assert world.asked == [("theirs", "41")]
        assert world.aside() == NO_CORES, "of one whose ids are unknown there are none to set aside"
        world.leads = False
        await world.leave(pod_info("follower"))
        assert len(world.asked) == 1


async def test_each_rejection_begins_the_time_again() -> None:
    """The ids of all pods that were rejected meanwhile add up."""
    async with running() as world:
        await world.leave(pod_info("p"), pod_info("q", cores=CoreMask(0xFF00)))
        world.now += LASTING - 1
        await world.leave(pod_info("r", cores=CoreMask(0xFF0000)))
        world.now += LASTING - 1
        assert world.aside() == CoreMask(0xFFFFFF)
        world.now += 1
        assert world.aside() is None


async def test_a_node_that_is_gone_is_not_remembered() -> None:
    """Another machine may join under its name."""
    async with running() as world:
        await world.leave(pod_info())
        assert world.rejections.set_aside_count == 1
        watches_of(world.cluster, new_queue(), world.rejections, clock=lambda: world.now).of(NODES).on_deleted(
            node("a", "trn1.32xlarge")
        )
        assert world.rejections.set_aside_count == 0


@pytest.mark.parametrize("error", [ApiError(410), UnreachableError("reset"), RuntimeError("a bug")])
async def test_a_failure_to_ask_ends_nothing(error: Exception) -> None:
    """The failure is counted, and the next pod is read."""
    async with running() as world:
        world.answers["p"] = error
        await world.leave(pod_info("p"), pod_info("q"))
        assert world.aside() == ROW
        assert samples(world.metrics)[UNREAD] == (not isinstance(error, RuntimeError))


async def test_ten_thousand_pods_that_leave_at_once_are_no_storm() -> None:
    """The API server is asked about as many pods as the limit allows; the others are counted."""
    async with running() as world:
        await world.leave(*(pod_info(f"p{number}") for number in range(10_000)))
        assert len(world.asked) == READS_AT_ONCE
        assert samples(world.metrics)[UNREAD] == 10_000 - READS_AT_ONCE
        world.now += 1
        await world.leave(*(pod_info(f"q{number}") for number in range(100)))
        assert len(world.asked) == READS_AT_ONCE + 10


async def test_time_alone_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service looks by itself what is due."""
    monkeypatch.setattr(rejections, "PERIOD", 0.001)
    async with running() as world:
        await world.leave(pod_info())
        world.now += LASTING
        with anyio.fail_after(PATIENCE):
            while world.cluster.view.set_aside:
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("fields", "asked"),
    [({}, True), ({"started": 5.0}, False), ({"terminating": True}, False)],
    ids=["before it started", "it ran", "a user deleted it"],
)
async def test_a_pod_that_goes_before_it_started_may_have_been_rejected(fields: dict[str, Any], asked: bool) -> None:
    """No other pod is asked about; nor is one that could not be read."""
    async with running() as world:
        gone = pod_info(**fields)
        await world.leave(gone, attrs.evolve(gone, unreadable=True))
        assert bool(world.asked) is asked

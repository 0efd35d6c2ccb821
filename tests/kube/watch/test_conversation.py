"""All requests and watches, once with the embedded API server and once, unchanged, with a real one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.lowlevel
import attrs
import msgspec
import pytest

from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.credentials import Fixed
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.writes.binder import Binder, Bound, Gone, Refused
from neuron_scheduler.kube.writes.condition_writer import UNSCHEDULABLE, ConditionWriter
from neuron_scheduler.kube.writes.event_recorder import EventRecorder
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.nomination import Nominate
from neuron_scheduler.model.pod import Pod
from sandbox.server import ApiServer
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ADMIN, ControlPlane
from tests.support.informers import informer_of
from tests.support.patience import PATIENCE


@attrs.define(eq=False)
class Mirror:
    """A handler that keeps objects by name, and counts changes."""

    known: dict[str, Any] = attrs.field(factory=dict)
    changes: int = 0
    news: anyio.Event = attrs.field(factory=anyio.Event)

    def added(self, new: Pod | Node) -> None:
        """Keep it."""
        self.known[new.name] = new
        self._notify()

    def updated(self, old: Pod | Node, new: Pod | Node) -> None:
        """Keep it."""
        assert self.known[new.name] == old
        self.known[new.name] = new
        self.changes += 1
        self._notify()

    def deleted(self, old: Pod | Node) -> None:
        """Drop it."""
        assert self.known.pop(old.name) == old
        self._notify()

    def malformed(self, malformed: Malformed) -> None:
        """Nothing here is malformed."""
        raise AssertionError(malformed)

    def no_longer_malformed(self, malformed: Malformed) -> None:
        """Nothing here was malformed."""
        raise AssertionError(malformed)

    async def until(self, reached: Callable[[dict[str, Any]], bool]) -> None:
        """Return when the known objects are as they should be."""
        with anyio.fail_after(PATIENCE):
            while not reached(self.known):
                await self.news.wait()

    def _notify(self) -> None:
        self.news.set()
        self.news = anyio.Event()


@attrs.define(eq=False)
class World:
    """A client of an empty cluster and mirrors of its pods and nodes."""

    client: Client
    pods: Mirror = attrs.field(factory=Mirror)
    nodes: Mirror = attrs.field(factory=Mirror)

    async def create(self, path: str, body: Any) -> Any:
        """POST an object."""
        return msgspec.json.decode((await self.client.request("POST", path, body=msgspec.json.encode(body))).body)

    async def pod(self, name: str, **spec: Any) -> Pod:
        """Create a pod and return it as the informer sees it."""
        container = {"name": "c", "image": "i", "resources": {"limits": {"aws.amazon.com/neuron": "2"}}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {"mine": "x"}},
            "spec": {"schedulerName": "my-scheduler", "containers": [container], **spec},
        }
        await self.create("/api/v1/namespaces/default/pods", body)
        await self.pods.until(lambda pods: name in pods)
        created = self.pods.known[name]
        assert isinstance(created, Pod)
        return created


Scene = Callable[[World], Awaitable[None]]


async def nodes_come_and_go(world: World) -> None:
    """A node is created, changed and deleted; its heartbeats are no changes."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"node.kubernetes.io/instance-type": "ml.trn1.32xlarge"}},
        "spec": {"taints": [{"key": "aws.amazon.com/neuron", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "128", "aws.amazon.com/neuron": "16"}},
    }
    await world.create("/api/v1/nodes", node)
    await world.nodes.until(lambda nodes: "n1" in nodes)
    status = {"status": {"allocatable": {"cpu": "128", "memory": "1Gi", "aws.amazon.com/neuron": "16"}}}
    await patch(world, "/api/v1/nodes/n1/status", status)
    await world.nodes.until(lambda nodes: nodes["n1"].allocatable.get("memory") == 1 << 30)
    known = world.nodes.known["n1"]
    assert known.instance_type == "trn1.32xlarge"
    assert known.allocatable["aws.amazon.com/neuron"] == 16
    before = world.nodes.changes
    beat = {
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-21T08:00:00Z"}]}
    }
    await patch(world, "/api/v1/nodes/n1/status", beat)
    await world.client.request("DELETE", "/api/v1/nodes/n1")
    await world.nodes.until(lambda nodes: "n1" not in nodes)
    assert world.nodes.changes == before


async def a_pod_is_bound_once(world: World) -> None:
    """One Binding writes node and annotations; a repeat is our own success, a different one is refused."""
    pod = await world.pod("bound")
    binder = Binder(client=world.client, may_send=lambda: True, timeout=4.0)
    annotations = {"AWS_NEURON_IDS": "0,1", "NEURON_ALLOCATED": "false"}
    assert await binder.bind(pod, "n1", annotations) == Bound()
    await world.pods.until(lambda pods: pods["bound"].node_name == "n1")
    bound = world.pods.known["bound"]
    assert bound.allocation == annotations
    assert bound.annotations_size > pod.annotations_size
    assert bound.scheduled is not None
    assert bound.scheduled.status == "True"

    assert await binder.bind(pod, "n1", annotations) == Bound()
    other = await binder.bind(pod, "n1", {"AWS_NEURON_IDS": "4,5"})
    assert isinstance(other, Refused)
    assert (other.status, other.retryable) == (409, False)
    elsewhere = await binder.bind(pod, "n2", annotations)
    assert isinstance(elsewhere, Refused)
    assert binder.resolved


async def a_pod_that_is_gone_is_not_bound(world: World) -> None:
    """Another uid, and no pod at all, are not refusals."""
    pod = await world.pod("again")
    binder = Binder(client=world.client, may_send=lambda: True, timeout=4.0)
    assert await binder.bind(attrs.evolve(pod, uid="11111111-2222-3333-4444-555555555555"), "n1", {}) == Gone()
    await world.client.request("DELETE", "/api/v1/namespaces/default/pods/again")
    await world.pods.until(lambda pods: "again" not in pods)
    assert await binder.bind(pod, "n1", {}) == Gone()


async def the_condition_is_written(world: World) -> None:
    """The condition is read back as it was written, and replaces the one before."""
    pod = await world.pod("waits")
    writer = ConditionWriter(client=world.client, on_retry=lambda _write: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        writer.set(pod, reason=UNSCHEDULABLE, message="0/1 nodes are available: 1 Insufficient cpu.")
        await world.pods.until(lambda pods: pods["waits"].scheduled is not None)
        writer.set(pod, reason="SchedulerError", message="another", nomination=Nominate("n1"))
        await world.pods.until(lambda pods: pods["waits"].nominated_node_name == "n1")
        tasks.cancel_scope.cancel()
    written = world.pods.known["waits"]
    assert (written.scheduled.reason, written.scheduled.message) == ("SchedulerError", "another")


async def events_are_accepted(world: World) -> None:
    """Our Events pass the strict validation of events.k8s.io, series included."""
    pod = await world.pod("told")
    dropped: list[str] = []
    recorder = EventRecorder(
        client=world.client, on_dropped=lambda: dropped.append("x"), on_retry=lambda _write: None, writers=1
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        recorder.record(pod, type="Warning", reason="FailedScheduling", action="Scheduling", note="ä" * 2000)
        with anyio.fail_after(PATIENCE):
            while not await events_of(world, "told"):
                pass
        recorder.record(pod, type="Warning", reason="FailedScheduling", action="Scheduling", note="again")
        await recorder.drain(PATIENCE)
    events = await events_of(world, "told")
    assert not dropped
    assert [event["series"]["count"] for event in events] == [2]
    assert events[0]["reportingController"] == "my-scheduler"


async def patch(world: World, path: str, body: Any) -> None:
    """A strategic merge patch."""
    media = "application/strategic-merge-patch+json"
    await world.client.request("PATCH", path, body=msgspec.json.encode(body), content_type=media)


async def events_of(world: World, pod: str) -> list[dict[str, Any]]:
    """The events of a pod."""
    answer = await world.client.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    items = msgspec.json.decode(answer.body)["items"]
    return [item for item in items if item["regarding"]["name"] == pod]


SCENES: Final[dict[str, Scene]] = {
    scene.__name__: scene
    for scene in (
        nodes_come_and_go,
        a_pod_is_bound_once,
        a_pod_that_is_gone_is_not_bound,
        the_condition_is_written,
        events_are_accepted,
    )
}


async def played(scene: str, connection: Connection) -> None:
    """Play a scene in a world whose mirrors are filled by informers."""
    async with Client(connection=connection) as client, anyio.create_task_group() as tasks:
        world = World(client)
        pods = informer_of(client, world.pods)
        nodes = informer_of(client, world.nodes, resource=NODES)
        tasks.start_soon(pods.run)
        tasks.start_soon(nodes.run)
        await pods.synced.wait()
        await nodes.synced.wait()
        await SCENES[scene](world)
        tasks.cancel_scope.cancel()


@pytest.fixture
async def sandbox() -> AsyncIterator[Connection]:
    """The embedded API server without its kubelet."""
    async with ApiServer(kubelet=False).serving() as server:
        yield Connection(server.url, "the sandbox")


@pytest.mark.parametrize("scene", SCENES)
async def test_with_the_sandbox(scene: str, sandbox: Connection) -> None:
    """The embedded server accepts our requests."""
    await played(scene, sandbox)


@pytest.mark.parametrize("scene", SCENES)
async def test_with_a_real_api_server(scene: str, control_plane: ControlPlane, cluster_api: RestClient) -> None:
    """The real one accepts the same requests."""
    tls = Tls(clock=lambda: 0.0, ca_file=str(control_plane.ca_file))
    credentials = Fixed(f"Bearer {ADMIN.token}")
    await played(scene, Connection(control_plane.server, "a control plane", credentials, tls))

"""
The extender as a process: the real parts against an embedded API server, asked over HTTP as kube-scheduler asks.

kube-scheduler is a few lines here: one pod after the other is filtered and prioritized, and bound in the background.
"""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.app import App
from neuron_scheduler.extender.verbs import Role
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.settings.config import Config
from neuron_scheduler.stopping import StopRequests
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from sandbox import fleet
from sandbox.apiserver.resources import PODS
from sandbox.server import ApiServer
from tests.control_plane.objects import pod_manifest
from tests.support.extender_caller import ExtenderCaller
from tests.support.patience import PATIENCE
from tests.telemetry.test_logs import _logging_as_before  # noqa: F401 - a fixture that every test here uses

RETRY = 0.1  # seconds until a replica tries to renew or get the Lease again


@attrs.define(eq=False)
class Replica:
    """One process, in this event loop."""

    app: App
    port: int
    ended: anyio.Event = attrs.field(factory=anyio.Event)

    async def run(self) -> None:
        """Run to its end."""
        await self.app.run()
        self.ended.set()

    async def ready(self) -> None:
        """Wait until it answers filter."""
        assert self.app.parts.extender is not None
        with anyio.fail_after(PATIENCE):
            while self.app.parts.extender.verbs.sync_problem() is not None:
                await anyio.lowlevel.checkpoint()

    async def leads(self) -> None:
        """Wait until it binds."""
        assert self.app.parts.extender is not None
        with anyio.fail_after(PATIENCE):
            while self.app.parts.extender.verbs.role() is not Role.LEADS:
                await anyio.lowlevel.checkpoint()

    async def stop(self) -> None:
        """Stop it, as SIGTERM does."""
        self.app.requests.receive(signal.SIGTERM)
        with anyio.fail_after(PATIENCE):
            await self.ended.wait()


@asynccontextmanager
async def replica(server: ApiServer, port: int, **settings: Any) -> AsyncIterator[Replica]:
    """Return a replica that is not started."""
    config = Config(
        **{
            "master": server.url,
            "port": 0,
            "secure_port": 0,
            "bind_address": "127.0.0.1",
            "extender_bind_address": f"127.0.0.1:{port}",
            "queue": False,
            "leader_elect_retry_period": RETRY,
            **settings,
        }
    )
    async with Client(connection=Connection(server.url, "a test")) as client:
        metrics = Metrics()
        parts = wire(config, client, metrics)
        app = App(config=config, client=client, metrics=metrics, parts=parts, requests=StopRequests())
        yield Replica(app, port)


@attrs.define(eq=False)
class KubeScheduler:
    """Schedules pods with the help of an extender."""

    server: ApiServer
    port: int

    @property
    def nodes(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.server.store.objects("nodes")]

    async def schedule(self, pod: Any) -> str:
        """Schedule a pod, and again after an error; return its node."""
        return await ExtenderCaller(self.port).schedule(pod, self.nodes)

    def create(self, name: str, **keywords: Any) -> Any:
        return self.server.create(pod_manifest(name, scheduler_name="default-scheduler", **keywords))

    def ids(self, name: str) -> str:
        """Return the ids that a pod got."""
        pod = self.server.store.get(PODS.plural, "default", name)
        assert pod is not None
        return str(pod["metadata"]["annotations"]["AWS_NEURON_IDS"])


@asynccontextmanager
async def serving(*nodes: str, **settings: Any) -> AsyncIterator[ApiServer]:
    """Run an API server with nodes of these instance types, named after them."""
    async with ApiServer(**settings).serving() as server:
        for number, instance_type in enumerate(nodes):
            server.create(fleet.node(f"{instance_type.partition('.')[0]}-{number}", instance_type))
        yield server


async def test_any_replica_answers(free_tcp_port_factory: Any) -> None:
    """A follower filters from its own cache and passes `bind` on; after the leader's end it binds itself."""
    one, two = free_tcp_port_factory(), free_tcp_port_factory()
    async with (
        serving("trn1.32xlarge") as server,
        replica(server, one) as first,
        replica(server, two) as second,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(first.run)
        await first.leads()
        tasks.start_soon(second.run)
        await second.ready()
        follower = KubeScheduler(server, two)
        with anyio.fail_after(PATIENCE):  # it is tried again until the Lease's address has arrived
            assert await follower.schedule(follower.create("a", neuron=4)) == "trn1-0"
        assert follower.ids("a") == "0,1,2,3"
        await first.stop()
        await second.leads()
        assert await follower.schedule(follower.create("b", neuron=4)) == "trn1-0"
        assert follower.ids("b") == "4,5,6,7"
        await second.stop()
        lease = await LeaseClient(client=second.app.client).get(within=PATIENCE)
        assert lease.holder == ""

"""What `fit` says is what happens: of one replica more than fit, that one waits, for the reason that was said."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from neuron_scheduler.app import App
from neuron_scheduler.capture import live
from neuron_scheduler.capture.workloads import read_workloads
from neuron_scheduler.explain.answers.fit import Fit
from neuron_scheduler.explain.fit import how_many_of
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.settings.config import Config
from neuron_scheduler.steps import run
from neuron_scheduler.stopping import StopRequests
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from sandbox import fleet
from sandbox.server import ApiServer
from tests.support.patience import PATIENCE

PROFILE = default_profile("my-scheduler")
TYPES = ("trn1.32xlarge", "trn1.32xlarge", "trn2.48xlarge", "inf2.24xlarge", "inf2.xlarge")


def deployment(name: str, replicas: int, devices: int, **spec: Any) -> dict[str, Any]:
    """Return a Deployment whose pods ask for devices and cpu."""
    amounts = {"aws.amazon.com/neuron": str(devices), "cpu": "2"}
    container = {"name": "main", "image": "app:1", "resources": {"limits": amounts, "requests": amounts}}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"schedulerName": "my-scheduler", "containers": [container], **spec},
            },
        },
    }


@asynccontextmanager
async def scheduled() -> AsyncIterator[tuple[ApiServer, Client]]:
    """Run an API server with nodes of several types, controllers, and the scheduler."""
    async with ApiServer(controllers=True).serving() as server:
        for number, instance_type in enumerate(TYPES):
            server.create(fleet.node(f"n{number}", instance_type))
        config = Config(master=server.url, port=0, secure_port=0, bind_address="127.0.0.1")
        async with Client(connection=Connection(server.url, "a test")) as client, anyio.create_task_group() as tasks:
            metrics, requests = Metrics(), StopRequests()
            parts = wire(config, client, metrics)
            app = App(config=config, client=client, metrics=metrics, parts=parts, requests=requests)
            tasks.start_soon(app.run)
            yield server, client
            tasks.cancel_scope.cancel()


async def settled(server: ApiServer, name: str, pods: int) -> tuple[list[Any], list[Any]]:
    """Wait until all pods of a Deployment are decided; return those on nodes and those that wait."""
    with anyio.fail_after(PATIENCE):
        while True:
            found = [
                pod for pod in server.store.objects("pods") if pod["metadata"].get("labels", {}).get("app") == name
            ]
            bound = [pod for pod in found if pod["spec"].get("nodeName")]
            waiting = [pod for pod in found if not pod["spec"].get("nodeName") and _waits(pod)]
            if len(bound) + len(waiting) == pods:
                return bound, waiting
            await server.store.changed("pods")


def _waits(pod: Any) -> bool:
    return any(condition["type"] == "PodScheduled" for condition in pod["status"].get("conditions") or ())


async def asked(client: Client, workload: dict[str, Any]) -> Fit:
    """Return what `fit -f` says of a workload."""
    (read,) = read_workloads("file", msgspec.json.encode(workload))
    capture = await live.read(client)
    return run(how_many_of(capture.cluster, read, PROFILE, suggest=False))


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "new"}}}
        ]
    }
}
EVEN = [
    {
        "maxSkew": 2,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "new"}},
    }
]


@pytest.mark.parametrize(
    ("devices", "spec"),
    [(4, {}), (8, {}), (16, {}), (1, {"affinity": APART}), (4, {"topologySpreadConstraints": EVEN})],
)
async def test_exactly_so_many_are_bound(devices: int, spec: dict[str, Any]) -> None:
    """On a fleet that is used in part; the node and the ids of each pod are those that were said, too."""
    async with scheduled() as (server, client):
        server.create(deployment("old", 9, 1))
        await settled(server, "old", 9)
        said = await asked(client, deployment("new", 1, devices, **spec))
        assert said.total

        server.create(deployment("new", said.total + 1, devices, **spec))
        bound, waiting = await settled(server, "new", said.total + 1)

        assert (len(bound), len(waiting)) == (said.total, 1)
        again = await asked(client, deployment("new", 1, devices, **spec))
        assert (again.total, again.limit and again.limit.message) == (0, said.limit and said.limit.message)
        condition = next(c for c in waiting[0]["status"]["conditions"] if c["type"] == "PodScheduled")
        assert said.limit is not None
        assert condition["message"].startswith(said.limit.message)


async def test_the_next_ones_go_where_it_was_said() -> None:
    """Node and ids of each replica, in order."""
    async with scheduled() as (server, client):
        workload = deployment("new", 6, 4)
        said = await asked(client, workload)
        server.create(workload)
        bound, waiting = await settled(server, "new", 6)
        assert not waiting
        given = sorted((pod["spec"]["nodeName"], pod["metadata"]["annotations"][AWS_NEURON_IDS]) for pod in bound)
        assert given == sorted((pod.node_name, ",".join(map(str, pod.ids))) for pod in said.placed)

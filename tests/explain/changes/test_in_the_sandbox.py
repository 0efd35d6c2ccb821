"""
What is offered works: with a running scheduler, each change that has a command is made by it, and the pod is bound.

The API server is the sandbox's, kubectl is a user's own.
"""

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.app import App
from neuron_scheduler.explain.answers import Change, ChangeKind
from neuron_scheduler.explain.changes.search import changes
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.settings.config import Config
from neuron_scheduler.steps import run
from neuron_scheduler.stopping import StopRequests
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from sandbox import fleet
from sandbox.server import ApiServer
from tests.control_plane.objects import pod_manifest
from tests.support.brute_force import PROFILE
from tests.support.harness import refusal
from tests.support.kubectl import Kubectl
from tests.support.patience import PATIENCE

TRN1 = "trn1.32xlarge"
TAINT = {"key": "dedicated", "value": "team-a", "effect": "NoSchedule"}
Object = dict[str, Any]


@attrs.frozen(eq=False)
class Running:
    """A scheduler that runs against the sandbox, and a kubectl."""

    server: ApiServer
    app: App
    kubectl: Kubectl

    async def bound(self, name: str) -> None:
        """Wait until a pod is bound."""
        await self.kubectl.until("trn1", "get", "pod", name, "--output=jsonpath={.spec.nodeName}")

    async def refused(self, name: str) -> Pod:
        """Wait until no node takes a pod, and return it."""
        await self.kubectl.until(
            "Unschedulable", "get", "pod", name, "--output=jsonpath={.status.conditions[*].reason}"
        )
        return next(queued.pod for queued in self.app.parts.queue.pods() if queued.pod.name == name)

    async def knows(self, nodes: int) -> None:
        """Wait until the scheduler has seen so many nodes."""
        with anyio.fail_after(PATIENCE):
            while self.app.parts.cluster.view.node_count < nodes:
                await anyio.lowlevel.checkpoint()

    def change(self, pod: Pod, kind: ChangeKind) -> Change:
        """Return the change of a kind that is offered for a refused pod."""
        cluster = self.app.parts.cluster
        answer = run(changes(cluster, pod, PROFILE, refused=refusal(cluster, pod)))
        assert answer is not None
        return next(change for change in answer[0] if change.kind is kind)


@asynccontextmanager
async def running(home: Path, *objects: Object) -> AsyncIterator[Running]:
    """Run a server with these objects, and the scheduler."""
    async with ApiServer().serving() as server:
        for obj in objects:
            server.create(obj)
        config = Config(master=server.url, port=0, secure_port=0, bind_address="127.0.0.1")
        async with Client(connection=Connection(server.url, "a test")) as client, anyio.create_task_group() as tasks:
            metrics = Metrics()
            parts = wire(config, client, metrics)
            app = App(config=config, client=client, metrics=metrics, parts=parts, requests=StopRequests())
            tasks.start_soon(app.run)
            with anyio.fail_after(PATIENCE):
                while parts.scheduling_loop.looked_at is None:
                    await anyio.lowlevel.checkpoint()
            yield Running(server, app, Kubectl(server.url, home, server))
            tasks.cancel_scope.cancel()


def cordoned(node: Object) -> Object:
    """Return a node that is cordoned."""
    return {**node, "spec": {**node["spec"], "unschedulable": True}}


@pytest.mark.parametrize(
    ("kind", "nodes"),
    [
        (ChangeKind.DEPARTURE, []),
        (ChangeKind.UNCORDON, [cordoned(fleet.node("trn1-b", TRN1))]),
        (ChangeKind.TOLERATION, [fleet.node("trn1-b", TRN1, taints=[TAINT])]),
    ],
)
async def test_the_pod_is_bound(tmp_path: Path, kind: ChangeKind, nodes: list[Object]) -> None:
    """The pod waits beside a full node, the command of the change is run, and the pod gets a node."""
    async with running(tmp_path, fleet.node("trn1-a", TRN1), pod_manifest("holder", neuron=16)) as sandbox:
        await sandbox.bound("holder")
        for node in nodes:
            sandbox.server.create(node)
        sandbox.server.create(pod_manifest("p", neuron=4))
        pod = await sandbox.refused("p")
        await sandbox.knows(1 + len(nodes))
        program, *arguments = shlex.split(sandbox.change(pod, kind).command)
        assert program == "kubectl"
        await sandbox.kubectl(*arguments)
        await sandbox.bound("p")

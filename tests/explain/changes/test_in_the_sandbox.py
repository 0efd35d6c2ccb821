"""
What is offered works: with a running scheduler, each change is made by its own command or by editing an object, and the
pod is bound.

The API server is the sandbox's, kubectl is a user's own.
"""

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
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
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
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

    async def replace(self, name: str, manifest: Object) -> None:
        """Delete a pending pod and create it again, as its owner would."""
        await self.kubectl("delete", "pod", name)
        self.server.create(manifest)


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


async def by_command(sandbox: Running, change: Change, _: Object) -> None:
    """Run the command that is offered."""
    program, *arguments = shlex.split(change.command)
    assert program == "kubectl"
    await sandbox.kubectl(*arguments)


async def with_the_count(sandbox: Running, change: Change, pending: Object) -> None:
    """Ask for the count that is offered."""
    resource, _, count = change.detail.partition("=")
    (container,) = pending["spec"]["containers"]
    container["resources"] = {"limits": {resource: count}}
    await sandbox.replace(pending["metadata"]["name"], pending)


async def without_the_selector(sandbox: Running, change: Change, pending: Object) -> None:
    """Drop what is offered to be dropped."""
    key, _, value = change.detail.partition("=")
    assert pending["spec"]["nodeSelector"].pop(key) == value
    await sandbox.replace(pending["metadata"]["name"], pending)


async def with_the_type(sandbox: Running, change: Change, pending: Object) -> None:
    """Select the instance type that is offered."""
    key, _, value = change.detail.partition("=")
    pending["spec"]["nodeSelector"][key] = value
    await sandbox.replace(pending["metadata"]["name"], pending)


async def with_a_new_node(sandbox: Running, change: Change, _: Object) -> None:
    """Create a node of the type that is offered."""
    sandbox.server.create(fleet.node("trn1-new", change.instance_type))


def cordoned(node: Object) -> Object:
    """Return a node that is cordoned."""
    return {**node, "spec": {**node["spec"], "unschedulable": True}}


HOLDER = pod_manifest("holder", neuron=16)
Apply = Callable[[Running, Change, Object], Awaitable[None]]


@pytest.mark.parametrize(
    ("kind", "apply", "nodes", "pending"),
    [
        (ChangeKind.COUNT, with_the_count, [fleet.node("trn1-b", TRN1)], pod_manifest("p", neuron=7)),
        (ChangeKind.DEPARTURE, by_command, [], pod_manifest("p", neuron=4)),
        (ChangeKind.UNCORDON, by_command, [cordoned(fleet.node("trn1-b", TRN1))], pod_manifest("p", neuron=4)),
        (ChangeKind.TOLERATION, by_command, [fleet.node("trn1-b", TRN1, taints=[TAINT])], pod_manifest("p", neuron=4)),
        (
            ChangeKind.SELECTOR,
            without_the_selector,
            [fleet.node("trn1-b", TRN1)],
            pod_manifest("p", neuron=4, nodeSelector={"team": "a", INSTANCE_TYPE: TRN1}),
        ),
        (
            ChangeKind.INSTANCE_TYPE,
            with_the_type,
            [fleet.node("trn1n-b", "trn1n.32xlarge")],
            pod_manifest("p", neuron=4, nodeSelector={INSTANCE_TYPE: TRN1}),
        ),
        (ChangeKind.NEW_NODE, with_a_new_node, [], pod_manifest("p", neuron=8)),
    ],
)
async def test_the_pod_is_bound(
    tmp_path: Path, kind: ChangeKind, apply: Apply, nodes: list[Object], pending: Object
) -> None:
    """The pod waits beside a full node, the change is made, and the pod gets a node."""
    async with running(tmp_path, fleet.node("trn1-a", TRN1), HOLDER) as sandbox:
        await sandbox.bound("holder")
        for node in nodes:
            sandbox.server.create(node)
        sandbox.server.create(pending)
        pod = await sandbox.refused("p")
        await sandbox.knows(1 + len(nodes))
        await apply(sandbox, sandbox.change(pod, kind), deepcopy(pending))
        await sandbox.bound("p")

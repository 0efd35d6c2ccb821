"""
All parts of the scheduler, wired as in production, without a network.

The API server is a function, and a test writes the lines of the watches.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, cast

import anyio
import attrs
import msgspec
import pytest

from neuron_scheduler.controllers.pod_attempt import Listener
from neuron_scheduler.kube.http.client import Client, Response
from neuron_scheduler.kube.watch.informer import Informer, read_line
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import Parts, wire
from tests.control_plane.objects import node_manifest, pod_manifest

NODES: Final = 4
BOUND: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'


@attrs.define(eq=False)
class WiredScheduler:
    """A scheduler without a network: its Bindings come back as watch events at once."""

    config: Config = attrs.field(factory=lambda: Config(leader_elect=False))
    listeners: tuple[Listener, ...] = ()
    requests: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    pods: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    version: int = 0
    parts: Parts = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.parts = wire(self.config, cast(Client, self), Metrics(), *self.listeners)
        for number in range(NODES):
            self.deliver(self.parts.nodes, "ADDED", node_manifest(f"n{number}"))

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> Response:
        """Answer as the API server does."""
        words = path.split("/")
        self.requests[method, words[-1]] += 1
        if words[-1] == "binding":
            binding = msgspec.json.decode(body)
            pod = self.pods[words[-2]]
            pod["spec"]["nodeName"] = binding["target"]["name"]
            pod["metadata"]["annotations"] = binding["metadata"]["annotations"]
            self.deliver(self.parts.pods, "MODIFIED", pod)
        return Response(201, b'{"kind":"Event","apiVersion":"events.k8s.io/v1"}' if words[-1] == "events" else BOUND)

    def deliver(self, informer: Informer[Any], kind: str, resource: dict[str, Any]) -> None:
        """Deliver an object as a line of a watch."""
        self.take(informer, self.line(kind, resource))

    @staticmethod
    def take(informer: Informer[Any], line: bytes) -> None:
        """Handle a line of a watch without a connection."""
        change = informer.resource.decode_change(line)
        if change is None:
            with pytest.raises(StopIteration) as read:  # a short line is read without a pause
                read_line(informer.resource, line).send(None)
            change = read.value.value
        informer._handle(*change)

    def line(self, kind: str, resource: dict[str, Any]) -> bytes:
        """Return the line of a watch that says what has happened to an object, in a version of its own."""
        self.version += 1
        metadata = resource["metadata"]
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("uid", f"uid-{metadata['name']}-{self.version}")
        return msgspec.json.encode({"type": kind, "object": resource}) + b"\n"

    async def bind(self, names: Iterable[str]) -> None:
        """Create pods, and wait until all are bound and reported."""
        self.pods = {name: pod_manifest(name, neuron=1) for name in names}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.parts.scheduling_loop.run)
            tasks.start_soon(self.parts.recorder.run)
            for pod in self.pods.values():
                self.deliver(self.parts.pods, "ADDED", pod)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    def delete(self) -> None:
        """Delete the pods."""
        for pod in self.pods.values():
            self.deliver(self.parts.pods, "DELETED", pod)
        self.pods = {}


def names(count: int, prefix: str = "p") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]

"""
Simulated kubelets, one object for all nodes: bound pods run at once, terminating pods end, nodes become Ready.

They execute nothing themselves: `containers.py` says when a simulated container ends, and a `Runtime` may take pods and
run them for real. A pod on a node that does not exist stays as it is, as in a real cluster.
"""

import copy
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.abc
import attrs

from sandbox import containers
from sandbox.apiserver import metadata
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import NODES, PODS
from sandbox.apiserver.status import StatusError
from sandbox.apiserver.store import Expired, Object
from sandbox.controllers.owned import is_ended

_DEFAULT_PODS: Final = "110"
_KILLED: Final = 137


class Runtime(Protocol):
    """Runs some pods for real."""

    def runs(self, pod: Object) -> bool:
        """Return whether it takes this pod."""

    async def run(self, pod: Object, address: str) -> None:
        """Run a pod and report its status until cancelled, which ends its processes."""


@attrs.define(eq=False)
class Kubelet:
    """Reports for every node of a registry what its kubelet would; `runtime` runs the pods that it takes."""

    registry: Registry
    termination_limit: float
    runtime: Runtime | None = None
    _nodes: set[str] = attrs.field(factory=set)  # uids of nodes whose pods were handled
    _ending: set[str] = attrs.field(factory=set)  # uids
    _addresses: int = 0
    _real: dict[str, tuple[anyio.CancelScope, anyio.Event]] = attrs.field(factory=dict)  # by uid; the event is the end

    async def run(self) -> None:
        """Follow nodes and pods without end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, NODES.storage, tasks)
            tasks.start_soon(self._follow, PODS.storage, tasks)

    async def _follow(self, table: str, tasks: anyio.abc.TaskGroup) -> None:
        store = self.registry.store
        while True:
            version = store.version
            for obj in store.objects(table):
                self._see(obj, tasks)
            try:
                async for change in store.follow(table, version):
                    if change.type != "DELETED":
                        self._see(change.object, tasks)
                    elif change.object["metadata"]["uid"] in self._real:
                        self._real.pop(change.object["metadata"]["uid"])[0].cancel()  # removed without grace
            except Expired:
                continue  # it fell behind: handle everything again

    def _see(self, obj: Object, tasks: anyio.abc.TaskGroup) -> None:
        if obj["kind"] == NODES.kind:
            self._see_node(obj, tasks)
        elif obj["spec"].get("nodeName"):
            self._see_pod(obj, tasks)

    def _see_node(self, node: Object, tasks: anyio.abc.TaskGroup) -> None:
        current = self.registry.store.get(NODES.storage, "", node["metadata"]["name"])
        if current is None or current["metadata"]["uid"] != node["metadata"]["uid"]:
            return
        new = current["metadata"]["uid"] not in self._nodes
        self._nodes.add(current["metadata"]["uid"])
        if not any(condition["type"] == "Ready" for condition in current.get("status", {}).get("conditions") or []):
            self.registry.store.put(NODES.storage, ready(current, self.registry.clock()))
        for pod in self.registry.store.objects(PODS.storage) if new else ():
            if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                self._see_pod(pod, tasks)

    def _see_pod(self, pod: Object, tasks: anyio.abc.TaskGroup) -> None:
        store, key = self.registry.store, (pod["metadata"]["namespace"], pod["metadata"]["name"])
        current = store.get(PODS.storage, *key)
        if current is None or store.get(NODES.storage, "", pod["spec"]["nodeName"]) is None:
            return
        uid = current["metadata"]["uid"]
        if uid != pod["metadata"]["uid"]:
            return
        if current["metadata"].get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending.add(uid)
                tasks.start_soon(self._end, current)
        elif current["status"].get("phase") == "Pending" and uid not in self._real:
            self._start(current, tasks)

    def _start(self, pod: Object, tasks: anyio.abc.TaskGroup) -> None:
        self._addresses += 1
        address = f"10.0.{self._addresses // 250 % 250}.{self._addresses % 250 + 1}"
        if self.runtime is not None and self.runtime.runs(pod):
            self._real[pod["metadata"]["uid"]] = scope, end = anyio.CancelScope(), anyio.Event()
            tasks.start_soon(_run, partial(self.runtime.run, pod, address), scope, end)
            return
        stored = self.registry.store.put(PODS.storage, containers.running(pod, address, self.registry.clock()))
        run = containers.run_of(stored)
        if run.seconds is not None:
            tasks.start_soon(self._finish, stored, run.seconds, run.exit_code)

    async def _finish(self, pod: Object, seconds: float, exit_code: int) -> None:
        """End the containers after their time."""
        await anyio.sleep(seconds)
        current = self.registry.store.get(PODS.storage, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if current is not None and current["metadata"]["uid"] == pod["metadata"]["uid"]:
            self.registry.store.put(PODS.storage, containers.ended(current, exit_code, self.registry.clock()))

    async def _end(self, pod: Object) -> None:
        meta = pod["metadata"]
        if meta["uid"] in self._real:
            scope, end = self._real.pop(meta["uid"])
            scope.cancel()
            await end.wait()
        else:
            await anyio.sleep(min(meta.get("deletionGracePeriodSeconds", 0), self.termination_limit))
        self._ending.discard(meta["uid"])
        current = self.registry.store.get(PODS.storage, meta["namespace"], meta["name"])
        if current is not None and current["metadata"]["uid"] == meta["uid"] and not is_ended(current):
            # A kubelet reports the end before it deletes, so a pod that has a finalizer stays as one that has ended.
            self.registry.store.put(PODS.storage, containers.ended(current, _KILLED, self.registry.clock()))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        try:
            self.registry.delete(PODS, meta["namespace"], meta["name"], options)
        except StatusError as error:
            if error.code not in {404, 409}:  # it was deleted or replaced meanwhile
                raise


async def _run(work: Callable[[], Awaitable[None]], scope: anyio.CancelScope, end: anyio.Event) -> None:
    try:
        with scope:
            await work()
    finally:
        end.set()


def ready(node: Object, now: datetime) -> Object:
    """Return a copy of a node as its kubelet would report it: Ready, with address, allocatable and hostname label."""
    node = copy.deepcopy(node)
    name, status = node["metadata"]["name"], node.setdefault("status", {})
    node["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/hostname", name)
    capacity = {"pods": _DEFAULT_PODS} | (status.get("capacity") or {})
    status["capacity"] = capacity
    status["allocatable"] = capacity | (status.get("allocatable") or {})
    if not status.get("addresses"):
        status["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
    moment = metadata.timestamp(now)
    status["conditions"] = [
        *(status.get("conditions") or []),
        {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "a simulated kubelet is posting ready status",
            "lastHeartbeatTime": moment,
            "lastTransitionTime": moment,
        },
    ]
    return node

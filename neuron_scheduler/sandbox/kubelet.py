"""
Simulated kubelets, one object for all nodes: bound pods run at once, terminating pods end, nodes become Ready.

They start nothing and check nothing. A pod on a node that does not exist stays as it is, as in a real cluster.
"""

import copy
from datetime import datetime
from typing import Any, Final

import anyio
import anyio.abc
import attrs

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resources import NODES, PODS
from neuron_scheduler.sandbox.apiserver.status import StatusError
from neuron_scheduler.sandbox.apiserver.store import Expired, Object

_DEFAULT_PODS: Final = "110"


@attrs.define(eq=False)
class Kubelet:
    """Reports for every node of a registry what its kubelet would."""

    registry: Registry
    termination_limit: float
    _nodes: set[str] = attrs.field(factory=set)  # uids of nodes whose pods were handled
    _ending: set[str] = attrs.field(factory=set)  # uids
    _addresses: int = 0

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
        elif current["status"].get("phase") == "Pending":
            self._addresses += 1
            address = f"10.0.{self._addresses // 250 % 250}.{self._addresses % 250 + 1}"
            store.put(PODS.storage, running(current, address, self.registry.clock()))

    async def _end(self, pod: Object) -> None:
        meta = pod["metadata"]
        await anyio.sleep(min(meta.get("deletionGracePeriodSeconds", 0), self.termination_limit))
        self._ending.discard(meta["uid"])
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        try:
            self.registry.delete(PODS, meta["namespace"], meta["name"], options)
        except StatusError as error:
            if error.code not in {404, 409}:  # it was deleted or replaced meanwhile
                raise


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


def running(pod: Object, address: str, now: datetime) -> Object:
    """Return a copy of a bound pod with all its containers running."""
    pod, moment = copy.deepcopy(pod), metadata.timestamp(now)
    status: dict[str, Any] = pod["status"]
    status |= {
        "phase": "Running",
        "startTime": moment,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "127.0.0.1",
    }
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
        conditions[kind] = {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
    status["conditions"] = list(conditions.values())
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "lastState": {},
            "state": {"running": {"startedAt": moment}},
        }
        for container in pod["spec"]["containers"]
    ]
    return pod

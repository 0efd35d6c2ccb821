"""
A model of AWS's scheduler extension, whose source is not public: it filters, binds and remembers, as far as is known.

Known from AWS's documentation (the log of a bind, the rights, the troubleshooting text) and from observed objects:

- filter: a node fits if enough consecutive ids are free in its usage map.
- bind: first an update of the pod with its annotations, then a Binding without annotations, then both usage maps of the
  node, device and core. It has the right to write `nodes/status`, and none to write `nodes`; with the default scheduler
  it has neither.
- When the maps are removed from a node, they are made again at the next pod.

Not known: whether it believes the maps that it finds at its start, and from what it makes missing ones. `Belief` lists
the possible answers; what we tell users must be right for each of them. It is also not known how it learns that a pod
has ended; here it is told (`ended`).
"""

import enum
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import attrs
from aiohttp import web

from tests.control_plane.rest import MERGE, ApiError, RestClient

Object = dict[str, Any]

DEVICES: Final = "aws.amazon.com/neuron"
CORES: Final = "aws.amazon.com/neuroncore"
KEYS: Final = {DEVICES: "NEURON_DEV_USAGE_MAP", CORES: "NEURON_CORE_USAGE_MAP"}
TYPE_LABEL: Final = "node.kubernetes.io/instance-type"


class Belief(enum.Enum):
    """What it takes for the state of a node that it has not looked at since its start."""

    MAPS_ELSE_FREE = "the maps; without maps, all is free"
    MAPS_ELSE_PODS = "the maps; without maps, what the pods' annotations say"
    PODS = "what the pods' annotations say, whatever the maps say"


@attrs.define(eq=False)
class AwsExtension:
    """
    One run of the extension.

    Attributes:
        api: with the rights of its ServiceAccount.
        used: the cores in use by node, as it believes.
    """

    api: RestClient
    belief: Belief = Belief.MAPS_ELSE_FREE
    used: dict[str, set[int]] = attrs.field(factory=dict)
    _one_at_a_time: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def filter(self, pod: Object, names: list[str]) -> tuple[list[str], dict[str, str]]:
        """Return the nodes with enough consecutive free ids, and why each other one has not."""
        fitting, failed = [], {}
        for name in names:
            node = await self.api.get(f"/api/v1/nodes/{name}")
            if self._choice(node, await self._known(node), pod) is None:
                failed[name] = "Insufficient neuron devices"
            else:
                fitting.append(name)
        return fitting, failed

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """Bind a pod in three requests, as the documented log does; ApiError if one of them is refused."""
        async with self._one_at_a_time:
            await self._bind(namespace, name, uid, node_name)

    async def _bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        pod, node = await self.api.get(path), await self.api.get(f"/api/v1/nodes/{node_name}")
        used = await self._known(node)
        resource, _ = _request(pod)
        ids = self._choice(node, used, pod)
        if ids is None:
            raise ApiError(409, {"message": "no consecutive ids are free"})
        pod["metadata"]["annotations"] = pod["metadata"].get("annotations", {}) | {
            "AWS_NEURON_IDS": ",".join(map(str, ids)),
            "NEURON_ALLOC_TIME": str(time.time_ns()),
            "NEURON_ALLOCATED": "false",
        }
        await self.api.put(path, pod)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "target": {"kind": "Node", "name": node_name},
        }
        await self.api.post(f"{path}/binding", binding)
        used |= set(_cores(node, resource, ids))
        await self._write(node, used)

    async def ended(self, pod: Object) -> None:
        """Free what the annotation of a pod names."""
        node = await self.api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
        used = await self._known(node)
        used -= _held(node, pod)
        await self._write(node, used)

    async def _known(self, node: Object) -> set[int]:
        """Return the used cores of a node; what it believes is settled when it first looks."""
        name = node["metadata"]["name"]
        if name not in self.used:
            maps = node["metadata"].get("annotations", {})
            if self.belief is not Belief.PODS and KEYS[CORES] in maps:
                used = _read(node, maps)
            elif self.belief is Belief.MAPS_ELSE_FREE:
                used = set[int]()
            else:
                bound = await self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
                ended = ("Succeeded", "Failed")
                used = {
                    core
                    for pod in bound["items"]
                    if pod["status"].get("phase") not in ended
                    for core in _held(node, pod)
                }
            self.used[name] = used
        return self.used[name]

    async def _write(self, node: Object, used: set[int]) -> None:
        devices, cores, width = _machine(node)
        written = {
            KEYS[DEVICES]: [any(core // width == device for core in used) for device in range(devices)],
            KEYS[CORES]: [core in used for core in range(cores)],
        }
        annotations = {key: ",".join("true" if each else "false" for each in value) for key, value in written.items()}
        body, path = {"metadata": {"annotations": annotations}}, f"/api/v1/nodes/{node['metadata']['name']}/status"
        status, answer = await self.api.request("PATCH", path, body, content_type=MERGE)
        if status not in (200, 403):  # with the default scheduler it has no right to write nodes
            raise ApiError(status, answer)

    def _choice(self, node: Object, used: set[int], pod: Object) -> list[int] | None:
        """Return the lowest consecutive ids whose cores are all free; on a torus of devices, aligned ones."""
        resource, count = _request(pod)
        devices, cores, _ = _machine(node)
        total = devices if resource == DEVICES else cores
        torus = resource == DEVICES and node["metadata"]["labels"].get(TYPE_LABEL, "").startswith("trn")
        if torus and count not in (1, 4, 8, 16):
            return None
        for start in range(0, total - count + 1, count if torus else 1):
            ids = list(range(start, start + count))
            if not used & set(_cores(node, resource, ids)):
                return ids
        return None


def _machine(node: Object) -> tuple[int, int, int]:
    """Return the devices and cores of a node, and the cores of a device."""
    capacity = node["status"]["capacity"]
    devices, cores = int(capacity.get(DEVICES, 0)), int(capacity.get(CORES, 0))
    return devices, cores, cores // devices if devices else 1


def _request(pod: Object) -> tuple[str, int]:
    """Return what the pod asks for, all containers together."""
    for resource in (DEVICES, CORES):
        counts = [c.get("resources", {}).get("limits", {}).get(resource) for c in pod["spec"]["containers"]]
        if total := sum(int(count) for count in counts if count):
            return resource, total
    return DEVICES, 0


def _cores(node: Object, resource: str, ids: list[int]) -> Iterator[int]:
    width = _machine(node)[2] if resource == DEVICES else 1
    for number in ids:
        yield from range(number * width, (number + 1) * width)


def _held(node: Object, pod: Object) -> set[int]:
    """Return the cores that the annotation of a pod names."""
    ids = pod["metadata"].get("annotations", {}).get("AWS_NEURON_IDS", "")
    resource, _ = _request(pod)
    return set(_cores(node, resource, [int(number) for number in ids.split(",")])) if ids else set()


def _read(node: Object, maps: Mapping[str, str]) -> set[int]:
    """Return the cores that the maps say are in use; a map of another length or with other words is an error."""
    devices, cores, width = _machine(node)
    words = {resource: maps[key].split(",") for resource, key in KEYS.items()}
    assert {word for values in words.values() for word in values} <= {"true", "false"}, maps
    assert (len(words[DEVICES]), len(words[CORES])) == (devices, cores), maps
    used = {core for core, word in enumerate(words[CORES]) if word == "true"}
    assert {core // width for core in used} == {d for d, word in enumerate(words[DEVICES]) if word == "true"}, maps
    return used


@asynccontextmanager
async def served(extension: AwsExtension, port: int = 0) -> AsyncIterator[str]:
    """Serve the two verbs on a loopback port; yield the URL prefix."""

    async def filter_(request: web.Request) -> web.Response:
        arguments = await request.json()
        items = {item["metadata"]["name"]: item for item in (arguments.get("Nodes") or {}).get("items") or []}
        names = arguments.get("NodeNames") or list(items)
        fitting, failed = await extension.filter(arguments["Pod"], names)
        nodes = {"metadata": {}, "items": [items[name] for name in fitting]} if items else None
        return web.json_response(
            {"Nodes": nodes, "NodeNames": None if items else fitting, "FailedNodes": failed, "Error": ""}
        )

    async def bind(request: web.Request) -> web.Response:
        wanted = await request.json()
        try:
            await extension.bind(wanted["PodNamespace"], wanted["PodName"], wanted["PodUID"], wanted["Node"])
        except ApiError as error:
            return web.json_response({"Error": str(error)})
        return web.json_response({"Error": ""})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/filter", filter_)
    app.router.add_post("/bind", bind)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()

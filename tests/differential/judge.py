"""
kube-scheduler as the judge: it decides every pending pod of a world, and places none.

A `filter` extender gets the nodes that no filter refuses, records them and refuses them with a reason of its own. So
the cluster does not change, and the PodScheduled condition of every pod counts all its nodes by reason. Preemption is
off, and so are the admission plugins that would change or refuse the generated objects.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
from aiohttp import web

from tests.control_plane.binaries import RELEASE
from tests.control_plane.objects import create_all, create_pod
from tests.control_plane.rest import Object, RestClient, key_of
from tests.control_plane.server import free_port, run_control_plane
from tests.differential.pods import NOMINATED
from tests.differential.releases import as_accepted
from tests.differential.vocabulary import NAMESPACES
from tests.differential.world import FEASIBLE, Answer, World, namespaces

# These plugins would add taints, tolerations and finalizers, or require RuntimeClasses and PriorityClasses.
_ADMISSION_OFF: Final = (
    "ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds,RuntimeClass,Priority,StorageObjectInUseProtection"
)
_PATIENCE: Final = 60.0  # seconds for kube-scheduler to decide all pods of a world
_CLUSTER_WIDE: Final = {
    "Namespace": "/api/v1/namespaces",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
}
_IN_NAMESPACES: Final = {
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/namespaces/{}/csistoragecapacities",
}


@attrs.define(eq=False)
class Recorder:
    """The extender: the node names of its last call, by uid of the pod."""

    seen: dict[str, tuple[str, ...]] = attrs.field(factory=dict)

    async def filter(self, request: web.Request) -> web.Response:
        """Answer one `filter` call: refuse all nodes."""
        question = await request.json()
        names = question["NodeNames"]
        self.seen[question["Pod"]["metadata"]["uid"]] = tuple(sorted(names))
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(names, FEASIBLE)})


@attrs.define(eq=False)
class Judge:
    """A running kube-scheduler with its API server."""

    _api: RestClient
    _recorder: Recorder

    async def stored(self, world: World) -> World:
        """Create a world without its pending pods; return it as the API server has it."""
        beside = [await self._create(manifest) for manifest in world.beside if manifest["kind"] != "Namespace"]
        nodes = await self._create_all("/api/v1/nodes", world.nodes)
        bound = [await self._create_bound(manifest) for manifest in world.bound]
        nominated = [await self._create_bound(manifest) for manifest in world.nominated]
        return World((*namespaces(), *beside), tuple(nodes), tuple(bound), tuple(nominated), ())

    async def answers(self, pending: Iterable[Object]) -> list[tuple[Object, Answer]]:
        """Create pending pods, one or all of a world; return each as stored with kube-scheduler's answer."""
        created: dict[str, Object] = {}

        async def create(manifest: Object) -> None:
            pod = await create_pod(self._api, as_accepted(manifest, RELEASE))
            created[key_of(pod)] = pod

        await create_all(create, pending)
        selector = {"fieldSelector": "spec.nodeName="}
        pods = await self._api.wait_until(
            "/api/v1/pods",
            lambda pods: all(_verdict(pods.get(key, {})) for key in created),
            within=_PATIENCE,
            **selector,
        )
        return [(created[key_of(pod)], self._answer(pods[key_of(pod)])) for pod in pending]

    async def again(self, manifest: Object) -> tuple[Object, Answer]:
        """Ask once more about one pod: the first answer may have come before all nodes and pods were known."""
        await self._api.delete(_path(manifest), gracePeriodSeconds=0)
        return (await self.answers([manifest]))[0]

    async def clear(self) -> None:
        """Delete all objects of a world."""
        for namespace in NAMESPACES:
            await self._api.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
            for claim in (await self._api.get(_IN_NAMESPACES["PersistentVolumeClaim"].format(namespace)))["items"]:
                if claim["metadata"].get("finalizers"):
                    path = _claim_path(claim["metadata"])
                    await self._api.patch(path, {"metadata": {"finalizers": None}})
            for place in _IN_NAMESPACES.values():
                await self._api.delete(place.format(namespace))
        await self._api.delete("/api/v1/nodes")
        for kind, place in _CLUSTER_WIDE.items():
            if kind != "Namespace":
                await self._api.delete(place)
        self._recorder.seen.clear()

    def _answer(self, pod: Object) -> Answer:
        return Answer(self._recorder.seen.get(pod["metadata"]["uid"], ()), _verdict(pod))

    async def _create(self, manifest: Object) -> Object:
        kind, metadata = manifest["kind"], manifest["metadata"]
        place = _CLUSTER_WIDE.get(kind) or _IN_NAMESPACES[kind].format(metadata.get("namespace"))
        path = f"{place}/{metadata['name']}"
        claim = manifest.get("spec", {}).get("claimRef")
        if claim is not None and manifest["status"]["phase"] == "Bound":
            claim["uid"] = (await self._api.get(_claim_path(claim)))["metadata"]["uid"]
        created = await self._api.post(place, _alive(manifest))
        if "status" in manifest:
            created = await self._api.patch(f"{path}/status", {"status": manifest["status"]})
        if "deletionTimestamp" in metadata:
            created = await self._api.delete(path)
        return created

    async def _create_all(self, place: str, manifests: Iterable[Object]) -> list[Object]:
        created: dict[str, Object] = {}

        async def create(manifest: Object) -> None:
            created[manifest["metadata"]["name"]] = await self._api.post(place, manifest)

        manifests = list(manifests)
        await create_all(create, manifests)
        return [created[manifest["metadata"]["name"]] for manifest in manifests]

    async def _create_bound(self, manifest: Object) -> Object:
        """Create a pod of the world, with its status and its deletion."""
        pod = await create_pod(self._api, _alive(as_accepted(manifest, RELEASE)))
        if "status" in manifest:
            pod = await self._api.patch(f"{_path(pod)}/status", {"status": manifest["status"]})
        if "deletionTimestamp" in manifest["metadata"]:
            pod = await self._api.delete(_path(pod))
        return pod


@asynccontextmanager
async def run_judge() -> AsyncIterator[Judge]:
    """Run a control plane with kube-scheduler and its extender until the block is left."""
    recorder = Recorder()
    application = web.Application(client_max_size=2**24)
    application.router.add_post("/filter", recorder.filter)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        flags = (f"--disable-admission-plugins={_ADMISSION_OFF}",)
        async with run_control_plane(api_server_flags=flags, with_scheduler=_configuration(port)) as plane:
            for namespace in namespaces():
                await plane.admin.apply(namespace)
            yield Judge(plane.admin, recorder)
    finally:
        await runner.cleanup()


def _configuration(port: int) -> Mapping[str, Any]:
    """Return the fields of KubeSchedulerConfiguration; all filters have their defaults."""
    return {
        "percentageOfNodesToScore": 100,
        "profiles": [
            {"schedulerName": "default-scheduler", "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}},
            {"schedulerName": NOMINATED},  # without postFilter plugins a pod would lose its nomination
        ],
        "extenders": [
            {"urlPrefix": f"http://127.0.0.1:{port}", "filterVerb": "filter", "nodeCacheCapable": True, "weight": 1}
        ],
    }


def _alive(manifest: Object) -> Object:
    """Return an object as it can be created: without its deletion."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "deletionTimestamp"}
    return {**manifest, "metadata": metadata}


def _claim_path(claim: Object) -> str:
    return f"/api/v1/namespaces/{claim['namespace']}/persistentvolumeclaims/{claim['name']}"


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _verdict(pod: Object) -> str:
    """Return the message of the PodScheduled condition, empty if there is none yet."""
    if pod.get("spec", {}).get("nodeName"):
        raise AssertionError(f"kube-scheduler has placed {key_of(pod)}: the extender was not asked")
    conditions = pod.get("status", {}).get("conditions", ())
    return next((condition["message"] for condition in conditions if condition["type"] == "PodScheduled"), "")

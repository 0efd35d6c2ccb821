"""Claims, volumes and classes for tests of the whole process, and a provisioner that creates volumes."""

from contextlib import aclosing
from typing import Any, Final

import anyio
import anyio.abc

from tests.control_plane.objects import pod_manifest
from tests.control_plane.rest import ApiError, Object, RestClient

CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
ZONE: Final = "topology.kubernetes.io/zone"
PROVISIONERS: Final = {"local": "kubernetes.io/no-provisioner", "made": "test.example/provisioner"}


async def add_classes(api: RestClient) -> None:
    """Create two classes with WaitForFirstConsumer: `local` has static volumes only, `made` is provisioned."""
    for name, provisioner in PROVISIONERS.items():
        item = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        await api.apply(item | {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})


async def clear_storage(api: RestClient) -> None:
    """Delete claims, volumes and classes, also if no controller removes their finalizers."""
    for collection in (CLAIMS, VOLUMES):
        for item in (await api.get(collection))["items"]:
            await api.patch(f"{collection}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
    for collection in (CLAIMS, VOLUMES, CLASSES):
        await api.delete(collection)


def selected_node(claim: Object) -> str | None:
    """Return the node that was selected for a claim, None if none was."""
    node: str | None = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
    return node


def in_zone(zone: str) -> Object:
    """Return the node affinity of a volume in a zone."""
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


async def add_volume(api: RestClient, name: str, class_name: str = "local", **spec: Any) -> Object:
    """Create a volume of 1 GiB."""
    fields = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "test.example", "volumeHandle": name},
        "storageClassName": class_name,
    }
    item = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": fields | spec}
    return await api.post(VOLUMES, item)


async def add_claim(api: RestClient, name: str, class_name: str = "local", **spec: Any) -> Object:
    """Create a claim to 1 GiB."""
    fields = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": class_name,
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": fields | spec}
    return await api.post(CLAIMS, claim)


def with_claims(name: str, *claims: str) -> Object:
    """Return a pod that mounts claims."""
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return pod_manifest(name, volumes=volumes)


async def provision(api: RestClient, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Create a volume for each claim whose node is selected, as a CSI provisioner does, in the node's zone."""
    listing = await api.get(CLAIMS)
    task_status.started()
    for claim in listing["items"]:
        await _make(api, claim)
    async with aclosing(api.watch(CLAIMS, listing["metadata"]["resourceVersion"])) as events:
        async for kind, claim in events:
            if kind != "DELETED":
                await _make(api, claim)


async def _make(api: RestClient, claim: Object) -> None:
    name, node = claim["metadata"]["name"], selected_node(claim)
    if node is None or claim["spec"].get("volumeName"):
        return
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
    zone = (await api.get(f"/api/v1/nodes/{node}"))["metadata"]["labels"][ZONE]
    kept = reference | {"uid": claim["metadata"]["uid"]}
    try:
        await add_volume(api, f"made-{name}", "made", claimRef=kept, nodeAffinity=in_zone(zone))
    except ApiError as error:
        if error.status != 409:  # created before
            raise

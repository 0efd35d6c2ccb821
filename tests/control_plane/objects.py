"""
Nodes and pods for tests and benchmarks, and how to empty the cluster again.

The machines' numbers are EC2's own, written independently of `neuron_scheduler.neuron.catalog`, which they check.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import anyio

from tests.control_plane.rest import ApiError, Object, RestClient

NEURON: Final = "aws.amazon.com/neuron"
NEURONCORE: Final = "aws.amazon.com/neuroncore"
NOT_READY: Final = "node.kubernetes.io/not-ready"

# instance type: vCPU, GiB of memory, Neuron devices, NeuronCores (trn2: logical ones, LNC 2)
MACHINES: Final = {
    "inf1.6xlarge": (24, 48, 4, 16),
    "inf1.24xlarge": (96, 192, 16, 64),
    "inf2.xlarge": (4, 16, 1, 2),
    "inf2.8xlarge": (32, 128, 1, 2),
    "inf2.24xlarge": (96, 384, 6, 12),
    "inf2.48xlarge": (192, 768, 12, 24),
    "trn1.2xlarge": (8, 32, 1, 2),
    "trn1.32xlarge": (128, 512, 16, 32),
    "trn1n.32xlarge": (128, 512, 16, 32),
    "trn2.48xlarge": (192, 2048, 16, 64),
    "m5.large": (2, 8, 0, 0),
}

# Everything that a test may leave behind, and the part of it that belongs to the API server itself.
_COLLECTIONS: Final = {
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": "",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies": "",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": "",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": "!kubernetes.io/bootstrapping",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": "!kubernetes.io/bootstrapping",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings": "!kubernetes.io/bootstrapping",
    "/apis/rbac.authorization.k8s.io/v1/roles": "!kubernetes.io/bootstrapping",
    "/apis/apps/v1/deployments": "",
    "/apis/apps/v1/replicasets": "",
    "/apis/policy/v1/poddisruptionbudgets": "",
    "/api/v1/pods": "",
    "/api/v1/nodes": "",
    "/api/v1/persistentvolumeclaims": "",
    "/api/v1/persistentvolumes": "",
    "/apis/coordination.k8s.io/v1/leases": "!apiserver.kubernetes.io/identity",
    "/api/v1/events": "",
}


def node_manifest(
    name: str,
    instance_type: str = "trn1.32xlarge",
    *,
    cpu: int | str | None = None,
    memory: str | None = None,
    pods: int = 110,
    neuron: int | None = None,
    neuroncore: int | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
) -> Object:
    """Return a ready node of an instance type; a given number replaces the type's own; 0 leaves it out."""
    vcpu, gib, devices, cores = MACHINES.get(instance_type.removeprefix("ml."), (8, 32, 0, 0))
    counts = {NEURON: devices if neuron is None else neuron, NEURONCORE: cores if neuroncore is None else neuroncore}
    resources = {
        "cpu": str(vcpu if cpu is None else cpu),
        "memory": f"{gib}Gi" if memory is None else memory,
        "ephemeral-storage": "500Gi",
        "pods": str(pods),
    } | {resource: str(count) for resource, count in counts.items() if count}
    spec: Object = {"taints": [dict(taint) for taint in taints]} | ({"unschedulable": True} if unschedulable else {})
    standard = {"kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": instance_type}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": standard | dict(labels or {})},
        "spec": spec,
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        },
    }


async def create_node(api: RestClient, manifest: Object) -> Object:
    """Create a node, status included, and remove the not-ready taint that admission adds; return it as stored."""
    return await lift_not_ready(api, await api.post("/api/v1/nodes", manifest))


async def lift_not_ready(api: RestClient, node: Object) -> Object:
    """Remove a node's not-ready taint, as the node lifecycle controller does, and nothing else; return it as stored."""
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    while True:
        # Replaces the whole list, under the version just read: no other client's taint can be lost.
        taints = [taint for taint in node["spec"].get("taints", []) if taint["key"] != NOT_READY]
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        try:
            return await api.patch(path, {"metadata": version, "spec": {"taints": taints or None}})
        except ApiError as error:
            if error.status != 409:  # a controller has changed the node meanwhile
                raise
        node = await api.get(path)


def pod_manifest(
    name: str,
    *,
    namespace: str = "default",
    neuron: int = 0,
    neuroncore: int = 0,
    scheduler_name: str = "my-scheduler",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """Return a pod of one container that asks for Neuron under `limits`, as AWS's sample does; `spec` is added."""
    limits = {resource: str(count) for resource, count in ((NEURON, neuron), (NEURONCORE, neuroncore)) if count}
    container: Object = {"name": "main", "image": "main:1", "resources": {"limits": limits}}
    container["resources"] |= {"requests": dict(requests)} if requests else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {"schedulerName": scheduler_name, "containers": [container], **spec},
    }


async def create_pod(api: RestClient, manifest: Object) -> Object:
    return await api.post(f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods", manifest)


async def create_all(create: Callable[[Object], Awaitable[object]], manifests: Iterable[Object]) -> None:
    """Create many objects, 32 at a time; `create` is like `partial(create_node, api)`."""
    remaining = iter(manifests)

    async def work() -> None:
        for manifest in remaining:
            await create(manifest)

    async with anyio.create_task_group() as tasks:
        for _ in range(32):
            tasks.start_soon(work)


async def bind(api: RestClient, pod: Object, node: str, annotations: Mapping[str, str] | None = None) -> Object:
    """Bind a pod as any scheduler can, with annotations in the Binding."""
    metadata = {key: pod["metadata"][key] for key in ("namespace", "name", "uid")}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata | {"annotations": dict(annotations or {})},
        "target": {"kind": "Node", "name": node},
    }
    return await api.post(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding", binding)


async def wipe(api: RestClient, *others: str) -> None:
    """Delete `others` and all objects of tests at once, without grace and despite finalizers; namespaces stay."""
    for collection, selector in (dict.fromkeys(others, "") | _COLLECTIONS).items():
        parameters = {"labelSelector": selector} if selector else {}
        listing = await api.get(collection, **parameters)
        for item in listing["items"]:
            if item["metadata"].get("finalizers"):
                path = f"{_within(collection, item)}/{item['metadata']['name']}"
                await api.patch(path, {"metadata": {"finalizers": None}})
        for place in sorted({_within(collection, item) for item in listing["items"]}):
            await api.delete(place, gracePeriodSeconds=0, propagationPolicy="Background", **parameters)


def _within(collection: str, item: Object) -> str:
    """Return the collection in the item's own namespace."""
    namespace = item["metadata"].get("namespace")
    prefix, _, plural = collection.rpartition("/")
    return f"{prefix}/namespaces/{namespace}/{plural}" if namespace else collection

"""
What happens to a simulated cluster: each deed is a value with a moment and a sentence.

Users and their controllers create, change and delete pods, Jobs and Deployments; administrators, kubelets and cloud
providers change nodes; servers stop, histories are compacted, tokens change. A deed happens at its time whatever state
the cluster is in; what the API server refuses is not done. So a failing scenario stays a scenario when some of its
deeds are left out. What is done to the scheduler's processes is in `replica`.
"""

import asyncio
import json
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

import attrs

from sandbox import fleet
from sandbox.apiserver import metadata
from sandbox.apiserver.resources import BUDGETS, DEPLOYMENTS, JOBS, LEASES, NAMESPACES, NODES, PODS, Resource
from tests.simulation.admission import LEASE
from tests.simulation.clock import CLOCK
from tests.simulation.pod_plans import FINALIZER, PodPlan
from tests.support.controllers import Queued, Workload

if TYPE_CHECKING:
    from tests.simulation.world import World


_TICK: Final = 0.25
"""Seconds between two looks of a controller."""
MERGE = "application/merge-patch+json"
ALLOCATION: Final = "neuron-scheduler/allocation"
IDS: Final = "AWS_NEURON_IDS"
DEVICES: Final = "NEURON_DEVS"
_KEPT: Final = {ALLOCATION: "example.com/allocation", IDS: "example.com/ids", DEVICES: "example.com/devices"}


@attrs.frozen(kw_only=True)
class CreatePod:
    """A user creates a pod."""

    at: float
    pod: PodPlan

    def __str__(self) -> str:
        return f"create pod {self.pod}"

    def done_in(self, world: "World") -> None:
        world.registry.create(PODS, self.pod.namespace, self.pod.manifest)


@attrs.frozen(kw_only=True)
class DeletePod:
    """A user deletes a pod: gracefully, or by force, when its node may still run it."""

    at: float
    name: str
    namespace: str = "default"
    forced: bool = False

    def __str__(self) -> str:
        return f"delete pod {self.namespace}/{self.name}{' by force' if self.forced else ''}"

    def done_in(self, world: "World") -> None:
        options = {"gracePeriodSeconds": 0} if self.forced else {}
        world.registry.delete(PODS, self.namespace, self.name, options)


@attrs.frozen(kw_only=True)
class RecreatePod:
    """A StatefulSet's pod is deleted by force, and comes again under its name, perhaps with another request."""

    at: float
    pod: PodPlan

    def __str__(self) -> str:
        return f"delete by force and create again pod {self.pod}"

    def done_in(self, world: "World") -> None:
        if world.store.get(PODS.storage, self.pod.namespace, self.pod.name) is not None:
            world.registry.delete(PODS, self.pod.namespace, self.pod.name, {"gracePeriodSeconds": 0})
        world.registry.create(PODS, self.pod.namespace, self.pod.manifest)


@attrs.frozen(kw_only=True)
class Annotate:
    """Another controller writes an annotation and a label of a pod."""

    at: float
    name: str
    namespace: str = "default"
    value: str = "1"

    def __str__(self) -> str:
        return f"annotate and label pod {self.namespace}/{self.name} with {self.value}"

    def done_in(self, world: "World") -> None:
        change = {"metadata": {"annotations": {"example.com/note": self.value}, "labels": {"note": self.value}}}
        world.registry.patch(PODS, self.namespace, self.name, change, media_type=MERGE)


@attrs.frozen(kw_only=True)
class AddCondition:
    """Another controller adds a condition to a pod's status."""

    at: float
    name: str
    namespace: str = "default"
    type: str = "example.com/Checked"

    def __str__(self) -> str:
        return f"add condition {self.type} to pod {self.namespace}/{self.name}"

    def done_in(self, world: "World") -> None:
        pod = world.registry.get(PODS, self.namespace, self.name)
        others = [each for each in pod["status"].get("conditions") or [] if each["type"] != self.type]
        status = pod["status"] | {"conditions": [*others, {"type": self.type, "status": "True"}]}
        world.store.put(PODS.storage, pod | {"status": status})


@attrs.frozen(kw_only=True)
class OpenGate:
    """A controller removes the scheduling gates of a pod."""

    at: float
    name: str
    namespace: str = "default"

    def __str__(self) -> str:
        return f"open the gate of pod {self.namespace}/{self.name}"

    def done_in(self, world: "World") -> None:
        change: dict[str, Any] = {"spec": {"schedulingGates": []}}
        world.registry.patch(PODS, self.namespace, self.name, change, media_type=MERGE)


@attrs.frozen(kw_only=True)
class Finalize:
    """A controller removes its finalizer from a pod."""

    at: float
    name: str
    namespace: str = "default"

    def __str__(self) -> str:
        return f"remove the finalizer of pod {self.namespace}/{self.name}"

    def done_in(self, world: "World") -> None:
        pod = world.registry.get(PODS, self.namespace, self.name)
        kept = [name for name in pod["metadata"].get("finalizers") or [] if name != FINALIZER]
        change = {"metadata": {"finalizers": kept}}
        world.registry.patch(PODS, self.namespace, self.name, change, media_type=MERGE)


@attrs.frozen(kw_only=True)
class BindElsewhere:
    """Another scheduler binds a pod, which may be one of ours, without an allocation."""

    at: float
    name: str
    node: str
    namespace: str = "default"

    def __str__(self) -> str:
        return f"another scheduler binds pod {self.namespace}/{self.name} to {self.node}"

    def done_in(self, world: "World") -> None:
        binding = {"metadata": {"name": self.name}, "target": {"kind": "Node", "name": self.node}}
        world.registry.bind(self.namespace, self.name, binding)


@attrs.frozen(kw_only=True)
class CreateOnNode:
    """A user creates a pod with the name of its node: no scheduler sees it before it is there."""

    at: float
    pod: PodPlan
    node: str

    def __str__(self) -> str:
        return f"create on {self.node} pod {self.pod}"

    def done_in(self, world: "World") -> None:
        manifest = self.pod.manifest
        world.registry.create(PODS, self.pod.namespace, manifest | {"spec": manifest["spec"] | {"nodeName": self.node}})


@attrs.frozen(kw_only=True)
class RewriteIds:
    """Somebody makes a pod that is bound say that it has the first device only, or takes that back."""

    at: float
    name: str
    namespace: str = "default"
    ends: bool = False

    def __str__(self) -> str:
        return f"{'restore' if self.ends else 'rewrite'} the allocation of pod {self.namespace}/{self.name}"

    def done_in(self, world: "World") -> None:
        pod = world.registry.get(PODS, self.namespace, self.name)
        known: dict[str, str] = pod["metadata"].get("annotations") or {}
        if self.ends:
            change = {key: known[kept] for key, kept in _KEPT.items() if kept in known}
        elif ALLOCATION in known:
            allocation = json.loads(known[ALLOCATION])
            allocation |= {"devices": {name: [0] for name in allocation["devices"]}, "ids": [0]}
            change = {kept: known[key] for key, kept in _KEPT.items()}
            change |= {ALLOCATION: json.dumps(allocation), IDS: "0", DEVICES: "0"}
        else:
            return
        patch = {"metadata": {"annotations": change}}
        world.registry.patch(PODS, self.namespace, self.name, patch, media_type=MERGE)


@attrs.frozen(kw_only=True)
class CreateBudget:
    """A user protects pods of an application from evictions."""

    at: float
    app: str
    allowed: int
    namespace: str = "default"

    def __str__(self) -> str:
        return f"allow {self.allowed} disruptions of {self.namespace}/{self.app}"

    def done_in(self, world: "World") -> None:
        spec = {"selector": {"matchLabels": {"app": self.app}}, "maxUnavailable": self.allowed}
        status = {"disruptionsAllowed": self.allowed, "observedGeneration": 1}
        _create(world, BUDGETS, self.namespace, self.app, spec=spec, status=status)


@attrs.frozen(kw_only=True)
class CreateNamespace:
    """A user creates a namespace."""

    at: float
    name: str

    def __str__(self) -> str:
        return f"create namespace {self.name}"

    def done_in(self, world: "World") -> None:
        _create(world, NAMESPACES, "", self.name)


@attrs.frozen(kw_only=True)
class DeleteNamespace:
    """A user deletes a namespace with all that is in it."""

    at: float
    name: str

    def __str__(self) -> str:
        return f"delete namespace {self.name}"

    def done_in(self, world: "World") -> None:
        world.registry.delete(NAMESPACES, "", self.name, {})


def _create(world: "World", resource: Resource, namespace: str, name: str, **fields: Any) -> None:
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    world.registry.create(resource, namespace, head | fields)


@attrs.frozen(kw_only=True)
class CreateJob:
    """A user creates a Job whose pods run at the same time."""

    at: float
    pod: PodPlan
    count: int

    def __str__(self) -> str:
        return f"create Job of {self.count} pods {self.pod}"

    def done_in(self, world: "World") -> None:
        template = _template(self.pod)
        template["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": self.count, "completions": self.count, "backoffLimit": 20, "template": template}
        metadata = {"name": self.pod.name, "namespace": self.pod.namespace}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        world.registry.create(JOBS, self.pod.namespace, body)


@attrs.frozen(kw_only=True)
class CreateDeployment:
    """A user creates a Deployment."""

    at: float
    pod: PodPlan
    count: int

    def __str__(self) -> str:
        return f"create Deployment of {self.count} pods {self.pod}"

    def done_in(self, world: "World") -> None:
        selector = {"matchLabels": {"app": self.pod.app}}
        spec = {"replicas": self.count, "selector": selector, "template": _template(self.pod)}
        metadata = {"name": self.pod.name, "namespace": self.pod.namespace}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        world.registry.create(DEPLOYMENTS, self.pod.namespace, body)


@attrs.frozen(kw_only=True)
class Apply:
    """
    A user applies a workload, and its controller acts from then on.

    Attributes:
        expects: how many of its pods are bound when all is quiet.
    """

    at: float
    workload: Workload
    text: str
    expects: int = 0

    def __str__(self) -> str:
        return f"apply {self.text}"

    def done_in(self, world: "World") -> None:
        asyncio.get_running_loop().create_task(self._act(world), context=Context())

    async def _act(self, world: "World") -> None:
        while True:
            pods, nodes = (
                {each["metadata"]["name"]: each for each in world.store.objects(kind.storage)} for kind in (PODS, NODES)
            )
            for pod in self.workload.wanted(pods, nodes):
                if pod["metadata"]["name"] not in pods:
                    world.registry.create(PODS, pod["metadata"]["namespace"], pod)
            for name in self.workload.admitted(pods) if isinstance(self.workload, Queued) else ():
                OpenGate(at=CLOCK.now, name=name).done_in(world)
            await asyncio.sleep(_TICK)


@attrs.frozen(kw_only=True)
class ScaleDeployment:
    """A user scales a Deployment."""

    at: float
    name: str
    count: int
    namespace: str = "default"

    def __str__(self) -> str:
        return f"scale Deployment {self.namespace}/{self.name} to {self.count}"

    def done_in(self, world: "World") -> None:
        change = {"spec": {"replicas": self.count}}
        world.registry.patch(DEPLOYMENTS, self.namespace, self.name, change, media_type=MERGE)


def _template(pod: PodPlan) -> dict[str, Any]:
    manifest = pod.manifest
    metadata = {key: value for key, value in manifest["metadata"].items() if key in {"labels", "annotations"}}
    return {"metadata": metadata, "spec": manifest["spec"]}


@attrs.frozen(kw_only=True)
class Cordon:
    """An administrator cordons a node, or ends that."""

    at: float
    node: str
    ends: bool = False

    def __str__(self) -> str:
        return f"{'uncordon' if self.ends else 'cordon'} node {self.node}"

    def done_in(self, world: "World") -> None:
        _patch_node(world, self.node, {"spec": {"unschedulable": None if self.ends else True}})


@attrs.frozen(kw_only=True)
class Taint:
    """A controller taints a node, or removes all taints when there is no effect."""

    at: float
    node: str
    effect: str = ""

    def __str__(self) -> str:
        return f"taint node {self.node} with {self.effect}" if self.effect else f"remove the taints of node {self.node}"

    def done_in(self, world: "World") -> None:
        taints = [{"key": "example.com/maintenance", "effect": self.effect}] if self.effect else None
        _patch_node(world, self.node, {"spec": {"taints": taints}})


@attrs.frozen(kw_only=True)
class LabelNode:
    """An agent on a node finds out where it is, and labels it."""

    at: float
    node: str
    labels: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"label node {self.node} with {', '.join(f'{key}={value}' for key, value in self.labels)}"

    def done_in(self, world: "World") -> None:
        _patch_node(world, self.node, {"metadata": {"labels": dict(self.labels)}})


@attrs.frozen(kw_only=True)
class SetHealthy:
    """The device plugin of a node reports that fewer devices work, or that all do; their ids are not told."""

    at: float
    node: str
    missing: int

    def __str__(self) -> str:
        return f"{self.missing} devices of node {self.node} are unhealthy"

    def done_in(self, world: "World") -> None:
        node = world.registry.get(NODES, "", self.node)
        capacity = node["status"]["capacity"]
        devices, cores = int(capacity.get(fleet.DEVICE, 0)), int(capacity.get(fleet.CORE, 0))
        left = max(devices - self.missing, 0)
        amounts = {fleet.DEVICE: str(left), fleet.CORE: str(left * cores // devices)} if devices else {}
        status = node["status"] | {"allocatable": node["status"]["allocatable"] | amounts}
        world.store.put(NODES.storage, node | {"status": status})


@attrs.frozen(kw_only=True)
class DeleteNode:
    """A node is removed under its pods, which stay until the garbage collector finds them."""

    at: float
    node: str

    def __str__(self) -> str:
        return f"delete node {self.node}"

    def done_in(self, world: "World") -> None:
        world.registry.delete(NODES, "", self.node, {})


@attrs.frozen(kw_only=True)
class CreateNode:
    """A node joins; it may have the name of an earlier one, and another type."""

    at: float
    node: str
    instance_type: str

    def __str__(self) -> str:
        return f"create node {self.node}: {self.instance_type}"

    def done_in(self, world: "World") -> None:
        world.registry.create(NODES, "", fleet.node(self.node, self.instance_type))


def _patch_node(world: "World", name: str, change: dict[str, Any]) -> None:
    world.registry.patch(NODES, "", name, change, media_type=MERGE)


@attrs.frozen(kw_only=True)
class StopServer:
    """An API server ends, and comes back after so many seconds with an empty watch cache."""

    at: float
    server: str
    seconds: float

    def __str__(self) -> str:
        return f"stop {self.server} for {self.seconds:.1f} s"

    def done_in(self, world: "World") -> None:
        if self.server in world.servers:
            world.servers[self.server].stop(self.seconds)


@attrs.frozen(kw_only=True)
class FreezeServer:
    """An API server does nothing for so many seconds, and then goes on where it was."""

    at: float
    server: str
    seconds: float

    def __str__(self) -> str:
        return f"freeze {self.server} for {self.seconds:.1f} s"

    def done_in(self, world: "World") -> None:
        if self.server in world.servers and world.servers[self.server].process.alive:
            world.servers[self.server].process.stop(self.seconds)


@attrs.frozen(kw_only=True)
class Compact:
    """Old versions are forgotten: by etcd, so that page tokens expire, and by the watch caches of all servers."""

    at: float

    def __str__(self) -> str:
        return "compact the history"

    def done_in(self, world: "World") -> None:
        world.store.expire()
        for server in world.servers.values():
            server.cache.expire()


@attrs.frozen(kw_only=True)
class IssueToken:
    """A new token is accepted beside the old one."""

    at: float

    def __str__(self) -> str:
        return "issue a new token"

    def done_in(self, world: "World") -> None:
        world.tokens.issue()


@attrs.frozen(kw_only=True)
class WriteToken:
    """The kubelet writes the newest token into the file of the replicas."""

    at: float

    def __str__(self) -> str:
        return "write the new token"

    def done_in(self, world: "World") -> None:
        world.tokens.write()


@attrs.frozen(kw_only=True)
class RevokeTokens:
    """The servers refuse all tokens but the newest, whether or not it is in the file already."""

    at: float

    def __str__(self) -> str:
        return "revoke the old tokens"

    def done_in(self, world: "World") -> None:
        world.tokens.revoke()


@attrs.frozen(kw_only=True)
class DeleteLease:
    """Somebody deletes the Lease."""

    at: float

    def __str__(self) -> str:
        return "delete the Lease"

    def done_in(self, world: "World") -> None:
        world.registry.delete(LEASES, *LEASE, {})


@attrs.frozen(kw_only=True)
class TakeLease:
    """A stranger writes its name into the Lease, whoever holds it, and does nothing with it."""

    at: float
    holder: str
    seconds: int

    def __str__(self) -> str:
        return f"{self.holder or 'nobody'} takes the Lease for {self.seconds} s"

    def done_in(self, world: "World") -> None:
        moment = metadata.timestamp(world.registry.clock()).replace("Z", ".000000Z")
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.seconds,
            "acquireTime": moment,
            "renewTime": moment,
        }
        world.registry.patch(LEASES, *LEASE, {"spec": spec}, media_type=MERGE)


@attrs.frozen(kw_only=True)
class AnnotateLease:
    """Somebody writes an annotation on the Lease."""

    at: float

    def __str__(self) -> str:
        return "annotate the Lease"

    def done_in(self, world: "World") -> None:
        change = {"metadata": {"annotations": {"example.com/note": f"{self.at:g}"}}}
        world.registry.patch(LEASES, *LEASE, change, media_type=MERGE)

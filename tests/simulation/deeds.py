"""
What users and their controllers do to pods: each deed is a value with a moment and a sentence.

A deed happens at its time whatever state the cluster is in; what the API server refuses is not done. So a failing
scenario stays a scenario when some of its deeds are left out. Refuses to depend on what the scheduler has done.
"""

import json
from typing import TYPE_CHECKING, Any, Final

import attrs

from neuron_scheduler.sandbox.apiserver.resource import Resource
from neuron_scheduler.sandbox.apiserver.resources import BUDGETS, NAMESPACES, PODS
from tests.simulation.pod_plans import FINALIZER, PodPlan

if TYPE_CHECKING:
    from tests.simulation.world import World

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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
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
        """Do it."""
        _create(world, NAMESPACES, "", self.name)


@attrs.frozen(kw_only=True)
class DeleteNamespace:
    """A user deletes a namespace with all that is in it."""

    at: float
    name: str

    def __str__(self) -> str:
        return f"delete namespace {self.name}"

    def done_in(self, world: "World") -> None:
        """Do it."""
        world.registry.delete(NAMESPACES, "", self.name, {})


def _create(world: "World", resource: Resource, namespace: str, name: str, **fields: Any) -> None:
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    world.registry.create(resource, namespace, head | fields)

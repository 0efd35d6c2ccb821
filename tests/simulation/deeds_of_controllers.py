"""
Workloads whose pods are created by controllers: Jobs and Deployments.

The sandbox's own controllers carry them out. Refuses to create a pod itself.
"""

from typing import TYPE_CHECKING, Any

import attrs

from neuron_scheduler.sandbox.apiserver.workload_resources import DEPLOYMENTS, JOBS
from tests.simulation.deeds import MERGE
from tests.simulation.pod_plans import PodPlan

if TYPE_CHECKING:
    from tests.simulation.world import World


@attrs.frozen(kw_only=True)
class CreateJob:
    """A user creates a Job whose pods run at the same time."""

    at: float
    pod: PodPlan
    count: int

    def __str__(self) -> str:
        return f"create Job of {self.count} pods {self.pod}"

    def done_in(self, world: "World") -> None:
        """Do it."""
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
        """Do it."""
        selector = {"matchLabels": {"app": self.pod.app}}
        spec = {"replicas": self.count, "selector": selector, "template": _template(self.pod)}
        metadata = {"name": self.pod.name, "namespace": self.pod.namespace}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        world.registry.create(DEPLOYMENTS, self.pod.namespace, body)


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
        """Do it."""
        change = {"spec": {"replicas": self.count}}
        world.registry.patch(DEPLOYMENTS, self.namespace, self.name, change, media_type=MERGE)


def _template(pod: PodPlan) -> dict[str, Any]:
    manifest = pod.manifest
    metadata = {key: value for key, value in manifest["metadata"].items() if key in {"labels", "annotations"}}
    return {"metadata": metadata, "spec": manifest["spec"]}

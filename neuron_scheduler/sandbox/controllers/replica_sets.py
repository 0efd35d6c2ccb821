"""
Keeps as many pods as a ReplicaSet asks for.

After `pkg/controller/replicaset`. A ready pod counts as available at once: `minReadySeconds` has no effect.
"""

from typing import Any, Final

import attrs

from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resources import PODS
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.apiserver.workload_resources import REPLICA_SETS
from neuron_scheduler.sandbox.controllers.owned import Owned, is_active, is_ready

_PHASES: Final = {"Pending": 0, "Running": 2}


@attrs.define(eq=False)
class ReplicaSets:
    """The controller of ReplicaSets."""

    registry: Registry
    _owned: Owned = attrs.field(init=False)
    _refused: dict[str, Any] = attrs.field(factory=dict)  # uid: the spec whose pods the API server refused

    def __attrs_post_init__(self) -> None:
        self._owned = Owned(self.registry, REPLICA_SETS, "replicaset-controller")

    def sync(self) -> None:
        """Bring every ReplicaSet one step further."""
        for replica_set in self.registry.store.objects(REPLICA_SETS.storage):
            self._sync(replica_set)

    def _sync(self, replica_set: Object) -> None:
        pods = [pod for pod in self._owned.objects(PODS, replica_set) if is_active(pod)]
        missing = replica_set["spec"]["replicas"] - len(pods)
        uid, template = replica_set["metadata"]["uid"], replica_set["spec"]["template"]
        if "deletionTimestamp" not in replica_set["metadata"] and self._refused.get(uid) != replica_set["spec"]:
            for _ in range(missing):
                if self._owned.create_pod(replica_set, template) is None:
                    self._refused[uid] = replica_set["spec"]
                    break
            for pod in sorted(_youngest_first(pods), key=_rank)[: max(-missing, 0)]:
                self._owned.delete_pod(replica_set, pod)
        self._report(replica_set)

    def _report(self, replica_set: Object) -> None:
        pods = [pod for pod in self._owned.objects(PODS, replica_set, adopt=False) if is_active(pod)]
        labels = (replica_set["spec"]["template"]["metadata"].get("labels") or {}).items()
        ready = sum(is_ready(pod) for pod in pods)
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels <= pod["metadata"].get("labels", {}).items() for pod in pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": replica_set["metadata"]["generation"],
        }
        counts = {field: value for field, value in status.items() if value}
        self._owned.set_status(replica_set, {"replicas": 0} | counts)


def _rank(pod: Object) -> tuple[bool, int, bool]:
    """Return the order in which pods are deleted: without node, not running, not ready."""
    return bool(pod["spec"].get("nodeName")), _PHASES.get(pod["status"].get("phase", ""), 1), is_ready(pod)


def _youngest_first(pods: list[Object]) -> list[Object]:
    return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)

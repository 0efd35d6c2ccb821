"""
Keeps the pods of Deployments, through a ReplicaSet for each template.

After `pkg/controller/deployment` and `pkg/controller/replicaset`, with one way to replace a template: that of the
strategy `Recreate`, whatever the strategy is. There are no revisions and no conditions, a selector adopts nothing, and
a ready pod is available at once.
"""

import copy
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from sandbox.apiserver.store import Object
from sandbox.controllers.owned import Owned, is_active, is_ready, reference_to

HASH_LABEL: Final = "pod-template-hash"
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # of generated names


@attrs.define(eq=False)
class Deployments:
    """The controller of Deployments."""

    registry: Registry
    _owned: Owned = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._owned = Owned(self.registry, DEPLOYMENTS, "deployment-controller")

    def sync(self) -> None:
        """Bring every Deployment one step further."""
        for deployment in self.registry.store.objects(DEPLOYMENTS.storage):
            if "deletionTimestamp" not in deployment["metadata"]:
                self._sync(deployment)

    def _sync(self, deployment: Object) -> None:
        name = f"{deployment['metadata']['name']}-{template_hash(deployment['spec']['template'])}"
        replica_sets = self._owned.objects(REPLICA_SETS, deployment)
        new = next((found for found in replica_sets if found["metadata"]["name"] == name), None)
        old = [found for found in replica_sets if found is not new]
        if self._removed(deployment, old):
            new = new or self._create(deployment, name)
            self._scale(deployment, new, deployment["spec"]["replicas"])
        self._report(deployment, name)

    def _removed(self, deployment: Object, old: Sequence[Object]) -> bool:
        """Scale old ReplicaSets to nothing, and delete the empty ones; return whether all their pods have gone."""
        gone = True
        for replica_set in old:
            meta = replica_set["metadata"]
            self._scale(deployment, replica_set, 0)
            if self._owned.objects(PODS, replica_set):
                gone = False
            else:
                self.registry.delete(REPLICA_SETS, meta["namespace"], meta["name"], {})
        return gone

    def _create(self, deployment: Object, name: str) -> Object:
        spec, meta = deployment["spec"], deployment["metadata"]
        template, selector = copy.deepcopy(spec["template"]), copy.deepcopy(spec["selector"])
        version = template_hash(spec["template"])
        template["metadata"].setdefault("labels", {})[HASH_LABEL] = version
        selector.setdefault("matchLabels", {})[HASH_LABEL] = version
        wanted = {
            "metadata": {
                "name": name,
                "labels": dict(template["metadata"]["labels"]),
                "ownerReferences": [reference_to(DEPLOYMENTS, deployment)],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        return self.registry.create(REPLICA_SETS, meta["namespace"], wanted)

    def _scale(self, deployment: Object, replica_set: Object, count: int) -> None:
        before, meta = replica_set["spec"]["replicas"], replica_set["metadata"]
        if count == before:
            return
        change = {"metadata": meta | {"generation": meta["generation"] + 1}}
        self.registry.store.put(
            REPLICA_SETS.storage, replica_set | change | {"spec": replica_set["spec"] | {"replicas": count}}
        )
        message = f"Scaled {'up' if count > before else 'down'} replica set {meta['name']} from {before} to {count}"
        self._owned.record(deployment, "ScalingReplicaSet", message)

    def _report(self, deployment: Object, name: str) -> None:
        replica_sets = self._owned.objects(REPLICA_SETS, deployment)
        current = [found for found in replica_sets if found["metadata"]["name"] == name]
        wanted, available = deployment["spec"]["replicas"], _sum(replica_sets, "availableReplicas")
        counts = {
            "replicas": _sum(replica_sets, "replicas"),
            "updatedReplicas": _sum(current, "replicas"),
            "readyReplicas": available,
            "availableReplicas": available,
            "unavailableReplicas": max(wanted - available, 0),
        }
        status = {"observedGeneration": deployment["metadata"]["generation"]}
        self._owned.set_status(deployment, status | {field: count for field, count in counts.items() if count})


@attrs.define(eq=False)
class ReplicaSets:
    """The controller of ReplicaSets."""

    registry: Registry
    _owned: Owned = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._owned = Owned(self.registry, REPLICA_SETS, "replicaset-controller")

    def sync(self) -> None:
        """Bring every ReplicaSet one step further."""
        for replica_set in self.registry.store.objects(REPLICA_SETS.storage):
            pods = [pod for pod in self._owned.objects(PODS, replica_set) if is_active(pod)]
            missing = replica_set["spec"]["replicas"] - len(pods)
            if "deletionTimestamp" not in replica_set["metadata"]:
                for _ in range(missing):
                    if self._owned.create_pod(replica_set, replica_set["spec"]["template"]) is None:
                        break
                for pod in sorted(pods, key=is_ready)[: max(-missing, 0)]:
                    self._owned.delete_pod(replica_set, pod)
            self._report(replica_set)

    def _report(self, replica_set: Object) -> None:
        pods = [pod for pod in self._owned.objects(PODS, replica_set) if is_active(pod)]
        ready = sum(is_ready(pod) for pod in pods)
        counts = {"readyReplicas": ready, "availableReplicas": ready}
        status = {"replicas": len(pods), "observedGeneration": replica_set["metadata"]["generation"]}
        self._owned.set_status(replica_set, status | {field: count for field, count in counts.items() if count})


def template_hash(template: Mapping[str, Any]) -> str:
    """Return ten characters of the alphabet that generated names use: which version of its owner a pod is of."""
    text = json.dumps(template, sort_keys=True).encode()
    return "".join(_ALPHABET[int(digit)] for digit in f"{zlib.crc32(text):010d}")


def _sum(replica_sets: Sequence[Object], field: str) -> int:
    return sum((replica_set.get("status") or {}).get(field, 0) for replica_set in replica_sets)

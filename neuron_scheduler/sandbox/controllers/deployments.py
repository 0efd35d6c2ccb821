"""
Rolls a Deployment's ReplicaSets: a new one for each template, the old ones go as the new one becomes available.

After `pkg/controller/deployment`. Pods of old ReplicaSets are not scaled in proportion while a rollout runs.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.apiserver.workload_resources import DEPLOYMENTS, REPLICA_SETS
from neuron_scheduler.sandbox.controllers import rollout_status
from neuron_scheduler.sandbox.controllers.owned import Owned, reference_to
from neuron_scheduler.sandbox.controllers.template_hash import template_hash

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


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
        replica_sets = self._owned.objects(REPLICA_SETS, deployment)
        new = next((found for found in replica_sets if _same_template(found, deployment)), None)
        recreate = deployment["spec"]["strategy"]["type"] == "Recreate"
        old = [found for found in replica_sets if found is not new]
        if deployment["spec"].get("paused"):
            self._scale_latest(deployment, replica_sets)
        elif recreate and self._stop_old(deployment, old):
            pass
        else:
            new = self._with_revision(deployment, new or self._create(deployment), old)
            self._roll(deployment, new, old, at_once=recreate)
        self._report(deployment)

    def _create(self, deployment: Object) -> Object:
        spec, meta = deployment["spec"], deployment["metadata"]
        template = copy.deepcopy(spec["template"])
        version = template_hash(template)
        template["metadata"].setdefault("labels", {})[HASH_LABEL] = version
        selector = copy.deepcopy(spec["selector"])
        selector.setdefault("matchLabels", {})[HASH_LABEL] = version
        wanted = {
            "metadata": {
                "name": f"{meta['name']}-{version}",
                "labels": dict(template["metadata"]["labels"]),
                "annotations": _copied_annotations(deployment),
                "ownerReferences": [reference_to(DEPLOYMENTS, deployment)],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        return self.registry.create(REPLICA_SETS, meta["namespace"], wanted)

    def _with_revision(self, deployment: Object, new: Object, old: Sequence[Object]) -> Object:
        """Give the new ReplicaSet the highest revision, and the Deployment the same."""
        highest = max((_revision(replica_set) for replica_set in old), default=0)
        if _revision(new) <= highest:
            new = self._annotate(REPLICA_SETS.storage, new, str(highest + 1))
        meta = deployment["metadata"]
        current = self.registry.get(DEPLOYMENTS, meta["namespace"], meta["name"])
        if _revision(current) != _revision(new):
            self._annotate(DEPLOYMENTS.storage, current, str(_revision(new)))
        return new

    def _annotate(self, storage: str, obj: Object, revision: str) -> Object:
        annotations = (obj["metadata"].get("annotations") or {}) | {REVISION: revision}
        return self.registry.store.put(storage, obj | {"metadata": obj["metadata"] | {"annotations": annotations}})

    def _roll(self, deployment: Object, new: Object, old: Sequence[Object], *, at_once: bool) -> None:
        """Scale up the new ReplicaSet as far as the surge allows, then the old ones down; one of both in a step."""
        wanted, surge, unavailable = limits(deployment)
        total = sum(replica_set["spec"]["replicas"] for replica_set in (*old, new))
        size = new["spec"]["replicas"]
        growth = max(min(wanted + surge - total, wanted - size), 0)
        target = wanted if at_once or size >= wanted else size + growth
        if target != size:
            self._scale(deployment, new, target)
            return
        spare = total - (wanted - unavailable) - (size - _available(new))
        self._scale_down(deployment, old, _available(new), wanted - unavailable, spare)
        if all(not replica_set["spec"]["replicas"] for replica_set in old):
            self._forget(deployment, old)

    def _scale_down(
        self, deployment: Object, old: Sequence[Object], available_new: int, fewest: int, spare: int
    ) -> None:
        """Remove first what is not available, then what the others can do without."""
        available = available_new + sum(map(_available, old))
        for replica_set in sorted(old, key=_revision):
            size = replica_set["spec"]["replicas"]
            broken = min(size - _available(replica_set), max(spare, 0))
            healthy = min(size - broken, max(available - fewest, 0), max(spare - broken, 0))
            if broken + healthy > 0:
                self._scale(deployment, replica_set, size - broken - healthy)
                available, spare = available - healthy, spare - broken - healthy

    def _stop_old(self, deployment: Object, old: Sequence[Object]) -> bool:
        """Scale the old ReplicaSets to nothing; return whether some of their pods are still there."""
        for replica_set in old:
            if replica_set["spec"]["replicas"]:
                self._scale(deployment, replica_set, 0)
        return any(self._has_pods(replica_set) for replica_set in old)

    def _has_pods(self, replica_set: Object) -> bool:
        uid = replica_set["metadata"]["uid"]
        return any(
            reference["uid"] == uid
            for pod in self.registry.store.objects("pods", replica_set["metadata"]["namespace"])
            if pod["status"].get("phase") not in {"Succeeded", "Failed"}
            for reference in pod["metadata"].get("ownerReferences") or []
        )

    def _scale_latest(self, deployment: Object, replica_sets: Sequence[Object]) -> None:
        latest = max(replica_sets, key=_revision, default=None)
        if latest is not None and latest["spec"]["replicas"] != deployment["spec"]["replicas"]:
            self._scale(deployment, latest, deployment["spec"]["replicas"])

    def _scale(self, deployment: Object, replica_set: Object, replicas: int) -> None:
        meta, size = replica_set["metadata"], replica_set["spec"]["replicas"]
        changed = replica_set | {"spec": replica_set["spec"] | {"replicas": replicas}}
        self.registry.update(REPLICA_SETS, meta["namespace"], meta["name"], copy.deepcopy(changed))
        direction = "up" if replicas > size else "down"
        message = f"Scaled {direction} replica set {meta['name']} from {size} to {replicas}"
        self._owned.record(deployment, "ScalingReplicaSet", message)

    def _forget(self, deployment: Object, old: Sequence[Object]) -> None:
        keep = deployment["spec"]["revisionHistoryLimit"]
        for replica_set in sorted(old, key=_revision)[: max(len(old) - keep, 0)]:
            self.registry.delete(
                REPLICA_SETS, replica_set["metadata"]["namespace"], replica_set["metadata"]["name"], {}
            )

    def _report(self, deployment: Object) -> None:
        replica_sets = self._owned.objects(REPLICA_SETS, deployment, adopt=False)
        new = next((found for found in replica_sets if _same_template(found, deployment)), None)
        _, _, unavailable = limits(deployment)
        status = rollout_status.of(deployment, replica_sets, new, unavailable, self.registry.clock())
        self._owned.set_status(deployment, status)


def limits(deployment: Object) -> tuple[int, int, int]:
    """Return the wanted pods, how many more there may be during a rollout, and how many of them may be missing."""
    wanted, rolling = deployment["spec"]["replicas"], deployment["spec"]["strategy"].get("rollingUpdate") or {}
    if deployment["spec"]["strategy"]["type"] == "Recreate":
        return wanted, 0, 0
    surge = _scaled(rolling["maxSurge"], wanted, math.ceil)
    unavailable = _scaled(rolling["maxUnavailable"], wanted, math.floor)
    return wanted, surge, min(unavailable or (0 if surge else 1), wanted)


def _scaled(value: int | str, whole: int, rounded: Any) -> int:
    if isinstance(value, str):
        return int(rounded(int(value.removesuffix("%")) * whole / 100))
    return value


def _available(replica_set: Object) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _revision(obj: Object) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _copied_annotations(deployment: Object) -> dict[str, str]:
    annotations: Mapping[str, str] = deployment["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if key not in {_LAST_APPLIED, REVISION}}


def _same_template(replica_set: Object, deployment: Object) -> bool:
    """Return whether a ReplicaSet is the Deployment's present one: the templates differ in the hash label only."""
    template, meta = replica_set["spec"]["template"], replica_set["spec"]["template"]["metadata"]
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    bare: dict[str, Any] = template | {"metadata": meta | {"labels": labels}}
    return bool(bare == deployment["spec"]["template"])

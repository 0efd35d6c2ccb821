"""
The controller of claims: makes those of templates, and takes devices back from pods that have ended.

After `pkg/controller/resourceclaim`: reservations of pods that have ended are dropped. With the last one devices go,
but only if the finalizer is there, and then the finalizer. It also reserves devices for pods that have a node already.
"""

import asyncio
import copy
from collections.abc import Mapping
from random import Random
from typing import Final

import attrs

from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import CLAIM_TEMPLATES, CLAIMS, NODES, PODS, SLICES
from sandbox.apiserver.store import Object
from sandbox.controllers.owned import is_active, is_ended, reference_to
from tests.support.device_objects import API, PROTECTION

PAUSES: Final = (0.05, 0.2, 0.2, 0.6, 3.0)
"""Seconds between two rounds."""
_NAME: Final = "resource.kubernetes.io/pod-claim-name"


@attrs.define(eq=False)
class ClaimController:
    """All of it, with the garbage collector of slices whose node is gone."""

    registry: Registry
    dice: Random

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.dice.choice(PAUSES))
            store = self.registry.store
            pods = {pod["metadata"]["uid"]: pod for pod in store.objects(PODS.storage)}
            for pod in pods.values():
                if is_active(pod) and pod["spec"].get("resourceClaims"):
                    self._serve(pod)
            for claim in store.objects(CLAIMS.storage):
                self._release(claim, pods)
            for each in store.objects(SLICES.storage):
                if store.get(NODES.storage, "", each["spec"]["nodeName"]) is None:
                    self.registry.delete(SLICES, "", each["metadata"]["name"], {})

    def _serve(self, pod: Object) -> None:
        """Make what is missing of a pod's claims; it is told only in the next round, as after a restart."""
        space, statuses = pod["metadata"]["namespace"], [*(pod["status"].get("resourceClaimStatuses") or [])]
        names = {status["name"]: status["resourceClaimName"] for status in statuses}
        for reference in pod["spec"]["resourceClaims"]:
            name = reference["name"]
            if reference.get("resourceClaimTemplateName") and name not in names:
                made = next(
                    (each for each in self.registry.store.objects(CLAIMS.storage) if _is_of(each, pod, name)), None
                )
                if made is None:
                    self._make(pod, name, reference["resourceClaimTemplateName"])
                else:
                    statuses.append({"name": name, "resourceClaimName": made["metadata"]["name"]})
            elif pod["spec"].get("nodeName"):
                self._reserve(pod, space, names.get(name) or reference["resourceClaimName"])
        if len(statuses) > len(names):
            status = pod["status"] | {"resourceClaimStatuses": statuses}
            self.registry.store.put(PODS.storage, pod | {"status": status})

    def _make(self, pod: Object, name: str, template: str) -> None:
        space = pod["metadata"]["namespace"]
        metadata = {
            "generateName": f"{pod['metadata']['name']}-{name}-",
            "annotations": {_NAME: name},
            "ownerReferences": [reference_to(PODS, pod)],
        }
        spec = self.registry.get(CLAIM_TEMPLATES, "default", template)["spec"]["spec"]
        body = {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
        self.registry.create(CLAIMS, space, body)

    def _reserve(self, pod: Object, space: str, name: str) -> None:
        """Reserve devices for a pod that somebody has bound by hand."""
        claim = self.registry.store.get(CLAIMS.storage, space, name)
        status = {} if claim is None else claim.get("status") or {}
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        users = status.get("reservedFor") or []
        if claim is not None and status.get("allocation") and user not in users and not _is_leaving(claim):
            self._put(claim | {"status": status | {"reservedFor": [*users, user]}}, "status")

    def _release(self, claim: Object, pods: Mapping[str, Object]) -> None:
        claim = self.registry.get(CLAIMS, claim["metadata"]["namespace"], claim["metadata"]["name"])
        status, metadata = claim.get("status") or {}, claim["metadata"]
        users = status.get("reservedFor") or []
        valid = [user for user in users if user["uid"] in pods and not is_ended(pods[user["uid"]])]
        if len(valid) < len(users) or (not users and _is_leaving(claim)):
            gone = {"reservedFor"} if not valid else set()
            if not valid and PROTECTION in (metadata.get("finalizers") or ()):
                gone.add("allocation")
            kept = {field: value for field, value in (status | {"reservedFor": valid}).items() if field not in gone}
            claim = self._put(claim | {"status": kept}, "status")
            if "allocation" in gone:
                others = [each for each in metadata["finalizers"] if each != PROTECTION]
                claim = self._put(claim | {"metadata": claim["metadata"] | {"finalizers": others}}, "")
        owner = next((each["uid"] for each in metadata.get("ownerReferences") or ()), "")
        if not valid and owner and (owner not in pods or is_ended(pods[owner])) and not _is_leaving(claim):
            self.registry.delete(CLAIMS, metadata["namespace"], metadata["name"], {})

    def _put(self, claim: Object, subresource: str) -> Object:
        place = claim["metadata"]["namespace"], claim["metadata"]["name"]
        return self.registry.update(CLAIMS, *place, copy.deepcopy(claim), subresource=subresource)


def _is_of(claim: Object, pod: Object, name: str) -> bool:
    owners = {each["uid"] for each in claim["metadata"].get("ownerReferences") or ()}
    return pod["metadata"]["uid"] in owners and claim["metadata"]["annotations"].get(_NAME) == name


def _is_leaving(claim: Object) -> bool:
    return "deletionTimestamp" in claim["metadata"]

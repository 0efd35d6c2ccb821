"""
The rights of `manifests/base/rbac.yaml`: granted to the ServiceAccount, and compared with its requests.

The manifest, the process's own list (`neuron_scheduler.kube.reviews`) and the requests in the audit log must
agree; they are compared as `Right` values.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.kube.reviews import Right, rights_to_lead, rights_to_schedule, rights_to_watch
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from tests.control_plane.rest import Object, RestClient
from tests.end_to_end.process import ROOT, until

MANIFEST: Final = ROOT / "manifests" / "base" / "rbac.yaml"


def manifests(path: Path = MANIFEST) -> list[Object]:
    """Return the objects of `manifests/base/rbac.yaml`, or of a component's."""
    return list(yaml.safe_load_all(path.read_text()))


def granted(path: Path = MANIFEST) -> set[Right]:
    """Return the rights that the manifest grants."""
    return {
        Right(verb, resource, group, item["metadata"].get("namespace", ""), name)
        for item in manifests(path)
        for rule in item.get("rules", [])
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
        for name in rule.get("resourceNames", [""])
    }


def needed() -> tuple[Right, ...]:
    """Return the rights that the process asks for at its start, in their order."""
    parts = wire(Config(), Client(connection=Connection("http://127.0.0.1:1", "a test")), Metrics())
    return (
        *rights_to_schedule(informer.resource for informer in parts.informers),
        *rights_to_lead("kube-system", "my-scheduler"),
    )


def optional() -> set[Right]:
    """Return the rights that it uses where the API server serves PodGroups."""
    return set(rights_to_watch(POD_GROUPS))


async def grant(api: RestClient, items: Iterable[Object] | None = None) -> None:
    """Apply the manifest, or a variant of it, and return when the API server's authorizer has all of it."""
    items = list(manifests() if items is None else items)
    for item in items:
        await api.apply(item)
    subject = next(item["subjects"][0] for item in items if "subjects" in item)
    for item in items:
        namespace = item["metadata"].get("namespace", "")
        for rule in item.get("rules", []):
            await until(partial(_allowed, api, subject, rule, namespace))


async def _allowed(api: RestClient, subject: Object, rule: Object, namespace: str) -> bool:
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {
        "verb": rule["verbs"][0],
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "name": rule.get("resourceNames", [""])[0],
        "namespace": namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{subject['namespace']}:{subject['name']}",
            "resourceAttributes": asked,
        },
    }
    answer = await api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def covers(right: Right, request: Object) -> bool:
    """Return whether a right covers an audited request."""
    target = request["objectRef"]
    resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
    return (
        (right.verb, right.resource, right.group) == (request["verb"], resource, target.get("apiGroup", ""))
        and right.namespace in ("", target.get("namespace", ""))
        and right.name in ("", target.get("name", ""))
    )


def is_review(request: Object) -> bool:
    """Return whether a request asks for the sender's own rights, which every account may."""
    return bool(request["objectRef"]["resource"] == "selfsubjectaccessreviews")

"""
What clients can learn about the served kinds: aggregated discovery, the version, and a minimal OpenAPI.

That is what kubectl asks for; of the older form of discovery only the lists of resources are here. `kubectl apply`
refuses to work without OpenAPI. There are no schemas: every object may have any field.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from sandbox.apiserver.resources import RESOURCES, VERBS, Resource

_MAJOR, _MINOR = "1", "37"
RELEASE: Final = f"v{_MAJOR}.{_MINOR}.2"
"""The release of Kubernetes that the sandbox says it is."""
VERSION: Final[Mapping[str, str]] = {
    "major": _MAJOR,
    "minor": _MINOR,
    "gitVersion": f"{RELEASE}+sandbox",
    "platform": "sandbox",
}
_SCALE: Final = {
    "subresource": "scale",
    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "verbs": ["get", "patch", "update"],
}
OPENAPI_2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Of a document that is empty in protobuf: it describes no kind."""
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@cache
def documents() -> Mapping[str, dict[str, Any]]:
    """Return the answers by their paths."""
    answers = {
        "/version": dict(VERSION),
        "/api": aggregated(core=True),
        "/apis": aggregated(core=False),
        "/openapi/v3": openapi_index(),
    }
    for resources in groups().values():
        prefix = resources[0].prefix
        answers[prefix] = resource_list(resources)
        answers[f"/openapi/v3{prefix}"] = openapi(resources)
    return answers


def groups() -> dict[str, list[Resource]]:
    """Resources by group; the core group is the empty string."""
    by_group: dict[str, list[Resource]] = {}
    for resource in RESOURCES:
        by_group.setdefault(resource.group, []).append(resource)
    return by_group


def aggregated(*, core: bool) -> dict[str, Any]:
    """Return the `APIGroupDiscoveryList` of `/api` or of `/apis`."""
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None},
            "versions": [
                {"version": "v1", "freshness": "Current", "resources": [_shown(resource) for resource in resources]}
            ],
        }
        for group, resources in groups().items()
        if (not group) is core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _shown(resource: Resource) -> dict[str, Any]:
    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return {
        "resource": resource.plural,
        "responseKind": own,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": list(VERBS),
        "shortNames": [resource.short_name] if resource.short_name else [],
        "subresources": [_SCALE] if "scale" in resource.subresources else [],
        "categories": ["all"] if resource.generation or resource.kind == "Pod" else [],
    }


def resource_list(resources: Sequence[Resource]) -> dict[str, Any]:
    """Return `/api/v1` or `/apis/{group}/v1`, by which `neuron-scheduler check` knows what is served."""
    shown = [
        {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced, "verbs": list(VERBS)}
        for resource in resources
    ]
    version = resources[0].api_version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": shown}


def openapi_index() -> dict[str, Any]:
    """Return `/openapi/v3`: where the document of each group version is."""
    paths = {resources[0].prefix.removeprefix("/") for resources in groups().values()}
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=sandbox"} for path in sorted(paths)}}


def openapi(resources: Iterable[Resource]) -> dict[str, Any]:
    """Return the document of one group version: for each kind that it can be patched, and with which parameters."""
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    paths: dict[str, Any] = {}
    for resource in resources:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        operation = {"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind}
        paths[f"{resource.prefix}/{scope}{resource.plural}/{{name}}"] = {"patch": operation}
    information = {"title": "sandbox", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": information, "paths": paths, "components": {"schemas": {}}}

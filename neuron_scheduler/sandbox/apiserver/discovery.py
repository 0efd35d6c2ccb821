"""
What clients can learn about the served kinds: discovery in both forms, the version, and a minimal OpenAPI.

`kubectl apply` and `explain` refuse to work without OpenAPI. The schemas list only the kinds: every object
may have any field.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from neuron_scheduler.sandbox.apiserver.resource import VERBS, Resource
from neuron_scheduler.sandbox.apiserver.resources import RESOURCES

_MAJOR, _MINOR = "1", "37"
RELEASE: Final = f"v{_MAJOR}.{_MINOR}.2"
"""The release of Kubernetes that the sandbox says it is."""
VERSION: Final[Mapping[str, str]] = {
    "major": _MAJOR,
    "minor": _MINOR,
    "gitVersion": f"{RELEASE}+sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "cpython",
    "platform": "sandbox",
}
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SUBRESOURCES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "binding": ("", "Binding", ("create",)),
    "eviction": ("policy", "Eviction", ("create",)),
    "log": ("", "", ("get",)),
    "scale": ("autoscaling", "Scale", ("get", "patch", "update")),
    "status": ("", "", ("get", "patch", "update")),
}


def discover(path: str, accept: str) -> dict[str, Any] | None:
    """Return the answer to a path of discovery or OpenAPI; None where it is neither."""
    steps = path.strip("/").split("/")
    if steps in (["api"], ["apis"]) and "APIGroupDiscoveryList" in accept:
        return aggregated(core=steps == ["api"])
    return _documents().get(path.rstrip("/"))


@cache
def _documents() -> Mapping[str, dict[str, Any]]:
    """Return every document by its path."""
    documents = {
        "/version": dict(VERSION),
        "/api": api_versions(),
        "/apis": group_list(),
        "/openapi/v3": openapi_index(),
    }
    for group, resources in groups().items():
        prefix = resources[0].prefix
        documents[prefix] = resource_list(resources)
        documents[f"/openapi/v3{prefix}"] = openapi(resources)
        if group:
            documents[f"/apis/{group}"] = group_of(group)
    return documents


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
                {
                    "version": "v1",
                    "freshness": "Current",
                    "resources": [_aggregated(resource) for resource in resources],
                }
            ],
        }
        for group, resources in groups().items()
        if (not group) is core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated(resource: Resource) -> dict[str, Any]:
    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return {
        "resource": resource.plural,
        "responseKind": own,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(VERBS),
        "shortNames": list(resource.short_names),
        "categories": list(resource.categories),
        "subresources": [
            {
                "subresource": name,
                "responseKind": {"group": group, "version": "v1", "kind": kind} if kind else own,
                "verbs": list(verbs),
            }
            for name, (group, kind, verbs) in (
                (subresource, _SUBRESOURCES[subresource]) for subresource in resource.subresources
            )
        ],
    }


def api_versions() -> dict[str, Any]:
    """Return `/api` for clients without aggregated discovery."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list() -> dict[str, Any]:
    """Return `/apis` for the same clients."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group_of(name) for name in groups() if name]}


def group_of(name: str) -> dict[str, Any]:
    """Return `/apis/{group}`."""
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": [version],
        "preferredVersion": version,
    }


def resource_list(resources: Iterable[Resource]) -> dict[str, Any]:
    """Return `/api/v1` or `/apis/{group}/v1`."""
    shown: list[dict[str, Any]] = []
    api_version = ""
    for resource in resources:
        api_version = resource.api_version
        shown.append(
            {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(VERBS),
                "shortNames": list(resource.short_names),
                "categories": list(resource.categories),
            }
        )
        shown.extend(
            {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": _SUBRESOURCES[name][1] or resource.kind,
                "verbs": list(_SUBRESOURCES[name][2]),
            }
            for name in resource.subresources
        )
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": shown}


def openapi_index() -> dict[str, Any]:
    """Return `/openapi/v3`: where the document of each group version is."""
    paths = {resources[0].prefix.removeprefix("/") for resources in groups().values()}
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=sandbox"} for path in sorted(paths)}}


def openapi(resources: Iterable[Resource]) -> dict[str, Any]:
    """Return the document of one group version: a patch operation and a schema for each kind."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for resource in resources:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        schema = f"io.k8s.api.{resource.group or 'core'}.{resource.version}.{resource.kind}"
        schemas[schema] = {
            "type": "object",
            "description": f"{resource.kind} of the sandbox, which keeps every field.",
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-group-version-kind": [kind],
        }
        operation = {
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                for name in ("dryRun", "fieldManager", "fieldValidation", "force")
            ],
            "responses": {
                "200": {
                    "description": "OK",
                    "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
                }
            },
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": kind,
        }
        paths[f"{resource.prefix}/{scope}{resource.plural}/{{name}}"] = {"patch": operation}
    information = {"title": "neuron_scheduler sandbox", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": information, "paths": paths, "components": {"schemas": schemas}}

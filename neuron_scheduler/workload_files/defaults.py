"""
What the API server fills in when a pod is written, as far as a decision reads it.

Upstream: `SetDefaults_Pod` and `defaultHostNetworkPorts` in `pkg/apis/core/v1/defaults.go`. A pod that is read from the
API server has these values already. Does not judge a spec: what has the wrong type is left as it is, for the reader.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def defaulted(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's spec with limits in place of missing requests, and the host ports of the host's network."""
    made = dict(spec)
    for key in ("containers", "initContainers"):
        if isinstance(spec.get(key), Sequence):
            on_host = spec.get("hostNetwork") is True
            made[key] = [_container(container, on_host=on_host) for container in spec[key]]
    if isinstance(spec.get("resources"), Mapping):
        made["resources"] = _requesting(spec["resources"])
    return made


def _container(container: object, *, on_host: bool) -> object:
    if not isinstance(container, Mapping):
        return container
    made = dict(container)
    if isinstance(container.get("resources"), Mapping):
        made["resources"] = _requesting(container["resources"])
    if on_host and isinstance(container.get("ports"), Sequence):
        made["ports"] = [_host_port(port) for port in container["ports"]]
    return made


def _requesting(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    limits, requests = resources.get("limits"), resources.get("requests")
    if not isinstance(limits, Mapping) or not (requests is None or isinstance(requests, Mapping)):
        return resources
    return {**resources, "requests": {**limits, **(requests or {})}}


def _host_port(port: object) -> object:
    if isinstance(port, Mapping) and not port.get("hostPort") and "containerPort" in port:
        return {**port, "hostPort": port["containerPort"]}
    return port

"""Services and controllers with their selectors."""

from typing import Any

import pytest

from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.workloads import WORKLOADS
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.model.workload import Workload
from tests.support.wire_objects import encoded

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
METADATA = {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "7"}
RESOURCES = {resource.path.rpartition("/")[2]: resource for resource in WORKLOADS}


@pytest.mark.parametrize(
    ("resource", "api_version", "kind", "spec", "selector"),
    [
        ("services", "v1", "Service", {"selector": {"app": "web"}, "ports": []}, WEB),
        ("services", "v1", "Service", {"type": "ExternalName"}, LabelSelector()),
        ("replicationcontrollers", "v1", "ReplicationController", {"selector": {"app": "web"}}, WEB),
        ("replicasets", "apps/v1", "ReplicaSet", {"selector": {"matchLabels": {"app": "web"}}}, WEB),
        (
            "statefulsets",
            "apps/v1",
            "StatefulSet",
            {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}},
            WEB,
        ),
        ("statefulsets", "apps/v1", "StatefulSet", {}, None),
        ("replicasets", "apps/v1", "ReplicaSet", None, None),
    ],
)
def test_kinds(resource: str, api_version: str, kind: str, spec: Any, selector: LabelSelector | None) -> None:
    """Each kind has its path, its apiVersion, and its form of a selector."""
    watched = RESOURCES[resource]
    decoded = watched.decode(encoded({"metadata": METADATA, **({} if spec is None else {"spec": spec})}))

    assert (decoded.key, decoded.uid, decoded.resource_version) == ("default/web", "u", "7")
    assert decoded.value == Workload("u", api_version, kind, "default", "web", selector)
    assert watched.path == f"/{'api' if '/' not in api_version else 'apis'}/{api_version}/{resource}"


@pytest.mark.parametrize("spec", [{"selector": 5}, {"selector": {"matchLabels": {"app": "not a value"}}}])
def test_what_cannot_be_read(spec: dict[str, Any]) -> None:
    """It is malformed, under its name."""
    decoded = RESOURCES["replicasets"].decode(encoded({"metadata": METADATA, "spec": spec}))

    assert isinstance(decoded.value, Malformed)
    assert (decoded.value.kind, decoded.value.key, decoded.value.uid) == ("ReplicaSet", "default/web", "u")

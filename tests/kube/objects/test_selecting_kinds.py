"""Namespaces, workloads and budgets: labels and selectors."""

import json
from typing import Any

import pytest

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.selecting_kinds import BUDGETS, NAMESPACES, WORKLOADS
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.selecting_kinds import Namespace, Workload
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from tests.support.wire_objects import encoded


def test_a_namespace() -> None:
    """Only its labels are read."""
    namespace = {"metadata": {"name": "ns", "uid": "u", "resourceVersion": "3", "labels": {"team": "a"}}, "spec": {}}
    assert NAMESPACES.decode(encoded(namespace)) == Decoded("ns", "u", "3", Namespace("u", "ns", {"team": "a"}))


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


BUDGET = {"namespace": "d", "name": "b", "uid": "u", "resourceVersion": "7"}
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))


def budget_of(**parts: Any) -> DisruptionBudget | Malformed | None:
    """Return the value that is read from a budget with these parts."""
    return BUDGETS.decode(json.dumps({"metadata": BUDGET, **parts}).encode()).value


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param({}, DisruptionBudget("u", "d", "b"), id="nothing but a name"),
        pytest.param(
            {
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
                "status": {
                    "disruptionsAllowed": 2,
                    "currentHealthy": 3,
                    "disruptedPods": {"p": "2026-11-21T08:00:00Z"},
                },
            },
            DisruptionBudget("u", "d", "b", WEB, 2, frozenset({"p"})),
            id="all that counts",
        ),
        pytest.param(
            {"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w"]}]}}},
            DisruptionBudget("u", "d", "b"),
            id="a selector that cannot be read matches nothing",
        ),
        pytest.param({"spec": None, "status": None}, DisruptionBudget("u", "d", "b"), id="nulls"),
    ],
)
def test_a_budget(parts: dict[str, Any], want: DisruptionBudget) -> None:
    """Selector, allowed disruptions, and the pods that are already counted."""
    assert budget_of(**parts) == want

"""The restricting parts of a pod's spec, from the wire into the model."""

from typing import Any

import msgspec
import pytest

from neuron_scheduler.kube import wire
from neuron_scheduler.kube.constraints import constraints, tolerations
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Constraints
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    PreferredTerm,
    Requirement,
    Toleration,
)


def read(**spec: Any) -> Constraints:
    """The constraints of pod `default/p` with this spec."""
    return constraints(msgspec.convert(spec, wire.PodSpec), pod="p", namespace="default")


def node_affinity(*terms: dict[str, Any], preferred: Any = None) -> dict[str, Any]:
    """An affinity with required node terms."""
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    }


def test_none() -> None:
    """A pod without constraints shares the one empty value."""
    assert read() is NO_CONSTRAINTS


TERMS: dict[str, tuple[dict[str, Any], NodeSelectorTerm]] = {
    "In": (
        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}]},
        NodeSelectorTerm((Requirement("k", Operator.IN, ("a", "b")),)),
    ),
    "Exists": (
        {"matchExpressions": [{"key": "k", "operator": "Exists"}]},
        NodeSelectorTerm((Requirement("k", Operator.EXISTS),)),
    ),
    "Gt": (
        {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["3"]}]},
        NodeSelectorTerm((Requirement("k", Operator.GT, ("3",)),)),
    ),
    "a field": (
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        NodeSelectorTerm(fields=(Requirement("metadata.name", Operator.IN, ("n1",)),)),
    ),
    "an empty term": ({}, NodeSelectorTerm()),
    "an unknown operator": (
        {"matchExpressions": [{"key": "k", "operator": "Near"}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "In without values": (
        {"matchExpressions": [{"key": "k", "operator": "In"}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "Exists with values": (
        {"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["a"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "Gt of no Go integer": (
        {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1_000"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "NotIn of no label value": (
        {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["a b"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "another field": (
        {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n1"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "a field with two values": (
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
}


@pytest.mark.parametrize("sentence", TERMS)
def test_node_terms(sentence: str) -> None:
    """Terms are read as upstream parses them, and what does not parse matches nothing."""
    term, want = TERMS[sentence]

    assert (want,) == read(affinity=node_affinity(term)).required_terms


def test_no_required_terms() -> None:
    """An empty list of terms is kept apart from an absent one: it matches no node."""
    assert read(affinity=node_affinity()).required_terms == ()
    assert read(nodeSelector={"a": "b"}).required_terms is None
    assert read(nodeSelector={"a": "b"}).node_selector == {"a": "b"}


def test_preferred_terms() -> None:
    """Weights stay with their terms."""
    preference = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    found = read(affinity=node_affinity({}, preferred=[{"weight": 5, "preference": preference}]))

    assert (PreferredTerm(5, NodeSelectorTerm((Requirement("k", Operator.EXISTS),))),) == found.preferred_terms


POD_TERMS: dict[str, tuple[dict[str, Any], PodAffinityTerm]] = {
    "no namespace named: the pod's own": (
        {"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}},
        PodAffinityTerm("z", LabelSelector((Requirement("a", Operator.IN, ("b",)),)), frozenset({"default"})),
    ),
    "a namespace selector alone": (
        {"topologyKey": "z", "labelSelector": {}, "namespaceSelector": {}},
        PodAffinityTerm("z", LabelSelector(), frozenset(), LabelSelector()),
    ),
    "no selector: no pod": (
        {"topologyKey": "z", "namespaces": ["x"]},
        PodAffinityTerm("z", None, frozenset({"x"})),
    ),
}


@pytest.mark.parametrize("sentence", POD_TERMS)
def test_pod_terms(sentence: str) -> None:
    """Required pod (anti-)affinity is read alike on both sides."""
    term, want = POD_TERMS[sentence]
    both = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    found = read(affinity={"podAffinity": both, "podAntiAffinity": both})

    assert ((want,), (want,)) == (found.affinity, found.anti_affinity)


def test_spread_and_soft_constraints_are_counted() -> None:
    """Hard spreading fails closed later; soft constraints are ignored and counted."""
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {}}]}
    found = read(
        topologySpreadConstraints=[
            {"whenUnsatisfiable": "DoNotSchedule"},
            {"whenUnsatisfiable": "ScheduleAnyway"},
            {},
        ],
        affinity={"podAffinity": preferred, "podAntiAffinity": preferred},
    )

    assert (found.hard_spread, found.soft) == (2, 3)


def test_volumes() -> None:
    """Claims, generic ephemeral volumes and tying inline volumes are named; everything else is free."""
    free = ["hostPath", "emptyDir", "configMap", "secret", "projected", "downwardAPI", "csi", "nfs", "image"]
    found = read(
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": "pvc"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "disk", "awsElasticBlockStore": {"volumeID": "v"}},
            *({"name": source.lower(), source: {}} for source in free),
        ],
        resourceClaims=[{"name": "neuron"}],
    )

    assert found.volume_claims == ("pvc", "p-scratch")
    assert found.inline_volumes == ("disk",)
    assert found.resource_claims == ("neuron",)


TOLERATIONS: dict[str, tuple[dict[str, Any], Toleration]] = {
    "an absent operator is Equal": ({"key": "k", "value": "v"}, Toleration("k", value="v")),
    "Exists": ({"operator": "Exists", "effect": "NoSchedule"}, Toleration(exists=True, effect=Effect.NO_SCHEDULE)),
    "an empty effect is every effect": ({"key": "k", "effect": ""}, Toleration("k")),
    "Lt": ({"key": "k", "operator": "Lt", "value": "3"}, Toleration("k", value="3", unreadable=True)),
    "an unknown effect": ({"key": "k", "effect": "Maybe"}, Toleration("k", unreadable=True)),
}


@pytest.mark.parametrize("sentence", TOLERATIONS)
def test_tolerations(sentence: str) -> None:
    """What a toleration says is read, and what no release understands tolerates nothing."""
    toleration, want = TOLERATIONS[sentence]

    assert (want,) == tolerations([msgspec.convert(toleration, wire.Toleration)])

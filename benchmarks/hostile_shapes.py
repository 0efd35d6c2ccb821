"""
The shapes of `benchmarks.hostile`: pods with very many of something, as one tenant can create them.

Each shape makes the JSON of a pod with a given number of its parts. Measures nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL

Json = dict[str, Any]
Shape = Callable[[int], Json]
"""Makes the parts of a pod that has so many of something."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEB = {"matchLabels": {"app": "web"}}


def _affinity(kind: str, when: str, terms: Any) -> Json:
    return {"spec": {"affinity": {kind: {when: terms}}}}


def _anti(terms: list[Json]) -> Json:
    return _affinity("podAntiAffinity", _REQUIRED, terms)


def _weighted(kind: str, terms: list[Json]) -> Json:
    return _affinity(kind, _PREFERRED, [{"weight": 1, "podAffinityTerm": term} for term in terms])


def _keys(count: int) -> list[Json]:
    return [{"topologyKey": f"k{i}", "labelSelector": _WEB} for i in range(count)]


def _selectors(count: int) -> list[Json]:
    return [{"topologyKey": ZONE_LABEL, "labelSelector": {"matchLabels": {f"x{i}": "y"}}} for i in range(count)]


def _absent(number: int) -> Json:
    return {"key": f"x{number}", "operator": "DoesNotExist"}


def _matching(count: int) -> list[Json]:
    """Return different terms that all match the plain pod."""
    return [{"topologyKey": ZONE_LABEL, "labelSelector": {"matchExpressions": [_absent(i)]}} for i in range(count)]


def _everywhere(count: int) -> list[Json]:
    return [{**term, "namespaceSelector": {}} for term in _matching(count)]


def _by_namespace(count: int) -> list[Json]:
    plain = {"topologyKey": ZONE_LABEL, "labelSelector": _WEB}
    return [{**plain, "namespaceSelector": {"matchExpressions": [_absent(i)]}} for i in range(count)]


def _spread(count: int, key: Callable[[int], str], *, when: str = "DoNotSchedule", **fields: Any) -> Json:
    spreads = [
        {
            "topologyKey": key(i),
            "maxSkew": 1,
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": "web", "x": f"{i}"}},
            **fields,
        }
        for i in range(count)
    ]
    return {"spec": {"topologySpreadConstraints": spreads}}


def _node_terms(terms: list[Json]) -> Json:
    return _affinity("nodeAffinity", _REQUIRED, {"nodeSelectorTerms": terms})


def _expression(key: str, operator: str, values: list[str] | None = None) -> Json:
    return {"key": key, "operator": operator} | ({"values": values} if values else {})


def _containers(count: int, field: str = "containers", **fields: Any) -> Json:
    return {"spec": {field: [{"name": f"c{i}", "image": f"r/i{i}", **fields} for i in range(count)]}}


def _volumes(count: int, source: Callable[[int], Json]) -> Json:
    return {"spec": {"volumes": [{"name": f"v{i}", **source(i)} for i in range(count)]}}


def _asking(name: str, amount: int) -> Json:
    return {"resources": {"requests": {name: str(amount)}}}


SHAPES: Mapping[str, Shape] = {
    "pod affinity keys": lambda n: _affinity("podAffinity", _REQUIRED, _keys(n)),
    "pod affinity selectors": lambda n: _affinity("podAffinity", _REQUIRED, _selectors(n)),
    "anti-affinity keys": lambda n: _anti(_keys(n)),
    "anti-affinity selectors": lambda n: _anti(_selectors(n)),
    "anti-affinity, matching": lambda n: _anti(_matching(n)),
    "anti-affinity, everywhere": lambda n: _anti(_everywhere(n)),
    "anti-affinity, namespaces": lambda n: _anti(
        [{"topologyKey": ZONE_LABEL, "labelSelector": _WEB, "namespaces": [f"n{i}" for i in range(n)]}]
    ),
    "anti-affinity, namespace selectors": lambda n: _anti(_by_namespace(n)),
    "anti-affinity, one selector": lambda n: _anti(
        [{"topologyKey": ZONE_LABEL, "labelSelector": {"matchExpressions": [_absent(i) for i in range(n)]}}]
    ),
    "preferred affinity keys": lambda n: _weighted("podAffinity", _keys(n)),
    "preferred anti-affinity, matching": lambda n: _weighted("podAntiAffinity", _matching(n)),
    "spread keys": lambda n: _spread(n, lambda i: f"k{i}"),
    "spread by zone": lambda n: _spread(n, lambda _: ZONE_LABEL),
    "spread, soft keys": lambda n: _spread(n, lambda i: f"k{i}", when="ScheduleAnyway"),
    "spread, soft by zone": lambda n: _spread(n, lambda _: ZONE_LABEL, when="ScheduleAnyway"),
    "spread, a domain count": lambda n: _spread(1, lambda _: HOSTNAME_LABEL, minDomains=n),
    "spread, label keys": lambda n: _spread(1, lambda _: ZONE_LABEL, matchLabelKeys=[f"k{i}" for i in range(n)]),
    "node selector": lambda n: {"spec": {"nodeSelector": {f"k{i}": "v" for i in range(n)}}},
    "node terms": lambda n: _node_terms([{"matchExpressions": [_expression(f"k{i}", "Exists")]} for i in range(n)]),
    "node expressions": lambda n: _node_terms(
        [{"matchExpressions": [_expression(f"k{i}", "DoesNotExist") for i in range(n)]}]
    ),
    "node expressions, one key": lambda n: _node_terms(
        [{"matchExpressions": [_expression(HOSTNAME_LABEL, "NotIn", [f"n{i}"]) for i in range(n)]}]
    ),
    "node expressions, greater": lambda n: _node_terms(
        [{"matchExpressions": [_expression(HOSTNAME_LABEL, "Gt", [f"{i}"])]} for i in range(n)]
    ),
    "node values": lambda n: _node_terms(
        [{"matchExpressions": [_expression(HOSTNAME_LABEL, "In", [f"n{i}" for i in range(n)])]}]
    ),
    "node names": lambda n: _node_terms(
        [{"matchFields": [_expression("metadata.name", "In", [f"ip-10-0-0-{i}"])]} for i in range(n)]
    ),
    "preferred node terms": lambda n: _affinity(
        "nodeAffinity",
        _PREFERRED,
        [{"weight": 1, "preference": {"matchExpressions": [_expression(f"k{i}", "Exists")]}} for i in range(n)],
    ),
    "tolerations": lambda n: {"spec": {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(n)]}},
    "host ports": lambda n: {
        "spec": {
            "containers": [{"name": "c", "ports": [{"containerPort": i, "hostPort": i} for i in range(1, n + 1)]}],
            "hostNetwork": True,
        }
    },
    "containers": lambda n: _containers(n, **_asking("cpu", 1)),
    "init containers": lambda n: _containers(n, "initContainers", **_asking("cpu", 1)),
    "sidecars": lambda n: _containers(n, "initContainers", restartPolicy="Always", **_asking("cpu", 1)),
    "resource names": lambda n: {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {f"a.io/r{i}": "1" for i in range(n)}}}]}
    },
    "resource names, each a container": lambda n: {
        "spec": {"initContainers": [{"name": f"c{i}", **_asking(f"a.io/r{i}", 1)} for i in range(n)]}
    },
    "containers with cores": lambda n: _containers(n, **_asking("aws.amazon.com/neuroncore", 1)),
    "containers with two cores": lambda n: _containers(min(n, 16), **_asking("aws.amazon.com/neuroncore", 3)),
    "init containers with devices": lambda n: _containers(n, "initContainers", **_asking("aws.amazon.com/neuron", 1)),
    "claims": lambda n: _volumes(n, lambda i: {"persistentVolumeClaim": {"claimName": f"c{i}"}}),
    "ephemeral volumes": lambda n: _volumes(n, lambda _: {"ephemeral": {}}),
    "disks": lambda n: _volumes(n, lambda i: {"awsElasticBlockStore": {"volumeID": f"d{i}"}}),
    "image volumes": lambda n: _volumes(n, lambda i: {"image": {"reference": f"r/i{i}"}}),
    "labels": lambda n: {"metadata": {"labels": {f"l{i}": "v" for i in range(n)}}},
    "gates": lambda n: {"spec": {"schedulingGates": [{"name": f"g.io/{i}"} for i in range(n)]}},
    "resource claims": lambda n: {"spec": {"resourceClaims": [{"name": f"c{i}"} for i in range(n)]}},
    "owners": lambda n: {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": f"o{i}", "uid": f"{i}"} for i in range(n)]
        }
    },
}


def object_of(shape: Shape, count: int, *, node_name: str = "") -> Json:
    """Return the pod as the API server would send it."""
    parts = shape(count)
    spec = {"schedulerName": "my-scheduler", "containers": [{"name": "c", **_asking("cpu", 1)}]}
    metadata = {
        "uid": f"hostile{node_name}",
        "namespace": "default",
        "name": "hostile",
        "resourceVersion": "1",
        "labels": {"app": "web"},
    }
    metadata |= parts.get("metadata", {})
    spec |= parts.get("spec", {}) | ({"nodeName": node_name} if node_name else {})
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}

"""
The longest single step that one hostile pod causes: the time in which nothing else runs.

Run as `python -m benchmarks.hostile [--nodes 1000 5000] [--shapes ...] [--size 1400000] [--allowed]`. Each shape is a
pod that one tenant can create, as large as the API server's request limit allows; with `--allowed` it has as many parts
as are not refused. It is decoded, warmed up, decided, explained, preempted for, woken, and put on a node as if
another scheduler had bound it; then a plain pod is scheduled beside it. If a step pauses (a generator), its longest
stretch counts. Prints milliseconds, which depend on the machine.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from benchmarks.decision import PROFILE, fleet, pod
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, MEMORY
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.preemption.search import search
from neuron_scheduler.scheduling.queue.hints import NodeChange
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue

Json = dict[str, Any]
Shape = Callable[[int], Json]
"""Makes the parts of a pod that has so many of something."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEB = {"matchLabels": {"app": "web"}}


def _affinity(kind: str, when: str, terms: list[Json]) -> Json:
    return {"spec": {"affinity": {kind: {when: terms}}}}


def _weighted(kind: str, terms: list[Json]) -> Json:
    return _affinity(kind, _PREFERRED, [{"weight": 1, "podAffinityTerm": term} for term in terms])


def _keys(count: int) -> list[Json]:
    return [{"topologyKey": f"k{i}", "labelSelector": _WEB} for i in range(count)]


def _selectors(count: int) -> list[Json]:
    return [{"topologyKey": ZONE_LABEL, "labelSelector": {"matchLabels": {f"x{i}": "y"}}} for i in range(count)]


def _matching(count: int) -> list[Json]:
    """Return different terms that all match the plain pod."""
    return [
        {
            "topologyKey": ZONE_LABEL,
            "labelSelector": {"matchExpressions": [{"key": f"x{i}", "operator": "DoesNotExist"}]},
        }
        for i in range(count)
    ]


def _everywhere(count: int) -> list[Json]:
    return [{**term, "namespaceSelector": {}} for term in _matching(count)]


def _by_namespace(count: int) -> list[Json]:
    return [
        {
            "topologyKey": ZONE_LABEL,
            "labelSelector": _WEB,
            "namespaceSelector": {"matchExpressions": [{"key": f"x{i}", "operator": "DoesNotExist"}]},
        }
        for i in range(count)
    ]


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
    return _affinity("nodeAffinity", _REQUIRED, []) | {
        "spec": {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}}
    }


def _expression(key: str, operator: str, values: list[str] | None = None) -> Json:
    return {"key": key, "operator": operator} | ({"values": values} if values else {})


def _containers(count: int, **fields: Any) -> list[Json]:
    return [{"name": f"c{i}", "image": f"r/i{i}", **fields} for i in range(count)]


def _asking(name: str, amount: int) -> Json:
    return {"resources": {"requests": {name: str(amount)}}}


SHAPES: Mapping[str, Shape] = {
    "pod affinity keys": lambda n: _affinity("podAffinity", _REQUIRED, _keys(n)),
    "pod affinity selectors": lambda n: _affinity("podAffinity", _REQUIRED, _selectors(n)),
    "anti-affinity keys": lambda n: _affinity("podAntiAffinity", _REQUIRED, _keys(n)),
    "anti-affinity selectors": lambda n: _affinity("podAntiAffinity", _REQUIRED, _selectors(n)),
    "anti-affinity, matching": lambda n: _affinity("podAntiAffinity", _REQUIRED, _matching(n)),
    "anti-affinity, everywhere": lambda n: _affinity("podAntiAffinity", _REQUIRED, _everywhere(n)),
    "anti-affinity, namespaces": lambda n: _affinity(
        "podAntiAffinity",
        _REQUIRED,
        [{"topologyKey": ZONE_LABEL, "labelSelector": _WEB, "namespaces": [f"n{i}" for i in range(n)]}],
    ),
    "anti-affinity, namespace selectors": lambda n: _affinity("podAntiAffinity", _REQUIRED, _by_namespace(n)),
    "anti-affinity, one selector": lambda n: _affinity(
        "podAntiAffinity",
        _REQUIRED,
        [
            {
                "topologyKey": ZONE_LABEL,
                "labelSelector": {"matchExpressions": [_expression(f"x{i}", "DoesNotExist") for i in range(n)]},
            }
        ],
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
    "containers": lambda n: {"spec": {"containers": _containers(n, **_asking("cpu", 1))}},
    "init containers": lambda n: {"spec": {"initContainers": _containers(n, **_asking("cpu", 1))}},
    "sidecars": lambda n: {"spec": {"initContainers": _containers(n, restartPolicy="Always", **_asking("cpu", 1))}},
    "resource names": lambda n: {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {f"a.io/r{i}": "1" for i in range(n)}}}]}
    },
    "resource names, each a container": lambda n: {
        "spec": {"initContainers": [{"name": f"c{i}", **_asking(f"a.io/r{i}", 1)} for i in range(n)]}
    },
    "containers with cores": lambda n: {
        "spec": {"containers": _containers(n, **_asking("aws.amazon.com/neuroncore", 1))}
    },
    "containers with two cores": lambda n: {
        "spec": {"containers": _containers(min(n, 16), **_asking("aws.amazon.com/neuroncore", 3))}
    },
    "init containers with devices": lambda n: {
        "spec": {"initContainers": _containers(n, **_asking("aws.amazon.com/neuron", 1))}
    },
    "claims": lambda n: {
        "spec": {"volumes": [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(n)]}
    },
    "ephemeral volumes": lambda n: {"spec": {"volumes": [{"name": f"v{i}", "ephemeral": {}} for i in range(n)]}},
    "disks": lambda n: {
        "spec": {"volumes": [{"name": f"v{i}", "awsElasticBlockStore": {"volumeID": f"d{i}"}} for i in range(n)]}
    },
    "image volumes": lambda n: {
        "spec": {"volumes": [{"name": f"v{i}", "image": {"reference": f"r/i{i}"}} for i in range(n)]}
    },
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


def largest(shape: Shape, size: int) -> int:
    """Return how many parts of the shape make a pod of about so many bytes."""
    part_bytes = (len(json.dumps(object_of(shape, 2000))) - len(json.dumps(object_of(shape, 1000)))) / 1000
    return min(200_000, int(size / part_bytes)) if part_bytes >= 1 else 100_000


def allowed(shape: Shape, most: int) -> int:
    """Return how many parts of the shape a pod can have without being refused."""
    least = 1
    while least < most:
        middle = (least + most + 1) // 2
        pod = PODS.decode(json.dumps(object_of(shape, middle)).encode()).value
        least, most = (middle, most) if isinstance(pod, Pod) and not pod.refusal else (least, middle - 1)
    return least


@attrs.define(eq=False)
class Steps:
    """The longest stretch by stage, in seconds."""

    longest: dict[str, float] = attrs.field(factory=dict)

    def take(self, stage: str, step: Callable[[], Any]) -> Any:
        """Time a step that does not pause."""
        began = time.perf_counter()
        try:
            return step()
        finally:
            self.longest[stage] = max(self.longest.get(stage, 0.0), time.perf_counter() - began)

    def pausing(self, stage: str, steps: Iterator[Any]) -> None:
        """Time each stretch of a generator."""
        done = object()
        while self.take(stage, lambda: next(steps, done)) is not done:
            pass


def cluster_of(nodes: int) -> Cluster:
    """Return a cluster with a plain pod on every node, with indexes for plain pods."""
    cluster = Cluster()
    for i, node in enumerate(fleet(nodes)):
        cluster.put_node(node)
        cluster.put_pod(attrs.evolve(plain(i), node_name=node.name))
    for _ in IndexWarmup().of(cluster, plain(0), PROFILE):
        pass
    schedule_pod(cluster, plain(nodes), PROFILE)
    return cluster


def plain(number: int) -> Pod:
    """Return a plain pod."""
    return pod(number, {CPU: 100, MEMORY: 1 << 20}, labels={"app": "web"})


def measure(shape: Shape, count: int, nodes: int) -> Steps:
    """Pass one hostile pod through all stages of a pod."""
    steps, cluster = Steps(), cluster_of(nodes)
    gc.collect()
    gc.disable()
    encoded = json.dumps(object_of(shape, count)).encode()
    hostile = steps.take("decode", lambda: PODS.decode(encoded).value)
    if not isinstance(hostile, Pod):
        return steps
    steps.pausing("warm up", IndexWarmup().of(cluster, hostile, PROFILE))
    first = steps.take("decide", lambda: schedule_pod(cluster, hostile, PROFILE))
    urgent = attrs.evolve(hostile, uid="urgent", priority=1000)
    refused = first if isinstance(first, FitError) else FitError(nodes, (("none", nodes),), frozenset({"NodeAffinity"}))
    steps.pausing("preempt", search(cluster, urgent, PROFILE, refused=refused, budgets=()))
    steps.take("queue", lambda: _wake(cluster, hostile, refused.plugins))
    on_node = object_of(shape, count, node_name=next(cluster.view.rows()).node.name)
    bound = PODS.decode(json.dumps(on_node).encode()).value
    if isinstance(bound, Pod):
        steps.take("put", lambda: cluster.put_pod(bound))
        steps.take("next", lambda: schedule_pod(cluster, plain(nodes + 1), PROFILE))
        steps.take(
            "next", lambda: schedule_pod(cluster, pod(nodes + 2, {CPU: 9_999_999}, labels={"app": "web"}), PROFILE)
        )
        steps.take("put", lambda: cluster.remove_pod(bound.uid))
    gc.enable()
    return steps


def _wake(cluster: Cluster, hostile: Pod, plugins: frozenset[str]) -> None:
    """Queue a refused pod, evaluate its hints for a node and for a pod, and pop it."""
    queue = SchedulingQueue()
    queue.add(hostile, 0.0)
    queued = queue.pop(0.0)
    if queued is None:  # gated
        return
    queue.unschedulable(queued, plugins, 0.0)
    row = next(cluster.view.rows())
    queue.note(ClusterEvent.NODE_LABELS, on=NodeChange(row, (attrs.evolve(row.node, labels={}),)))
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, plain(0), on=NodeChange(row))
    queue.pop(0.5)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the longest step that a hostile pod causes")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--size", type=int, default=1_400_000, help="bytes of the pod's JSON")
    parser.add_argument("--allowed", action="store_true", help="no more parts than a pod may have")
    arguments = parser.parse_args()
    stages = ("decode", "warm up", "decide", "preempt", "queue", "put", "next")
    print(f"{'ms':36}{'parts':>8}{'nodes':>7}" + "".join(f"{stage:>10}" for stage in stages))
    for name in arguments.shapes:
        count = largest(SHAPES[name], arguments.size)
        if arguments.allowed:
            count = allowed(SHAPES[name], count)
        for nodes in arguments.nodes:
            longest = measure(SHAPES[name], count, nodes).longest
            figures = "".join(f"{longest[stage] * 1e3:10.1f}" if stage in longest else f"{'-':>10}" for stage in stages)
            print(f"{name:36}{count:8}{nodes:7}{figures}", flush=True)


if __name__ == "__main__":
    main()

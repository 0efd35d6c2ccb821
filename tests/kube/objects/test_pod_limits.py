"""A pod beyond a limit is refused with a message, and costs no more than another pod."""

import json
from typing import Any

import pytest

from benchmarks.hostile_shapes import SHAPES, object_of
from neuron_scheduler.kube.objects.pod_limits import MOST
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Pod
from neuron_scheduler.model.resources import CPU
from tests.support.builders import node
from tests.support.harness import cluster_of, refusal
from tests.support.wire_objects import container, encoded, pod

BOUNDED = {
    "pod affinity keys": "pod affinity and anti-affinity terms and topology spread constraints",
    "anti-affinity, everywhere": "pod affinity and anti-affinity terms and topology spread constraints",
    "preferred anti-affinity, matching": "pod affinity and anti-affinity terms and topology spread constraints",
    "spread keys": "pod affinity and anti-affinity terms and topology spread constraints",
    "anti-affinity, one selector": "requirements in label selectors of pods and namespaces",
    "spread, label keys": "requirements in label selectors of pods and namespaces",
    "anti-affinity, namespaces": "values and namespaces in pod affinity terms and topology spread constraints",
    "node selector": "node selector entries, node affinity terms and expressions",
    "node terms": "node selector entries, node affinity terms and expressions",
    "node expressions": "node selector entries, node affinity terms and expressions",
    "preferred node terms": "node selector entries, node affinity terms and expressions",
    "node values": "values in node affinity expressions",
    "tolerations": "tolerations",
    "labels": "labels",
    "containers": "containers and init containers",
    "sidecars": "containers and init containers",
    "resource names": "different resources in requests",
    "host ports": "container ports",
    "claims": "volumes",
    "gates": "scheduling gates",
}


def read(shape: str, count: int, **rest: Any) -> Pod:
    """Return the decoded pod of a shape."""
    value = PODS.decode(encoded(object_of(SHAPES[shape], count, **rest))).value
    assert isinstance(value, Pod)
    return value


@pytest.mark.parametrize(("shape", "parts"), BOUNDED.items())
def test_too_much_of_something(shape: str, parts: str) -> None:
    """The message says what is too much, the limit, and what to do; no autoscaler buys a node for the pod."""
    error = refusal(cluster_of([node("a")]), read(shape, 20_000))
    assert f"{parts}; this scheduler takes at most {MOST[parts]} in one pod, use fewer" in error.text
    assert error.text.startswith("0/1 nodes are available: pod has ")
    assert error.new_node_cannot_help


@pytest.mark.parametrize("shape", BOUNDED)
def test_a_refused_pod_restricts_nobody(shape: str) -> None:
    """If another scheduler binds it, only its first labels, as many as are allowed, matter to other pods."""
    value = read(shape, 20_000, node_name="a")
    constraints = value.constraints
    assert (constraints.affinity, constraints.anti_affinity, constraints.spread) == ((), (), ())
    assert (value.tolerations, dict(constraints.node_selector)) == ((), {})
    assert len(value.labels) <= MOST["labels"]
    assert len(value.requests) <= MOST["different resources in requests"]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_workloads_have_is_served(shape: str) -> None:
    """Some tens of each part are far below the limits."""
    assert not read(shape, 50).refusal


def test_what_it_holds_still_counts() -> None:
    """A bound pod with too many labels and tolerations still uses its cpu, its devices and its ports."""
    spec = {
        "nodeName": "n",
        "tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(1000)],
        "containers": [
            container(
                requests={"cpu": "2", "aws.amazon.com/neuron": "4", **{f"a.io/{i}": "1" for i in range(200)}},
                ports=[{"containerPort": 1, "hostPort": 80}],
            )
        ],
    }
    value = PODS.decode(json.dumps(pod(spec=spec)).encode()).value
    assert isinstance(value, Pod)
    assert value.refusal
    assert dict(value.requests) == {CPU: 2000, "aws.amazon.com/neuron": 4}
    assert value.neuron is not None
    assert value.neuron.total == 4
    assert [port.port for port in value.host_ports] == [80]
    assert value.constraints == NO_CONSTRAINTS

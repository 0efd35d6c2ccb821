"""A pod that has too much of something is refused with a sentence, and costs no more than another pod does."""

import json
from typing import Any

import pytest

from benchmarks.hostile import SHAPES, object_of
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
    """The pod of a shape as it is decoded."""
    found = PODS.decode(encoded(object_of(SHAPES[shape], count, **rest))).value
    assert isinstance(found, Pod)
    return found


@pytest.mark.parametrize(("shape", "what"), BOUNDED.items())
def test_too_much_of_something(shape: str, what: str) -> None:
    """The owner is told what is too much, how much may be, and what to do; no autoscaler buys a node for it."""
    found = refusal(cluster_of([node("a")]), read(shape, 20_000))
    assert f"{what}; this scheduler takes at most {MOST[what]} in one pod, use fewer" in found.text
    assert found.text.startswith("0/1 nodes are available: pod has ")
    assert found.new_node_cannot_help


@pytest.mark.parametrize("shape", BOUNDED)
def test_a_refused_pod_restricts_nobody(shape: str) -> None:
    """If another scheduler binds it, only its first labels, as many as are allowed, matter to other pods."""
    found = read(shape, 20_000, node_name="a")
    told = found.constraints
    assert (told.affinity, told.anti_affinity, told.spread) == ((), (), ())
    assert (found.tolerations, dict(told.node_selector)) == ((), {})
    assert len(found.labels) <= MOST["labels"]
    assert len(found.requests) <= MOST["different resources in requests"]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_workloads_have_is_served(shape: str) -> None:
    """Tens of anything are far below the limits."""
    assert not read(shape, 50).refusal


def test_what_it_holds_still_counts() -> None:
    """A bound pod with too many labels and tolerations still takes its cpu, its silicon and its ports."""
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
    found = PODS.decode(json.dumps(pod(spec=spec)).encode()).value
    assert isinstance(found, Pod)
    assert found.refusal
    assert dict(found.requests) == {CPU: 2000, "aws.amazon.com/neuron": 4}
    assert found.neuron is not None
    assert found.neuron.total == 4
    assert [port.port for port in found.host_ports] == [80]
    assert found.constraints == NO_CONSTRAINTS

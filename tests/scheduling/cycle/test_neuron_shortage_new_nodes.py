"""A pod that no new node could help must not make an autoscaler buy accelerators in a loop."""

import pytest

from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.scheduling.cycle.neuron_shortage import new_node_could_help
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal

BETA = "beta.kubernetes.io/instance-type"


def on(*types: str) -> dict[str, str]:
    """Return a node selector for an instance type."""
    return {INSTANCE_TYPE_LABEL: types[0]}


def term(operator: str, *values: str, key: str = INSTANCE_TYPE_LABEL) -> NodeSelectorTerm:
    return NodeSelectorTerm((Requirement(key, Operator(operator), values),))


@pytest.mark.parametrize(
    ("pending", "want"),
    [
        pytest.param(pod(cpu=10**9), True, id="without Neuron any new node may help"),
        pytest.param(pod(devices=7), True, id="7 devices anywhere: an inf2.48xlarge"),
        pytest.param(pod(devices=7, node_selector=on("trn1.32xlarge")), False, id="7 devices on trn1 only"),
        pytest.param(pod(devices=7, node_selector=on("ml.trn1.32xlarge")), False, id="the same on HyperPod"),
        pytest.param(pod(devices=7, node_selector={BETA: "trn1.32xlarge"}), False, id="under the old label"),
        pytest.param(pod(devices=8, node_selector={BETA: "trn1.32xlarge"}), True, id="8 under the old label"),
        pytest.param(
            pod(devices=7, node_selector={BETA: "inf2.48xlarge", **on("trn1.32xlarge")}), False, id="of two types"
        ),
        pytest.param(
            pod(devices=7, required_terms=(term("In", "trn1.32xlarge", key=BETA),)), False, id="a term on the old label"
        ),
        pytest.param(pod(devices=8, node_selector=on("trn1.32xlarge")), True, id="8 devices on trn1"),
        pytest.param(pod(devices=8, node_selector=on("ml.trn1.32xlarge")), True, id="8 devices on HyperPod"),
        pytest.param(pod(devices=32, node_selector=on("trn1.32xlarge")), False, id="more than the type has"),
        pytest.param(pod(cores=64, node_selector=on("trn2.48xlarge")), True, id="64 cores at LNC 2"),
        pytest.param(pod(cores=128, node_selector=on("trn2.48xlarge")), True, id="128 cores at LNC 1"),
        pytest.param(pod(cores=256, node_selector=on("trn2.48xlarge")), False, id="256 cores at no LNC"),
        pytest.param(pod(devices=7, node_selector=on("p5.48xlarge")), True, id="an unknown type"),
        pytest.param(pod(devices=7, node_selector={ZONE_LABEL: "x"}), True, id="another label"),
        pytest.param(pod(devices=7, required_terms=(term("In", "trn1.32xlarge"),)), False, id="a term on trn1"),
        pytest.param(
            pod(devices=7, required_terms=(term("In", "trn1.32xlarge", "inf2.48xlarge"),)), True, id="or on inf2"
        ),
        pytest.param(
            pod(devices=7, required_terms=(term("In", "trn1.32xlarge"), term("In", "x", key=ZONE_LABEL))),
            True,
            id="or a term on a zone",
        ),
        pytest.param(pod(devices=7, required_terms=(term("NotIn", "inf2.48xlarge"),)), True, id="not on inf2.48xlarge"),
        pytest.param(pod(devices=7, required_terms=()), False, id="no term matches anything"),
        pytest.param(pod(devices=7, required_terms=(NodeSelectorTerm(),)), False, id="an empty term matches nothing"),
        pytest.param(pod(devices=(4, 4), node_selector=on("trn1.32xlarge")), True, id="two containers of 4"),
        pytest.param(pod(devices=(7, 1), node_selector=on("trn1.32xlarge")), False, id="each count matters"),
    ],
)
def test_whether_a_new_node_could_help(pending: Pod, want: bool) -> None:
    """Only what the pod requires of the instance type counts: a new node may meet any other constraint."""
    assert new_node_could_help(pending) is want


@pytest.mark.parametrize(
    ("pending", "want"),
    [
        pytest.param(pod(devices=7, node_selector=on("trn1.32xlarge")), True, id="an illegal count on its only type"),
        pytest.param(pod(devices=7), False, id="an illegal count on the types that are there"),
        pytest.param(pod(devices=16, cpu=10**9), False, id="too little free"),
        pytest.param(pod(resource_claims=("c",)), True, id="a pod we never serve"),
        pytest.param(pod(volume_claims=("c",)), True, id="a pod we do not serve yet"),
        pytest.param(pod(devices=2, cores=3), True, id="a pod that contradicts itself"),
    ],
)
def test_a_refusal_says_that_no_new_node_can_help(pending: Pod, want: bool) -> None:
    """The refusal carries whether a new node could help, since the condition's reason depends on it."""
    cluster = cluster_of([node("n", "trn1.32xlarge", cpu=1000)])
    assert refusal(cluster, pending).new_node_cannot_help is want

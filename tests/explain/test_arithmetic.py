"""Each reason comes with its figures."""

from collections.abc import Sequence

import pytest

from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.model.node import ZONE_LABEL, Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    Toleration,
)
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.steps import run
from tests.support.builders import GI, node, pod
from tests.support.harness import cluster_of

TRN1 = "trn1.32xlarge"
PROFILE = default_profile("my-scheduler")
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
NEAR = PodAffinityTerm(ZONE_LABEL, WEB, frozenset({"default"}))
SPREAD = SpreadConstraint(ZONE_LABEL, max_skew=1, hard=True, selector=WEB)
IN_X = {ZONE_LABEL: "x"}
PORT = (HostPort("TCP", 80),)


def held(on: str, *ids: int) -> Pod:
    return pod(f"on-{on}-{ids[0]}", devices=len(ids), on=on, ids=ids)


def web(name: str, on: str) -> Pod:
    return pod(name, on=on, labels={"app": "web"})


@pytest.mark.parametrize(
    ("nodes", "bound", "pending", "want"),
    [
        pytest.param([node("a", unschedulable=True)], [], pod(), "it is cordoned (spec.unschedulable)", id="cordoned"),
        pytest.param(
            [node("a", refusal="no name")], [], pod(), "its object could not be read: no name", id="unreadable"
        ),
        pytest.param(
            [node("a", taints=(Taint("team", Effect.NO_SCHEDULE, "red"), Taint("x", Effect.NO_EXECUTE)))],
            [],
            pod(tolerations=(Toleration("x", exists=True),)),
            "the pod does not tolerate team=red:NoSchedule",
            id="taints",
        ),
        pytest.param(
            [node("a", labels=IN_X)],
            [],
            pod(node_selector={ZONE_LABEL: "y", "disk": "fast"}),
            "the pod selects topology.kubernetes.io/zone=y, here it is x and the pod selects disk=fast, which is not"
            " here",
            id="labels",
        ),
        pytest.param(
            [node("a", labels=IN_X)],
            [],
            pod(required_terms=(NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.IN, ("y", "z")),)),)),
            "the pod requires topology.kubernetes.io/zone In (y, z), here it is x",
            id="terms",
        ),
        pytest.param(
            [node("a")],
            [pod("b", on="a", host_ports=PORT)],
            pod(host_ports=PORT),
            "host port 80/TCP is used by default/b",
            id="ports",
        ),
        pytest.param(
            [node("a", cpu=8_000, memory=16 * GI)],
            [pod("b", on="a", cpu=4_500, memory=GI)],
            pod(cpu=4_000, memory=20 * GI),
            "needs 4 cpu; allocatable 8, used 4500m, free 3500m; needs 20Gi memory; allocatable 16Gi, used 1Gi,"
            " free 15Gi",
            id="two resources",
        ),
        pytest.param(
            [node("a", pods=1)],
            [pod("b", on="a")],
            pod(),
            "needs room for 1 pod; allocatable 1, used 1, free 0",
            id="too many pods",
        ),
        pytest.param(
            [node("a")],
            [],
            pod(requests={"vpc.amazonaws.com/efa": 1}),
            "needs 1 vpc.amazonaws.com/efa; no node has any",
            id="no such resource",
        ),
        pytest.param(
            [node("a", TRN1)],
            [held("a", *range(12))],
            pod(devices=8),
            "needs 8 aws.amazon.com/neuron; allocatable 16, used 12, free 4",
            id="too few devices",
        ),
        pytest.param(
            [node("a", TRN1)],
            [held("a", *range(9)), pod("cores", cores=1, on="a", ids=(31,))],
            pod(devices=8),
            "needs 8 aws.amazon.com/neuron; allocatable 16, used 9, free 7; by the ids that pods hold, 6 whole devices"
            " are free",
            id="too few devices, and some are used in part",
        ),
        pytest.param(
            [node("a", TRN1)],
            [held("a", *range(12)), pod("cores", cores=1, on="a", ids=(31,))],
            pod(cores=32),
            "needs 32 aws.amazon.com/neuroncore; allocatable 32, used 1, free 31; by the ids that pods hold, 7 cores"
            " are free",
            id="too few cores, and whole devices are used",
        ),
        pytest.param(
            [node("a", TRN1)],
            [held("a", 0), held("a", 5)],
            pod(devices=(8, 4)),
            "needs 12 Neuron devices (8 + 4); 14 of 16 free, in 1 block of 8 and 6 blocks of 1",
            id="in pieces",
        ),
        pytest.param(
            [node("a", "inf2.24xlarge")],
            [pod("b", cores=3, on="a", ids=(1, 4, 8))],
            pod(cores=5),
            "needs 5 Neuron cores; 9 of 12 free, the largest free block has 3",
            id="cores in pieces",
        ),
        pytest.param(
            [node("a", TRN1)],
            [],
            pod(devices=7),
            "needs 7 Neuron devices; trn1.32xlarge serves 1, 4, 8 or 16",
            id="an invalid count",
        ),
        pytest.param(
            [node("a", TRN1)],
            [pod("u", devices=2, on="a")],
            pod(devices=4),
            "needs 4 Neuron devices; 14 of 16 withheld: 1 pod with unknown ids may hold some of them, default/u"
            " (schedulerName default-scheduler)",
            id="unknown ids",
        ),
        pytest.param(
            [node("a", TRN1, neuron_fault="NeuronHealth")],
            [],
            pod(devices=1),
            "the node's condition NeuronHealth reports a problem",
            id="unhealthy",
        ),
        pytest.param(
            [node("a", labels=IN_X), node("b", labels={ZONE_LABEL: "y"}, cpu=1_000)],
            [web("b", "a")],
            pod(cpu=2_000, labels={"app": "web"}, spread=(SPREAD,)),
            "topology.kubernetes.io/zone=x has 1 matching pod, and may have at most 0 before this one (maxSkew 1)",
            id="spread",
        ),
        pytest.param(
            [node("a")], [], pod(spread=(SPREAD,)), "it has no label topology.kubernetes.io/zone", id="no domain"
        ),
        pytest.param(
            [node("a")],
            [],
            pod(affinity=(NEAR,)),
            "it has no label topology.kubernetes.io/zone",
            id="no domain for affinity",
        ),
        pytest.param(
            [node("a", labels={ZONE_LABEL: "z"})],
            [],
            pod(affinity=(NEAR,)),
            "no pod with a node matches its affinity: app In (web)",
            id="nobody for affinity",
        ),
        pytest.param(
            [node("a")],
            [],
            pod(required_features=("GuaranteedQoS",)),
            "its kubelet does not declare GuaranteedQoS",
            id="features",
        ),
    ],
)
def test_the_sentence(nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, want: str) -> None:
    """The oldest node's group says what it lacks, in numbers that can be looked up."""
    explanation = run(explain_pod(cluster_of(nodes, bound), pending, PROFILE))
    assert [group.arithmetic for group in explanation.groups if "a" in group.names] == [want]

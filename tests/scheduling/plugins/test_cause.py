"""Each refused pod waits for one thing, and it is what its message says."""

from collections.abc import Sequence

import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    Operator,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
    Taint,
)
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.plugins import neuron_topology, node_declared_features, node_resources_fit
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.registry import PLUGINS
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal

TRN1, TRN2 = "trn1.32xlarge", "trn2.48xlarge"
CPU_NODES = [node(f"cpu{i}") for i in range(5)]
TAINTED = (Taint("team", Effect.NO_SCHEDULE, "red"),)
ON_TRN1 = pod(devices=1, cpu=2, node_selector={INSTANCE_TYPE_LABEL: TRN1})
NEAR_DB = PodAffinityTerm("zone", LabelSelector((Requirement("app", Operator.IN, ("db",)),)), frozenset({"default"}))


def holder(on: str, *ids: int) -> Pod:
    return pod(f"on-{on}-{ids[0]}", devices=len(ids), on=on, ids=ids)


@pytest.mark.parametrize(
    ("nodes", "bound", "pending", "want"),
    [
        pytest.param([node("a", TRN1)], [holder("a", *range(12))], pod(devices=8), Cause.CAPACITY, id="too little"),
        pytest.param([node("a", TRN1)], [], pod(devices=32), Cause.CAPACITY, id="no node is that large"),
        pytest.param(CPU_NODES, [], pod(devices=1), Cause.CAPACITY, id="no Neuron at all"),
        pytest.param([], [], pod(devices=1), Cause.CAPACITY, id="no nodes for Neuron"),
        pytest.param([], [], pod(cpu=1), Cause.RESOURCES, id="no nodes"),
        pytest.param(
            [*CPU_NODES, node("a", TRN1)],
            [holder("a", 0, 4, 8, 12)],
            pod(devices=4),
            Cause.FRAGMENTATION,
            id="in pieces",
        ),
        pytest.param([*CPU_NODES, node("a", TRN1)], [], pod(devices=7), Cause.INVALID_COUNT, id="no such count"),
        pytest.param(
            [node("a", TRN1), node("b", TRN2)], [], pod(cores=40), Cause.INVALID_COUNT, id="not on the large one"
        ),
        pytest.param(
            [*CPU_NODES, node("a", TRN1)],
            [pod("u", devices=1, on="a")],
            pod(devices=4),
            Cause.UNKNOWN_HOLDER,
            id="unknown ids",
        ),
        pytest.param(
            [node("a", TRN1), node("b", TRN1)],
            [holder("a", *range(16)), pod("u", devices=1, on="b")],
            pod(devices=4),
            Cause.UNKNOWN_HOLDER,
            id="full beside unknown ids, which alone could be helped",
        ),
        pytest.param(
            [*CPU_NODES, node("a", TRN1, neuron_fault="NeuronHealth")],
            [],
            pod(devices=1),
            Cause.UNHEALTHY,
            id="unhealthy",
        ),
        pytest.param(
            [*CPU_NODES, node("a", TRN1, cpu=10)], [], pod(devices=1, cpu=11), Cause.RESOURCES, id="cpu beside Neuron"
        ),
        pytest.param(
            [node("a", TRN1, cpu=10), node("b", TRN1, cpu=10)],
            [holder("a", *range(16))],
            pod(devices=1, cpu=11),
            Cause.RESOURCES,
            id="too much cpu, where no devices are free either",
        ),
        pytest.param([node("a", cpu=10, pods=1)], [pod("p", on="a")], pod(cpu=1), Cause.RESOURCES, id="too many pods"),
        pytest.param(
            [*CPU_NODES, node("a", TRN1, unschedulable=True)], [], pod(devices=1), Cause.TAINTS, id="cordoned"
        ),
        pytest.param(
            [node("a", taints=TAINTED), node("b", cpu=1)], [], pod(cpu=2), Cause.TAINTS, id="too small beside tainted"
        ),
        pytest.param(
            [node("a", taints=TAINTED), node("b", cpu=2)],
            [pod("p", cpu=1, on="b")],
            pod(cpu=2),
            Cause.RESOURCES,
            id="full beside tainted",
        ),
        pytest.param(
            [node("a", TRN1, cpu=10), node("b", cpu=10, taints=TAINTED)],
            [],
            pod(devices=1, cpu=11),
            Cause.RESOURCES,
            id="too small beside tainted and too small",
        ),
        pytest.param(
            [*CPU_NODES, node("a", TRN1, cpu=1, taints=TAINTED)],
            [],
            ON_TRN1,
            Cause.RESOURCES,
            id="the selected node is tainted and too small",
        ),
        pytest.param(
            [node("a", TRN1, unschedulable=True)],
            [holder("a", *range(16))],
            pod(devices=1),
            Cause.CAPACITY,
            id="cordoned and full",
        ),
        pytest.param(
            [node("a", taints=TAINTED, cpu=2), node("b", taints=TAINTED, cpu=1)],
            [],
            pod(cpu=2),
            Cause.TAINTS,
            id="tainted, and one of the nodes has the resources",
        ),
        pytest.param(CPU_NODES, [], pod(node_selector={"zone": "a"}), Cause.AFFINITY, id="node selector"),
        pytest.param(
            [*CPU_NODES, node("a", TRN1, taints=TAINTED)], [], ON_TRN1, Cause.TAINTS, id="the selected node is tainted"
        ),
        pytest.param(
            [*CPU_NODES, node("a", TRN1, unschedulable=True)],
            [],
            ON_TRN1,
            Cause.TAINTS,
            id="the selected node is cordoned",
        ),
        pytest.param(
            [*CPU_NODES, node("a", TRN1, cpu=1)], [], ON_TRN1, Cause.RESOURCES, id="the selected node is short of cpu"
        ),
        pytest.param(
            [*CPU_NODES, node("a", TRN2, taints=TAINTED)], [], ON_TRN1, Cause.AFFINITY, id="tainted, and not selected"
        ),
        pytest.param(
            [node("a", labels={"zone": "a"}, cpu=1), node("b", labels={"zone": "b"})],
            [pod("db", labels={"app": "db"}, on="a")],
            pod(cpu=2, affinity=(NEAR_DB,)),
            Cause.RESOURCES,
            id="the node beside the other pod is short of cpu",
        ),
        pytest.param(
            CPU_NODES,
            [],
            pod(spread=(SpreadConstraint("zone", 1, hard=True, selector=None),)),
            Cause.AFFINITY,
            id="spread",
        ),
        pytest.param([node("a")], [], pod(volume_claims=("missing",)), Cause.VOLUMES, id="claim"),
        pytest.param([node("a", TRN1)], [], pod(devices=2, cores=3), Cause.POD, id="devices and cores"),
        pytest.param([node("a")], [], pod(resource_claims=("gpu",)), Cause.POD, id="resource claims"),
    ],
)
def test_the_cause(nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, want: Cause) -> None:
    """Silicon if the sentence says so, else what the nodes lack that came furthest."""
    fit_error = refusal(cluster_of(nodes, bound), pending)
    assert fit_error.cause is want
    if fit_error.hint:
        assert fit_error.blocked or fit_error.hint.partition(":")[0].lower().replace(" ", "_") == want


def test_counts_are_looked_at_just_before_resources() -> None:
    """So nodes with an illegal count came less far than those that are full, and as far as all before them."""
    order = [step.refuse for step in default_profile("p").filters]
    assert order.index(neuron_topology.filter_counts) + 1 == order.index(node_resources_fit.filter_nodes)


def test_every_plugin_that_refuses_has_a_cause() -> None:
    """What the kubelet lacks has none of its own."""
    assert [plugin.name for plugin in PLUGINS if plugin.cause is Cause.OTHER] == [node_declared_features.NAME]


@pytest.mark.parametrize(("nominated", "want"), [(5, Cause.NOMINATED), (4, Cause.CAPACITY)])
def test_space_that_is_kept_for_others_is_a_cause_of_its_own(nominated: int, want: Cause) -> None:
    """A pod waits for nominated pods of its own or a higher priority only if a node would take it without them."""
    cluster = cluster_of([node("a", TRN1), node("b", TRN1)], [holder("b", *range(12))])
    first = pod("first", devices=16, priority=5)
    cluster.nominate("a", Nomination(first, CoreMask((1 << 32) - 1)))
    pending = pod(devices=8 if nominated == 5 else 32, priority=nominated)
    refused = refusal(cluster, pending)
    assert refused.cause is want
    assert refused.hint.startswith(want.capitalize())

"""The cases of AWS's documents, and others: which node, which ids, or which sentence."""

from collections.abc import Sequence

import pytest

from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.refusals import first_reasons
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError
from neuron_scheduler.scheduling.plugins.cause import Cause
from tests.support.builders import GI, node, pod
from tests.support.harness import Placed, cluster_of, decide, refusal, schedule

SEVEN = (
    "0/1 nodes are available: 1 Instance type trn1.32xlarge does not support requests for device: 7. "
    "Please request a different number of devices."
)
TOO_FEW = "0/1 nodes are available: 1 Insufficient aws.amazon.com/neuron."
FRAGMENTED = "0/1 nodes are available: 1 node(s) didn't have a free block of Neuron devices."


def held(name: str, on: str, *ids: int) -> Pod:
    return pod(name, devices=len(ids), on=on, ids=ids)


def trn1(name: str = "trn1", created: float = 0, **keywords: object) -> Node:
    return node(name, "trn1.32xlarge", created=created, **keywords)  # type: ignore[arg-type]  # passed on as they are


def test_nine_cores_on_inf1() -> None:
    """AWS's sample: 9 cores get 0-8; then 2 devices do not fit, and 1 device gets the last whole one."""
    cluster = cluster_of([node("n", "inf1.6xlarge")])
    assert schedule(cluster, pod("nine", cores=9)) == ("n", tuple(range(9)))
    assert schedule(cluster, pod("two", devices=2)) == TOO_FEW
    assert schedule(cluster, pod("one", devices=1)) == ("n", (3,))


@pytest.mark.parametrize(
    ("nodes", "bound", "pending", "want"),
    [
        pytest.param([trn1()], [], pod(devices=7), SEVEN, id="7 devices on trn1: AWS's sentence, with one full stop"),
        pytest.param(
            [node("trn1", "ml.trn1.32xlarge")], [], pod(devices=7), SEVEN, id="without the prefix of HyperPod"
        ),
        pytest.param(
            [trn1()], [held("all", "trn1", *range(16))], pod(devices=7), SEVEN, id="also where all devices are in use"
        ),
        pytest.param(
            [trn1(allocatable={"aws.amazon.com/neuron": 6})],
            [],
            pod(devices=7),
            TOO_FEW,
            id="above allocatable is a lack of capacity before it is an illegal count",
        ),
        pytest.param(
            [trn1()],
            [],
            pod(cores=3),
            "0/1 nodes are available: 1 Instance type trn1.32xlarge does not support requests for core: 3. "
            "Please request a different number of cores.",
            id="3 cores on trn1",
        ),
        pytest.param(
            [node("inf2", "inf2.24xlarge")],
            [held("a", "inf2", 1), held("b", "inf2", 4)],
            pod(devices=3),
            FRAGMENTED,
            id="3 free devices in pieces are no block",
        ),
        pytest.param(
            [trn1()],
            [pod("foreign", devices=2, on="trn1")],
            pod(devices=4),
            "0/1 nodes are available: 1 node(s) had a pod with an unknown Neuron allocation.",
            id="an unknown holder may be on any device",
        ),
        pytest.param(
            [trn1()],
            [pod("foreign", devices=2, on="trn1")],
            pod(devices=1),
            ("trn1", (0,)),
            id="one device by count",
        ),
        pytest.param(
            [trn1()],
            [pod("mixed", devices=2, cores=3, on="trn1")],
            pod(cores=1),
            "0/1 nodes are available: 1 node(s) had a pod with an unknown Neuron allocation.",
            id="a pod whose request cannot be served may hold anything",
        ),
        pytest.param([trn1()], [], pod(devices=16, cores=32), ("trn1", (*range(16),)), id="all devices, all cores"),
        pytest.param(
            [trn1()],
            [pod("half", devices=8, cores=16, on="trn1", ids=range(8))],
            pod(devices=4, cores=8),
            ("trn1", (8, 9, 10, 11)),
            id="devices with their cores take no core of others",
        ),
        pytest.param(
            [trn1()],
            [pod("one", cores=1, on="trn1", ids=(31,))],
            pod(devices=16, cores=32),
            "0/1 nodes are available: 1 Insufficient aws.amazon.com/neuroncore.",
            id="a core that another pod has",
        ),
        pytest.param(
            [trn1()],
            [],
            pod(devices=4, cores=16),
            "0/1 nodes are available: 1 pod asks for aws.amazon.com/neuron and aws.amazon.com/neuroncore: a pod's"
            " Neuron ids are either devices or cores; ask for aws.amazon.com/neuron or for aws.amazon.com/neuroncore in"
            " all its containers.",
            id="cores of devices that have fewer",
        ),
        pytest.param(
            [trn1(neuron_fault="NeuronHealth")],
            [],
            pod(devices=1),
            "0/1 nodes are available: 1 node(s) had an unhealthy Neuron device (NeuronHealth).",
            id="an unhealthy node takes no pod with Neuron",
        ),
        pytest.param([trn1(neuron_fault="NeuronHealth")], [], pod(cpu=1), ("trn1", ()), id="but it takes other pods"),
        pytest.param(
            [node("n", "trn9.metal", devices=8, cores_per_device=2)],
            [],
            pod(devices=4),
            "0/1 nodes are available: 1 Instance type trn9.metal does not support requests for device: 4. "
            "Please request a different number of devices.",
            id="4 on an unknown type",
        ),
        pytest.param(
            [node("cpu")],
            [],
            pod(devices=1),
            TOO_FEW,
            id="no Neuron at all",
        ),
        pytest.param([], [], pod(devices=1), "no nodes available to schedule pods", id="no nodes at all"),
    ],
)
def test_one_pod(nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, want: Placed | str) -> None:
    """A pod gets this node and these ids, or is refused with this sentence."""
    assert schedule(cluster_of(nodes, bound), pending) == want


@pytest.mark.parametrize(
    ("nodes", "bound", "pending", "want"),
    [
        pytest.param(
            [trn1("fresh"), trn1("broken", 1)],
            [held("a", "broken", 0, 1, 2, 3)],
            pod(devices=4),
            ("broken", (4, 5, 6, 7)),
            id="a row out of a broken half, not out of a fresh node",
        ),
        pytest.param(
            [trn1("half"), trn1("row", 1)],
            [held("a", "half", *range(8)), held("b", "row", 0, 1, 2, 3)],
            pod(devices=4),
            ("row", (4, 5, 6, 7)),
            id="the lone row, though the other node is fuller",
        ),
        pytest.param(
            [trn1("big"), node("small", "inf2.xlarge", created=1)],
            [],
            pod(devices=1),
            ("small", (0,)),
            id="one device goes to the machine of one device",
        ),
        pytest.param(
            [node("small", "inf2.xlarge"), trn1("big", 1)],
            [held("a", "big", 0)],
            pod(cores=1),
            ("small", (0,)),
            id="one core breaks the only device rather than a row of three",
        ),
        pytest.param(
            [node("small", "inf2.xlarge"), trn1("big", 1)],
            [pod("a", cores=1, on="big", ids=(0,))],
            pod(cores=1),
            ("big", (1,)),
            id="one core goes first of all into a device that is broken already",
        ),
        pytest.param(
            [node("ring", "inf2.48xlarge"), node("line", "inf2.24xlarge", created=1)],
            [held("a", "ring", *range(5)), held("b", "line", 3)],
            pod(devices=3),
            ("line", (0, 1, 2)),
            id="an exact fit on a line",
        ),
        pytest.param([trn1("b"), trn1("a")], [], pod(devices=4), ("b", (0, 1, 2, 3)), id="equal nodes: the first"),
        pytest.param([trn1("b", 0), trn1("a", 1)], [], pod(devices=4), ("b", (0, 1, 2, 3)), id="before that by age"),
        pytest.param(
            [node("crowded", "inf2.24xlarge"), node("quiet", "inf2.24xlarge", created=1)],
            [held("a", "crowded", 0, 1), *(held(f"b{i}", "quiet", i) for i in (0, 1))],
            pod(devices=1),
            ("quiet", (2,)),
            id="one unit stays away from pods in between",
        ),
        pytest.param(
            [node("full", "inf2.24xlarge"), node("empty", "inf2.24xlarge", created=1)],
            [pod("a", cpu=96_000, memory=256 * GI, on="full")],
            pod(devices=2),
            ("full", (0, 1)),
            id="a pod that needs little cpu goes where less of it than of the devices is left",
        ),
        pytest.param(
            [node("full", "inf2.24xlarge"), node("empty", "inf2.24xlarge", created=1)],
            [pod("a", cpu=96_000, on="full"), held("b", "full", 0, 1), held("c", "empty", 0, 1)],
            pod(devices=2, cpu=95_000),
            ("empty", (2, 3)),
            id="a pod that needs much cpu goes where more is left",
        ),
        pytest.param(
            [trn1("trn1"), node("cpu", created=1)],
            [pod("busy", cpu=100_000, on="cpu")],
            pod(cpu=500),
            ("cpu", ()),
            id="pods without Neuron stay off Neuron nodes",
        ),
        pytest.param([trn1("trn1")], [], pod(cpu=500), ("trn1", ()), id="unless there is no choice"),
        pytest.param(
            [node("a"), node("b", created=1)],
            [pod("busy", cpu=100_000, on="a")],
            pod(cpu=500),
            ("b", ()),
            id="pods without Neuron go where most is left",
        ),
    ],
)
def test_the_best_of_several(nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, want: Placed) -> None:
    """The smallest sufficient block in the fleet wins, then the ties in their order, then the oldest node."""
    assert schedule(cluster_of(nodes, bound), pending) == want


def test_devices_and_cores_are_counted_together() -> None:
    """A core breaks its device for device requests, and a device takes all its cores."""
    cluster = cluster_of([node("n", "inf2.xlarge")])
    assert schedule(cluster, pod("core", cores=1)) == ("n", (0,))
    assert schedule(cluster, pod("device", devices=1)) == TOO_FEW
    assert schedule(cluster, pod("second", cores=1)) == ("n", (1,))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("aws.amazon.com/neurons", "aws.amazon.com/neuron"),
        ("aws.amazon.com/neuron-core", "aws.amazon.com/neuroncore"),
        ("aws.amazon.com/efa", ""),
        ("aws.amazon.com/neuroncore", ""),
    ],
)
def test_a_resource_that_is_called_almost_like_one_of_neuron(name: str, meant: str) -> None:
    """No node has it, so it may be mistyped."""
    hint = refusal(cluster_of([node("cpu")]), pod("p", requests={name: 1})).hint
    assert hint == (f"No node has {name}; did you mean {meant}?" if meant else "")


def test_the_alias_counts_where_it_is_offered() -> None:
    """`neurondevice` needs a node that offers that very name; the devices are the same."""
    alias = "aws.amazon.com/neurondevice"
    offering = trn1("offering", allocatable={alias: 16})
    cluster = cluster_of([trn1("plain"), offering], [held("a", "offering", 0, 1, 2, 3)])
    assert schedule(cluster, pod("p", alias=8)) == ("offering", tuple(range(8, 16)))
    assert refusal(cluster, pod("q", alias=8)).reasons == ((f"Insufficient {alias}", 2),)


def test_counts_of_reasons_may_exceed_the_nodes() -> None:
    """A node with two reasons counts under both; reasons are sorted as strings, numbers included."""
    nodes = [node(f"n{i}", cpu=1000, memory=GI, created=i) for i in range(10)]
    nodes += [node("cordoned", unschedulable=True, created=10), trn1("trn1", 11, cpu=1000)]
    got = refusal(cluster_of(nodes), pod(cpu=2000, memory=2 * GI))
    assert got.text == (
        "0/12 nodes are available: 1 node(s) were unschedulable, 10 Insufficient memory, 11 Insufficient cpu."
    )
    assert got.plugins == {"NodeUnschedulable", "NodeResourcesFit"}


def test_a_refused_pod_gets_one_reason_for_all_nodes() -> None:
    """A reason about the pod itself is the only one, for all nodes."""
    got = refusal(cluster_of([trn1("a"), trn1("b")]), pod(devices=2, cores=3))
    assert got.text.startswith(
        "0/2 nodes are available: pod asks for aws.amazon.com/neuron and aws.amazon.com/neuroncore:"
    )
    assert got.plugins == {"NeuronTopology"}
    assert got.new_node_cannot_help
    assert got.reasons == ()


def test_a_decision_counts_the_nodes() -> None:
    """A decision says how many nodes were looked at, and how many fit."""
    cluster = cluster_of([trn1("a"), trn1("b", 1), node("c", created=2)])
    decision = decide(cluster, pod(devices=4))
    assert isinstance(decision, Decision)
    assert (decision.node_name, decision.evaluated, decision.feasible) == ("a", 3, 2)


def test_an_empty_cluster_has_no_plugins_to_blame() -> None:
    """A refusal without nodes names no plugin, so any event may help the pod."""
    assert decide(cluster_of([]), pod()) == FitError(nodes=0, cause=Cause.RESOURCES)


def test_deciding_changes_nothing() -> None:
    """A decision changes no row: a second one is the same, also of a fork."""
    cluster = cluster_of([trn1("a"), trn1("b", 1)], [held("x", "a", 3)])
    before = list(cluster.view.rows())
    first = decide(cluster, pod(devices=4))
    assert isinstance(first, Decision)
    assert (decide(cluster, pod(devices=4)), decide(cluster.fork(), pod(devices=4))) == (first, first)
    assert list(cluster.view.rows()) == before


def test_an_explanation_names_every_node() -> None:
    """The explanation for the log has the nodes that fit, and the first reason of each other node."""
    nodes = [trn1("a"), trn1("b", 1, cpu=1), node("c", created=2), trn1("d", 3, unschedulable=True)]
    cluster = cluster_of(nodes)
    slots = {name: cluster.view.slot(name) for name in "abcd"}
    assert first_reasons(cluster, pod(devices=4, cpu=500), default_profile("my-scheduler")) == (
        1 << (slots["a"] or 0),
        {
            "Insufficient cpu": 1 << (slots["b"] or 0),
            "Insufficient aws.amazon.com/neuron": 1 << (slots["c"] or 0),
            "node(s) were unschedulable": 1 << (slots["d"] or 0),
        },
    )

"""The sentence after the counts says whether capacity, fragmentation or the count is the reason, with figures."""

import random
from collections.abc import Sequence

import attrs
import pytest

from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.neuron.topology import largest_free_block, whole_free_devices
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, decide, refusal
from tests.support.thoroughness import examples

ROW = (0, 1, 2, 3)


def held(on: str, *ids: int) -> Pod:
    return pod(f"on-{on}-{ids[0]}", devices=len(ids), on=on, ids=ids)


def trn1(name: str = "a", **keywords: object) -> Node:
    return node(name, "trn1.32xlarge", **keywords)  # type: ignore[arg-type]  # passed on as they are


@pytest.mark.parametrize(
    ("nodes", "bound", "pending", "want"),
    [
        pytest.param(
            [trn1(name) for name in "abcde"],
            [held(name, *ROW, *range(8, 16)) for name in "abcd"] + [held("e", *range(16))],
            pod(devices=8),
            "Fragmentation: 16 Neuron devices free on 4 nodes, largest free block 4, pod needs 8.",
            id="enough in the fleet, in pieces",
        ),
        pytest.param(
            [node("a", "inf1.6xlarge")],
            [held("a", 1)],
            pod(devices=3),
            "Fragmentation: 3 Neuron devices free on 1 node, largest free block 2, pod needs 3.",
            id="enough on one node, in pieces",
        ),
        pytest.param(
            [trn1()],
            [held("a", *ROW)],
            pod(devices=16),
            "Capacity: 12 Neuron devices free on 1 node, largest free block 8, pod needs 16.",
            id="too few",
        ),
        pytest.param(
            [node("a", "trn2.48xlarge")],
            [held("a", *range(1, 16, 2))],
            pod(devices=2, pairs=True),
            "Fragmentation: 8 Neuron devices free on 1 node, largest free block 1, pod needs 2.",
            id="no pair",
        ),
        pytest.param(
            [node("a", "trn2.48xlarge")],
            [],
            pod(devices=3, pairs=True),
            "Invalid count: pod needs 3 Neuron devices, trn2.48xlarge serves 1, 2, 4, 8 or 16.",
            id="an invalid count with pairs",
        ),
        pytest.param(
            [trn1()],
            [pod("one", cores=1, on="a", ids=(31,))],
            pod(devices=16, cores=32),
            "Capacity: 15 Neuron devices free on 1 node, largest free block 8, pod needs 16; 1 Neuron core more on"
            " devices that others use in part.",
            id="a core of devices with all their cores",
        ),
        pytest.param(
            [trn1()],
            [],
            pod(devices=4, cores=16),
            "Invalid count: pod needs 4 Neuron devices, trn1.32xlarge has 2 cores per device and not 4.",
            id="more cores than the devices have",
        ),
        pytest.param(
            [trn1("a"), trn1("b")],
            [held("a", *range(16)), held("b", *range(16))],
            pod(devices=4),
            "Capacity: 0 Neuron devices free on 2 nodes, largest free block 0, pod needs 4.",
            id="none at all",
        ),
        pytest.param(
            [trn1("a"), trn1("b")],
            [pod("c", cores=31, on="a", ids=range(31)), held("b", *range(16))],
            pod(cores=8),
            "Capacity: 1 Neuron core free on 1 node, largest free block 1, pod needs 8.",
            id="cores",
        ),
        pytest.param(
            [trn1()],
            [pod(f"c{i}", cores=1, on="a", ids=(2 * i,)) for i in range(16)],
            pod(devices=1),
            "Capacity: 0 Neuron devices free on 1 node, largest free block 0, pod needs 1;"
            " 16 Neuron cores more on devices that others use in part.",
            id="cores are free, devices are not",
        ),
        pytest.param(
            [trn1()],
            [held("a", *range(8)), pod("c", cores=2, on="a", ids=(16, 17))],
            pod(devices=(4, 4)),
            "Capacity: 7 Neuron devices free on 1 node, largest free block 4, pod needs 8 (4 + 4).",
            id="several containers",
        ),
        pytest.param(
            [trn1()],
            [],
            pod(devices=(1,) * 300),
            "Capacity: pod needs 300 Neuron devices in 300 containers, the largest node has 16.",
            id="very many containers",
        ),
        pytest.param(
            [trn1("a"), node("b", "inf2.xlarge")],
            [],
            pod(devices=20),
            "Capacity: pod needs 20 Neuron devices, the largest node has 16.",
            id="no node is that large",
        ),
        pytest.param(
            [trn1("a"), node("b", "inf2.xlarge")],
            [held("a", *ROW)],
            pod(devices=16),
            "Capacity: 12 Neuron devices free on 1 node, largest free block 8, pod needs 16.",
            id="a node that is too small counts for nothing",
        ),
        pytest.param(
            [trn1("a"), trn1("b")],
            [held("a", *range(16))],
            pod(devices=7),
            "Invalid count: pod needs 7 Neuron devices, trn1.32xlarge serves 1, 4, 8 or 16.",
            id="no such count",
        ),
        pytest.param(
            [trn1("a"), node("b", "trn2.48xlarge")],
            [],
            pod(devices=7),
            "Invalid count: pod needs 7 Neuron devices, trn1.32xlarge serves 1, 4, 8 or 16;"
            " trn2.48xlarge serves 1, 4, 8 or 16.",
            id="on none of two types",
        ),
        pytest.param(
            [node("a", "trn2.48xlarge"), node("b", "trn2.48xlarge", cores_per_device=8), trn1("c")],
            [],
            pod(cores=9),
            "Invalid count: pod needs 9 Neuron cores, trn1.32xlarge serves 1, 2, 8, 16 or 32;"
            " trn2.48xlarge with 64 cores serves 1, 2, 3, 4, 16, 32 or 64;"
            " trn2.48xlarge with 128 cores serves 1, 2, 3, 4, 5, 6, 7, 8, 32, 64 or 128.",
            id="on none of one type at LNC 2 and at LNC 1",
        ),
        pytest.param(
            [node("a", "trn2.48xlarge"), node("b", "trn2.48xlarge", cores_per_device=8)],
            [],
            pod(devices=7),
            "Invalid count: pod needs 7 Neuron devices, trn2.48xlarge serves 1, 4, 8 or 16.",
            id="LNC means nothing for devices",
        ),
        pytest.param(
            [trn1("a"), node("b", "trn2.48xlarge")],
            [],
            pod(cores=40),
            "Invalid count: pod needs 40 Neuron cores, trn2.48xlarge serves 1, 2, 3, 4, 16, 32 or 64.",
            id="the only node that is large enough does not serve the count",
        ),
        pytest.param(
            [trn1("a"), node("b", "trn2.48xlarge")],
            [],
            pod(cores=(40, 40)),
            "Capacity: pod needs 80 Neuron cores (40 + 40), the largest node has 64.",
            id="the largest node counts, whether it serves the counts or not",
        ),
        pytest.param(
            [trn1("a"), node("b", "trn2.48xlarge", unschedulable=True)],
            [],
            pod(cores=64),
            "Capacity: pod needs 64 Neuron cores, the largest node that passes the other filters has 32.",
            id="a larger node is closed",
        ),
        pytest.param(
            [trn1("a"), node("b", "trn2.48xlarge")],
            [pod("u", cores=1, on="b")],
            pod(cores=64),
            "",
            id="a larger node has an unknown holder",
        ),
        pytest.param(
            [node("a", "trn1.32xlarge")],
            [],
            pod(devices=2, init=(16,)),
            "Invalid count: pod needs 16 Neuron devices (2, init 16), trn1.32xlarge serves 1, 4, 8 or 16.",
            id="an init container is listed",
        ),
        pytest.param(
            [node("a", "trn2.48xlarge")],
            [],
            pod(cores=(3,) * 5, init=(16,)),
            "Invalid count: pod needs 16 Neuron cores (3 + 3 + 3 + 3 + 3, init 16), trn2.48xlarge has no sets for all"
            " its containers at once.",
            id="each container has a set, all together do not",
        ),
        pytest.param(
            [trn1(allocatable={NEURON_DEVICE: 12})],
            [held("a", *range(8))],
            pod(devices=8),
            "Capacity: 4 Neuron devices free on 1 node, largest free block 4, pod needs 8.",
            id="kubelet hands out less than the node has",
        ),
        pytest.param(
            [trn1("a"), node("b", "inf1.6xlarge")],
            [held("b", 1, 2)],
            pod(devices=3),
            "Capacity: 2 Neuron devices free on 1 node, largest free block 1, pod needs 3.",
            id="devices that are free where the count is invalid do not count",
        ),
        pytest.param(
            [trn1("a", unschedulable=True), trn1("b", cpu=1000), trn1("d")],
            [held("d", *range(12))],
            pod(devices=16, cpu=2000),
            "Capacity: 4 Neuron devices free on 1 node, largest free block 4, pod needs 16.",
            id="only nodes that pass the other filters count",
        ),
        pytest.param([trn1(unschedulable=True)], [], pod(devices=7), "", id="nothing passes the other filters"),
        pytest.param([node("a")], [], pod(devices=1), "", id="no Neuron at all"),
        pytest.param([node("a", cpu=100)], [], pod(cpu=200), "", id="the pod asks for none"),
        pytest.param([trn1(neuron_fault="NeuronHealth")], [], pod(devices=4), "", id="unhealthy"),
        pytest.param([trn1()], [pod("u", devices=1, on="a")], pod(devices=4), "", id="an unknown holder"),
        pytest.param(
            [trn1(allocatable={"aws.amazon.com/neurondevice": 16})],
            [held("a", *range(16))],
            pod(alias=1),
            "Capacity: 0 Neuron devices free on 1 node, largest free block 0, pod needs 1."
            " aws.amazon.com/neurondevice is an old name; ask for aws.amazon.com/neuron.",
            id="under the old name",
        ),
    ],
)
def test_the_sentence(nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, want: str) -> None:
    """Each shortage has its name and its figures, and other refusals have no sentence."""
    refused = refusal(cluster_of(nodes, bound), pending)
    assert refused.hint == want
    assert attrs.evolve(refused, blocked="").text.endswith(f". {want}" if want else ".")


def forgot(on: str, name: str = "forgot", **keywords: object) -> Pod:
    """Return a pod of the default scheduler with a device of unknown id."""
    keywords = {
        "devices": 0 if keywords.pop("unreadable", False) else 1,
        "scheduler_name": "default-scheduler",
    } | keywords
    return pod(f"{name}-{on}", on=on, **keywords)  # type: ignore[arg-type]  # passed on as they are


BY_DEFAULT = "(schedulerName default-scheduler)"


@pytest.mark.parametrize(
    ("nodes", "bound", "pending", "want"),
    [
        pytest.param(
            [trn1("a"), trn1("b")],
            [held("a", *range(16)), forgot("b")],
            pod(devices=4),
            f"Unknown ids: b is blocked by default/forgot-b {BY_DEFAULT}.",
            id="one",
        ),
        pytest.param(
            [trn1("a"), trn1("b")],
            [forgot("a", devices=2), forgot("b", scheduler_name="volcano"), forgot("b", "old", created=-1)],
            pod(cores=16),
            f"Unknown ids: a is blocked by default/forgot-a {BY_DEFAULT}, b is blocked by default/old-b {BY_DEFAULT}"
            " and 1 more.",
            id="several, the oldest by name",
        ),
        pytest.param(
            [trn1(name) for name in "abcde"],
            [forgot(name) for name in "abcde"],
            pod(devices=8),
            f"Unknown ids: a is blocked by default/forgot-a {BY_DEFAULT},"
            f" b is blocked by default/forgot-b {BY_DEFAULT},"
            f" c is blocked by default/forgot-c {BY_DEFAULT}; 2 more nodes have such pods.",
            id="no more than three nodes by name",
        ),
        pytest.param(
            [trn1("a"), trn1("b")],
            [held("a", *range(1, 16, 2)), forgot("a"), forgot("b", unreadable=True)],
            pod(devices=4),
            "Unknown ids: b is blocked by default/forgot-b (unreadable); 1 more node has such pods.",
            id="not where there is no block anyway",
        ),
        pytest.param(
            [trn1("a"), trn1("b")],
            [forgot("a", scheduler_name="x" * 10_000), forgot("b", scheduler_name="x). All is well (y")],
            pod(devices=4),
            "Unknown ids: a is blocked by default/forgot-a (schedulerName unusual),"
            " b is blocked by default/forgot-b (schedulerName unusual).",
            id="a name that is none",
        ),
        pytest.param(
            [trn1("a"), trn1("b")],
            [forgot("a", namespace="other"), forgot("b", namespace="other"), forgot("b", "own", created=1)],
            pod(devices=4),
            f"Unknown ids: a is blocked by a pod of another namespace {BY_DEFAULT}, b is blocked by default/own-b"
            f" {BY_DEFAULT} and 1 more.",
            id="no name of another namespace",
        ),
        pytest.param(
            [trn1("a")], [held("a", *range(1, 16, 2)), forgot("a")], pod(devices=4), "", id="fragmentation alone"
        ),
        pytest.param(
            [trn1("a", unschedulable=True)], [forgot("a")], pod(devices=4), "", id="refused for another reason"
        ),
        pytest.param([trn1("a")], [forgot("a")], pod(devices=16), "", id="all devices, which is a matter of numbers"),
        pytest.param([trn1("a")], [held("a", *ROW)], pod(devices=16), "", id="ids are known"),
        pytest.param([trn1("a", cpu=1)], [forgot("a")], pod(cpu=2), "", id="the pod asks for none"),
    ],
)
def test_pods_with_unknown_ids_are_named(nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, want: str) -> None:
    """Pods with unknown ids are named, with their schedulerName, where only they block a node."""
    cluster = cluster_of(nodes)
    for bound_pod in bound:
        if bound_pod.neuron is None:
            cluster.put_unreadable_pod(bound_pod)
        else:
            cluster.put_pod(bound_pod)
    refused = refusal(cluster, pending)
    assert refused.blocked == want
    assert refused.text.endswith(f". {want}" if want else ".")


@pytest.mark.parametrize("seed", range(examples(40)))
def test_the_numbers_are_those_of_the_nodes(seed: int) -> None:
    """The free units, the number of nodes with some and the largest block are those that a loop over nodes counts."""
    dice = random.Random(seed)
    nodes = [
        trn1(f"n{i}", cpu=dice.choice((1000, 4000)), unschedulable=dice.random() < 0.2)
        for i in range(dice.randint(1, 9))
    ]
    bound = [
        held(trn.name, *sorted(dice.sample(range(16), dice.randint(8, 16)))) for trn in nodes if dice.random() < 0.9
    ]
    cluster, unit = cluster_of(nodes, bound), dice.choice(list(Unit))
    size = dice.choice((8, 16))
    pending = pod(devices=size, cpu=2000) if unit is Unit.DEVICE else pod(cores=size * 2, cpu=2000)
    refused = decide(cluster, pending)
    if not isinstance(refused, FitError):
        return
    rows = [row for row in cluster.view.rows() if not row.node.unschedulable and row.free("cpu") >= 2000]
    free, blocks = [], [0]
    for row in rows:
        assert row.machine is not None
        whole = whole_free_devices(row.machine, row.free_cores)
        free.append(whole if unit is Unit.DEVICE else row.free_cores.bit_count())
        blocks.append(largest_free_block(row.machine, row.free_cores, unit))
    if not rows:
        assert refused.hint == ""
        return
    holding = sum(map(bool, free)) or len(rows)
    total = sum(free)
    needs = size if unit is Unit.DEVICE else size * 2
    assert refused.hint == (
        f"{'Capacity' if total < needs else 'Fragmentation'}: {total} Neuron {unit.value}{'s' * (total != 1)} free on"
        f" {holding} node{'s' * (holding != 1)}, largest free block {max(blocks)}, pod needs {needs}."
    )

"""The metrics count devices by instance type as a refusal counts them; no device is lost or counted twice."""

import random
from collections import Counter

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.explain import inventory
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, Taint, Toleration
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, decide, schedule
from tests.support.thoroughness import examples

TRN1, TRN2 = "trn1.32xlarge", "trn2.48xlarge"
USUAL = Taint(NEURON_DEVICE, Effect.NO_SCHEDULE, "true")
OTHERS = Taint("team", Effect.NO_SCHEDULE, "red")


def withheld(cluster: Cluster) -> dict[str, int]:
    """Return what is withheld of trn1.32xlarge, by reason."""
    counted = inventory.devices(cluster).withheld
    return {reason: count for (name, reason), count in counted.items() if count and name == TRN1}


@pytest.mark.parametrize(
    ("closed", "reason"),
    [
        pytest.param({"unschedulable": True}, "cordoned", id="cordoned"),
        pytest.param({"taints": (OTHERS,)}, "tainted", id="another team's"),
        pytest.param({"taints": (USUAL, OTHERS)}, "tainted", id="the usual taint and another"),
        pytest.param({"neuron_fault": "NeuronHealth"}, "unhealthy", id="unhealthy"),
        pytest.param({"refusal": "what is this"}, "malformed", id="unreadable"),
        pytest.param({"pods": 1}, "too_many_pods", id="no room for pods"),
        pytest.param(
            {"refusal": "?", "unschedulable": True, "neuron_fault": "NeuronHealth"}, "malformed", id="the first one"
        ),
    ],
)
def test_devices_of_a_closed_node_are_withheld(closed: dict[str, object], reason: str) -> None:
    """4 of 16 devices are used and the other 12 are withheld; the open node beside it is counted as usual."""
    nodes = [node("a", TRN1, **closed), node("b", TRN1)]  # type: ignore[arg-type]  # passed on as they are
    cluster = cluster_of(nodes, [pod("p", devices=4, on="a", ids=range(4)), pod("q", devices=8, on="b", ids=range(8))])
    counted = inventory.devices(cluster)
    assert (counted.free[TRN1], counted.used[TRN1], counted.largest_block[TRN1]) == (8, 12, 8)
    assert withheld(cluster) == {reason: 12}


def test_usual_taints_close_nothing() -> None:
    """A pod that asks for Neuron tolerates them; a PreferNoSchedule taint withholds nothing either."""
    taints = (USUAL, Taint("aws.amazon.com/neuroncore", Effect.NO_EXECUTE), Taint("slow", Effect.PREFER_NO_SCHEDULE))
    cluster = cluster_of([node("a", TRN1, taints=taints)])
    assert inventory.devices(cluster).free[TRN1] == 16


def test_unknown_holders_withhold_what_they_may_hold() -> None:
    """All devices that no pod is known to hold are withheld."""
    cluster = cluster_of([node("a", TRN1)], [pod("u", devices=2, on="a"), pod("p", devices=4, on="a", ids=range(4))])
    counted = inventory.devices(cluster)
    assert (counted.free[TRN1], counted.used[TRN1], counted.largest_block[TRN1]) == (0, 4, 0)
    assert withheld(cluster) == {"unknown_holder": 12}


@pytest.mark.parametrize(("awaited", "reason"), [(False, "promised"), (True, "turn")])
def test_nominated_devices_are_withheld(awaited: bool, reason: str) -> None:
    """Space that is nominated for a pod of higher priority, or kept for its turn, is not free for one of priority 0."""
    cluster = cluster_of([node("a", TRN1), node("b", TRN1)])
    coming = pod("n", devices=8, priority=5)
    cluster.nominate("a", Nomination(coming, cores=CoreMask((1 << 16) - 1), awaited=awaited))
    counted = inventory.devices(cluster)
    assert (counted.free[TRN1], counted.used[TRN1], counted.largest_block[TRN1]) == (24, 0, 16)
    assert withheld(cluster) == {reason: 8}


def test_the_old_name_of_devices() -> None:
    """Nodes of an old plugin offer their devices only under the alias."""
    old = attrs.evolve(node("a", "inf1.6xlarge"), allocatable={"aws.amazon.com/neurondevice": 4, "pods": 9})
    counted = inventory.devices(cluster_of([old, node("b", "inf1.6xlarge")]))
    assert (counted.free["inf1.6xlarge"], counted.largest_block["inf1.6xlarge"]) == (8, 4)


def random_node(dice: random.Random, name: str) -> Node:
    """Return a node of some type, perhaps one that takes no pods."""
    return node(
        name,
        dice.choice((TRN1, TRN2, "inf2.48xlarge", "")),
        cores_per_device=dice.choice((4, 8)) if dice.random() < 0.3 else None,
        taints=dice.choice(((), (), (), (USUAL,), (OTHERS,))),
        unschedulable=dice.random() < 0.1,
        neuron_fault="NeuronHealth" if dice.random() < 0.1 else "",
        refusal="?" if dice.random() < 0.05 else "",
        allocatable={NEURON_DEVICE: 8} if dice.random() < 0.2 else None,
    )


def random_cluster(dice: random.Random) -> Cluster:
    """Return a few nodes with pods that hold devices and cores, some of them with unknown ids."""
    nodes = [random_node(dice, f"n{i}") for i in range(dice.randint(1, 12))]
    cluster = cluster_of(nodes)
    for host in nodes:
        machine = machine_of(host)
        if machine is None:
            continue
        for i in range(dice.randint(0, 5)):
            ids = dice.sample(range(machine.devices), dice.randint(1, 4))
            by_core = dice.random() < 0.3
            if dice.random() < 0.15:
                cluster.put_pod(pod(f"u{i}-{host.name}", devices=1, on=host.name))
            elif by_core:
                cluster.put_pod(pod(f"c{i}-{host.name}", cores=len(ids), on=host.name, ids=ids))
            else:
                cluster.put_pod(pod(f"d{i}-{host.name}", devices=len(ids), on=host.name, ids=ids))
    return cluster


def _gets(cluster: Cluster, node_info: NodeInfo, count: int) -> bool:
    """Return whether a plain pod with so many devices gets this node, by a real decision."""
    usual = Toleration(key=NEURON_DEVICE, exists=True)
    selector = {"kubernetes.io/hostname": node_info.node.name}
    asking = pod("asking", devices=count, tolerations=(usual,), node_selector=selector)
    return not isinstance(decide(cluster, asking), FitError)


@pytest.mark.parametrize("seed", range(examples(16)))
def test_the_numbers_are_those_of_the_nodes(seed: int) -> None:
    """Free, used and withheld devices add up on each node, and a decision gives the largest block but no more."""
    cluster = random_cluster(random.Random(seed))
    for node_info in list(cluster.view.rows()):
        labelled = attrs.evolve(
            node_info.node, labels={**node_info.node.labels, "kubernetes.io/hostname": node_info.node.name}
        )
        cluster.put_node(labelled)
    counted = inventory.devices(cluster)
    there: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for node_info in cluster.view.rows():
        if node_info.machine is None:
            continue
        name = node_info.node.instance_type or "unknown"
        there[name] += node_info.machine.devices
        counts = [n for n in range(1, 17) if _gets(cluster, node_info, n)]
        if node_info.neuron_usage.unknown_holders:
            assert counts in ([], [1])  # one unit is given by count
            counts = []
        largest[name] = max(largest[name], *counts, 0)
    assert +largest == +counted.largest_block
    sums = counted.free + counted.used
    for (name, _), count in counted.withheld.items():
        assert count >= 0
        sums[name] += count
    assert +there == +sums


def test_indexes_are_prepared_in_steps() -> None:
    """After the preparation, counting builds no index."""
    cluster = cluster_of([node(f"n{i}", TRN1) for i in range(200)])
    assert len([*inventory.prepare(cluster)]) > 3
    assert not [*inventory.prepare(cluster)]
    assert inventory.devices(cluster).free[TRN1] == 3200


def _placed_in_turn(cluster: Cluster, instance_type: str, size: int) -> int:
    """Return how many plain pods of a size decisions place on a type, and take them away again."""
    usual = Toleration(key=NEURON_DEVICE, exists=True)
    placed: list[str] = []
    while True:
        asking = pod(
            f"{size}-{len(placed)}",
            devices=size,
            tolerations=(usual,),
            node_selector={INSTANCE_TYPE_LABEL: instance_type},
        )
        if isinstance(schedule(cluster, asking), str):
            break
        placed.append(asking.uid)
    for uid in placed:
        cluster.forget(uid)
    return len(placed)


@pytest.mark.parametrize("seed", range(examples(16)))
def test_so_many_pods_really_fit(seed: int) -> None:
    """For each instance type and legal size, so many pods are placed one after the other, and no more."""
    cluster = random_cluster(random.Random(seed))
    for node_info in list(cluster.view.rows()):  # pods cannot select nodes without the label
        labels = {INSTANCE_TYPE_LABEL: "unknown", **node_info.node.labels}
        cluster.put_node(attrs.evolve(node_info.node, labels=labels))
    counted = inventory.devices(cluster)
    assert counted.fits == {(name, size): _placed_in_turn(cluster, name, int(size)) for name, size in counted.fits}


def test_pods_beyond_the_node_s_limit_do_not_fit() -> None:
    """A node with room for two more pods takes two, whatever its devices are."""
    cluster = cluster_of([node("a", TRN1, pods=3)], [pod("p", devices=1, on="a", ids=[0])])
    counted = inventory.devices(cluster)
    assert {size: counted.fits[TRN1, size] for size in ("1", "4", "8", "16")} == {"1": 2, "4": 2, "8": 1, "16": 0}


def test_devices_are_stranded_in_blocks_that_are_too_small() -> None:
    """What is left over when blocks are cut into the smallest size that waits; nothing if nobody waits for it."""
    nodes = [node("a", TRN1), node("b", TRN1), node("c", "inf2.48xlarge")]
    held = [pod("p", devices=1, on="a", ids=[0]), pod("q", devices=4, on="b", ids=range(4))]
    cluster = cluster_of(nodes, [*held, pod("r", devices=1, on="c", ids=[5])])
    blocks = {key: count for key, count in inventory.devices(cluster).blocks.items() if count}
    assert blocks == {
        (TRN1, "1"): 3,
        (TRN1, "4"): 2,
        (TRN1, "8"): 2,
        ("inf2.48xlarge", "5"): 1,
        ("inf2.48xlarge", "6"): 1,
    }
    stranded = {
        waiting: +inventory.devices(cluster, waiting=waiting).stranded
        for waiting in ((), (1,), (4,), (8, 16), (16,), (6,))
    }
    assert stranded == {
        (): {},
        (1,): {},
        (4,): {TRN1: 3, "inf2.48xlarge": 1 + 2},
        (8, 16): {TRN1: 3 + 8, "inf2.48xlarge": 11},
        (16,): {TRN1: 3 + 8 + 16},
        (6,): {"inf2.48xlarge": 5},
    }


def test_devices_that_are_used_last_are_free() -> None:
    """A node that is set aside has all its free devices used last."""
    nodes = [node(name, TRN1) for name in "abc"]
    cluster = cluster_of(nodes, [pod("p", devices=4, on="a", ids=range(4))])
    cluster.set_aside("a", NO_CORES)
    counted = inventory.devices(cluster)
    assert (counted.free[TRN1], counted.set_aside[TRN1]) == (12 + 16 + 16, 12)


def test_unknown_holders_are_named_where_most_of_them_are() -> None:
    """A few nodes are named, and the others are counted together."""
    nodes = [node(f"n{i}", TRN1) for i in range(6)]
    pods = [pod(f"p{i}-{j}", devices=1, on=f"n{i}") for i in range(5) for j in range(i)]
    cluster = cluster_of(nodes, pods)
    assert inventory.unknown_holders_by_node(cluster, most=2) == ({"n4": 4, "n3": 3}, 3)
    assert inventory.unknown_holders_by_node(cluster) == ({"n4": 4, "n3": 3, "n2": 2, "n1": 1}, 0)


def test_the_sizes_that_are_counted_are_few() -> None:
    """A machine of a known type that claims 40 devices adds its sizes up to 16, and the whole machine."""
    large = node("a", "inf1.24xlarge", devices=40, cores_per_device=4)
    counted = inventory.devices(cluster_of([large]))
    assert [int(size) for _, size in counted.fits] == [*range(1, 17), 40]
    assert +counted.blocks == {("inf1.24xlarge", "40"): 1}

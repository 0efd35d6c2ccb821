"""The picture of the fleet has the metrics' sums and the rows' cores, whatever the cluster looks like."""

import random
from collections import Counter

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.explain import inventory
from neuron_scheduler.explain.answers import CoreState, Fleet, Holder, MachinePicture
from neuron_scheduler.explain.fleet import fleet
from neuron_scheduler.model.node import ZONE_LABEL
from neuron_scheduler.model.resources import NEURON_CORE
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.steps import run
from tests.support import random_objects
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.thoroughness import examples

TRN1 = "trn1.32xlarge"


def pictured(cluster: Cluster) -> Fleet:
    """Return the fleet without pauses."""
    answer = run(fleet(cluster))
    assert answer is not None
    return answer


def machine(cluster: Cluster, name: str = "a") -> MachinePicture:
    return next(machine for machine in pictured(cluster).machines if machine.node_name == name)


def cores_of(holder: Holder) -> set[int]:
    """Return the indexes of a holder's cores."""
    return {core for first, last in holder.cores for core in range(first, last + 1)}


def test_a_machine() -> None:
    """Cores, holders, blocks and labels of one node; free blocks are what a pod can get."""
    labels = {ZONE_LABEL: "us-east-1a", random_objects.ULTRASERVER: "bog79p1y8tetj5uu"}
    held = [
        pod("q", namespace="b", devices=1, on="a", ids=(6,)),
        pod("p", namespace="b", devices=4, on="a", ids=range(4)),
    ]
    cluster = cluster_of([node("a", f"ml.{TRN1}", labels=labels)], [*held, pod("web", on="a")])
    assert machine(cluster) == MachinePicture(
        node_name="a",
        instance_type=TRN1,
        shape="torus",
        devices=16,
        cores_per_device=2,
        units=("device", "core"),
        cores="hhhhhhhh" + "ffffhhff" + "f" * 16,
        holders=(Holder("b", "p", ((0, 7),)), Holder("b", "q", ((12, 13),))),
        used_devices=5,
        free_devices=11,
        free_blocks=(8, 1, 1, 1),
        zone="us-east-1a",
        ultraserver="bog79p1y8tetj5uu",
        ultraserver_size=4,
    )


def test_kept_space() -> None:
    """Space that is kept for a pod is neither free nor held, while a victim has it, it is held."""
    cluster = cluster_of([node("a", TRN1)], [pod("victim", devices=4, on="a", ids=range(4))])
    cluster.nominate("a", Nomination(pod("waits", devices=8, priority=5), cores=CoreMask((1 << 16) - 1)))
    seen = machine(cluster)
    assert seen.cores == "h" * 8 + "k" * 8 + "f" * 16
    assert seen.holders == (Holder("default", "victim", ((0, 7),)), Holder("default", "waits", ((0, 15),), kept=True))
    assert (seen.free_devices, seen.free_blocks, seen.used_devices) == (
        4,
        (4,),
        4,
    )  # by count, the pod that comes needs 8 more


def test_cores_without_devices() -> None:
    """A node that serves cores only adds no devices."""
    cluster = cluster_of([node("a", "trn1.2xlarge", devices=0, allocatable={NEURON_CORE: 2})])
    seen, (only,) = machine(cluster), pictured(cluster).types
    assert (seen.units, seen.devices, seen.cores, seen.free_blocks) == (("core",), 2, "ff", ())
    assert (only.nodes, only.devices, only.free, only.largest_block) == (1, 0, 0, 0)


def test_the_worst_come_first() -> None:
    """Withheld machines, unclear ones, fragmented ones, and then the others, the oldest first."""
    nodes = [node(name, TRN1, created=created) for created, name in enumerate(("whole", "full", "pieces", "double"))]
    held = [
        *(pod(f"f{i}", devices=8, on="full", ids=range(8 * i, 8 * i + 8)) for i in range(2)),
        *(pod(f"p{i}", devices=1, on="pieces", ids=(4 * i,)) for i in range(4)),
        *(pod(f"d{i}", devices=1, on="double", ids=(3,)) for i in range(2)),
    ]
    cluster = cluster_of([*nodes, node("cordoned", TRN1, created=9, unschedulable=True)], held)
    cluster.set_aside("whole", NO_CORES)
    seen = pictured(cluster).machines
    assert [machine.node_name for machine in seen] == ["cordoned", "double", "pieces", "whole", "full"]
    assert [machine.node_name for machine in seen if machine.set_aside] == ["whole"]


def test_the_picture_is_of_one_moment() -> None:
    """A change between two steps is not in the picture, nor in its sums."""
    cluster = cluster_of([node(f"n{i}", TRN1) for i in range(50)])
    steps = fleet(cluster)
    for _ in inventory.prepare(cluster):
        pass
    assert [next(steps), next(steps)] == [None, None]
    cluster.put_pod(pod("p", devices=16, on="n49", ids=range(16)))
    answer = run(steps)
    assert answer is not None
    assert answer.types[0].free == sum(machine.free_devices for machine in answer.machines) == 50 * 16


def test_some_machines_of_each_kind_are_pictured() -> None:
    """Of more machines than are pictured, some of each kind are shown, then the worst; the sums are those of all."""
    nodes = [node(f"n{i}", TRN1, created=i, unschedulable=i in (8, 9)) for i in range(10)]
    cluster = cluster_of(nodes, [pod("p", devices=1, on="n7", ids=(3,))])
    everything, seen = pictured(cluster), run(fleet(cluster, most=4))
    assert [machine.node_name for machine in seen.machines] == ["n8", "n9", "n7", "n0"]
    assert {*seen.machines} < {*everything.machines}
    assert (seen.types, everything.notes) == (everything.types, ())
    assert seen.notes == ("4 of 10 machines are pictured: some of each kind, then the worst.",)


def random_cluster(dice: random.Random) -> Cluster:
    """Return a cluster with holders of all sorts, closed nodes and nominations."""
    nodes = [random_objects.some_node(dice, f"n{i}") for i in range(dice.randint(1, 10))]
    cluster = cluster_of(nodes)
    for i in range(dice.randint(0, 30)):
        host = dice.choice(nodes)
        drawn = random_objects.bound_pod(dice, f"b{i}")
        cluster.put_pod(attrs.evolve(drawn, uid=f"b{i}", node_name=host.name))
    for i in range(dice.choice((0, 0, 2))):
        host = dice.choice(nodes)
        found = machine_of(host)
        if found is not None:
            cores = CoreMask((1 << dice.randint(1, found.core_count)) - 1)
            priority = dice.choice((-3, 0, 7))
            cluster.nominate(host.name, Nomination(pod(f"w{i}", devices=1, priority=priority), cores=cores))
    return cluster


@pytest.mark.parametrize("seed", range(examples(16)))
def test_sums_are_those_of_the_metrics(seed: int) -> None:
    """Free, used and withheld devices and the largest blocks by type are the metrics'; so is each machine's reason."""
    cluster = random_cluster(random.Random(seed))
    counted = inventory.devices(cluster)
    seen = pictured(cluster)
    withheld: Counter[str] = Counter()
    for (name, _), count in counted.withheld.items():
        withheld[name] += count
    assert +counted.free == +Counter({of.instance_type: of.free for of in seen.types})
    assert +counted.used == +Counter({of.instance_type: of.used for of in seen.types})
    assert +withheld == +Counter({of.instance_type: of.withheld for of in seen.types})
    assert +counted.largest_block == +Counter({of.instance_type: of.largest_block for of in seen.types})
    sizes = ((machine.instance_type, str(size)) for machine in seen.machines for size in machine.free_blocks)
    assert +counted.blocks == Counter(sizes)
    closed: Counter[tuple[str, str]] = Counter()
    for picture in seen.machines:
        assert sum(picture.free_blocks) == picture.free_devices
        assert list(picture.free_blocks) == sorted(picture.free_blocks, reverse=True)
        if picture.withheld:
            devices = picture.devices if "device" in picture.units else 0
            closed[picture.instance_type, picture.withheld] += devices - picture.used_devices
    for reason in set(inventory.Withheld) - {inventory.Withheld.NOMINATED, inventory.Withheld.NOT_ALLOCATABLE}:
        for name in counted.free:
            assert closed[name, reason] == counted.withheld[name, reason]


@pytest.mark.parametrize("seed", range(examples(16)))
def test_each_core_is_that_of_its_row(seed: int) -> None:
    """Each core's letter says what the pods and nominations of its row say."""
    cluster = random_cluster(random.Random(seed))
    seen = {picture.node_name: picture for picture in pictured(cluster).machines}
    rows = [row for row in cluster.view.rows() if row.machine is not None]
    assert {row.node.name for row in rows} == seen.keys()
    for row in rows:
        assert row.machine is not None
        picture = seen[row.node.name]
        assert picture.cores == "".join(_letter(row, core) for core in range(row.machine.core_count))
        claims = Counter(core for holder in picture.holders if not holder.kept for core in cores_of(holder))
        assert {core for core, count in claims.items() if count > 1} == {
            core for core, letter in enumerate(picture.cores) if letter == CoreState.DOUBLE_BOOKED
        }
        named = {(holder.namespace, holder.name): holder for holder in picture.holders if not holder.kept}
        for pod_info in row.pod_infos.values():
            holder = named.pop((pod_info.pod.namespace, pod_info.pod.name), None)
            if pod_info.cores == 0:
                assert holder is None
            else:
                assert holder is not None
                assert holder.unknown == (pod_info.cores is None)
                assert sum(1 << core for core in cores_of(holder)) == (pod_info.cores or 0)
        assert named == {}


def _letter(row: NodeInfo, core: int) -> CoreState:
    """Return a core's state, read from the pods one by one."""
    claims = sum(bool(int(pod_info.cores or 0) >> core & 1) for pod_info in row.pod_infos.values())
    kept = any(int(nomination.cores) >> core & 1 for nomination in row.nominations)
    unknown = any(pod_info.cores is None for pod_info in row.pod_infos.values())
    if claims:
        return CoreState.HELD if claims == 1 else CoreState.DOUBLE_BOOKED
    if kept:
        return CoreState.KEPT
    return CoreState.UNKNOWN if unknown else CoreState.FREE

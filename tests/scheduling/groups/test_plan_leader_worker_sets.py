"""LeaderWorkerSets: a leader begins only where its workers will have room, which may be created when it runs."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import ULTRASERVER_2
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.groups.gang import GroupPlan, gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.random_groups import PROFILE

DOMAIN: Final = "example.com/rack"


def racks(**sizes: int) -> Cluster:
    """Return machines in racks of so many, the older racks first."""
    names = [(rack, f"{rack}{number}") for rack, size in sizes.items() for number in range(size)]
    return cluster_of(
        node(name, "trn2.48xlarge", labels={DOMAIN: rack}, created=float(age)) for age, (rack, name) in enumerate(names)
    )


def member(name: str, group: PodGroup, **asked: Any) -> Pod:
    """Return a leader or a worker; it takes a machine, unless `asked` says something else."""
    return pod(name, group=group, **(asked or {"devices": 16}))


def serve(number: int, size: int = 4, topology: str = "", namespace: str = "default") -> PodGroup:
    """Return what the pods of one replica say."""
    key = GroupKey(Dialect.LEADER_WORKER_SET, namespace, f"serve group {number}")
    return PodGroup(key, expected=size, topology=topology)


def start(cluster: Cluster, *members: Pod) -> Mapping[str, str] | str:
    """Plan for a group; return the nodes by name, which the members have then, or what is said."""
    for each in members:
        cluster.groups.put(each)
    gang = gang_of(cluster, members)
    found = run(plan_group(cluster, gang, PROFILE, IndexWarmup()))
    if isinstance(found, GroupPlan):
        return {taken.pod.name: taken.decision.node_name for taken in found.members}
    return found.fit_error(gang).text


def leader(number: int, **rest: Any) -> Pod:
    return member(f"leader-{number}", serve(number, **rest))


def test_one_replica_runs_where_there_is_room_for_one() -> None:
    """Five leaders are created at once on seven machines: a second one would take what the first one's workers need."""
    cluster = racks(a=7)
    assert start(cluster, leader(0)) == {"leader-0": "a0"}
    assert start(cluster, leader(1)) == (
        "1 of 4 members of group default/serve group 1 exist, and all must have room without evictions:"
        " 0/7 nodes are available: room for"
        " 6 such pods, and the group needs 4, beside 3 that started groups of the namespace await."
    )
    other = attrs.evolve(leader(2, namespace="other"), namespace="other")
    assert start(cluster, other) == {"leader-2": "a1"}  # no tenant stalls another
    workers = [member(f"worker-{number}", serve(0)) for number in range(3)]
    assert isinstance(start(cluster, *workers), dict)
    assert str(start(cluster, leader(3))).endswith("room for 2 such pods, and the group needs 4.")


def test_a_complete_replica_leaves_room_for_those_that_have_begun() -> None:
    """Its own members all exist, so none of them is still to come."""
    cluster, both = racks(a=5), [member(f"m{number}", serve(1, size=2)) for number in range(2)]
    assert start(cluster, leader(0)) == {"leader-0": "a0"}
    assert "the group needs 2, beside 3" not in str(start(racks(a=5), *both))
    assert isinstance(start(cluster, *both), str)


def test_a_leader_goes_only_into_a_domain_with_room_for_all() -> None:
    """The tightest of those that will do; its workers follow; with too little room in each, nobody begins."""
    cluster = racks(a=3, b=5, c=4)
    assert start(cluster, leader(0, topology=DOMAIN)) == {"leader-0": "c0"}
    assert start(cluster, member("worker", serve(0, topology=DOMAIN))) == {"worker": "c1"}
    cluster = racks(a=3, b=4)
    for number in range(2):
        cluster.put_pod(pod(f"used-{number}", devices=1, ids=[0], on=f"b{number}"))
    assert start(cluster, leader(1, topology=DOMAIN)) == (
        "1 of 4 members of group default/serve group 1 exist, and all must have room without evictions:"
        " 0/7 nodes are available:"
        " no example.com/rack has room for all 4 members of the group, the roomiest for 3."
    )


@pytest.mark.parametrize("topology", ["", DOMAIN])
def test_a_leader_that_asks_for_more_than_its_workers_begins(topology: str) -> None:
    """Four such pods would fit nowhere, whatever ends; so its workers ask for less, or nothing would ever run."""
    assert isinstance(start(racks(a=2, b=1), leader(0, topology=topology)), dict)


@pytest.mark.parametrize(("free", "there"), [({"b": 4, "c": 3}, "c"), ({"b": 1, "c": 2}, "c"), ({}, "a")])
def test_a_leader_without_neuron_goes_where_machines_are_free(free: dict[str, int], there: str) -> None:
    """What its workers ask is not known: the smallest domain with a machine for each, else the roomiest."""
    cluster = racks(a=5, **free)
    for number in range(5):
        cluster.put_pod(pod(f"used-{number}", devices=1, ids=[0], on=f"a{number}"))
    found = start(cluster, member("leader", serve(0, topology=DOMAIN), cpu=1))
    assert isinstance(found, dict)
    assert found["leader"].startswith(there)


@pytest.mark.parametrize("sizes", [{"a": 1, "b": 3, "c": 2}, {"a": 3, "b": 4, "c": 5}])
def test_a_guessed_size_refuses_nobody(sizes: dict[str, int]) -> None:
    """The first workers of AWS's recipe go where the others will have room, too, or else into the roomiest domain."""
    labels = {"a": "u0", "b": "u1", "c": "u2"}
    cluster = racks(**sizes)
    for row in list(cluster.view.rows()):
        rack = row.node.labels[DOMAIN]
        cluster.put_node(attrs.evolve(row.node, labels={**row.node.labels, ULTRASERVER_2: labels[rack]}))
    group = PodGroup(GroupKey(Dialect.AFFINITY, "default", "job=train"), topology=ULTRASERVER_2)
    (name,) = dict(start(cluster, member("w0", group))).values()  # type: ignore[arg-type]  # it is placed
    assert name[0] == ("c" if sizes["a"] == 1 else "a")

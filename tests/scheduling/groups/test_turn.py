"""Which nodes a turn keeps: beside a brute force, and what it says."""

import itertools
from random import Random
from typing import Final

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.groups.turn import nodes_that_drain_first
from neuron_scheduler.scheduling.preemption.nominations import had_turn, turn_text
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.thoroughness import examples

PROFILE: Final = default_profile("my-scheduler")
ALL: Final = CoreMask((1 << 32) - 1)
RACK: Final = "rack"


def some_cluster(dice: Random, count: int) -> Cluster:
    """Return nodes in racks with holders of several ages, and with what keeps a node from a turn."""
    nodes = [
        node(
            f"n{number}",
            dice.choice(["trn1.32xlarge"] * 5 + ["inf2.48xlarge"]),
            labels={RACK: dice.choice("ab")} if dice.random() < 0.9 else {},
            unschedulable=dice.random() < 0.1,
        )
        for number in range(dice.randint(1, 6))
    ]
    cluster = cluster_of(nodes)
    for each in nodes:
        free = 0
        for number in range(dice.randint(0, 3)):
            size = dice.choice([1, 4, 8])
            if free + size > 16:
                break
            ids = [*range(free, free + size)]
            free = -(-(free + size) // 8) * 8
            started, terminating = float(dice.randint(1, 9)), dice.random() < 0.1
            cluster.put_pod(
                pod(
                    f"{each.name}-{number}",
                    devices=size,
                    ids=ids,
                    on=each.name,
                    started=started,
                    terminating=terminating,
                )
            )
        if count == 1 and dice.random() < 0.15:
            cluster.put_pod(pod(f"{each.name}-cpu", cpu=190_000, on=each.name))
        if dice.random() < 0.1:
            cluster.nominate(each.name, Nomination(pod(f"other-{each.name}", devices=1), CoreMask(3)))
    return cluster


def drains_at(cluster: Cluster, name: str) -> float:
    """Return when the oldest holder started, negated: the smaller, the sooner."""
    row = cluster.node(name)
    assert row is not None
    holders = [info.pod for info in row.pod_infos.values() if info.pod.neuron is not None]
    return -min((each.started or 0.0 for each in holders if not each.terminating), default=float("inf"))


def is_for_a_turn(cluster: Cluster, name: str) -> bool:
    row = cluster.node(name)
    assert row is not None
    of_trn1 = row.machine is not None and row.machine.devices == 16
    cpu_is_free = not any(info.pod.name.endswith("-cpu") for info in row.pod_infos.values())
    return of_trn1 and cpu_is_free and not row.node.unschedulable and not row.nominations


def best(cluster: Cluster, count: int, topology: str) -> float | None:
    """Return when the last of the best nodes drains, by trying all sets of nodes; None if there is none."""
    rows = [row for row in cluster.view.rows() if is_for_a_turn(cluster, row.node.name)]
    found = []
    for chosen in itertools.combinations(rows, count):
        racks = {row.node.labels.get(topology) for row in chosen}
        is_one = not topology or (len(racks) == 1 and None not in racks)
        if is_one and sum(free_share(row) for row in chosen) >= count / 2:
            found.append(max(drains_at(cluster, row.node.name) for row in chosen))
    return min(found, default=None)


def free_machines(cluster: Cluster) -> float:
    rows = [row for row in cluster.view.rows() if row.machine is not None and row.machine.devices == 16]
    return sum(free_share(row) for row in rows if not (row.node.unschedulable or row.nominations))


def free_share(row: NodeInfo) -> float:
    pods = [info.pod for info in row.pod_infos.values() if not info.pod.terminating]
    return 1 - sum(each.neuron.total for each in pods if each.neuron is not None) / 16


@pytest.mark.parametrize("start", range(0, examples(400), 50))
def test_the_nodes_that_drain_first_are_those_of_a_brute_force(start: int) -> None:
    """All in one domain if there is a topology; none if less is free in pieces, or no node is left for a turn."""
    for seed in range(start, start + 50):
        dice = Random(seed)
        count = dice.choice([1, 1, 2])
        cluster = some_cluster(dice, count)
        topology = RACK if count > 1 else ""
        waiting = [pod(f"w{number}", devices=16, cpu=10_000) for number in range(count)]
        nodes = run(nodes_that_drain_first(cluster, waiting, PROFILE, topology=topology))
        expected = best(cluster, count, topology) if free_machines(cluster) >= count else None
        if expected is None:
            assert not nodes, seed
            continue
        names = [name for name, _ in nodes]
        assert len({*names}) == count, seed
        assert all(is_for_a_turn(cluster, name) for name in names), seed
        assert max(drains_at(cluster, name) for name in names) == expected, seed
        assert [kept.pod for _, kept in nodes] == waiting
        assert all(kept.awaited and kept.cores == ALL for _, kept in nodes)


def fleet(*holders: Pod) -> Cluster:
    nodes = [node(name, "trn1.32xlarge") for name in ("a", "b")]
    return cluster_of(nodes, holders)


@pytest.mark.parametrize("devices", [1, 8])
def test_a_pod_that_shares_a_machine_gets_no_turn(devices: int) -> None:
    """However long it waits: the smaller ones are served as room comes."""
    cluster = fleet(pod("h", devices=16, ids=range(16), on="a", started=1.0))
    assert run(nodes_that_drain_first(cluster, [pod("w", devices=devices)], PROFILE)) == ()


def refused(message: str) -> Pod:
    return pod("refused", scheduled=PodCondition("False", "Unschedulable", message))


@pytest.mark.parametrize(("priority", "goes"), [(-1, None), (0, None), (1, "a")])
def test_a_turn_keeps_off_pods_of_the_same_or_a_lower_priority_only(priority: int, goes: str | None) -> None:
    """Nobody of higher priority waits for a turn, even if the node is the only one with room."""
    held = pod("full", devices=16, ids=range(16), on="b", started=1.0)
    cluster = fleet(pod("h", devices=1, ids=[0], on="a", started=5.0), held)
    waiting = pod("w", devices=16)
    cluster.nominate("a", Nomination(waiting, ALL, frozenset({"uid-h"}), awaited=True))
    decision = schedule_pod(cluster, pod("rival", devices=1, priority=priority), PROFILE)
    assert (decision.node_name if isinstance(decision, Decision) else None) == goes
    text = turn_text(cluster, waiting)
    assert text == "Kept for it as it comes free: a (1 pod)."
    claim = f'0/2 nodes are available: persistentvolumeclaim "x. {text[:-1]}" not found.'
    assert [had_turn(refused(each)) for each in (f"{claim} {text}", claim)] == [True, False]
    assert turn_text(cluster, pod("rival", devices=1)) == ""

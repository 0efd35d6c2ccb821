"""Mixed fleets: which kind of machine a pod without a node selector goes to, so that others keep their blocks."""

import random

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, schedule

PROFILE = default_profile("p")
PINNED = Constraints(node_selector={INSTANCE_TYPE_LABEL: "trn1.32xlarge"})


def _mixed(*others: Pod) -> Cluster:
    """Return a torus with a row of which three devices are free, and a ring with a run of two."""
    nodes = [node("torus", "trn1.32xlarge", created=1), node("ring", "inf2.48xlarge", created=0)]
    torus = [pod("t", devices=8, on="torus", ids=range(8)), pod("u", devices=4, on="torus", ids=range(8, 12))]
    rest = [pod("v", devices=1, on="torus", ids=(12,)), pod("w", devices=10, on="ring", ids=range(10))]
    return cluster_of(nodes, [*torus, *rest, *others])


def _two(on: str, **rest: object) -> Pod:
    return pod("two", devices=2, on=on, ids=(0, 1), **rest)  # type: ignore[arg-type]  # passed on as they are


def _with_a_pod_of_two(cluster: Cluster, **rest: object) -> Cluster:
    cluster.put_node(node("line", "inf2.24xlarge", created=2))
    cluster.put_pod(_two("line", **rest))
    cluster.put_pod(pod("rest", devices=4, on="line", ids=range(2, 6)))
    return cluster


def test_a_single_device_leaves_the_run_that_pods_of_two_need() -> None:
    """Two free devices on a ring are the smaller block, but only they serve a pod of two; three of a row serve none."""
    cluster = _with_a_pod_of_two(_mixed())
    assert schedule(cluster, pod("one", devices=1)) == ("torus", (13,))
    assert schedule(cluster, pod("another", devices=2)) == ("ring", (10, 11))


def test_without_demand_the_smaller_block_is_cut() -> None:
    """No pod of two is on a node, so the run of two costs nothing."""
    assert schedule(_mixed(), pod("one", devices=1)) == ("ring", (10,))


def test_pods_that_ask_for_cores_get_the_smaller_block() -> None:
    """Between kinds of machines too: the requests of other pods change nothing."""
    cluster = _with_a_pod_of_two(_mixed())
    assert schedule(cluster, pod("four", cores=4)) == ("ring", (20, 21, 22, 23))


def test_pods_that_chose_a_machine_make_no_other_kind_precious() -> None:
    """A pod of two that insists on the line's type could not use the ring."""
    cluster = _with_a_pod_of_two(
        _mixed(), constraints=Constraints(node_selector={INSTANCE_TYPE_LABEL: "inf2.24xlarge"})
    )
    assert schedule(cluster, pod("one", devices=1)) == ("ring", (10,))


def test_a_pinned_pod_gets_the_smallest_block_of_its_kind() -> None:
    """With one kind of machine to choose from, the requests of other pods change nothing."""
    cluster = _with_a_pod_of_two(_mixed())
    cluster.put_node(node("whole", "trn1.32xlarge", created=0))
    assert schedule(cluster, pod("one", devices=1, constraints=PINNED)) == ("torus", (13,))


def test_a_mixed_fleet_under_churn_refuses_fewer_pods_of_twelve() -> None:
    """By the length of runs alone 81 of 272 got a place, since single devices and fours took the rings apart."""
    results = [_placed_of_twelve(random.Random(seed)) for seed in range(5)]
    assert sum(placed for placed, _ in results) >= 140, results


def _placed_of_twelve(dice: random.Random) -> tuple[int, int]:
    """Let pods come and go on a fleet that is nearly full; return how many of 12 devices got a place, of how many."""
    cluster, placed_uids, placed, asked = Cluster(), list[str](), 0, 0
    for i in range(6):
        cluster.put_node(node(f"t{i}", "trn1.32xlarge", created=i))
        cluster.put_node(node(f"r{i}", "inf2.48xlarge", created=i))
    for number in range(500):
        pending = pod(f"p{number}", devices=dice.choice((1, 1, 1, 1, 2, 3, 4, 8, 12)))
        done = _place(cluster, pending)
        if done:
            placed_uids.append(pending.uid)
        if pending.requests[NEURON_DEVICE] == 12:
            placed, asked = placed + done, asked + 1
        while len(placed_uids) > 30:
            cluster.remove_pod(placed_uids.pop(dice.randrange(len(placed_uids))))
    return placed, asked


def test_a_replica_and_a_restart_decide_alike() -> None:
    """The sizes in use are folded from the pods on nodes, in whatever order these came, or went in between."""
    dice = random.Random(3)
    nodes = [
        node(f"n{i}", kind, created=i) for i, kind in enumerate(("trn1.32xlarge", "inf2.48xlarge", "inf2.24xlarge") * 3)
    ]
    leader, placed = cluster_of(nodes), dict[str, Pod]()
    for number in range(120):
        constraints = dice.choice((Constraints(), PINNED))
        pending = pod(f"p{number}", devices=dice.choice((1, 1, 2, 3, 4, 12)), constraints=constraints)
        replica = cluster_of(nodes)
        for known in dice.sample(list(placed.values()), len(placed)):
            replica.put_pod(known)
        decision = schedule_pod(leader, pending, PROFILE)
        assert decision == schedule_pod(replica, pending, PROFILE) == schedule_pod(leader.fork(), pending, PROFILE)
        if isinstance(decision, Decision) and decision.placement is not None:
            ids = decision.placement.ids
            bound = pod(pending.name, devices=len(ids), constraints=constraints, on=decision.node_name, ids=ids)
            placed[bound.uid] = bound
            leader.put_pod(bound)
        if placed and dice.random() < 0.4:
            gone = dice.choice(list(placed))
            leader.remove_pod(gone)
            del placed[gone]


def _place(cluster: Cluster, pending: Pod) -> bool:
    decision = schedule_pod(cluster, pending, PROFILE)
    if isinstance(decision, Decision) and decision.placement is not None:
        cluster.assume(attrs.evolve(pending, node_name=decision.node_name), decision.placement.cores)
        return True
    return False

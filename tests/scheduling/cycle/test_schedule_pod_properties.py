"""For any cluster and pod, the decision from the indexes is that of the oracle."""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from functools import reduce
from operator import or_
from random import Random

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selecting_kinds import Namespace, Workload
from neuron_scheduler.neuron.annotations import allocation_of, annotations_for
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import place
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.refusals import first_reasons
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.oracle import NO_NAMESPACES, Outcome, outcome, pod_reason, refusals
from tests.support.oracle_affinity import Namespaces
from tests.support.random_objects import (
    NAMES,
    bound_pod,
    nominated_pod,
    pending_pod,
    some_namespaces,
    some_node,
    some_workloads,
)
from tests.support.thoroughness import examples

PROFILE = default_profile("my-scheduler")


def unanimous(
    cluster: Cluster,
    nodes: Sequence[Node],
    bound: Sequence[Pod],
    pending: Pod,
    *,
    workloads: Sequence[Workload] = (),
    namespaces: Namespaces = NO_NAMESPACES,
    rejecting: AbstractSet[str] = frozenset(),
) -> Pod | None:
    """Compare the decision with the oracle's; return the pod as it is placed, None if it is refused."""
    result = schedule_pod(cluster, pending, PROFILE)
    explained_alike(cluster, pending, result)
    want = outcome(
        nodes,
        bound,
        pending,
        workloads=workloads,
        namespaces=namespaces,
        rejecting=rejecting,
    )
    if isinstance(result, FitError):
        assert Outcome(reasons=result.reasons, pod_reason=result.pod_reason) == want
        assert result.nodes == len(nodes)
        return None
    assert Outcome(node_name=result.node_name, feasible=result.feasible) == want
    assert result.evaluated == len(nodes)
    return placed(cluster, pending, result)


def explained_alike(cluster: Cluster, pending: Pod, result: Decision | FitError) -> None:
    """Compare the explanation of every node with the decision: each node is in it once, with a reason that counts."""
    fitting, failed = first_reasons(cluster, pending, PROFILE)
    assert sum(nodes.bit_count() for nodes in failed.values()) + fitting.bit_count() == cluster.view.node_count
    assert reduce(or_, failed.values(), fitting) == cluster.view.live
    if isinstance(result, FitError):
        assert not fitting
        assert failed.keys() <= {reason for reason, _ in result.reasons} | {result.pod_reason}
        return
    slot = cluster.view.slot(result.node_name)
    assert slot is not None
    assert fitting >> slot & 1
    assert fitting.bit_count() == result.feasible


def placed(cluster: Cluster, pending: Pod, decision: Decision) -> Pod:
    """Return the pod as the watch will show it."""
    node_info = cluster.node(decision.node_name)
    assert node_info is not None
    assert (decision.placement is None) == (pending.neuron is None)
    bound = attrs.evolve(pending, node_name=decision.node_name)
    check_ids(node_info, pending, decision)
    if decision.placement is None or node_info.machine is None:
        return bound
    allocation = annotations_for(
        pod=pending,
        machine=node_info.machine,
        placement=decision.placement,
        node_name=decision.node_name,
    )
    return attrs.evolve(bound, allocation=allocation)


def check_ids(node_info: NodeInfo, pending: Pod, decision: Decision) -> None:
    """Check that no core that is set aside is used where a block without such cores is free."""
    if pending.neuron is None or node_info.machine is None or decision.placement is None or node_info.set_aside is None:
        return
    aside = node_info.set_aside
    if decision.placement.cores & aside:
        assert place(node_info.machine, node_info.free_cores & ~aside, pending.neuron) is None


def play(dice: Random) -> int:
    """Schedule pods one after another in a random cluster, as pods come and go; return how many were placed."""
    nodes = [some_node(dice, name) for name in NAMES[: dice.randint(0, 6)]]
    bound = [bound_pod(dice, f"bound-{i}") for i in range(dice.randint(0, 5))]
    cluster, count = cluster_of(nodes, bound), 0
    workloads = some_workloads(dice)
    for workload in workloads:
        cluster.workloads.put(workload)
    namespaces: dict[str, Mapping[str, str]] = {}
    rejecting: set[str] = set()
    for i in range(dice.randint(1, 6)):
        if nodes and dice.random() < 0.3:
            name = dice.choice(nodes).name
            cluster.set_aside(name, CoreMask(dice.getrandbits(128)))
            rejecting.add(name)
        if not i or dice.random() < 0.3:
            namespaces = some_namespaces(dice)
            for name, labels in namespaces.items():
                cluster.namespaces.put(Namespace(f"uid-{name}", name, labels))
        assumed = unanimous(
            cluster,
            nodes,
            bound,
            pending_pod(dice, f"pod-{i}"),
            workloads=workloads,
            namespaces=namespaces,
            rejecting=rejecting,
        )
        if assumed is not None:
            pod_info = cluster.put_pod(assumed)
            assert (pod_info.cores is None, pod_info.problem) == (False, "")
            bound.append(assumed)
            count += 1
        if bound and dice.random() < 0.3:
            cluster.remove_pod(bound.pop(0).uid)
        if nodes and dice.random() < 0.2:
            gone = nodes.pop(0)
            cluster.remove_node(gone.name)
            nodes.append(some_node(dice, gone.name))
            cluster.put_node(nodes[-1])
            rejecting.discard(gone.name)
    return count


@settings(max_examples=examples(60))
@given(dice=st.randoms(use_true_random=False))
def test_every_decision_is_the_obvious_one(dice: Random) -> None:
    """Feasible nodes, reasons with their counts, and the chosen node agree with the oracle; failures are shrunk."""
    play(dice)


@pytest.mark.parametrize("part", range(examples(10)))
def test_every_decision_is_the_obvious_one_three_thousand_times(part: int) -> None:
    """The same with ordinary random numbers, so often that rare cases come together."""
    assert sum(play(Random(seed)) for seed in range(part * 300, part * 300 + 300)) > 150


def play_beside_nominations(dice: Random) -> int:
    """Schedule a pod where space is kept for others; return how many nodes take it only because of lower priority."""
    nodes = [some_node(dice, name) for name in NAMES[: dice.randint(1, 4)]]
    bound = [bound_pod(dice, f"bound-{i}") for i in range(dice.randint(0, 3))]
    cluster, kept = cluster_of(nodes, bound), []
    for i in range(dice.randint(1, 3)):
        first = nominated_pod(dice, f"kept-{i}", dice.choice(nodes).name)
        node_info = cluster.node(first.node_name)
        cores = None if node_info is None else allocation_of(first, node_info.machine)[0]
        if cores is not None:
            kept.append(first)
            cluster.nominate(first.node_name, Nomination(attrs.evolve(first, node_name="", allocation={}), cores))
    drawn = pending_pod(dice, "pending")
    plain = attrs.evolve(drawn.constraints, affinity=(), anti_affinity=(), spread=())
    pending = attrs.evolve(drawn, constraints=plain, labels={}, namespace="apart")
    result = schedule_pod(cluster, pending, PROFILE)
    if pod_reason(pending) or any(other.constraints.anti_affinity for other in bound):
        return 0
    taking, equal = set[str](), 0
    for each in nodes:
        here = [other for other in bound if other.node_name == each.name]
        preceding = [first for first in kept if first.node_name == each.name and first.priority >= pending.priority]
        alone = refusals(each, here, pending)
        beside = refusals(each, [*here, *preceding], pending)
        equal += bool(beside and not alone and all(first.priority == pending.priority for first in preceding))
        if not (alone or beside):
            taking.add(each.name)
    if isinstance(result, Decision):
        assert (result.node_name in taking, result.feasible) == (True, len(taking))
    else:
        assert taking == set()
    return equal


@pytest.mark.parametrize("part", range(examples(4)))
def test_space_that_is_kept_is_left_to_equals(part: int) -> None:
    """A node takes a pod if it does with and without the pods of the same or a higher priority it is kept for."""
    assert sum(play_beside_nominations(Random(seed)) for seed in range(part * 500, part * 500 + 500)) > 5


def test_the_requested_node_name_is_obeyed() -> None:
    """A pod that names its node fits on no other."""
    nodes = [node("a"), node("b", created=1)]
    for name in ("b", "none"):
        unanimous(cluster_of(nodes, []), nodes, [], pod("p", cpu=500, on=name))

"""Filter and prioritize are our own queue's filters and preferences, on any cluster and for any of the nodes."""

from functools import reduce
from operator import or_
from random import Random

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.extender.candidates import (
    ELSEWHERE,
    UNKNOWN_NODE,
    filter_nodes,
    is_for_neuron,
    prioritize_nodes,
)
from neuron_scheduler.extender.protocol import MOST_PRIORITY, ExtenderFilterResult
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle import schedule_pod
from neuron_scheduler.scheduling.cycle.profile import default_profile, extender_profile
from neuron_scheduler.scheduling.cycle.refusals import refusals_on
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.random_objects import NAMES, bound_pod, pending_pod, some_node
from tests.support.thoroughness import examples

OURS = extender_profile()
AS_IN_OUR_QUEUE = default_profile("", preferences=("AvoidRejectingNodes", "SmallestBlock"))
SEVEN = (
    "Instance type trn1.32xlarge does not support requests for device: 7. Please request a different number of devices."
)


def random_cluster(dice: Random) -> Cluster:
    """Return nodes with pods, nominations, and nodes that are set aside."""
    nodes = [some_node(dice, name) for name in dice.sample(NAMES, dice.randint(1, len(NAMES)))]
    cluster = cluster_of(nodes, [bound_pod(dice, f"b{number}") for number in range(dice.randint(0, 8))])
    for number in range(dice.randint(0, 2)):
        nominated = attrs.evolve(pending_pod(dice, f"nominated{number}"), priority=dice.choice([0, 10]))
        cluster.nominate(dice.choice(nodes).name, Nomination(nominated, cores=CoreMask(dice.getrandbits(8))))
    if dice.random() < 0.3:
        cluster.set_aside(dice.choice(nodes).name, NO_CORES)
    return cluster


def sent(dice: Random) -> list[str]:
    """Return names in any order, some of unknown nodes."""
    names = [*NAMES, "ghost"]
    dice.shuffle(names)
    return names[: dice.randint(0, len(names))]


def reasons(filtered: ExtenderFilterResult) -> dict[str, str]:
    """Return the reason of each node that failed; none fails twice."""
    assert not filtered.failed_nodes.keys() & filtered.failed_and_unresolvable_nodes.keys()
    return {**filtered.failed_nodes, **filtered.failed_and_unresolvable_nodes}


@settings(max_examples=examples(100))
@given(st.randoms(use_true_random=False))
def test_filter_is_the_schedulers_own(dice: Random) -> None:
    """A node fails where our plugins refuse it in our queue, for a reason of theirs, and nowhere else."""
    cluster, pending, names = random_cluster(dice), pending_pod(dice, "p"), sent(dice)
    filtered = filter_nodes(cluster, pending, OURS, names)
    failed = reasons(filtered)

    assert filtered.node_names == [name for name in names if name not in failed]
    for name in names:
        slot = cluster.view.slot(name)
        if not is_for_neuron(pending):
            assert name not in failed
        elif slot is None:
            assert filtered.failed_and_unresolvable_nodes[name] == (pending.refusal or UNKNOWN_NODE)
        elif pending.refusal:
            assert filtered.failed_and_unresolvable_nodes[name] == pending.refusal
        else:
            refusals = [r for r in refusals_on(cluster, slot, pending, OURS) if r.nodes >> slot & 1]
            assert failed.get(name, "") in ({r.reason for r in refusals} or {""})
            assert (name in filtered.failed_and_unresolvable_nodes) == any(r.unresolvable for r in refusals)


@settings(max_examples=examples(100))
@given(st.randoms(use_true_random=False))
def test_the_best_nodes_are_those_that_the_scheduler_would_choose(dice: Random) -> None:
    """
    Of the nodes of any class and below, the scheduler's choice is in that class.

    Its preferences are those of our queue, without the ones that kube-scheduler has itself.
    """
    cluster, pending, names = random_cluster(dice), pending_pod(dice, "p"), sorted(NAMES)
    scores = dict(zip(names, prioritize_nodes(cluster, pending, OURS, names), strict=True))
    assert all(0 <= score <= MOST_PRIORITY for score in scores.values())
    if pending.neuron is None or pending.refusal:
        assert not any(scores.values())
        return
    left = set(filter_nodes(cluster, pending, OURS, names).node_names)
    assert {name for name, score in scores.items() if score} == left
    choosing = attrs.evolve(OURS, preferences=AS_IN_OUR_QUEUE.preferences)
    while left:
        among = reduce(or_, (1 << slot for name in left if (slot := cluster.view.slot(name)) is not None), NO_NODES)
        chosen = schedule_pod._choose(cluster, pending, choosing, choosing.steps_for(pending), among)
        assert isinstance(chosen, Decision)
        best = max(scores[name] for name in left)
        assert scores[chosen.node_name] == best
        left = {name for name in left if scores[name] < best}


def test_aws_sentence_and_what_eviction_cannot_change() -> None:
    """A count that the type never serves is unresolvable; a lack of free devices is not."""
    full = [pod("full", devices=16, ids=range(16), on="full")]
    nodes = [node("trn1", "trn1.32xlarge"), node("inf2", "inf2.48xlarge"), node("full", "trn1.32xlarge"), node("m5")]
    names = ["ghost", "m5", "full", "inf2", "trn1"]
    cluster = cluster_of(nodes, full)

    assert filter_nodes(cluster, pod(devices=7), OURS, names) == ExtenderFilterResult(
        ["inf2"],
        {},
        {"ghost": UNKNOWN_NODE, "m5": "Insufficient aws.amazon.com/neuron", "full": SEVEN, "trn1": SEVEN},
    )
    assert filter_nodes(cluster, pod(devices=4), OURS, names) == ExtenderFilterResult(
        ["inf2", "trn1"],
        {"full": "Insufficient aws.amazon.com/neuron"},
        {"ghost": UNKNOWN_NODE, "m5": "Insufficient aws.amazon.com/neuron"},
    )


@pytest.mark.parametrize(
    ("pending", "passes"),
    [
        pytest.param(pod(), True, id="without Neuron"),
        pytest.param(pod(refusal="too many labels"), True, id="without Neuron, beyond our limits"),
        pytest.param(pod(devices=2, cores=3), False, id="devices and cores"),
        pytest.param(pod(devices=1, resource_claims=("claim",)), True, id="kube-scheduler allocates the claims"),
        pytest.param(pod(devices=1, requests={"example.com/other": 1}), True, id="another resource"),
        pytest.param(pod(devices=1, cpu=500_000), False, id="more cpu than there is"),
    ],
)
def test_pods_of_other_kinds(pending: Pod, passes: bool) -> None:
    """What kube-scheduler judges itself is left to it, and pods that cannot be bound get our sentence."""
    filtered = filter_nodes(cluster_of([node("n", "trn1.32xlarge")]), pending, OURS, ["n"])
    assert bool(filtered.node_names) == passes
    if pending.refusal and not passes:
        assert filtered.failed_and_unresolvable_nodes == {"n": pending.refusal}


def test_pods_of_our_queue_count_before_they_are_bound() -> None:
    """An assumed pod holds its devices and its cpu, and a nomination keeps its devices from less important pods."""
    cluster = cluster_of([node("n", "trn1.32xlarge", cpu=10_000)])
    cluster.assume(pod("assumed", devices=8, cpu=6_000, on="n"), CoreMask((1 << 16) - 1))
    assert filter_nodes(cluster, pod(devices=8), OURS, ["n"]).node_names == ["n"]
    assert filter_nodes(cluster, pod(devices=16), OURS, ["n"]).failed_nodes == {
        "n": "Insufficient aws.amazon.com/neuron"
    }
    assert filter_nodes(cluster, pod(devices=1, cpu=5_000), OURS, ["n"]).failed_nodes == {"n": "Insufficient cpu"}
    cluster.nominate("n", Nomination(pod("nominated", devices=8, priority=5), cores=CoreMask(((1 << 16) - 1) << 16)))

    assert filter_nodes(cluster, pod(devices=1), OURS, ["n"]).failed_nodes == {
        "n": "Insufficient aws.amazon.com/neuron"
    }
    assert filter_nodes(cluster, pod(devices=1, priority=9), OURS, ["n"]).node_names == ["n"]


def test_a_pod_that_is_being_bound_passes_on_its_node_only() -> None:
    """kube-scheduler may not know the outcome of its last call, and the repeat must not find the node full."""
    cluster = cluster_of([node("n", "trn1.32xlarge"), node("m", "trn1.32xlarge")])
    repeated = pod("p", devices=16)
    cluster.assume(attrs.evolve(repeated, node_name="n"), CoreMask((1 << 32) - 1))

    assert filter_nodes(cluster, repeated, OURS, ["m", "n"]) == ExtenderFilterResult(["n"], {}, {"m": ELSEWHERE})
    assert prioritize_nodes(cluster, repeated, OURS, ["m", "n"]) == [0, 0]


def test_smallest_block_first() -> None:
    """Each larger block is a class below, nodes that are set aside come last, and equal blocks are equal."""
    nodes = [node(name, "trn1.32xlarge") for name in ("whole", "half", "row", "other-row", "rejecting")]
    used = {"half": range(8), "row": range(4, 16), "other-row": range(4, 16), "rejecting": range(1, 16)}
    pods = [pod(f"on-{name}", devices=len(ids), ids=ids, on=name) for name, ids in used.items()]
    cluster = cluster_of(nodes, pods)
    names = ["whole", "half", "row", "other-row", "rejecting", "ghost"]
    assert prioritize_nodes(cluster, pod(devices=4), OURS, names) == [8, 9, 10, 10, 0, 0]
    cluster.set_aside("rejecting", NO_CORES)

    assert prioritize_nodes(cluster, pod(devices=1), OURS, names) == [8, 9, 10, 10, 7, 0]

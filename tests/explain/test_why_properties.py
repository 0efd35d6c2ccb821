"""For any cluster and pod, the explanation says what the decision says, with figures that a second count confirms."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.explain.answers import Explanation, NodeGroup, Verdict
from neuron_scheduler.explain.why import explain_on_node, explain_pod
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.model.wording import quantity
from neuron_scheduler.neuron.topology import place
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins import neuron_topology, node_resources_fit
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.steps import run
from tests.support.builders import pod
from tests.support.harness import cluster_of
from tests.support.oracle import names_allowed, outcome, refusals
from tests.support.oracle_affinity import affinity_refusals
from tests.support.oracle_node import affine
from tests.support.oracle_silicon import free_amounts, silicon
from tests.support.oracle_spread import spread_refusals
from tests.support.random_objects import NAMES, bound_pod, pending_pod, some_namespaces, some_node
from tests.support.thoroughness import examples

PROFILE = default_profile("my-scheduler")
FREE = re.compile(r"; (\d+) of (\d+) free")


def nominate(dice: Random, cluster: Cluster, nodes: Sequence[Node]) -> None:
    """Keep space on some nodes for pods of random priorities."""
    for number in range(dice.choice([1, 2, 6])):
        first = pending_pod(dice, f"first-{number}")
        if dice.random() < 0.7:  # one that leaves nothing for others
            first = pod(
                f"first-{number}", cpu=64_000, devices=dice.choice([0, 1, 16]), priority=dice.choice([-1, 0, 5])
            )
        name = dice.choice(nodes).name
        node_info = cluster.node(name)
        if node_info is None or first.refusal:
            continue
        placement = None
        if first.neuron is not None and node_info.machine is not None:
            placement = place(node_info.machine, node_info.free_cores, first.neuron)
        if first.neuron is None or placement is not None:
            cluster.nominate(name, Nomination(first) if placement is None else Nomination(first, placement.cores))


def as_decided(cluster: Cluster, pending: Pod, explanation: Explanation) -> None:
    """Check that verdict, message and cause are those of the decision; its counts are in the message."""
    result = schedule_pod(cluster, pending, PROFILE)
    if isinstance(result, Decision):
        ids = result.placement.ids if result.placement else ()
        assert (explanation.verdict, explanation.node_name, explanation.ids) == (Verdict.FITS, result.node_name, ids)
        assert explanation.cause == ""
        return
    assert (explanation.verdict, explanation.message) == (Verdict.WAITS, result.text)
    assert explanation.cause == result.cause


def every_node_once(explanation: Explanation, nodes: Sequence[Node]) -> None:
    """Check that the groups add up, and that the smaller ones name each of their nodes once."""
    assert sum(group.nodes for group in explanation.groups) == explanation.nodes == len(nodes)
    named = [name for group in explanation.groups for name in group.names]
    assert len(named) == len(set(named))
    assert all(min(group.nodes, 5) == len(group.names) for group in explanation.groups)


def figures_are_right(node: Node, here: Sequence[Pod], pending: Pod, group: NodeGroup) -> None:
    """Count again what the sentence of a group says of one of its nodes."""
    free, machinery = free_amounts(node, here), silicon(node, here)
    if group.plugin == node_resources_fit.NAME:
        lacking = [name for name, amount in pending.requests.items() if amount > free.get(name, 0)]
        for name in lacking:
            offered, used = node.allocatable.get(name, 0), sum(p.requests.get(name, 0) for p in here)
            want = f"needs {quantity(name, pending.requests[name])} {name}"
            want += f"; allocatable {quantity(name, offered)}, used {quantity(name, used)}" if offered else ""
            assert want in group.arithmetic
        assert ("room for 1 pod" in group.arithmetic) == (len(here) + 1 > node.allocatable[PODS])
    if group.plugin in (neuron_topology.NAME, "") and pending.neuron is not None and machinery is not None:
        counted = FREE.search(group.arithmetic)
        assert pending.neuron.unit in machinery.machine.units or counted is None
        if counted is not None:
            width = machinery.machine.cores_per_device if pending.neuron.unit == "device" else 1
            whole = [int(machinery.free) >> i * width & (1 << width) - 1 for i in range(int(counted[2]))]
            assert machinery.machine.size(pending.neuron.unit) == int(counted[2])
            in_blocks = sum(int(cores).bit_count() == width for cores in whole)
            assert int(counted[1]) == min(in_blocks, free.get(pending.neuron.resource, 0))


def play(dice: Random, *, nominations: bool) -> Counter[str]:
    """Explain pods in a random cluster; return how often each cause came up."""
    nodes = [some_node(dice, name) for name in NAMES[: dice.randint(0, 6)]]
    bound = [bound_pod(dice, f"bound-{i}") for i in range(dice.randint(0, 8))]
    cluster = cluster_of(nodes, bound)
    namespaces = some_namespaces(dice)
    for name, labels in namespaces.items():
        cluster.namespaces.put(Namespace(f"uid-{name}", name, labels))
    if nominations and nodes:
        nominate(dice, cluster, nodes)
    causes: Counter[str] = Counter()
    for i in range(2):
        pending = pending_pod(dice, f"pod-{i}")
        explanation = run(explain_pod(cluster, pending, PROFILE))
        causes[explanation.cause] += 1
        as_decided(cluster, pending, explanation)
        every_node_once(explanation, nodes)
        if nodes:
            node_alone(cluster, pending, explanation, dice.choice(nodes))
        if not cluster.has_nominations and not outcome(nodes, bound, pending, namespaces=namespaces).pod_reason:
            allowed = [node for node in nodes if rules_allow(nodes, bound, pending, node, namespaces)]
            assert (explanation.cause == Cause.AFFINITY) == bool(nodes and not allowed)
            for group in explanation.groups:
                for node in (node for node in nodes if node.name in group.names):
                    here = [p for p in bound if p.node_name == node.name]
                    figures_are_right(node, here, pending, group)
                    own = refusals(node, here, pending)
                    assert group.reason in own or (not own)
    return causes


def rules_allow(
    nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, node: Node, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    """Return whether no rule excludes a node, whatever else it lacks: the pod's own rules and those of other pods."""
    named = names_allowed(pending)
    return (
        (named is None or node.name in named)
        and pending.node_name in ("", node.name)
        and affine(node, pending)
        and not spread_refusals(nodes, bound, pending, node)
        and not affinity_refusals(nodes, bound, pending, node, namespaces)
    )


def node_alone(cluster: Cluster, pending: Pod, explanation: Explanation, node: Node) -> None:
    """Check that the answer about one node agrees with the group that the node is in."""
    alone = run(explain_on_node(cluster, pending, PROFILE, node.name))
    group = next((group for group in explanation.groups if node.name in group.names), None)
    if group is None:
        return  # a group names five of its nodes
    assert (alone.verdict is Verdict.FITS) == (group.plugin == "")
    if group.plugin and not group.kept_for and alone.groups:
        figures = {said.plugin: said.arithmetic for said in alone.groups}
        assert figures[group.plugin] or not group.arithmetic


@pytest.mark.parametrize("part", range(examples(2)))
def test_the_explanation_is_that_of_the_decision(part: int) -> None:
    """Hundreds of random clusters: the sentence, the counts, the groups and the figures are those of the decision."""
    causes = sum((play(Random(seed), nominations=False) for seed in range(part * 100, part * 100 + 100)), Counter())
    assert len(causes) > 6


@pytest.mark.parametrize("part", range(examples(2)))
def test_the_same_beside_nominations(part: int) -> None:
    """Where space is kept for other pods, too."""
    causes = sum((play(Random(seed), nominations=True) for seed in range(part * 100, part * 100 + 100)), Counter())
    assert causes["nominated"]

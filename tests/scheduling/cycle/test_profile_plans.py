"""Plans: only steps that a pod concerns are asked, and both forms of a filter agree."""

import random
from types import NoneType
from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.plugins.pod_fields import PodField
from tests.support import random_objects
from tests.support.builders import pod
from tests.support.harness import cluster_of
from tests.support.thoroughness import examples

PROFILE = default_profile("p")


def _some(seed: int) -> tuple[random.Random, Cluster]:
    dice = random.Random(seed)
    nodes = [random_objects.some_node(dice, name) for name in "abcdef"]
    pod_infos = [random_objects.bound_pod(dice, f"t{i}") for i in range(dice.randint(0, 8))]
    return dice, cluster_of(nodes, [attrs.evolve(bound, node_name=dice.choice("abcdef")) for bound in pod_infos])


@pytest.mark.parametrize("seed", range(examples(20)))
def test_what_is_accepted_is_what_is_not_refused(seed: int) -> None:
    """Every filter's short answer is what its reasons leave over, whatever nodes it is asked about."""
    dice, cluster = _some(seed)
    refused = 0
    for _ in range(30):
        pending, among = random_objects.pending_pod(dice, "p"), NodeSet(dice.randrange(1 << cluster.view.node_count))
        for plugin in PROFILE.filters:
            left = among
            for refusal in plugin.refuse(cluster.view, pending, among):
                left &= ~refusal.nodes
            assert plugin.accept_nodes(cluster.view, pending, among) == left, (plugin, pending)
            refused += left != among
    assert refused > 30


@pytest.mark.parametrize("seed", range(examples(20)))
def test_who_is_not_asked_had_nothing_to_say(seed: int) -> None:
    """A plugin that is left out of a pod's plan refuses nothing, and prefers nothing."""
    dice, cluster = _some(seed)
    left_out = 0
    for _ in range(30):
        pending, live = random_objects.pending_pod(dice, "p"), cluster.view.live
        plan = PROFILE.steps_for(pending)
        for plugin in PROFILE.filters:
            if plugin not in plan.filters:
                left_out += 1
                assert not any(refusal.nodes for refusal in plugin.refuse(cluster.view, pending, live)), plugin
        for pre_filter in PROFILE.pre_filters:
            if pre_filter not in plan.pre_filters:
                assert pre_filter.refuse(cluster.view, pending) is None, pre_filter
        for preference in PROFILE.preferences:
            if preference.prefer not in plan.preferences:
                assert preference.prefer(cluster.view, pending, live) == live, preference
    assert left_out > 100


@pytest.mark.parametrize("field", PodField)
def test_a_field_brings_all_who_read_it(field: PodField) -> None:
    """A pod that leaves out all fields but one gets the steps that read this one, however little it says."""
    value: Any = {str: "x", tuple: ("x",), dict: {"a": "b"}, NoneType: ()}[type(field.value.default)]
    some = pod()
    if field.is_of_constraints:
        some = attrs.evolve(some, constraints=attrs.evolve(some.constraints, **{field.attribute: value}))
    else:
        some = attrs.evolve(some, **{field.attribute: value})
    plan = PROFILE.steps_for(some)
    assert {step for step in PROFILE.pre_filters if field in step.reads} <= set(plan.pre_filters)
    assert {step for step in PROFILE.filters if field in step.reads} <= set(plan.filters)
    assert {step.prefer for step in PROFILE.preferences if field in step.reads} <= set(plan.preferences)

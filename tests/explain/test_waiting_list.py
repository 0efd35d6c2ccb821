"""What waits: each line is the decision's own, and equal pods are decided once."""

from random import Random
from unittest.mock import patch

import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.explain import waiting_list as module
from neuron_scheduler.explain.waiting_list import waiting_list
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from tests.support import random_objects
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.thoroughness import examples

PROFILE = default_profile("my-scheduler")


@pytest.mark.parametrize("seed", range(examples(40)))
def test_every_line_is_the_decision(seed: int) -> None:
    """Message and cause are those of a decision about this pod alone."""
    dice = Random(seed)
    cluster = cluster_of(
        [random_objects.some_node(dice, name) for name in random_objects.NAMES],
        [random_objects.bound_pod(dice, f"b{number}") for number in range(12)],
    )
    pods = [random_objects.pending_pod(dice, f"p{number}") for number in range(20)]
    answer = waiting_list(cluster, pods, lambda _: PROFILE)
    assert [(line.pod.namespace, line.pod.name) for line in answer.pods] == [(p.namespace, p.name) for p in pods]
    for line, waiting in zip(answer.pods, pods, strict=True):
        decision = schedule_pod(cluster, waiting, PROFILE)
        if isinstance(decision, FitError):
            assert (line.cause, line.message) == (decision.cause, decision.text)
        else:
            assert (line.cause, line.message) == ("", f"Fits now, on {decision.node_name}.")


def test_replicas_are_decided_once() -> None:
    """A thousand pods of one workload cost one decision; a pod with gates costs none."""
    cluster = cluster_of([node("a", "trn1.32xlarge")])
    pods = [pod(f"p{number}", devices=16, priority=1) for number in range(1000)]
    gated = pod("gated", devices=1, gates=("quota",))
    with patch.object(module, "schedule_pod", wraps=schedule_pod) as decided:
        answer = waiting_list(cluster, [*pods, gated], lambda _: PROFILE)
    assert decided.call_count == 1
    assert answer.total == 1001
    assert answer.pods[-1].message == "Scheduling is blocked by gates: quota."


def test_what_is_kept_for_one_pod_is_not_free_for_its_like() -> None:
    """A nominated pod is decided by itself, whether it comes first or last."""
    cluster = cluster_of([node("a", "trn1.32xlarge")])
    kept_for = pod("q", devices=16, nominated_node_name="a")
    cluster.nominate("a", Nomination(kept_for, CoreMask((1 << 32) - 1)))
    answer = waiting_list(cluster, [pod("p", devices=16), kept_for, pod("r", devices=16)], lambda _: PROFILE)
    assert [line.cause for line in answer.pods] == ["nominated", "", "nominated"]
    assert answer.pods[1].message == "Fits now, on a."

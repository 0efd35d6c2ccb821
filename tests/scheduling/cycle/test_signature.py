"""Pods of one signature are refused together, and nothing that a filter reads is left out of it."""

from random import Random
from typing import Any

import attrs
import pytest

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.cycle.signature import signature_of
from neuron_scheduler.scheduling.plugins.registry import LOCAL
from tests.support import random_objects
from tests.support.builders import pod
from tests.support.harness import cluster_of
from tests.support.random_storage import CLAIMS
from tests.support.thoroughness import examples

PROFILE = default_profile("default-scheduler")
FIT, FAR = frozenset({"NodeResourcesFit"}), frozenset({"InterPodAffinity"})


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        pytest.param(pod("b", cpu=5, created=9.0, images=("web:1",)), (True, True), id="another replica"),
        pytest.param(pod("b", cpu=5, labels={"job-name": "b"}), (True, False), id="another job"),
        pytest.param(pod("b", cpu=5, namespace="other"), (True, False), id="another namespace"),
        pytest.param(pod("b", cpu=6), (False, False), id="another size"),
        pytest.param(pod("b", cpu=5, priority=1), (False, False), id="another priority"),
        pytest.param(pod("b", cpu=5, node_selector={"a": "b"}), (False, False), id="another selector"),
    ],
)
def test_what_pods_have_in_common(other: Pod, alike: tuple[bool, bool]) -> None:
    """Labels and namespace count where a plugin refused that may have looked at other pods."""
    pending = pod("a", cpu=5)
    assert tuple(signature_of(pending, by) == signature_of(other, by) for by in (FIT, FIT | FAR)) == alike


def other_identity(dice: Random, known: Pod) -> Pod:
    """Return a pod that differs in what no filter reads, and in what others know it by."""
    change: dict[str, Any] = {
        "labels": dice.choice(random_objects.LABELS),
        "namespace": dice.choice(["default", "other"]),
        "owner": dice.choice(random_objects.OWNERS),
        "images": dice.sample(random_objects.IMAGES, 2),
        "created": dice.random(),
        "annotations_size": 7,
        "constraints": attrs.evolve(known.constraints, preferred_terms=()),
    }
    return attrs.evolve(known, name="other", uid="uid-other", **change)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_what_refuses_one_refuses_the_other(seed: int) -> None:
    """Whatever cluster there is: a pod with the signature of one that was refused is refused, and by no other need."""
    dice, together = Random(seed), 0
    for _ in range(60):
        nodes = [random_objects.some_node(dice, name) for name in random_objects.NAMES[: dice.randint(0, 3)]]
        there = [random_objects.bound_pod(dice, f"t{i}") for i in range(dice.randint(0, 6))]
        cluster = cluster_of(nodes, there)
        pending = random_objects.pending_pod(dice, "one")
        if dice.random() < 0.2:
            pending = attrs.evolve(
                pending, constraints=attrs.evolve(pending.constraints, volume_claims=(dice.choice(CLAIMS),))
            )
        refused = schedule_pod(cluster, pending, PROFILE)
        other = other_identity(dice, pending)
        if not isinstance(refused, FitError) or (
            signature_of(pending, refused.plugins) != signature_of(other, refused.plugins)
        ):
            continue
        together += 1
        again = schedule_pod(cluster, other, PROFILE)
        assert isinstance(again, FitError), (pending, other, refused.text)
        if not refused.plugins <= LOCAL:
            assert again.plugins == refused.plugins
    assert together > 10

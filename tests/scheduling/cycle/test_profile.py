"""A profile's preferences are an order that its owner may change."""

from collections.abc import Sequence

import pytest

from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

FLEET = (
    node("large", "trn1.32xlarge"),
    node("small", "inf2.xlarge"),
    node("plain", "m5.large"),
)


@pytest.mark.parametrize(
    ("preferences", "where"),
    [
        pytest.param(PREFERENCES, "small", id="by default the smallest block"),
        pytest.param((), "large", id="none: the oldest node"),
        pytest.param(("ImageLocality", "SmallestBlock"), "small", id="one that has nothing to say, then the block"),
    ],
)
def test_preferences_in_order(preferences: Sequence[str], where: str) -> None:
    """The named preferences decide, and no other."""
    decision = schedule_pod(cluster_of(FLEET), pod("p", devices=1), default_profile("p", preferences=preferences))
    assert isinstance(decision, Decision)
    assert decision.node_name == where
    assert decision.placement is not None


def test_two_profiles_on_one_cluster() -> None:
    """What one name avoids, another may take: the cluster is the same for both."""
    cluster, plain = cluster_of(FLEET), pod("p")
    decisions = [schedule_pod(cluster, plain, default_profile("p", preferences=names)) for names in (PREFERENCES, ())]
    assert [decision.node_name for decision in decisions if isinstance(decision, Decision)] == ["plain", "large"]

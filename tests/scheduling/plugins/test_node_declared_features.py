"""NodeDeclaredFeatures: what only some kubelets can do is asked of those that say they can."""

import pytest

from neuron_scheduler.scheduling.plugins import node_declared_features
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.registry import CONCERNED_BY
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, schedule


@pytest.mark.parametrize(
    ("needed", "declared", "fits"),
    [
        pytest.param((), (), True, id="a pod that needs nothing fits anywhere"),
        pytest.param(("a",), ("a", "b"), True, id="a node may declare more than the pod needs"),
        pytest.param(("a",), (), False, id="a node that declares nothing has nothing"),
        pytest.param(("a", "b"), ("b", "c"), False, id="all features that a pod needs have to be there"),
    ],
)
def test_features(needed: tuple[str, ...], declared: tuple[str, ...], fits: bool) -> None:
    """A node is refused for what it does not declare, in kube-scheduler's words, and no eviction helps."""
    cluster = cluster_of([node("n", declared_features=declared)])
    pending = pod(required_features=needed)
    if fits:
        assert schedule(cluster, pending) == ("n", ())
    else:
        fit_error = refusal(cluster, pending)
        assert fit_error.text == "0/1 nodes are available: 1 node(s) didn't match Pod's required features."
        [one] = node_declared_features.filter_nodes(cluster.view, pending, cluster.view.live)
        assert one.unresolvable


def test_a_node_that_declares_other_features_wakes_pods_that_were_refused_for_them() -> None:
    """Nobody else is woken."""
    assert CONCERNED_BY[ClusterEvent.NODE_FEATURES] == {node_declared_features.NAME}

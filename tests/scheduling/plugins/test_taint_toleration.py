"""TaintToleration: taints keep pods away, or make a node second choice."""

import pytest

from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.model.selectors import Effect, Taint, Toleration
from neuron_scheduler.scheduling.plugins import taint_toleration
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, schedule

NEURON = Taint("aws.amazon.com/neuron", Effect.NO_SCHEDULE)
DRAIN = Taint("drain", Effect.NO_EXECUTE)


def avoid(*keys: str) -> tuple[Taint, ...]:
    return tuple(Taint(key, Effect.PREFER_NO_SCHEDULE) for key in keys)


@pytest.mark.parametrize(
    ("taints", "tolerations", "fits"),
    [
        pytest.param((NEURON,), (), False, id="NoSchedule"),
        pytest.param((DRAIN,), (), False, id="NoExecute"),
        pytest.param(avoid("a"), (), True, id="PreferNoSchedule keeps no pod away"),
        pytest.param((NEURON, DRAIN), (Toleration(NEURON.key, exists=True),), False, id="one of two tolerated"),
        pytest.param((NEURON, DRAIN), (Toleration(exists=True),), True, id="everything tolerated"),
        pytest.param((NEURON,), (Toleration(exists=True, effect=Effect.NO_EXECUTE),), False, id="another effect"),
    ],
)
def test_filter(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...], fits: bool) -> None:
    """A node is refused unless each forbidding taint is tolerated."""
    cluster = cluster_of([node("n", taints=taints)])
    pending = pod(tolerations=tolerations)
    if fits:
        assert schedule(cluster, pending) == ("n", ())
    else:
        assert refusal(cluster, pending).text == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."


def test_a_refusal_cannot_be_resolved_by_eviction() -> None:
    """Taints stay when pods go."""
    cluster = cluster_of([node("n", taints=(NEURON,))])
    assert [r.unresolvable for r in taint_toleration.filter_nodes(cluster.view, pod(), NodeSet(1))] == [True]


@pytest.mark.parametrize(
    ("tolerations", "want"),
    [
        pytest.param((), "one", id="fewest untolerated taints"),
        pytest.param((Toleration("a", exists=True), Toleration("b", exists=True)), "two", id="tolerated ones are none"),
        pytest.param((Toleration(exists=True, effect=Effect.NO_SCHEDULE),), "one", id="tolerations of other effects"),
    ],
)
def test_preference(tolerations: tuple[Toleration, ...], want: str) -> None:
    """Nodes are compared by the number of discouraging taints that are not tolerated, whatever their order."""
    nodes = [
        node("three", taints=avoid("c", "d", "e"), created=0),
        node("two", taints=avoid("a", "b"), created=1),
        node("one", taints=avoid("c"), created=2),
    ]
    assert schedule(cluster_of(nodes), pod(tolerations=tolerations)) == (want, ())


def test_a_node_without_taints_is_best() -> None:
    """None is fewer than one."""
    nodes = [node("a", taints=avoid("x")), node("b", created=1)]
    assert schedule(cluster_of(nodes), pod()) == ("b", ())

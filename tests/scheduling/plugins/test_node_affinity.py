"""NodeAffinity: names that cannot be, what eviction cannot help, and wishes; which nodes match is the oracle's."""

import pytest

from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, PreferredTerm, Requirement
from neuron_scheduler.scheduling.plugins import node_affinity
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, schedule

NODES = [
    node("a", labels={"zone": "x"}),
    node("b", labels={"zone": "y"}, created=1),
    node("c", created=2, unschedulable=True),
]


def term(*needs: tuple[str, str, tuple[str, ...]], names: tuple[str, ...] = ()) -> NodeSelectorTerm:
    """Return a term of label expressions, and of names it insists on."""
    return NodeSelectorTerm(
        tuple(Requirement(key, Operator(operator), values) for key, operator, values in needs),
        tuple(Requirement("metadata.name", Operator.IN, (name,)) for name in names),
    )


def test_conflicting_names_refuse_the_pod() -> None:
    """No node could ever have two names."""
    fit_error = refusal(cluster_of(NODES), pod(required_terms=(term(names=("a", "b")),)))
    assert fit_error.text == "0/3 nodes are available: pod affinity terms conflict."
    assert fit_error.new_node_cannot_help


def test_refusals_cannot_be_resolved_by_eviction() -> None:
    """Labels and names stay when pods go."""
    cluster, pending = cluster_of(NODES), pod(required_terms=(term(("zone", "In", ("y",)), names=("a",)),))
    refusals = [
        *node_affinity.filter_names(cluster.view, pending, NodeSet(0b111)),
        *node_affinity.filter_nodes(cluster.view, pending, NodeSet(0b001)),
    ]
    assert [(r.nodes, r.unresolvable) for r in refusals] == [(NodeSet(0b110), True), (NodeSet(0b001), True)]


@pytest.mark.parametrize(
    ("preferred", "want"),
    [
        pytest.param([(50, "y")], "b", id="a wish"),
        pytest.param([(50, "y"), (60, "x")], "a", id="the heavier wish"),
        pytest.param([(50, "y"), (60, "x"), (20, "y")], "b", id="wishes add up"),
        pytest.param([(100, "z")], "a", id="a term that no node matches"),
        pytest.param([(0, "y")], "a", id="a wish without weight"),
    ],
)
def test_preferred(preferred: list[tuple[int, str]], want: str) -> None:
    """Nodes are compared by the sum of the weights they meet."""
    terms = tuple(PreferredTerm(weight, term(("zone", "In", (zone,)))) for weight, zone in preferred)
    assert schedule(cluster_of(NODES), pod(preferred_terms=terms)) == (want, ())

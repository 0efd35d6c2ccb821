"""NodeAffinity: what the pod says about labels and names of nodes."""

from typing import Any

import pytest

from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, PreferredTerm, Requirement
from neuron_scheduler.scheduling.plugins import node_affinity
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, schedule

NODES = [
    node("a", labels={"zone": "x", "rank": "5"}),
    node("b", labels={"zone": "y", "rank": "70"}, created=1),
    node("c", labels={"rank": "1_000"}, created=2, unschedulable=True),
]
NOT_MATCHED = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


def term(*needs: tuple[str, str, tuple[str, ...]], names: tuple[str, ...] = (), **rest: Any) -> NodeSelectorTerm:
    """Return a term of label expressions, and of names it insists on."""
    return NodeSelectorTerm(
        tuple(Requirement(key, Operator(operator), values) for key, operator, values in needs),
        tuple(Requirement("metadata.name", Operator.IN, (name,)) for name in names),
        **rest,
    )


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param({"node_selector": {"zone": "y"}}, "b", id="nodeSelector"),
        pytest.param({"required_terms": (term(("zone", "In", ("x", "y"))),)}, "a", id="In"),
        pytest.param({"required_terms": (term(("zone", "NotIn", ("x",))),)}, "b", id="NotIn"),
        pytest.param({"required_terms": (term(("rank", "Gt", ("9",))),)}, "b", id="Gt reads numbers, not text"),
        pytest.param({"required_terms": (term(("rank", "Lt", ("9",))),)}, "a", id="Lt"),
        pytest.param({"required_terms": (term(names=("b",)),)}, "b", id="a name"),
        pytest.param(
            {"required_terms": (term(), term(("zone", "In", ("y",))))}, "b", id="an empty term is passed over"
        ),
        pytest.param(
            {"required_terms": (term(("zone", "In", ("x",)), unreadable=True), term(("zone", "Exists", ())))},
            "a",
            id="a term that cannot be read matches nothing",
        ),
        pytest.param(
            {"node_selector": {"zone": "y"}, "required_terms": (term(("rank", "Exists", ())),)},
            "b",
            id="both must match",
        ),
    ],
)
def test_required(asked: dict[str, Any], want: str) -> None:
    """The oldest node that matches is taken."""
    assert schedule(cluster_of(NODES), pod(**asked)) == (want, ())


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param({"node_selector": {"zone": "z"}}, {NOT_MATCHED: 2}, id="no node of the zone"),
        pytest.param({"required_terms": ()}, {NOT_MATCHED: 2}, id="no terms match nothing"),
        pytest.param({"required_terms": (term(("rank", "Gt", ("70",))),)}, {NOT_MATCHED: 2}, id="1_000 is no number"),
        pytest.param({"required_terms": (term(("zone", "DoesNotExist", ())),)}, {NOT_MATCHED: 2}, id="all have it"),
        pytest.param({"required_terms": (term(names=("none",)),)}, {NOT_NAMED: 3}, id="a name that no node has"),
        pytest.param(
            {"required_terms": (term(("zone", "In", ("y",)), names=("a",)),)},
            {NOT_NAMED: 2, NOT_MATCHED: 1},
            id="the others have no further reason, cordoned or not",
        ),
    ],
)
def test_reasons(asked: dict[str, Any], want: dict[str, int]) -> None:
    """The cordoned node counts as cordoned, unless the pod insists on names."""
    reasons = dict(refusal(cluster_of(NODES), pod(**asked)).reasons)
    reasons.pop("node(s) were unschedulable", None)
    assert reasons == want


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

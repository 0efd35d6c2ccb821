"""When labels, names and taints match: the definitions with which every index is compared."""

import pytest

from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    Taint,
    Toleration,
    parse_int64,
    tolerates_all,
)

LABELS = {"zone": "a", "count": "10", "empty": ""}


def need(key: str, operator: str, *values: str) -> Requirement:
    """Return a requirement in the API's words."""
    return Requirement(key, Operator(operator), values)


@pytest.mark.parametrize(
    ("requirement", "want"),
    [
        (need("zone", "In", "a", "b"), True),
        (need("zone", "In", "b"), False),
        (need("zone", "In"), False),
        (need("none", "In", ""), False),
        (need("empty", "In", ""), True),
        (need("zone", "NotIn", "b"), True),
        (need("zone", "NotIn", "a"), False),
        (need("none", "NotIn", "a"), True),
        (need("zone", "Exists"), True),
        (need("empty", "Exists"), True),
        (need("none", "Exists"), False),
        (need("none", "DoesNotExist"), True),
        (need("zone", "DoesNotExist"), False),
        (need("count", "Gt", "9"), True),
        (need("count", "Gt", "10"), False),
        (need("count", "Lt", "11"), True),
        (need("count", "Lt", "10"), False),
        (need("count", "Gt", "-9223372036854775808"), True),
        (need("count", "Gt", "9", "9"), False),
        (need("count", "Gt"), False),
        (need("count", "Gt", "9.0"), False),
        (need("zone", "Gt", "0"), False),
        (need("none", "Gt", "0"), False),
        (need("none", "Lt", "0"), False),
    ],
)
def test_requirements(requirement: Requirement, want: bool) -> None:
    """Each operator accepts and refuses what upstream's does, absent labels and numbers included."""
    assert requirement.matches(LABELS) is want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("-5", -5),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        pytest.param("0" * 9_000 + "12", 12, id="many zeros"),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        pytest.param("9" * 9_000, None, id="many digits"),
        ("1_000", None),
        ("", None),
        ("+", None),
        ("+-1", None),
        ("1.0", None),
        ("1e3", None),
        ("0x1", None),
        (" 1", None),
        ("1\n", None),
        ("\u0663", None),
        ("\u00b2", None),
    ],
)
def test_integers_are_go_s(text: str, want: int | None) -> None:
    """What Python's `int` accepts beyond Go's ParseInt, or refuses to convert, is not an integer here and no crash."""
    assert parse_int64(text) == want


@pytest.mark.parametrize(
    ("term", "want"),
    [
        pytest.param(NodeSelectorTerm(), False, id="an empty term matches nothing"),
        pytest.param(NodeSelectorTerm((need("zone", "In", "a"),)), True, id="one expression"),
        pytest.param(NodeSelectorTerm((need("zone", "In", "a"), need("count", "Gt", "10"))), False, id="all must hold"),
        pytest.param(NodeSelectorTerm((), (need("metadata.name", "In", "n"),)), True, id="the node's name"),
        pytest.param(NodeSelectorTerm((), (need("metadata.name", "NotIn", "n"),)), False, id="not this name"),
        pytest.param(
            NodeSelectorTerm((need("zone", "In", "a"),), (need("metadata.name", "In", "m"),)),
            False,
            id="label and name",
        ),
        pytest.param(
            NodeSelectorTerm((need("zone", "In", "a"),), unreadable=True),
            False,
            id="an unreadable term matches nothing",
        ),
    ],
)
def test_terms(term: NodeSelectorTerm, want: bool) -> None:
    """A term is AND over labels and names, and matches nothing if it is empty or unreadable."""
    assert term.matches(LABELS, "n") is want


def test_an_empty_label_selector_matches_everything() -> None:
    """Unlike an empty node selector term."""
    assert LabelSelector().matches({})
    assert LabelSelector((need("zone", "In", "a"), need("none", "DoesNotExist"))).matches(LABELS)
    assert not LabelSelector((need("zone", "In", "a"), need("none", "Exists"))).matches(LABELS)


TAINT = Taint("dedicated", Effect.NO_SCHEDULE, "neuron")


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param(Toleration("dedicated", value="neuron"), True, id="equal value, any effect"),
        pytest.param(Toleration("dedicated", value="neuron", effect=Effect.NO_SCHEDULE), True, id="equal effect"),
        pytest.param(Toleration("dedicated", value="neuron", effect=Effect.NO_EXECUTE), False, id="another effect"),
        pytest.param(Toleration("dedicated", value="other"), False, id="another value"),
        pytest.param(Toleration("dedicated"), False, id="no value"),
        pytest.param(Toleration("dedicated", exists=True), True, id="exists"),
        pytest.param(
            Toleration("dedicated", exists=True, effect=Effect.PREFER_NO_SCHEDULE), False, id="exists, effect"
        ),
        pytest.param(Toleration("other", exists=True), False, id="another key"),
        pytest.param(Toleration(exists=True), True, id="everything"),
        pytest.param(Toleration(exists=True, effect=Effect.NO_EXECUTE), False, id="everything of another effect"),
        pytest.param(Toleration(value="neuron"), False, id="no key without exists"),
        pytest.param(Toleration("dedicated", exists=True, unreadable=True), False, id="an alpha operator"),
    ],
)
def test_tolerations(toleration: Toleration, want: bool) -> None:
    """A toleration must agree in effect, key and value, if it names them."""
    assert toleration.tolerates(TAINT) is want


def test_each_taint_needs_a_toleration_of_its_own() -> None:
    """Each taint needs one toleration; generators are read once."""
    second = Taint("second", Effect.NO_EXECUTE)
    both = [Toleration("dedicated", exists=True), Toleration("second", exists=True)]
    assert tolerates_all((t for t in both), (t for t in (TAINT, second)))
    assert not tolerates_all(both[:1], (TAINT, second))
    assert tolerates_all((), ())

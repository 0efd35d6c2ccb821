"""Namespaces selected by labels, as labels change."""

from hypothesis import given, strategies as st

from neuron_scheduler.cluster.tables.selecting_kinds import NamespaceTable
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement

SELECTORS = (
    LabelSelector(),
    LabelSelector((Requirement("team", Operator.IN, ("a",)),)),
    LabelSelector((Requirement("team", Operator.NOT_IN, ("a",)),)),
    LabelSelector((Requirement("team", Operator.EXISTS),)),
)
STEPS = st.tuples(st.sampled_from("xyz"), st.sampled_from([None, {}, {"team": "a"}, {"team": "b"}]))


@given(steps=st.lists(STEPS))
def test_what_is_selected_follows_the_labels(steps: list[tuple[str, dict[str, str] | None]]) -> None:
    """After every change each selector selects the namespaces that match it now."""
    table, known = NamespaceTable(), dict[str, dict[str, str]]()
    for name, labels in steps:
        if labels is None:
            table.remove(name)
            known.pop(name, None)
        else:
            table.put(Namespace(f"uid-{name}", name, labels))
            known[name] = labels
        for checked in (table, table.fork()):
            for selector in SELECTORS:
                assert checked.selected(selector) == {n for n, labels in known.items() if selector.matches(labels)}
        assert table.labels(name) == (labels or {})
        assert {name for name in "xyz" if name in table} == known.keys()


def test_more_selectors_than_are_remembered() -> None:
    """The oldest selector is evicted, and resolved again."""
    table = NamespaceTable()
    table.put(Namespace("u", "x", {"team": "7"}))
    for i in range(1100):
        selector = LabelSelector((Requirement("team", Operator.IN, (str(i),)),))
        assert table.selected(selector) == ({"x"} if i == 7 else set())
    assert table.selected(LabelSelector((Requirement("team", Operator.IN, ("7",)),))) == {"x"}

"""Namespaces selected by labels, as labels change, and the selector of the pods that belong together with a pod."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.cluster.tables.selecting_kinds import MOST_BUDGETS, Budgets, NamespaceTable, Workloads
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.selecting_kinds import Namespace, Workload
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from tests.support.builders import pod

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
                assert checked.names_matching(selector) == {
                    n for n, labels in known.items() if selector.matches(labels)
                }
        assert table.labels(name) == (labels or {})
        assert {name for name in "xyz" if name in table} == known.keys()


def test_more_selectors_than_are_remembered() -> None:
    """The oldest selector is evicted, and resolved again."""
    table = NamespaceTable()
    table.put(Namespace("u", "x", {"team": "7"}))
    for i in range(1100):
        selector = LabelSelector((Requirement("team", Operator.IN, (str(i),)),))
        assert table.names_matching(selector) == ({"x"} if i == 7 else set())
    assert table.names_matching(LabelSelector((Requirement("team", Operator.IN, ("7",)),))) == {"x"}


def selecting(**labels: str) -> LabelSelector:
    return LabelSelector(tuple(Requirement(key, Operator.IN, (value,)) for key, value in labels.items()))


def service(name: str, selector: LabelSelector | None, namespace: str = "default") -> Workload:
    return Workload(f"uid-{name}", "v1", "Service", namespace, name, selector)


WEB = service("web", selecting(app="web"))
TIER = service("tier", selecting(app="web", tier="front"))
RS = Workload("uid-rs", "apps/v1", "ReplicaSet", "default", "web", selecting(app="web", hash="1"))
OWNER = Owner("apps/v1", "ReplicaSet", "web")
EVERYTHING = (WEB, TIER, RS, service("all", LabelSelector()), service("none", None), service("far", WEB.selector, "o"))


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(pod(labels={"app": "web"}), selecting(app="web"), id="a Service"),
        pytest.param(pod(labels={"app": "web", "tier": "front"}), selecting(app="web", tier="front"), id="two"),
        pytest.param(pod(labels={"tier": "front"}), None, id="a Service means a pod only with all its labels"),
        pytest.param(pod(labels={}, owner=OWNER), selecting(app="web", hash="1"), id="a controller, labels or not"),
        pytest.param(
            pod(labels={"app": "web"}, owner=Owner("v1", "ReplicaSet", "web")), selecting(app="web"), id="another group"
        ),
        pytest.param(pod(labels={"app": "web"}, namespace="p"), None, id="another namespace"),
        pytest.param(pod(), None, id="nobody"),
    ],
)
def test_selector_of(asked: Pod, want: LabelSelector | None) -> None:
    """The selectors of all Services of the pod and of its controller are combined."""
    workloads = Workloads()
    for workload in EVERYTHING:
        workloads.put(workload)
    assert workloads.selector_of(asked) == want


def test_what_is_gone_selects_nothing() -> None:
    """Nothing is left behind; a copy keeps its selectors."""
    workloads = Workloads()
    for workload in EVERYTHING:
        workloads.put(workload)
    fork = workloads.fork()
    for workload in EVERYTHING:
        workloads.remove(workload)
        workloads.remove(workload)
    asked = pod(labels={"app": "web", "tier": "front"}, owner=OWNER)
    assert workloads.selector_of(asked) is None
    assert fork.selector_of(asked) == selecting(app="web", hash="1", tier="front")
    assert (workloads._services.by_key, workloads._controllers) == ({}, {})


def test_the_budgets_of_one_namespace_that_count_are_limited() -> None:
    """A tenant who makes thousands slows down no search, and takes nothing from other namespaces."""
    budgets = Budgets()
    for namespace, count in (("crowd", MOST_BUDGETS + 2), ("other", 2)):
        for number in range(count):
            budgets.put(DisruptionBudget(f"{namespace}-{number}", namespace, f"b{number:04}", LabelSelector()))
    assert Counter(budget.namespace for budget in budgets.all()) == {"crowd": MOST_BUDGETS, "other": 2}

"""Namespaces selected by labels, as labels change, and the selector of the pods that belong together with a pod."""

from itertools import combinations

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.cluster.tables.selecting_kinds import (
    MOST_SERVICES,
    NamespaceTable,
    Workloads,
)
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.selecting_kinds import Namespace, Workload
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from tests.support.builders import pod

REQUIREMENTS = tuple(
    Requirement(key, operator, values)
    for key in ("team", "stage")
    for operator, values in (
        (Operator.IN, ("a",)),
        (Operator.IN, ("a", "b")),
        (Operator.NOT_IN, ("a",)),
        (Operator.EXISTS, ()),
        (Operator.DOES_NOT_EXIST, ()),
    )
)
SELECTORS = tuple(LabelSelector(each) for number in range(3) for each in combinations(REQUIREMENTS, number))
LABELS: tuple[dict[str, str], ...] = ({}, {"team": "a"}, {"team": "b"}, {"team": "a", "stage": "b"}, {"stage": "c"})
STEPS = st.tuples(st.sampled_from("xyz"), st.sampled_from([None, *LABELS]))


@given(steps=st.lists(STEPS), names=st.frozensets(st.sampled_from("xyu")), other=st.sampled_from(SELECTORS))
def test_what_is_selected_follows_the_labels(
    steps: list[tuple[str, dict[str, str] | None]], names: frozenset[str], other: LabelSelector
) -> None:
    """After every change each selector selects the namespaces that match it now, beside those that are named."""
    table, known = NamespaceTable(), dict[str, dict[str, str]]()
    for name, labels in steps:
        if labels is None:
            table.remove(name)
            known.pop(name, None)
        else:
            table.put(Namespace(f"uid-{name}", name, labels))
            known[name] = labels
        assert table.labels(name) == (labels or {})
        everything = table.select(LabelSelector(), frozenset())
        assert {name for name in "xyz" if name in everything} == known.keys()
    for checked in (table, table.fork()):
        for selector in SELECTORS:
            selected = {name for name in known if selector.matches(known[name])}
            found, others = checked.select(selector, names), checked.select(other, frozenset())
            assert {name for name in "xyzu" if name in found} == selected | names
            both = found & others & checked.select(None, frozenset("xyu"))
            both_of_them = {name for name in "xyu" if name in found and name in others}
            assert {name for name in "xyzu" if name in both} == both_of_them


def test_a_namespace_that_comes_again_is_another_one() -> None:
    """A count of pods for the earlier one is not taken for a count of those in a later one."""
    table = NamespaceTable()
    table.put(Namespace("u", "x", {"team": "a"}))
    before = table.select(LabelSelector(), frozenset())
    table.remove("x")
    table.put(Namespace("v", "y", {"team": "a"}))
    assert table.select(LabelSelector(), frozenset()) != before


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


def test_the_services_that_a_pod_is_compared_with_are_limited() -> None:
    """All of them select it."""
    workloads, labels = Workloads(), {f"{number}": "x" for number in range(MOST_SERVICES + 50)}
    for key in labels:
        workloads.put(service(f"s{key}", selecting(**{key: "x"})))
    found = workloads.selector_of(pod(labels=labels))
    assert found is not None
    assert len(found.requirements) == MOST_SERVICES


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

"""PodDisruptionBudgets as the API server writes them."""

import json
from typing import Any

import pytest

from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.disruption_budgets import BUDGETS
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement

METADATA = {"namespace": "d", "name": "b", "uid": "u", "resourceVersion": "7"}
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))


def read(**parts: Any) -> DisruptionBudget | Malformed | None:
    """Return the value that is read from a budget with these parts."""
    return BUDGETS.decode(json.dumps({"metadata": METADATA, **parts}).encode()).value


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param({}, DisruptionBudget("u", "d", "b"), id="nothing but a name"),
        pytest.param(
            {
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
                "status": {
                    "disruptionsAllowed": 2,
                    "currentHealthy": 3,
                    "disruptedPods": {"p": "2026-11-21T08:00:00Z"},
                },
            },
            DisruptionBudget("u", "d", "b", WEB, 2, frozenset({"p"})),
            id="all that counts",
        ),
        pytest.param(
            {"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w"]}]}}},
            DisruptionBudget("u", "d", "b"),
            id="a selector that cannot be read matches nothing",
        ),
        pytest.param({"spec": None, "status": None}, DisruptionBudget("u", "d", "b"), id="nulls"),
    ],
)
def test_a_budget(parts: dict[str, Any], want: DisruptionBudget) -> None:
    """Selector, allowed disruptions, and the pods that are already counted."""
    assert read(**parts) == want


def test_an_unreadable_budget_is_named() -> None:
    """It is malformed, with as much of its identity as can be read."""
    budget = read(status={"disruptionsAllowed": "many"})
    assert isinstance(budget, Malformed)
    assert (budget.kind, budget.key, budget.uid) == ("PodDisruptionBudget", "d/b", "u")

"""Budgets by namespace."""

from neuron_scheduler.cluster.tables.budgets import MOST_BUDGETS, Budgets
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.selectors import LabelSelector


def test_the_budgets_of_one_namespace_that_count_are_limited() -> None:
    """A tenant who makes thousands slows down no search, and takes nothing from other namespaces."""
    budgets = Budgets()
    for namespace, count in (("crowd", MOST_BUDGETS + 2), ("other", 2)):
        for number in range(count):
            budgets.put(DisruptionBudget(f"{namespace}-{number}", namespace, f"b{number:04}", LabelSelector()))
    counting = {key for namespace in ("crowd", "other") for key in budgets.of(namespace).selecting.keys}
    first = {f"crowd/b{number:04}" for number in range(MOST_BUDGETS)}
    assert counting == {*first, "other/b0000", "other/b0001"}

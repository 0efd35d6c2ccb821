"""
All PodDisruptionBudgets, for preemption.

An event wakes no pod: a budget only decides which of several pods is evicted, never whether a pod fits.
"""

from typing import Any, ClassVar

import attrs

from neuron_scheduler.controllers.handlers.base import ObjectHandler
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.disruption import DisruptionBudget


@attrs.define(eq=False, kw_only=True)
class DisruptionBudgetHandler(ObjectHandler[DisruptionBudget]):
    """Keeps the last good state of each budget."""

    MALFORMED: ClassVar[str] = "Skipping malformed PodDisruptionBudget"

    resource: str = "poddisruptionbudgets"
    _budgets: dict[tuple[str, str], DisruptionBudget] = attrs.field(factory=dict, init=False)
    _sorted: tuple[DisruptionBudget, ...] | None = attrs.field(default=(), init=False)

    def all(self) -> tuple[DisruptionBudget, ...]:
        """Return all budgets, by namespace and name."""
        if self._sorted is None:
            self._sorted = tuple(self._budgets[key] for key in sorted(self._budgets))
        return self._sorted

    def added(self, new: DisruptionBudget) -> None:
        """Keep a new budget."""
        self._put(new)

    def updated(self, _: DisruptionBudget, new: DisruptionBudget) -> None:
        """Replace a budget."""
        self._put(new)

    def deleted(self, old: DisruptionBudget) -> None:
        """Drop a budget."""
        self._budgets.pop((old.namespace, old.name), None)
        self._sorted = None

    def identity(self, malformed: Malformed) -> dict[str, Any]:
        """Return the keys of the log line that name the budget."""
        return {"budget": malformed.key}

    def _put(self, budget: DisruptionBudget) -> None:
        self._budgets[budget.namespace, budget.name] = budget
        self._sorted = None

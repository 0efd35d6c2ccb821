"""
The PodDisruptionBudgets there are, as preemption asks for them.

An event wakes nobody: a budget only decides who of several is asked to leave, never whether a pod fits.
"""

import attrs

from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class DisruptionBudgets:
    """Takes the events of budgets and keeps the last good state of each."""

    metrics: Metrics
    _budgets: dict[tuple[str, str], DisruptionBudget] = attrs.field(factory=dict, init=False)
    _sorted: tuple[DisruptionBudget, ...] | None = attrs.field(default=(), init=False)
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    def all(self) -> tuple[DisruptionBudget, ...]:
        """Return all budgets, by namespace and name."""
        if self._sorted is None:
            self._sorted = tuple(self._budgets[key] for key in sorted(self._budgets))
        return self._sorted

    def added(self, budget: DisruptionBudget) -> None:
        """Take a budget that was not there before."""
        self._put(budget)

    def updated(self, _: DisruptionBudget, budget: DisruptionBudget) -> None:
        """Take a budget's new state."""
        self._put(budget)

    def deleted(self, budget: DisruptionBudget) -> None:
        """Take that a budget is gone."""
        self._budgets.pop((budget.namespace, budget.name), None)
        self._sorted = None

    def malformed(self, report: Malformed) -> None:
        """Take a budget that cannot be read; its last good state, if any, is kept."""
        self.metrics.malformed("poddisruptionbudgets")
        if self._warned(report.key):
            log.warning("Skipping malformed PodDisruptionBudget", budget=report.key, err=report.reason)

    def mended(self, report: Malformed) -> None:
        """Take that an unreadable budget can be read again, or is gone."""
        self._warned.forget(report.key)

    def _put(self, budget: DisruptionBudget) -> None:
        self._budgets[budget.namespace, budget.name] = budget
        self._sorted = None

"""
What an event of a Service or controller means: which pods belong together.

It wakes nobody: only preferences depend on it, and a pod that waits was refused by filters.
"""

import attrs

from neuron_scheduler.cluster.tables.workloads import Workloads
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.workload import Workload
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class WorkloadHandler:
    """
    Takes the events of one kind.

    Attributes:
        resource: plural name, for metrics.
    """

    workloads: Workloads
    metrics: Metrics
    resource: str
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    def added(self, workload: Workload) -> None:
        """Take one that was not there before."""
        self.workloads.put(workload)

    def updated(self, old: Workload, new: Workload) -> None:
        """Take its new state."""
        self.workloads.remove(old)
        self.workloads.put(new)

    def deleted(self, workload: Workload) -> None:
        """Take that it is gone."""
        self.workloads.remove(workload)

    def malformed(self, report: Malformed) -> None:
        """Take one that cannot be read; its last good state, if any, is kept."""
        self.metrics.malformed(self.resource)
        if self._warned(report.key):
            log.warning("Skipping malformed object", kind=report.kind, key=report.key, err=report.reason)

    def mended(self, report: Malformed) -> None:
        """Take that an unreadable object can be read again, or is gone."""
        self._warned.forget(report.key)

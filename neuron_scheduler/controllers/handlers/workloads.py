"""
Services and controllers of pods: which pods belong together.

An event wakes no pod: only preferences depend on it, and a waiting pod was refused by filters.
"""

import attrs

from neuron_scheduler.cluster.tables.workloads import Workloads
from neuron_scheduler.controllers.handlers.base import ObjectHandler
from neuron_scheduler.model.workload import Workload


@attrs.define(eq=False, kw_only=True)
class WorkloadHandler(ObjectHandler[Workload]):
    """Keeps the selectors of one kind of workload."""

    workloads: Workloads

    def added(self, new: Workload) -> None:
        """Keep a new workload's selector."""
        self.workloads.put(new)

    def updated(self, old: Workload, new: Workload) -> None:
        """Replace a workload's selector."""
        self.workloads.remove(old)
        self.workloads.put(new)

    def deleted(self, old: Workload) -> None:
        """Drop a workload's selector."""
        self.workloads.remove(old)

"""Events of Services and controllers keep the table of selectors."""

import attrs

from neuron_scheduler.cluster.tables.selecting_kinds import Workloads
from neuron_scheduler.controllers.handlers.other_kinds import WorkloadHandler
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.selecting_kinds import Workload
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.builders import pod

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
DB = LabelSelector((Requirement("app", Operator.IN, ("db",)),))
SERVICE = Workload("u", "v1", "Service", "default", "s", WEB)


def test_a_service_comes_changes_and_goes() -> None:
    """Only the latest selector counts; an unreadable Service keeps its last one."""
    workloads, metrics = Workloads(), Metrics()
    handler = WorkloadHandler(workloads=workloads, metrics=metrics, resource="services")
    web, db = pod(labels={"app": "web"}), pod(labels={"app": "db"})
    changed, broken = attrs.evolve(SERVICE, selector=DB), Malformed("Service", "default/s", "selector is 5", "u")

    def selectors() -> tuple[LabelSelector | None, LabelSelector | None]:
        return workloads.selector_of(web), workloads.selector_of(db)

    handler.added(SERVICE)
    assert selectors() == (WEB, None)
    handler.malformed(broken)
    assert selectors() == (WEB, None)
    handler.updated(SERVICE, changed)
    handler.no_longer_malformed(broken)
    assert selectors() == (None, DB)
    handler.deleted(changed)
    assert selectors() == (None, None)
    body, _ = metrics.exposition()
    assert b'neuron_scheduler_malformed_objects_total{resource="services"} 1.0' in body

"""What the handlers of all kinds do with an object that cannot be read."""

from typing import Any

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.tables.selecting_kinds import Workloads
from neuron_scheduler.controllers.handlers.base import ObjectHandler
from neuron_scheduler.controllers.handlers.other_kinds import (
    DisruptionBudgetHandler,
    NamespaceHandler,
    StorageHandler,
    WorkloadHandler,
)
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.handlers import World


def handlers() -> dict[str, ObjectHandler[Any]]:
    """Return a handler of each kind, by the start of its log line."""
    world, metrics, queue, cluster = World(), Metrics(), SchedulingQueue(), Cluster()
    return {
        "Skipping malformed pod pod=": world.pods,
        "Skipping malformed node node=": world.nodes,
        "Skipping malformed PodDisruptionBudget budget=": DisruptionBudgetHandler(metrics=metrics),
        "Skipping malformed namespace namespace=": NamespaceHandler(
            namespaces=cluster.namespaces, queue=queue, metrics=metrics
        ),
        "Skipping malformed object kind=": WorkloadHandler(workloads=Workloads(), metrics=metrics, resource="services"),
        "Skipping malformed storage object kind=": StorageHandler(
            cluster=cluster, queue=queue, metrics=metrics, noticed=lambda _: None
        ),
    }


@pytest.mark.parametrize("line", handlers())
def test_an_unreadable_object_is_counted_each_time_and_logged_once(line: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each log line names the object by its kind's own keys; once the object was readable, it is logged again."""
    handler = handlers()[line]
    report = Malformed("Kind", "x", "bad")

    def lines() -> list[str]:
        keys = [f"{record.message} {next(iter(vars(record)['pairs']))}=" for record in caplog.records]
        caplog.clear()
        return keys

    handler.malformed(report)
    handler.malformed(report)
    assert lines() == [line]
    body, _ = handler.metrics.exposition()
    assert f'neuron_scheduler_malformed_objects_total{{resource="{handler.resource}"}} 2.0'.encode() in body
    handler.no_longer_malformed(report)
    handler.malformed(report)
    assert lines() == [line]

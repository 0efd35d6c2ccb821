"""What is done with an object that cannot be read, of whichever kind."""

import pytest

from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selecting_kinds import BUDGETS, NAMESPACES
from neuron_scheduler.kube.objects.storage import CLAIMS
from tests.support.handlers import World


@pytest.mark.parametrize(
    ("resource", "line"),
    [
        (PODS, "Skipping malformed pod pod="),
        (NODES, "Skipping malformed node node="),
        (BUDGETS, "Skipping malformed PodDisruptionBudget budget="),
        (NAMESPACES, "Skipping malformed namespace namespace="),
        (CLAIMS, "Skipping malformed object kind="),
    ],
)
def test_an_unreadable_object_is_counted_each_time_and_logged_once(
    resource: Resource[object], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each log line names the object by its kind's own keys; once the object was readable, it is logged again."""
    handler = World().watches.of(resource)
    report = Malformed(resource.kind, "x", "bad")

    def lines() -> list[str]:
        keys = [f"{record.message} {next(iter(vars(record)['pairs']))}=" for record in caplog.records]
        caplog.clear()
        return keys

    handler.on_malformed(report)
    handler.on_malformed(report)
    assert lines() == [line]
    body, _ = handler.metrics.exposition()
    assert f'neuron_scheduler_malformed_objects_total{{resource="{resource.name}"}} 2.0'.encode() in body
    handler.on_malformed_gone(report)
    handler.on_malformed(report)
    assert lines() == [line]

"""Events of namespaces: what selectors select, and which changes wake pods."""

from neuron_scheduler.cluster.tables.selecting_kinds import NamespaceTable
from neuron_scheduler.controllers.handlers.other_kinds import NamespaceHandler
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.scheduling.plugins import inter_pod_affinity
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.builders import pod
from tests.support.queueing import popped

TEAM = LabelSelector((Requirement("team", Operator.IN, ("a",)),))


def test_the_table_follows_the_watch() -> None:
    """Each change of labels wakes the loop; an unreadable object changes nothing."""
    table, queue, woken = NamespaceTable(), SchedulingQueue(), list[int]()
    queue.add(pod("waiting"), 0.0)
    queue.unschedulable(popped(queue, 0.0), frozenset({inter_pod_affinity.NAME}), 0.0)
    queue.on_change = lambda: woken.append(1)
    handler = NamespaceHandler(namespaces=table, queue=queue, metrics=Metrics())
    plain, labelled = Namespace("u", "ns"), Namespace("u", "ns", {"team": "a"})
    handler.added(plain)
    assert table.selected(TEAM) == set()
    handler.updated(plain, labelled)
    unreadable = Malformed("Namespace", "ns", "labels: expected object", "u")
    handler.malformed(unreadable)
    handler.no_longer_malformed(unreadable)
    assert table.selected(TEAM) == {"ns"}
    assert len(woken) == 2
    handler.deleted(labelled)
    assert table.selected(TEAM) == set()
    assert len(woken) == 2

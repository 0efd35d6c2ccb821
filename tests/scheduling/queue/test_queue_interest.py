"""Pods that were refused because of other pods: which of those wake them."""

from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement, SpreadConstraint
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import pod
from tests.support.queueing import FIT, counts, drain, refuse_all

SPREAD = frozenset({"PodTopologySpread"})


def waiting(*apps: str, plugins: frozenset[str] = SPREAD) -> SchedulingQueue:
    """Return a queue in which a pod of each application was refused."""
    queue = SchedulingQueue()
    for app in apps:
        selector = LabelSelector((Requirement("app", Operator.IN, (app,)),))
        spread = (SpreadConstraint("zone", 1, hard=True, selector=selector),)
        queue.add(pod(app, labels={"app": app}, spread=spread), 0.0)
    refuse_all(queue, 0.0, plugins)
    return queue


def test_a_pod_wakes_those_that_count_it() -> None:
    """Binding a pod of one application does not wake the pods of other applications."""
    queue = waiting("web", "db")
    queue.note(ClusterEvent.ASSIGNED_POD_ADDED, pod("other", labels={"app": "web"}))
    assert drain(queue, 10.0) == ["web"]
    assert counts(queue) == {"unschedulable": 1, "in_flight": 1}


def test_a_pod_that_nobody_counts_wakes_nobody() -> None:
    """Another label or another namespace wakes no pod."""
    queue = waiting("web")
    queue.note(ClusterEvent.ASSIGNED_POD_ADDED, pod("other", labels={"app": "x"}))
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod("far", labels={"app": "web"}, namespace="far"))
    assert drain(queue, 10.0) == []


def test_old_and_new_labels_matter() -> None:
    """A pod whose label changes wakes the pods of both applications."""
    queue = waiting("web", "db", "x")
    queue.note(ClusterEvent.ASSIGNED_POD_LABELS, pod(labels={"app": "web"}), pod(labels={"app": "db"}))
    assert drain(queue, 10.0) == ["web", "db"]


def test_an_event_that_names_nobody_wakes_all() -> None:
    """So does a deleted node: it may have been the emptiest domain."""
    for event in (ClusterEvent.ASSIGNED_POD_GONE, ClusterEvent.NODE_DELETED):
        queue = waiting("web")
        queue.note(event)
        assert drain(queue, 10.0) == ["web"]


def test_whoever_lacks_room_too_is_woken_by_any_pod_that_goes() -> None:
    """The cpu of any pod helps."""
    queue = waiting("web", plugins=SPREAD | FIT)
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod("far", namespace="far"))
    assert drain(queue, 10.0) == ["web"]

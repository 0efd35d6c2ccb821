"""The queue follows its pods: they change, lose their gates, and are deleted."""

import attrs
import pytest

from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.selectors import Toleration
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import pod
from tests.support.queueing import FIT, GONE, apply_events, counts, drain, new_queue, popped, queue_of, refuse_all


def refused(now: float = 0.0) -> SchedulingQueue:
    """Return a queue with one pod refused."""
    queue = queue_of("a")
    refuse_all(queue, now)
    return queue


@pytest.mark.parametrize(
    ("changed", "wakes"),
    [
        pytest.param(pod("a", labels={"x": "y"}), True, id="a label"),
        pytest.param(pod("a", tolerations=(Toleration(exists=True),)), True, id="a toleration"),
        pytest.param(pod("a", priority=1), True, id="its priority"),
        pytest.param(pod("a", resource_version="2"), False, id="nothing but the version"),
        pytest.param(pod("a", scheduled=PodCondition("False", "Unschedulable", "0/1")), False, id="our own condition"),
        pytest.param(pod("a", nominated_node_name="n"), False, id="a nomination"),
        pytest.param(pod("a", annotations_size=5, observed_generation=2), False, id="annotations"),
    ],
)
def test_an_update_wakes_if_it_bears_on_scheduling(changed: Pod, wakes: bool) -> None:
    """Our own writes must not wake their pod; in any case the new state is kept."""
    queue = refused()
    queue.add(changed, 1.0)
    assert counts(queue) == ({"active": 1} if wakes else {"unschedulable": 1})
    queue.note(GONE)
    assert popped(queue, 1.0).pod is changed


def test_adding_a_pod_twice_is_an_update() -> None:
    """A new list contains pods that are here already; they keep their place and their history."""
    queue = refused()
    queue.add(pod("a", resource_version="2"), 1.0)
    assert counts(queue) == {"unschedulable": 1}
    queue.remove("uid-a")
    assert counts(queue) == {}


def test_a_pod_in_flight_takes_its_new_state() -> None:
    """It is tried with its new state when it is put back."""
    queue = queue_of("a")
    queued = popped(queue, 0.0)
    newer = pod("a", labels={"x": "y"})
    queue.add(newer, 0.5)
    assert counts(queue) == {"in_flight": 1}
    queue.put_back_failed(queued, 1.0)
    assert popped(queue, 2.0).pod is newer


# Gates


def test_a_gated_pod_waits_for_its_gates() -> None:
    """Its time begins when the last gate is removed; nothing else wakes it."""
    queue = new_queue()
    gated = pod("a", gates=("one", "two"))
    queue.add(gated, 0.0)
    queue.add(attrs.evolve(gated, gates=("two",), labels={"x": "y"}), 1.0)
    queue.note(ClusterEvent.NODE_ADDED)
    assert (queue.pop(1000.0), queue.next_time(), counts(queue)) == (None, None, {"gated": 1})
    queue.add(pod("b"), 1001.0)
    queue.add(pod("a"), 1002.0)
    first, second = popped(queue, 1002.0), popped(queue, 1002.0)
    assert (first.pod.name, second.pod.name, second.first_active) == ("b", "a", 1002.0)


# Removal


@pytest.mark.parametrize("place", ["active", "in_flight", "backoff", "error", "unschedulable", "gated"])
def test_a_removed_pod_is_gone_from_everywhere(place: str) -> None:
    """Deleted, bound, or no longer ours: wherever it waited, it is never popped."""
    queue = new_queue()
    queue.add(pod("a", gates=("g",) if place == "gated" else ()), 0.0)
    if place not in ("active", "gated"):
        queued = popped(queue, 0.0)
        if place == "error":
            queue.put_back_failed(queued, 0.0)
        elif place != "in_flight":
            queue.put_back_refused(queued, FIT, 0.0)
        if place == "backoff":
            queue.note(GONE)
            apply_events(queue, 0.0)
    queue.remove("uid-a")
    queue.remove("uid-a")
    assert "uid-a" not in queue
    assert counts(queue) == {}
    queue.note(GONE)
    assert queue.pop(1000.0) is None
    assert queue.refused_by_plugin() == {}


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made anew"])
def test_a_pod_removed_in_flight_does_not_come_back(again: bool) -> None:
    """The end of its attempt finds a new entry, or none."""
    queue = queue_of("a")
    queued = popped(queue, 0.0)
    queue.remove("uid-a")
    if again:
        queue.add(pod("a"), 1.0)
    queue.put_back_refused(queued, FIT, 1.0)
    queue.put_back_failed(queued, 1.0)
    assert counts(queue) == ({"active": 1} if again else {})
    assert drain(queue, 2.0) == (["a"] if again else [])

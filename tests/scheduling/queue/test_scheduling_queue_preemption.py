"""The queue while victims are asked to leave for a pod: the pod waits, and misses no event."""

from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import pod
from tests.support.queueing import AFFINITY, FIT, GONE, counts, drain, popped, queue_of, refuse_all


def test_an_event_during_a_long_decision_is_not_lost() -> None:
    """It wakes the pod as soon as it is put back, if it could help."""
    for plugins, there in ((FIT, {"active": 1}), (AFFINITY, {"unschedulable": 1})):
        queue = queue_of("p")
        queued = popped(queue, 0.0)
        queue.keep_events(queued)
        queue.note(GONE)
        queue.put_back_refused(queued, plugins, 0.1)
        assert counts(queue) == there


def test_what_was_before_the_decision_counts_no_more() -> None:
    """An event before the decision, or during the decision of another pod, changes nothing."""
    queue = queue_of("p", "q")
    first = popped(queue, 0.0)
    queue.note(GONE)
    queue.keep_events(first)
    queue.put_back_refused(first, FIT, 0.1)
    second = popped(queue, 0.1)
    queue.keep_events(second)
    queue.note(GONE)
    queue.remove("uid-q")
    assert drain(queue, 0.1) == ["p"]


def test_the_end_of_its_own_nomination_wakes_no_pod() -> None:
    """The space was free for the pod before, so only other pods may fit now."""
    queue = queue_of("decided")
    queue.add(pod("other", cpu=1), 0.0)
    refuse_all(queue, 0.0)
    queue.activate("uid-decided", 0.0)
    queued = popped(queue, 0.0)
    queue.keep_events(queued)
    queue.note(GONE, queued.pod)
    queue.put_back_refused(queued, FIT, 0.0)
    assert drain(queue, 100.0) == ["other"]


def test_what_keeps_preemption_from_helping_may_change() -> None:
    """A pod that lacks space, and would be refused by its affinity if others left, is woken by either."""
    queue = queue_of("p")
    queue.put_back_refused(popped(queue, 0.0), FIT, 0.0, waits_for=FIT | AFFINITY)
    assert queue.refused_by_plugin() == {("NodeResourcesFit", "default-scheduler"): 1}
    queue.note(ClusterEvent.NODE_LABELS)
    assert drain(queue, 1.0) == ["p"]


def test_a_change_of_the_pod_during_a_long_decision_is_not_lost() -> None:
    """The decision was about its old state."""
    queue = queue_of("p")
    queued = popped(queue, 0.0)
    queue.add(pod("p", labels={"new": "yes"}), 0.1)
    queue.put_back_refused(queued, AFFINITY, 0.2)
    assert counts(queue) == {"active": 1}


def queue_of_preempting(*names: str) -> SchedulingQueue:
    """Return a queue in which these pods are preempting."""
    queue = queue_of(*names)
    for _ in names:
        queue.put_back_refused(popped(queue, 0.0), FIT, 0.0, is_preempting=True)
    return queue


def test_nothing_wakes_a_preempting_pod() -> None:
    """No event, change or timeout wakes it; all of them count at its release."""
    queue = queue_of_preempting("p")
    queue.note(GONE)
    assert drain(queue, 1.0) == []
    queue.add(pod("p", labels={"new": "yes"}), 1.0)
    queue.activate("uid-p", 1.0)
    assert drain(queue, 1000.0) == []
    queue.release("uid-p", 1000.0)
    assert drain(queue, 1000.0) == ["p"]


def test_a_released_pod_waits_for_the_end_of_its_victims() -> None:
    """Without an event it stays where it is."""
    queue = queue_of_preempting("p")
    queue.release("uid-p", 1.0)
    assert counts(queue) == {"unschedulable": 1}
    queue.note(GONE)
    assert drain(queue, 2.0) == ["p"]


def test_a_pod_whose_preemption_failed_backs_off() -> None:
    """Not even an idle queue tries it before; as with errors, each failure in a row doubles the time."""
    queue, now, pauses = queue_of("p"), 0.0, list[float]()
    for _ in range(6):
        queue.put_back_refused(popped(queue, now), FIT, now, is_preempting=True)
        queue.note(GONE)
        queue.release("uid-p", now, failed=True)
        queue.note(GONE)
        assert drain(queue, now) == []
        end = queue.next_time()
        assert end is not None
        pauses.append(end - now)
        now = end
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_a_pod_that_lost_its_nomination_is_tried_again() -> None:
    """Only a refused pod is activated; any other pod stays, and an unknown uid is ignored."""
    queue = queue_of("p")
    queue.activate("uid-p", 0.0)
    assert counts(queue) == {"active": 1}
    queue.put_back_refused(popped(queue, 0.0), AFFINITY, 0.0)
    queue.activate("uid-p", 0.5)
    assert counts(queue) == {"active": 1}
    queue.activate("uid-stranger", 0.5)
    queue.release("uid-stranger", 0.5)

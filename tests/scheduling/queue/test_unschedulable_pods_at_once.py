"""Thousands of different pods are woken a few at a time, so that other tasks need not wait."""

import math
from collections import Counter

import pytest

from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue import scheduling_queue
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.unschedulable_pods import AT_ONCE
from tests.support.builders import pod
from tests.support.queueing import AFFINITY, FIT, GONE, drain, new_queue, popped, refuse_all

MANY = 3 * AT_ONCE + 1


def queue_of_many(entered: Counter[str] | None = None) -> SchedulingQueue:
    """Return a queue of refused pods that no two events can be asked about together; the last one is most important."""
    counted: Counter[str] = Counter() if entered is None else entered

    def count(_queue: str, event: str) -> None:
        counted[event] += 1

    queue = new_queue(on_entered=count)
    for number in range(MANY):
        queue.add(pod(f"p{number}", cpu=number + 1, priority=int(number == MANY - 1)), 0.0)
    refuse_all(queue, 0.0)
    return queue


def test_an_event_is_looked_at_in_several_steps() -> None:
    """None of them wakes more than so many pods, and no pod is tried before the best one is known."""
    entered: Counter[str] = Counter()
    queue = queue_of_many(entered)
    queue.note(GONE)
    steps = 0
    while (queued := queue.pop(1.0)) is None:
        steps += 1
        assert entered[GONE] == steps * AT_ONCE
        assert queue.next_time() == -math.inf
    assert (queued.pod.name, steps, entered[GONE]) == (f"p{MANY - 1}", MANY // AT_ONCE, MANY)
    assert len(drain(queue, 1.0)) == MANY - 1


def test_events_meanwhile_wait_for_their_turn() -> None:
    """They keep no pod from being tried, and are not forgotten."""
    queue = queue_of_many()
    queue.add(pod("a", node_selector={"a": "b"}), 1.0)
    queue.put_back_refused(popped(queue, 1.0), AFFINITY, 1.0)
    queue.note(GONE)
    assert queue.pop(1.0) is None
    queue.note(ClusterEvent.NODE_LABELS)
    while (queued := queue.pop(1.0)) is None:
        pass
    assert queued.pod.name == f"p{MANY - 1}"
    assert "a" in drain(queue, 1.0)


def test_a_batch_is_followed_by_as_many_pods_as_it_had_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant with thousands of kinds of refusal must not have each event evaluated before the next pod."""
    monkeypatch.setattr(scheduling_queue, "FEW_STEPS", 1)
    queue = queue_of_many()
    for number in range(8):
        queue.add(pod(f"other-{number}", priority=2), 1.0)
    queue.note(ClusterEvent.NODE_LABELS)
    evaluated = []
    while queue.count(Place.ACTIVE):
        if queue.pop(1.0) is None:
            evaluated.append(queue.count(Place.ACTIVE))
        queue.note(ClusterEvent.NODE_LABELS)
    assert evaluated == [8, 8, 8, 5, 5, 5, 2, 2, 2]  # the last step returns a pod


def test_a_pod_that_goes_meanwhile_is_not_woken() -> None:
    """It is neither popped nor missed."""
    queue = queue_of_many()
    queue.note(GONE)
    assert queue.pop(1.0) is None
    for number in (0, MANY - 1):
        queue.remove(f"uid-p{number}")
    names = []
    while (queued := queue.pop(1.0)) is not None or queue.next_time() == -math.inf:
        names += [queued.pod.name] if queued is not None else []
    assert len(names) == MANY - 2


def test_an_event_before_a_refusal_does_not_wake_the_pod() -> None:
    """It came while the pod was being prepared, and waited for its turn until the pod was refused."""
    queue = queue_of_many()
    queue.activate("uid-p0", 1.0)
    queued = popped(queue, 1.0)
    queue.note(GONE)
    queue.put_back_refused(queued, FIT, 1.0)
    while (woken := queue.pop(1.0)) is None:
        pass
    assert sorted([woken.pod.name, *drain(queue, 1.0)]) == sorted(f"p{number}" for number in range(1, MANY))


@pytest.mark.parametrize("preempting", [0, 2 * AT_ONCE])
def test_pods_that_wait_too_long_are_woken_a_few_at_a_time(preempting: int) -> None:
    """Pods that are preempting keep neither the others from it nor the queue busy."""
    entered: Counter[str] = Counter()
    queue = new_queue(on_entered=lambda _queue, event: entered.update((event,)))
    for number in range(preempting + MANY):
        queue.add(pod(f"p{number}", cpu=number + 1), 0.0)
        queue.put_back_refused(popped(queue, 0.0), FIT, 0.0, is_preempting=number < preempting)
    tried = []
    while (time := queue.next_time()) is not None and time <= 1000.0:
        before = entered["UnschedulableTimeout"]
        queued = queue.pop(1000.0)
        tried += [queued.pod.name] if queued is not None else []
        assert entered["UnschedulableTimeout"] <= before + AT_ONCE
    tried += drain(queue, 1000.0)
    assert sorted(tried) == sorted(f"p{number}" for number in range(preempting, preempting + MANY))

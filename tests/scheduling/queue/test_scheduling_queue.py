"""The queue computes with `now`: which pod is next, when a backoff is over, and which pods an event wakes."""

import math
from collections import Counter

import pytest

from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import pod
from tests.support.queueing import (
    AFFINITY,
    FIT,
    GONE,
    apply_events,
    counts,
    drain,
    new_queue,
    popped,
    queue_of,
    refuse_all,
)

# Order


def test_priority_then_time() -> None:
    """Higher priority first, then the earlier time, then the earlier call."""
    queue = new_queue()
    for name, priority, now in (
        ("late", 0, 2.0),
        ("high", 10, 3.0),
        ("early", 0, 1.0),
        ("same", 0, 2.0),
        ("low", -1, 0.0),
    ):
        queue.add(pod(name, priority=priority), now)
    assert drain(queue, 3.0) == ["high", "early", "late", "same", "low"]


def test_a_refused_pod_keeps_its_place() -> None:
    """Age counts, however often a pod was refused: pods that came later are behind it."""
    queue = queue_of("a", now=0.0)
    for now in (1.0, 100.0, 200.0):
        queue.put_back_refused(popped(queue, now), FIT, now)
        queue.note(GONE)
    queue.add(pod("b"), 201.0)
    assert drain(queue, 300.0) == ["a", "b"]


def test_an_error_does_not_cost_a_pod_its_place() -> None:
    """It waits for its backoff, and then comes before younger pods."""
    queue = queue_of("a", now=0.0)
    queue.put_back_failed(popped(queue, 0.0), 0.0)
    queue.add(pod("b"), 0.5)
    assert drain(queue, 1.0) == ["a", "b"]


def test_thousands_of_backoffs_end_in_steps_before_a_pod_is_popped() -> None:
    """Until all that end together are active nobody is popped: the best may be among the last."""
    queue = new_queue()
    for number in range(1_500):
        queue.add(pod(f"p{number}", priority=number), 0.0)
    for _ in range(1_500):
        queue.put_back_failed(popped(queue, 0.0), 0.0)
    active = list[int]()
    while (queued := queue.pop(1.0)) is None:
        assert queue.next_time() == -math.inf
        active.append(queue.count(Place.ACTIVE))
    assert active == [512, 1_024]
    assert queued.pod.name == "p1499"


def test_pods_from_before_the_first_pop_are_ordered_by_age() -> None:
    """A list is ordered by name: after a restart, the pod that waits longest must not come last."""
    queue = new_queue()
    for name, created in (("a", 30.0), ("b", 10.0), ("c", 20.0)):
        queue.add(pod(name, created=created), 0.0)
    queue.put_back_refused(popped(queue, 1.0), FIT, 1.0)
    queue.add(pod("z", created=1.0), 2.0)  # it had gates until now, or was another's
    queue.note(GONE)
    assert drain(queue, 3.0) == ["b", "c", "a", "z"]


def test_a_changed_priority_counts_at_once() -> None:
    """A waiting pod is moved, not duplicated."""
    queue = queue_of("a", "b")
    queue.add(pod("b", priority=1), 1.0)
    assert counts(queue) == {"active": 2}
    assert drain(queue, 1.0) == ["b", "a"]


def test_attempts_and_the_first_time_are_remembered() -> None:
    """They are reported when the pod is bound."""
    queue = queue_of("a", now=5.0)
    for attempt in (1, 2, 3):
        queued = popped(queue, attempt * 100.0)
        assert (queued.attempts, queued.first_active) == (attempt, 5.0)
        queue.put_back_failed(queued, attempt * 100.0)


# Backoff


def test_backoff_doubles_up_to_its_cap() -> None:
    """1, 2, 4, 8, 10, 10 seconds after an error."""
    queue, now = queue_of("a"), 0.0
    for seconds in (1, 2, 4, 8, 10, 10):
        queue.put_back_failed(popped(queue, now), now)
        assert queue.next_time() == now + seconds
        assert queue.pop(now + seconds - 0.001) is None
        now += seconds


def test_an_error_backoff_is_never_cut_short() -> None:
    """The API server needs the pause, even if no other pod is active."""
    queue = queue_of("a")
    queue.put_back_failed(popped(queue, 0.0), 0.0)
    queue.note(GONE)
    assert queue.pop(0.999) is None
    assert counts(queue) == {"backoff": 1}
    assert popped(queue, 1.0).pod.name == "a"


def test_the_first_refusal_costs_no_backoff() -> None:
    """A pod that was refused once is woken without a backoff, and comes before younger pods."""
    queue = queue_of("a")
    refuse_all(queue, 10.0)
    queue.add(pod("b"), 10.1)
    queue.note(GONE)
    assert drain(queue, 10.1) == ["a", "b"]


def refused_in_vain(names: str, times: int, now: float) -> SchedulingQueue:
    """Return a queue of different pods that were refused several times in a row."""
    queue = new_queue()
    for cpu, name in enumerate(names):
        queue.add(pod(name, cpu=cpu), now)
    for _ in range(times):
        refuse_all(queue, now)
        queue.note(GONE)
    return queue


def test_a_refusal_backoff_is_cut_short_when_nothing_else_waits() -> None:
    """As upstream: an idle scheduler tries a woken pod at once, but active pods come first."""
    queue = refused_in_vain("ab", 2, 10.0)
    queue.add(pod("c"), 10.1)
    assert popped(queue, 10.1).pod.name == "c"
    assert counts(queue) == {"backoff": 2, "in_flight": 1}
    assert drain(queue, 10.1) == ["a", "b"]


@pytest.mark.parametrize(("times", "seconds"), [(1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (6, 10), (7, 10)])
def test_backoff_doubles_with_each_refusal_in_a_row(times: int, seconds: int) -> None:
    """None after the first, then 1, 2, 4, 8, 10, 10 seconds."""
    queue = refused_in_vain("a", times, 100.0)
    queue.add(pod("busy"), 100.0)
    for now in range(100, 100 + seconds):
        assert popped(queue, now).pod.name == "busy"
        queue.remove("uid-busy")
        queue.add(pod("busy"), now)
    assert popped(queue, 100.0 + seconds).pod.name == "a"


def test_a_refusal_long_after_the_last_begins_a_new_row() -> None:
    """Backoff delays pods that are refused again and again, not pods that wait for long."""
    queue = refused_in_vain("a", 5, 0.0)
    refuse_all(queue, 100.0)
    queue.note(GONE)
    queue.add(pod("b"), 100.1)
    assert drain(queue, 100.1) == ["a", "b"]


def test_backoffs_that_end_within_a_second_end_together() -> None:
    """The higher priority comes first, although the lower one was refused earlier."""
    queue = new_queue()
    for name, priority, now in (("low", 0, 10.1), ("high", 5, 10.7)):
        queue.add(pod(name, priority=priority), now)
        queue.put_back_failed(popped(queue, now), now)
    assert (queue.pop(11.9), queue.next_time()) == (None, 12.0)
    assert drain(queue, 12.0) == ["high", "low"]


def test_of_backoffs_that_end_together_the_highest_priority_is_cut_short_first() -> None:
    """By the second, then by priority: no pod is tried again and again while others wait."""
    queue = new_queue()
    for name, priority, refusals in (("low", 0, 4), ("late", 9, 5), ("high", 5, 4)):
        queue.add(pod(name, priority=priority), 10.0)
        queued = popped(queue, 10.0)
        queued.refusals = refusals - 1
        queue.put_back_refused(queued, FIT, 10.0)
    queue.note(GONE)
    queue.add(pod("busy"), 10.0)
    assert popped(queue, 10.0).pod.name == "busy"
    assert (counts(queue), queue.next_time()) == ({"backoff": 3, "in_flight": 1}, 14.0)
    assert drain(queue, 10.0) == ["high", "low", "late"]


def test_a_woken_pod_whose_backoff_is_over_is_active_at_once() -> None:
    """Among active pods the priority decides, not the time of the backoff."""
    queue = refused_in_vain("a", 2, 0.0)
    queue.add(pod("b"), 0.5)
    assert drain(queue, 1.0) == ["a", "b"]


def test_a_refusal_forgets_errors() -> None:
    """Errors in a row and refusals in a row are counted separately."""
    queue, now = queue_of("a"), 0.0
    for _ in range(4):
        queue.put_back_failed(popped(queue, now), now)
        now += 10
    queued = popped(queue, now)
    queue.put_back_refused(queued, FIT, now)
    assert (queued.errors, queued.refusals) == (0, 1)
    queue.put_back_failed(popped_after(queue, GONE, now), now)
    assert queue.next_time() == now + 1


def popped_after(queue: SchedulingQueue, event: ClusterEvent, now: float) -> QueuedPod:
    """Return the pod that an event wakes."""
    queue.note(event)
    return popped(queue, now)


@pytest.mark.parametrize("refusals", [1, 63, 2000])
def test_no_number_of_refusals_overflows(refusals: int) -> None:
    """The backoff never exceeds its limit."""
    queue = queue_of("a")
    queued = popped(queue, 0.0)
    queued.refusals = refusals
    queue.put_back_refused(queued, FIT, 0.0)
    queue.note(GONE)
    apply_events(queue, 0.0)
    assert queue.next_time() == min(10.0, 2.0 ** (min(refusals, 20) - 1))


def test_without_a_maximum_there_is_no_backoff() -> None:
    """`podMaxBackoffSeconds: 0` as upstream."""
    queue = new_queue(max_backoff=0.0)
    queue.add(pod("a"), 0.0)
    queue.put_back_failed(popped(queue, 0.0), 0.0)
    assert drain(queue, 0.0) == ["a"]


# Events


@pytest.mark.parametrize(
    ("event", "want"),
    [
        (ClusterEvent.NODE_LABELS, ["affinity", "both"]),
        (ClusterEvent.ASSIGNED_POD_GONE, ["both", "fit"]),
        (ClusterEvent.NODE_ADDED, ["affinity", "both", "fit"]),
        (ClusterEvent.NODE_HEALTH, []),
    ],
)
def test_an_event_wakes_those_it_could_help(event: ClusterEvent, want: list[str]) -> None:
    """A pod waits for an event that concerns a plugin that refused it; without a refusing plugin any event wakes it."""
    queue = new_queue()
    for cpu, name in enumerate(("affinity", "both", "fit", "nobody")):
        queue.add(pod(name, cpu=cpu), 0.0)
    for plugins in (AFFINITY, AFFINITY | FIT, FIT, frozenset[str]()):
        queue.put_back_refused(popped(queue, 0.0), plugins, 0.0)
    assert queue.pop(1.0) is None
    name = pod().scheduler_name
    assert queue.refused_by_plugin() == {("NodeAffinity", name): 2, ("NodeResourcesFit", name): 2}
    queue.note(event)
    assert sorted(drain(queue, 1.0)) == sorted([*want, "nobody"])


def test_a_burst_of_events_moves_each_pod_once() -> None:
    """Events are noted when they happen and take effect at the next pop."""
    entered: list[tuple[str, str]] = []
    queue = new_queue(on_entered=lambda place, event: entered.append((place, event)))
    for cpu, name in enumerate("abc"):
        queue.add(pod(name, devices=4, cpu=cpu), 0.0)
    refuse_all(queue, 0.0)
    entered.clear()
    for _ in range(1000):
        queue.note(GONE)
        queue.note(ClusterEvent.NODE_ADDED)
    assert entered == []
    refuse_all(queue, 0.5)
    assert entered == [("active", "AssignedPodDelete")] * 3
    assert queue.pop(0.5) is None


def test_an_event_before_the_refusal_does_not_wake() -> None:
    """The decision has considered it already."""
    queue = queue_of("a", "b")
    refuse_all(queue, 0.0)
    queue.note(GONE)
    refuse_all(queue, 5.0)
    assert queue.pop(5.0) is None
    assert counts(queue) == {"unschedulable": 2}


def test_pods_are_flushed_after_five_minutes() -> None:
    """No pod waits for ever: the queue checks every 30 s and tries a pod after 300 s."""
    queue = queue_of("a")
    refuse_all(queue, 0.0)
    queue.add(pod("b"), 20.0)
    refuse_all(queue, 20.0)
    tried: dict[str, float] = {}
    now = 20.0
    while len(tried) < 2:
        now = queue.next_time() or now
        for name in drain(queue, now):
            tried[name] = now
    assert 300 <= tried["a"] < 330
    assert 320 <= tried["b"] < 350
    assert queue.next_time() is None


def test_nothing_waits_for_nothing() -> None:
    """If no pod waits, there is no next time."""
    queue = queue_of()
    assert (queue.pop(0.0), queue.next_time()) == (None, None)


def test_a_hint_that_fails_wakes_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A needless attempt is better than a pod that is never woken because of a defect, and the loop does not end."""
    monkeypatch.setattr("neuron_scheduler.scheduling.queue.events.pods_may_help", lambda *_, **__: 1 / 0)
    queue = queue_of("a", "b")
    refuse_all(queue, 0.0)
    queue.note(GONE, pod("gone"))
    assert drain(queue, 100.0) == ["a", "b"]


def causes(queue: SchedulingQueue) -> Counter[Cause]:
    """Return how many pods wait for what, without those in flight."""
    return Counter(queue.cause_of(queued) for queued in queue.pods() if queued.place is not Place.IN_FLIGHT)


def test_each_waiting_pod_has_one_cause() -> None:
    """The cause of its last attempt; gated and new pods have causes of their own, and pods in flight have none."""
    queue = new_queue()
    queue.add(pod("gated", gates=("g",)), 0.0)
    for name in ("a", "b", "c"):
        queue.add(pod(name), 0.0)
    assert causes(queue) == {Cause.GATED: 1, Cause.UNTRIED: 3}
    first, second = popped(queue, 0.0), popped(queue, 0.0)
    assert causes(queue) == {Cause.GATED: 1, Cause.UNTRIED: 1}
    queue.put_back_refused(first, FIT, 0.0, cause=Cause.FRAGMENTATION)
    queue.put_back_failed(second, 0.0)
    assert causes(queue) == {Cause.GATED: 1, Cause.UNTRIED: 1, Cause.FRAGMENTATION: 1, Cause.ERROR: 1}
    queue.activate(first.pod.uid, 0.0)
    queue.add(pod("gated"), 0.0)
    assert causes(queue) == {Cause.UNTRIED: 2, Cause.FRAGMENTATION: 1, Cause.ERROR: 1}
    for name in ("gated", "a", "b", "c"):
        queue.remove(pod(name).uid)
    assert causes(queue) == {}
    assert not any(queue.count(place) for place in Place)


def test_a_pod_is_found_by_its_uid() -> None:
    """While it waits and while it is in flight; not before it came, and not after it was bound or is gone."""
    queue, waiting = new_queue(), pod("p")
    assert queue.get(waiting.uid) is None
    queue.add(waiting, 0.0)
    queued = queue.get(waiting.uid)
    assert queued is not None
    assert queued.pod is waiting
    assert queue.pop(0.0) is queued
    assert queue.get(waiting.uid) is queued
    queue.remove(waiting.uid)
    assert queue.get(waiting.uid) is None

"""The waiting pods are counted by cause and size as the queue has them, in steps, with few labels."""

import random
from collections import Counter

import pytest

from neuron_scheduler.explain.waiting import MOST_LABELS, WaitingPods, size_labels, waiting_pods
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.queued_pod import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import pod, request
from tests.support.queueing import FIT, popped
from tests.support.thoroughness import examples


def counted(queue: SchedulingQueue) -> WaitingPods:
    """Return the counts of a queue."""
    *_, last = waiting_pods(queue)
    assert last is not None
    return last


def _refused(queue: SchedulingQueue, cause: Cause, now: float) -> None:
    queue.unschedulable(popped(queue, now), FIT, now, cause=cause)


def test_pods_are_counted_by_cause_and_size() -> None:
    """Pods without Neuron count by cause alone; the oldest wait of a size is that of the first pod that came."""
    queue = SchedulingQueue()
    queue.add(pod("a", devices=8), 10.0)
    queue.add(pod("b", devices=(4, 4)), 20.0)
    queue.add(pod("c", cores=12), 30.0)
    queue.add(pod("d"), 40.0)
    queue.add(pod("e", devices=8, gates=("g",)), 1.0)
    _refused(queue, Cause.FRAGMENTATION, 50.0)
    _refused(queue, Cause.CAPACITY, 50.0)
    waiting = counted(queue)
    assert +waiting.by_cause == {Cause.FRAGMENTATION: 1, Cause.CAPACITY: 1, Cause.UNTRIED: 2, Cause.GATED: 1}
    assert +waiting.by_size == {
        ("fragmentation", "device", "8"): 1,
        ("capacity", "device", "8"): 1,
        ("untried", "core", "16"): 1,
        ("gated", "device", "8"): 1,
    }
    assert waiting.waits(100.0) == {("device", "8"): 90.0, ("core", "16"): 70.0}
    assert waiting.block_sizes == {8, 4}


def test_a_pod_in_flight_waits_and_has_no_cause() -> None:
    """It has no node yet, so it may be the oldest; what it waits for is being decided."""
    queue = SchedulingQueue()
    queue.add(pod("a", devices=1), 10.0)
    popped(queue, 10.0)
    waiting = counted(queue)
    assert (+waiting.by_cause, waiting.waits(12.0)) == ({}, {("device", "1"): 2.0})


@pytest.mark.parametrize(
    ("asks", "labels"),
    [
        ({"devices": 1}, ("device", "1")),
        ({"devices": (8, 8)}, ("device", "16")),
        ({"devices": 17}, ("device", "17+")),
        ({"devices": 10**9}, ("device", "17+")),
        ({"cores": 8}, ("core", "8")),
        ({"cores": 9}, ("core", "16")),
        ({"cores": 128}, ("core", "128")),
        ({"cores": 129}, ("core", "129+")),
    ],
)
def test_labels_of_a_request(asks: dict[str, int], labels: tuple[str, str]) -> None:
    """The total, in its unit; large numbers share a label."""
    assert size_labels(request(**asks)) == labels


def test_requests_have_few_labels() -> None:
    """Whatever pods ask for, there are at most so many values."""
    labels = {size_labels(request(count)) for count in range(1, 300)}
    labels |= {size_labels(request(cores=count)) for count in range(1, 300)}
    assert len(labels) == MOST_LABELS


@pytest.mark.parametrize("seed", range(examples(40)))
def test_the_oldest_wait_is_that_of_the_queue(seed: int) -> None:
    """On a random queue, the counts are those of a plain loop over its pods."""
    dice, queue = random.Random(seed), SchedulingQueue()
    for number in range(dice.randint(0, 60)):
        name, gates = f"p{number}", ("g",) if dice.random() < 0.2 else ()
        asks = dice.choice((0, 1, 4, 8, 12))
        asking = pod(name, gates=gates, devices=asks) if dice.random() < 0.5 else pod(name, gates=gates, cores=asks)
        queue.add(asking, dice.uniform(0, 100))
        if dice.random() < 0.5 and (queued := queue.pop(100.0)) is not None and dice.random() < 0.8:
            queue.unschedulable(queued, FIT, 100.0, cause=dice.choice(list(Cause)))
    waiting = counted(queue)
    expected: dict[tuple[str, str], float] = {}
    causes: Counter[Cause] = Counter()
    for queued in queue.pods():
        causes[queue.cause_of(queued)] += queued.place is not Place.IN_FLIGHT
        if queued.pod.neuron is not None and queued.first_active is not None:
            labels = size_labels(queued.pod.neuron)
            expected[labels] = max(expected.get(labels, 0.0), 200.0 - queued.first_active)
    assert waiting.waits(200.0) == expected
    assert +waiting.by_cause == +causes


def test_many_pods_are_counted_in_steps() -> None:
    """No step looks at more than a thousand pods."""
    queue = SchedulingQueue()
    for number in range(3500):
        queue.add(pod(f"p{number}", devices=1), 0.0)
    assert len([*waiting_pods(queue)]) == 4
    assert counted(queue).by_cause == {Cause.UNTRIED: 3500}

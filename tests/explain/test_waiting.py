"""The waiting pods are counted by cause and size as the queue has them, in steps, with few labels."""

import random
from collections import Counter
from random import Random
from unittest.mock import patch

import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.explain import waiting as module
from neuron_scheduler.explain.waiting import WaitingPods, size_labels, waiting_list, waiting_pods
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import run
from tests.support import random_objects
from tests.support.builders import node, pod, request
from tests.support.harness import cluster_of
from tests.support.queueing import FIT, new_queue, popped
from tests.support.thoroughness import examples


def counted(queue: SchedulingQueue) -> WaitingPods:
    """Return the counts of a queue."""
    last = run(waiting_pods(queue))
    assert last is not None
    return last


def _refused(queue: SchedulingQueue, cause: Cause, now: float) -> None:
    queue.put_back_refused(popped(queue, now), FIT, now, cause=cause)


def test_pods_are_counted_by_cause_and_size() -> None:
    """Pods without Neuron count by cause alone; the oldest wait of a size is that of the first pod that came."""
    queue = new_queue()
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
    devices, cores = 16 + 1, 8 + 4 + 1  # 1 to 16, and more; 1 to 8, four powers of two, and more
    assert len(labels) == devices + cores


@pytest.mark.parametrize("seed", range(examples(40)))
def test_the_oldest_wait_is_that_of_the_queue(seed: int) -> None:
    """On a random queue, the counts are those of a plain loop over its pods."""
    dice, queue = random.Random(seed), new_queue()
    for number in range(dice.randint(0, 60)):
        name, gates = f"p{number}", ("g",) if dice.random() < 0.2 else ()
        asks = dice.choice((0, 1, 4, 8, 12))
        asking = pod(name, gates=gates, devices=asks) if dice.random() < 0.5 else pod(name, gates=gates, cores=asks)
        queue.add(asking, dice.uniform(0, 100))
        if dice.random() < 0.5 and (queued := queue.pop(100.0)) is not None and dice.random() < 0.8:
            queue.put_back_refused(queued, FIT, 100.0, cause=dice.choice(list(Cause)))
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
    queue = new_queue()
    for number in range(3500):
        queue.add(pod(f"p{number}", devices=1), 0.0)
    assert len([*waiting_pods(queue)]) == 3
    assert counted(queue).by_cause == {Cause.UNTRIED: 3500}


PROFILE = default_profile("my-scheduler")


@pytest.mark.parametrize("seed", range(examples(40)))
def test_every_line_is_the_decision(seed: int) -> None:
    """Message and cause are those of a decision about this pod alone."""
    dice = Random(seed)
    cluster = cluster_of(
        [random_objects.some_node(dice, name) for name in random_objects.NAMES],
        [random_objects.bound_pod(dice, f"b{number}") for number in range(12)],
    )
    pods = [random_objects.pending_pod(dice, f"p{number}") for number in range(20)]
    answer = run(waiting_list(cluster, pods, lambda _: PROFILE))
    assert [(line.pod.namespace, line.pod.name) for line in answer.pods] == [(p.namespace, p.name) for p in pods]
    for line, waiting in zip(answer.pods, pods, strict=True):
        decision = schedule_pod(cluster, waiting, PROFILE)
        if isinstance(decision, FitError):
            assert (line.cause, line.message) == (decision.cause, decision.text)
        else:
            assert (line.cause, line.message) == ("", f"Fits now, on {decision.node_name}.")


def test_replicas_are_decided_once() -> None:
    """A thousand pods of one workload cost one decision; a pod with gates costs none."""
    cluster = cluster_of([node("a", "trn1.32xlarge")])
    pods = [pod(f"p{number}", devices=16, priority=1) for number in range(1000)]
    gated = pod("gated", devices=1, gates=("quota",))
    with patch.object(module, "schedule_pod", wraps=schedule_pod) as decided:
        answer = run(waiting_list(cluster, [*pods, gated], lambda _: PROFILE))
    assert decided.call_count == 1
    assert answer.total == 1001
    assert answer.pods[-1].message == "Scheduling is blocked due to non-empty scheduling gates (quota)."


def test_what_is_kept_for_one_pod_is_not_free_for_its_like() -> None:
    """A nominated pod is decided by itself, whether it comes first or last."""
    cluster = cluster_of([node("a", "trn1.32xlarge")])
    kept_for = pod("q", devices=16, nominated_node_name="a")
    cluster.nominate("a", Nomination(kept_for, CoreMask((1 << 32) - 1)))
    waiting = [pod("p", devices=16), kept_for, pod("r", devices=16)]
    answer = run(waiting_list(cluster, waiting, lambda _: PROFILE))
    assert [line.cause for line in answer.pods] == ["nominated", "", "nominated"]
    assert answer.pods[1].message == "Fits now, on a."

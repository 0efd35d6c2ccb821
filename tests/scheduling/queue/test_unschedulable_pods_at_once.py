"""Thousands of different pods are woken a few at a time, so that other tasks need not wait."""

import math
from collections import Counter
from random import Random

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue import events, scheduling_queue, unschedulable_pods
from neuron_scheduler.scheduling.queue.events import HintInput, refusal_kind_of
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import node, pod
from tests.support.queueing import AFFINITY, FIT, GONE, drain, new_queue, popped, refuse_all

NODE_LABELS = ClusterEvent.NODE_LABELS
FULL = Cluster().put_node(node(cpu=0))
"""A node that no pod fits, and every pod that waits for space is compared with."""
AT_ONCE = 16
FEW_STEPS = 3
MANY = 4 * AT_ONCE + 1
DEEDS = ("come", "go", "event", "event", "pop", "pop", "pop", "pop", "pop")


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unschedulable_pods, "AT_ONCE", AT_ONCE)
    monkeypatch.setattr(unschedulable_pods, "FEW_STEPS", FEW_STEPS)
    monkeypatch.setattr(scheduling_queue, "AT_ONCE", AT_ONCE)


def queue_of_many(priority: int = 0) -> SchedulingQueue:
    """Return a queue of refused pods that no two can be asked about together."""
    queue = new_queue()
    for number in range(MANY):
        queue.add(pod(f"p{number}", cpu=number + 1, priority=priority), 0.0)
    refuse_all(queue, 0.0)
    return queue


def refuse(queue: SchedulingQueue, new: Pod, plugins: frozenset[str] = AFFINITY) -> None:
    """Add a pod, and refuse it."""
    queue.add(new, 1.0)
    queue.put_back_refused(popped(queue, 1.0), plugins, 1.0)


def later(queue: SchedulingQueue) -> QueuedPod:
    """Pop the next pod, however many steps that takes."""
    while (queued := queue.pop(1.0)) is None:
        assert queue.next_time() == -math.inf
    return queued


def steps_of_others(queue: SchedulingQueue, count: int) -> list[int]:
    """Add so many pods, and return how many steps there are before each, while each step brings an event."""
    steps = list[int]()
    for number in range(count):
        queue.add(pod(f"other{number}"), 1.0)
    queue.note(GONE, on=FULL)
    while queue.count(Place.ACTIVE):
        steps.append(1)
        while queue.pop(1.0) is None:
            steps[-1] += 1
            queue.note(GONE, on=FULL)
    return steps


def test_an_event_is_looked_at_in_several_steps() -> None:
    """No pod is tried while another of higher priority is to be asked about the event, however many there are."""
    queue = queue_of_many(priority=1)
    refuse(queue, pod("last", node_selector={"a": "b"}, priority=1))
    queue.add(pod("new"), 1.0)
    queue.note(NODE_LABELS)
    for _ in range(MANY // AT_ONCE):
        assert queue.pop(1.0) is None
    assert [later(queue).pod.name, later(queue).pod.name] == ["last", "new"]


@pytest.mark.parametrize("seed", range(30))
def test_nobody_is_passed_and_nothing_is_asked_twice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the active pods and those that an event lets in the best is tried, whatever happens between the steps."""
    monkeypatch.setattr(unschedulable_pods, "FEW_STEPS", 1000)
    dice, cluster, queue = Random(seed), Cluster(), new_queue(max_backoff=0.0)
    number_of, refused = dict[HintInput, int](), Counter[tuple[HintInput, str]]()
    ready, waiting, popped_early = set[tuple[int, int]](), set[tuple[int, int]](), 0

    def takes(name: str, number: int) -> bool:
        return (int(name) + number) % 25 == 0

    def ask(hint_input: HintInput, node_info: NodeInfo) -> bool:
        is_taker = takes(node_info.node.name, number_of[hint_input])
        if not is_taker:
            refused[hint_input, node_info.node.name] += 1
        return is_taker

    monkeypatch.setattr(events, "is_acceptable", ask)
    for number in range(700):
        deed = "come" if number < MANY else dice.choice(DEEDS if number < 600 else DEEDS[-1:])
        if deed == "come":
            new = pod(f"p{number}", cpu=number + 1, priority=dice.randint(0, 2))
            number_of[refusal_kind_of(new, FIT, FIT).hint_input] = number
            ready.add((-new.priority, number))
            queue.add(new, 1.0)
        elif deed == "go":
            gone = dice.choice(sorted(ready | waiting))
            queue.remove(f"uid-p{gone[1]}")
            ready, waiting = ready - {gone}, waiting - {gone}
        elif deed == "event":
            queue.note(GONE, on=cluster.put_node(node(str(number))))
            ready |= {each for each in waiting if takes(str(number), each[1])}
        elif (queued := queue.pop(1.0)) is not None:
            best = min(ready)
            assert queued.pod.name == f"p{best[1]}"
            ready, waiting = ready - {best}, waiting - {best}
            popped_early += any(best < each for each in waiting)
            if dice.random() < 0.9:
                waiting.add(best)
                queue.put_back_refused(queued, FIT, 1.0)
        else:
            assert not ready or queue.next_time() == -math.inf
    assert set(refused.values()) == {1}
    assert popped_early > 50


def test_thousands_of_lines_leave_the_queue_time_for_others() -> None:
    """Once events take too many steps each younger pod waits for one more only, and every pod is asked in the end."""
    assert steps_of_others(queue_of_many(), 6) == [FEW_STEPS, 1, 1, 1, 1, 1]


def test_no_pod_of_lower_priority_passes_another_meanwhile() -> None:
    """It is asked about new events at once, even while thousands of lines are still to be asked about earlier ones."""
    queue = queue_of_many()
    refuse(queue, pod("high", node_selector={"a": "b"}, priority=1))
    for number in range(6):
        queue.add(pod(f"other{number}"), 1.0)
    queue.note(GONE, on=FULL)
    assert [later(queue).pod.name for _ in range(2)] == ["other0", "other1"]
    queue.note(NODE_LABELS)
    assert [later(queue).pod.name for _ in range(2)] == ["high", "other2"]


def test_thousands_of_lines_of_a_higher_priority_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """While each step brings an event, a pod waits for some steps, then one; with no pod to try, all are asked."""
    monkeypatch.setattr(unschedulable_pods, "MANY_STEPS", 5)
    queue, asked = queue_of_many(priority=1), 0
    assert steps_of_others(queue, 3) == [5, 1, 1]
    while queue.next_time() == -math.inf:
        assert queue.pop(1.0) is None
        asked += AT_ONCE
    assert asked >= MANY


def test_many_steps_for_others_do_not_end_the_precedence_of_a_higher_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant's thousands of lines are never done; a refused pod of a higher priority is still asked first."""
    monkeypatch.setattr(unschedulable_pods, "MANY_STEPS", 5)
    queue = queue_of_many()
    refuse(queue, pod("high", node_selector={"a": "b"}, priority=1))
    for number in range(10):
        queue.add(pod(f"other{number}"), 1.0)
    for number in range(8):
        queue.note(GONE, on=FULL)
        assert later(queue).pod.name == f"other{number}"
    queue.note(NODE_LABELS)
    assert later(queue).pod.name == "high"


def test_thousands_of_lines_of_single_pods_have_their_turn_before_groups() -> None:
    """Those that came after the group are asked one after the other, while each step brings an event."""
    of_group = pod("member", group=PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), least=1, expected=1))
    groups = Groups()
    groups.put(of_group)
    queue = new_queue(groups=GroupWaits(groups))
    queue.add(of_group, 0.0)
    member = popped(queue, 0.0)
    for number in range(MANY):
        refuse(queue, pod(f"p{number}", cpu=number + 1), FIT)
    refuse(queue, pod("last", node_selector={"a": "b"}))
    queue.note(NODE_LABELS)
    while (queued := queue.pop_single(0)) is None:
        member.missed = True
        queue.put_back_withdrawn(member, 1.0)
        queue.note(GONE, on=FULL)
        assert popped(queue, 1.0) is member
        assert member.attempts < MANY
    assert queued.pod.name == "last"


def test_a_pod_that_goes_meanwhile_is_not_woken() -> None:
    """It is neither popped nor missed."""
    queue = queue_of_many()
    queue.note(GONE)
    assert later(queue).pod.name == "p0"
    assert queue.count(Place.ACTIVE) == 0  # nor are others before it is decided
    for number in (1, MANY - 1):
        queue.remove(f"uid-p{number}")
    assert drain(queue, 1.0) == [f"p{number}" for number in range(2, MANY - 1)]


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

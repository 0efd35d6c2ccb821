"""What was noted between two looks is put together without losing anything."""

import attrs

from neuron_scheduler.model.node import Node
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.events import NodeChange
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.queueing import AFFINITY, FIT, drain, popped

BLUE, RED = node("n", labels={"team": "blue"}), node("n", labels={"team": "red"})


def changed(after: Node, before: Node) -> NodeChange:
    """Return what happened to an empty node."""
    node_info = cluster_of([after], ()).node(after.name)
    assert node_info is not None
    return NodeChange(node_info, (before,))


def test_a_change_before_the_refusal_hides_none_after_it() -> None:
    """The node was blue, is red when the pod is decided, and is blue again before anybody looks at what was noted."""
    queue = SchedulingQueue()
    queue.add(pod("listens", cpu=1), 0.0)
    queue.unschedulable(popped(queue, 0.0), FIT, 0.0)
    queue.add(pod("wants", node_selector={"team": "blue"}), 0.0)
    queued = popped(queue, 0.0)
    queue.note(ClusterEvent.NODE_LABELS, on=changed(RED, BLUE))  # while it is prepared for
    queue.unschedulable(queued, AFFINITY, 0.0)
    queue.note(ClusterEvent.NODE_LABELS, on=changed(BLUE, RED))
    assert drain(queue, 100.0) == ["wants"]


def test_a_node_that_never_ceased_to_do_wakes_nobody() -> None:
    """It was blue before each change."""
    queue = SchedulingQueue()
    queue.add(pod("wants", node_selector={"team": "blue"}), 0.0)
    queue.unschedulable(popped(queue, 0.0), AFFINITY, 0.0)
    for label in "ab":
        queue.note(ClusterEvent.NODE_LABELS, on=changed(attrs.evolve(BLUE, labels={"team": "blue", label: ""}), BLUE))
    assert drain(queue, 100.0) == []


def test_a_node_that_flickers_wakes_at_last_and_is_not_remembered_for_ever() -> None:
    """Many states of one node between two looks are as good as a new node."""
    queue = SchedulingQueue()
    queue.add(pod("wants", node_selector={"team": "blue"}), 0.0)
    queue.unschedulable(popped(queue, 0.0), AFFINITY, 0.0)
    for _ in range(1_000):
        queue.note(ClusterEvent.NODE_LABELS, on=changed(BLUE, BLUE))
    (noted,) = queue._events._changes.values()
    assert noted is not None
    assert len(noted["n"].before) <= 16
    assert drain(queue, 100.0) == ["wants"]


def test_all_who_refused_must_accept_the_node() -> None:
    """A blue node that is full is no help, nor is a red one with room; it is once it is both."""
    full, want = attrs.evolve(BLUE, allocatable={}), pod("wants", cpu=1, node_selector={"team": "blue"})
    queue = SchedulingQueue()
    queue.add(want, 0.0)
    queue.unschedulable(popped(queue, 0.0), AFFINITY | FIT, 0.0)
    queue.note(ClusterEvent.NODE_LABELS, on=changed(full, attrs.evolve(full, labels={})))
    assert drain(queue, 100.0) == []
    queue.note(ClusterEvent.NODE_ALLOCATABLE, on=changed(RED, attrs.evolve(RED, allocatable={})))
    assert drain(queue, 100.0) == []
    queue.note(ClusterEvent.NODE_ALLOCATABLE, on=changed(BLUE, full))
    assert drain(queue, 100.0) == ["wants"]

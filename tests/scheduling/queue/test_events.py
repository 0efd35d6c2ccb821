"""An event wakes the pods that the changed node could take now, and no event gets lost between two looks."""

import random

import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.selectors import (
    Effect,
    NodeSelectorTerm,
    Operator,
    Requirement,
    Taint,
    Toleration,
)
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.events import hint_input_of, is_acceptable
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support import queueing, random_objects
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.queueing import drain, new_queue, popped
from tests.support.thoroughness import examples

FIT, NEURON, PORTS = "NodeResourcesFit", "NeuronTopology", "NodePorts"
AFFINITY, TAINTS, CORDON = "NodeAffinity", "TaintToleration", "NodeUnschedulable"
TRN1 = node("n", "trn1.32xlarge", cpu=4000)
BLUE = NodeSelectorTerm(expressions=(Requirement("team", Operator.IN, ("blue",)),))
DEDICATED = Taint("dedicated", Effect.NO_SCHEDULE)
PORT = HostPort("TCP", 80)


def changed(after: Node, *pod_infos: Pod) -> NodeInfo:
    """Return the row of a node that has these pods now."""
    node_info = cluster_of([after], pod_infos).node(after.name)
    assert node_info is not None
    return node_info


@pytest.mark.parametrize(
    ("plugin", "pending", "change", "want"),
    [
        pytest.param(FIT, pod(cpu=2000), changed(TRN1, pod("x", on="n", cpu=2000)), True, id="enough cpu"),
        pytest.param(FIT, pod(cpu=2001), changed(TRN1, pod("x", on="n", cpu=2000)), False, id="not enough cpu"),
        pytest.param(FIT, pod(cpu=1, memory=1 << 50), changed(TRN1), False, id="cpu, but no memory"),
        pytest.param(FIT, pod(), changed(attrs.evolve(TRN1, allocatable={"pods": 0})), False, id="too many pods"),
        pytest.param(
            FIT, pod(cpu=4000, priority=5), changed(TRN1, pod("x", on="n", cpu=9)), True, id="room could be made"
        ),
        pytest.param(
            FIT,
            pod(cpu=4000, priority=5, never_preempts=True),
            changed(TRN1, pod("x", on="n", cpu=9)),
            False,
            id="but this pod makes none",
        ),
        pytest.param(NEURON, pod(devices=8), changed(TRN1), True, id="a block"),
        pytest.param(
            NEURON,
            pod(devices=8),
            changed(TRN1, pod("x", devices=1, on="n", ids=(0,)), pod("y", devices=1, on="n", ids=(8,))),
            False,
            id="pieces",
        ),
        pytest.param(NEURON, pod(devices=7), changed(TRN1), False, id="no such count"),
        pytest.param(NEURON, pod(devices=1), changed(node("n")), False, id="no Neuron there"),
        pytest.param(NEURON, pod(devices=1), changed(attrs.evolve(TRN1, neuron_fault="?")), False, id="unhealthy"),
        pytest.param(NEURON, pod(refusal="mixed"), changed(TRN1), False, id="the pod itself was refused"),
        pytest.param(
            PORTS, pod(host_ports=(PORT,)), changed(TRN1, pod("x", on="n", host_ports=(HostPort("UDP", 80),))), True,
            id="another protocol",
        ),
        pytest.param(
            PORTS, pod(host_ports=(HostPort("TCP", 80, "10.0.0.1"),)),
            changed(TRN1, pod("x", on="n", host_ports=(PORT,))), False, id="still taken, for every address",
        ),
        pytest.param(AFFINITY, pod(node_selector={"team": "blue"}), changed(TRN1), False, id="other labels"),
        pytest.param(
            AFFINITY, pod(node_selector={"team": "blue"}), changed(attrs.evolve(TRN1, labels={"team": "blue"})), True,
            id="a new node with the label",
        ),
        pytest.param(
            AFFINITY, pod(required_terms=(BLUE,)), changed(attrs.evolve(TRN1, labels={"team": "blue"})), True,
            id="a term that matches",
        ),
        pytest.param(TAINTS, pod(), changed(attrs.evolve(TRN1, taints=(DEDICATED,))), False, id="tainted"),
        pytest.param(
            TAINTS, pod(tolerations=(Toleration(key="dedicated", exists=True),)),
            changed(attrs.evolve(TRN1, taints=(DEDICATED,))), True, id="tolerated",
        ),
        pytest.param(
            TAINTS, pod(), changed(attrs.evolve(TRN1, taints=(Taint("t", Effect.PREFER_NO_SCHEDULE),))), True,
            id="a mere preference",
        ),
        pytest.param(CORDON, pod(), changed(TRN1), True, id="not cordoned"),
        pytest.param(CORDON, pod(), changed(attrs.evolve(TRN1, unschedulable=True)), False, id="cordoned"),
        pytest.param(CORDON, pod(), changed(attrs.evolve(TRN1, refusal="x")), False, id="unreadable"),
        pytest.param("VolumeBinding", pod(), changed(TRN1), True, id="a plugin without a hint"),
    ],
)  # fmt: skip
def test_hints(plugin: str, pending: Pod, change: NodeInfo, *, want: bool) -> None:
    """Each plugin that judges a node by itself is asked about the changed node."""
    assert is_acceptable(hint_input_of(pending, frozenset({plugin})), change) is want


def test_only_what_refused_counts() -> None:
    """Pods that differ in what no refusing plugin looks at are one group, as far as hints go."""
    some = [pod("a", cpu=1, devices=4), pod("b", cpu=2, devices=4, node_selector={"a": "b"})]
    assert len({hint_input_of(pending, frozenset({NEURON})) for pending in some}) == 1
    assert len({hint_input_of(pending, frozenset({NEURON, FIT})) for pending in some}) == 2


@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_hint_is_never_too_strict(seed: int) -> None:
    """For any node, its pods and a pending pod: where a plugin's own filter accepts the node, its hint says yes."""
    dice, profile = random.Random(seed), default_profile("p")
    accepted = 0
    for _ in range(50):
        there = random_objects.some_node(dice, "a")
        pod_infos = [random_objects.bound_pod(dice, f"t{i}") for i in range(dice.randint(0, 3))]
        cluster = cluster_of([there], [attrs.evolve(bound, node_name="a") for bound in pod_infos])
        pending, node_info = random_objects.pending_pod(dice, "p"), cluster.node("a")
        assert node_info is not None
        refused = {
            refusal.plugin
            for judge in profile.filters
            for refusal in judge.refuse(cluster.view, pending, cluster.view.live)
            if refusal.nodes
        }
        for plugin in {FIT, NEURON, PORTS, AFFINITY, TAINTS, CORDON} - refused:
            if plugin == NEURON and pending.neuron is None:
                continue  # which it cannot have refused
            alone = frozenset({plugin})
            assert is_acceptable(hint_input_of(pending, alone), node_info), (plugin, pending, node_info)
            accepted += 1
    assert accepted > 100


def waiting(*pods: Pod, plugins: frozenset[str]) -> SchedulingQueue:
    """Return a queue of refused pods."""
    queue = new_queue()
    for pending in pods:
        queue.add(pending, 0.0)
    for _ in pods:
        queue.put_back_refused(popped(queue, 0.0), plugins, 0.0)
    return queue


def test_an_event_wakes_who_could_fit_there() -> None:
    """Of pods refused for cpu, those wake that fit where some was freed; a later note of the same node counts."""
    small, large = pod("small", cpu=1000), pod("large", cpu=4000)
    gone = pod("x", on="n", cpu=9)
    queue = waiting(small, large, plugins=frozenset({FIT}))
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, gone, on=changed(TRN1, pod("y", on="n", cpu=2000)))
    assert drain(queue, 100.0) == ["small"]
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, gone, on=changed(TRN1, pod("y", on="n", cpu=2000)))
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, gone, on=changed(TRN1))
    assert drain(queue, 100.0) == ["large"]


def test_what_is_not_told_may_help_everybody() -> None:
    """One event of a kind without a node, and no hint is asked for the burst."""
    queue = waiting(pod("a", cpu=10**6), plugins=frozenset({FIT}))
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod("x", on="n"), on=changed(TRN1))
    assert drain(queue, 100.0) == []
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod("x", on="n"))
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod("x", on="n"), on=changed(TRN1))
    assert drain(queue, 100.0) == ["a"]


def test_pods_without_neuron_wake_no_neuron_pods() -> None:
    """On a machine whose silicon is taken, who comes and goes without any is of no interest."""
    full = pod("full", devices=16, on="n", ids=range(16))
    queue = waiting(pod("a", devices=4), plugins=frozenset({FIT, NEURON, AFFINITY}))
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod("x", on="n", cpu=2000), on=changed(TRN1, full))
    assert drain(queue, 100.0) == []
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, full, on=changed(TRN1))
    assert drain(queue, 100.0) == ["a"]


BLUE_NODE, RED_NODE = node("n", labels={"team": "blue"}), node("n", labels={"team": "red"})


def test_a_change_before_the_refusal_hides_none_after_it() -> None:
    """The node was blue, is red when the pod is decided, and is blue again before anybody looks at what was noted."""
    queue = new_queue()
    queue.add(pod("listens", cpu=1), 0.0)
    queue.put_back_refused(popped(queue, 0.0), queueing.FIT, 0.0)
    queue.add(pod("wants", node_selector={"team": "blue"}), 0.0)
    queued = popped(queue, 0.0)
    queue.note(ClusterEvent.NODE_LABELS, on=changed(RED_NODE))  # while it is prepared for
    queue.put_back_refused(queued, queueing.AFFINITY, 0.0)
    queue.note(ClusterEvent.NODE_LABELS, on=changed(BLUE_NODE))
    assert drain(queue, 100.0) == ["wants"]


def test_all_who_refused_must_accept_the_node() -> None:
    """A blue node that is full is no help, nor is a red one with room; it is once it is both."""
    full, want = attrs.evolve(BLUE_NODE, allocatable={}), pod("wants", cpu=1, node_selector={"team": "blue"})
    queue = new_queue()
    queue.add(want, 0.0)
    queue.put_back_refused(popped(queue, 0.0), queueing.AFFINITY | queueing.FIT, 0.0)
    queue.note(ClusterEvent.NODE_LABELS, on=changed(full))
    assert drain(queue, 100.0) == []
    queue.note(ClusterEvent.NODE_ALLOCATABLE, on=changed(RED_NODE))
    assert drain(queue, 100.0) == []
    queue.note(ClusterEvent.NODE_ALLOCATABLE, on=changed(BLUE_NODE))
    assert drain(queue, 100.0) == ["wants"]

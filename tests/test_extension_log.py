"""The extension's lines as its runbooks show them, and no list of nodes where there are very many."""

import io

import attrs
import pytest

from neuron_scheduler import extension_log, logs
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.node_state import Nomination
from neuron_scheduler.extension_log import MOST_NAMED
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.decide import Decision, schedule_pod
from neuron_scheduler.scheduling.profile import default_profile
from tests.builders import node, pod
from tests.scheduling.harness import cluster_of
from tests.test_logs import _logging_as_before  # noqa: F401 - a fixture that every test here uses

PROFILE = default_profile("my-scheduler")
FINISHED = "Finished Processing Filter Request..."
SEVEN = (
    "Instance type trn1.32xlarge does not support requests for device: 7. Please request a different number of devices."
)
CORDONED = "node(s) were unschedulable"
FULL = "Insufficient aws.amazon.com/neuron"


def filtered(cluster: Cluster, pending: Pod, verbosity: int = 4) -> list[str]:
    """Return the lines of an attempt, without headers and quotes."""
    stream = io.StringIO()
    logs.configure(verbosity=verbosity, stream=stream)
    decision = schedule_pod(cluster, pending, PROFILE)
    extension_log.filtered(cluster, pending, PROFILE, decision.node_name if isinstance(decision, Decision) else "")
    return [line.partition('] "')[2].removesuffix('"') for line in stream.getvalue().splitlines()]


def fleet(size: int) -> Cluster:
    """Return trn1 nodes of which each third is cordoned and each third, from the second on, is full."""
    nodes = [
        node(f"n{number:03}", "trn1.32xlarge", created=number, unschedulable=not number % 3) for number in range(size)
    ]
    full = [pod(f"p{number}", devices=16, ids=range(16), on=f"n{number:03}") for number in range(1, size, 3)]
    return cluster_of(nodes, full)


def test_a_pod_that_fits_is_told_node_by_node() -> None:
    """AWS's lines to the letter: the nodes that fit, and a Go map of the others."""
    assert filtered(fleet(6), pod("p", devices=4)) == [
        "POD p fits in Node:n002",
        "POD p fits in Node:n005",
        "Filtered nodes: [n002 n005]",
        f"Failed nodes: map[n000:{CORDONED} n001:{FULL} n003:{CORDONED} n004:{FULL}]",
        FINISHED,
    ]


def test_a_refused_pod_is_told_node_by_node() -> None:
    """When somebody looks for these lines, it is a pod that waits."""
    assert filtered(fleet(2), pod("p", devices=7)) == [
        "Filtered nodes: []",
        f"Failed nodes: map[n000:{CORDONED} n001:{SEVEN}]",
        FINISHED,
    ]
    assert filtered(fleet(2), pod("p", devices=4))[1] == f"Failed nodes: map[n000:{CORDONED} n001:{FULL}]"
    assert filtered(cluster_of([]), pod("p", devices=7)) == ["Filtered nodes: []", "Failed nodes: map[]", FINISHED]


def test_a_pod_that_no_node_could_take_is_told_node_by_node() -> None:
    """What a pod is refused for whatever the nodes is said of each."""
    claimless = pod("p", devices=1, refusal="it is not right")
    (reason,) = {line for line in filtered(fleet(1), claimless) if line.startswith("Failed")}
    assert reason == "Failed nodes: map[n000:it is not right]"


@pytest.mark.parametrize("devices", [4, 7])
def test_a_large_fleet_is_counted(devices: int) -> None:
    """Beyond the bound there are as many lines, about as long, as in a small one."""
    size = MOST_NAMED + 2
    lines = filtered(fleet(size), pod("p", devices=devices))
    cordoned = f"{CORDONED}:[n000 n003 n006 and 31 more]"
    if devices == 4:
        assert lines == [
            "POD p fits in Node:n002",
            "Filtered nodes: [n002 n005 n008 and 31 more]",
            f"Failed nodes: map[{FULL}:[n001 n004 n007 and 31 more] {cordoned}]",
            FINISHED,
        ]
    else:
        assert lines == [
            "Filtered nodes: []",
            f"Failed nodes: map[{SEVEN}:[n001 n002 n004 and 65 more] {cordoned}]",
            FINISHED,
        ]


def test_the_chosen_node_of_a_large_fleet_is_named() -> None:
    """It is the first of the few, wherever it stands among those that fit."""
    cluster = fleet(MOST_NAMED + 2)
    cluster.assume(attrs.evolve(pod("other", devices=4), node_name="n101"), 0xFF)
    lines = filtered(cluster, pod("p", devices=4))
    assert lines[:2] == ["POD p fits in Node:n101", "Filtered nodes: [n101 n002 n005 and 31 more]"]


def test_space_that_is_promised_to_a_pod_is_its_own() -> None:
    """A node with space for one pod fits that pod, and no other of its priority."""
    cluster = cluster_of([node("a", "trn1.32xlarge")])
    mine, other = pod("mine", devices=16), pod("other", devices=16)
    cluster.nominate("a", Nomination(mine, (1 << 32) - 1))
    assert filtered(cluster, mine)[0] == "POD mine fits in Node:a"
    assert filtered(cluster, other)[0] == "Filtered nodes: []"


@pytest.mark.parametrize(("verbosity", "pending"), [(3, pod("p", devices=1)), (4, pod("p", cpu=1))])
def test_nothing_is_said_below_4_or_without_neuron(verbosity: int, pending: Pod) -> None:
    """The default says outcomes only."""
    assert not filtered(fleet(3), pending, verbosity)

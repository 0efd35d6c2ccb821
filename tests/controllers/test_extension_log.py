"""The extension's lines as its runbooks show them; a large cluster gets no list of all its nodes."""

import io
from collections.abc import Callable

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.controllers.extension_log import MOST_NAMED
from neuron_scheduler.kube.writes.binder import Bound
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.telemetry import logs
from tests.controllers.test_binding_cycle import HANG, World, pending, running, until
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.telemetry.test_logs import _logging_as_before  # noqa: F401 - a fixture that every test here uses

PROFILE = default_profile("my-scheduler")
FINISHED = "Finished Processing Filter Request..."
SEVEN = (
    "Instance type trn1.32xlarge does not support requests for device: 7. Please request a different number of devices."
)
CORDONED = "node(s) were unschedulable"
FULL = "Insufficient aws.amazon.com/neuron"
NINE = "0,1,2,3,4,5,6,7,8"
NONE = " ".join(["false"] * 16)
HALF = " ".join(["true"] * 9 + ["false"] * 7)
CORE = "aws.amazon.com/neuroncore"
DEVICE = "aws.amazon.com/neurondevice"


def filtered(cluster: Cluster, pending: Pod, verbosity: int = 4) -> list[str]:
    """Return the lines of an attempt, without headers and quotes."""
    stream = io.StringIO()
    logs.configure(verbosity=verbosity, stream=stream)
    decision = schedule_pod(cluster, pending, PROFILE)
    extension_log.write_filter(cluster, pending, PROFILE, decision.node_name if isinstance(decision, Decision) else "")
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
    """These lines are needed most for a pod that waits."""
    assert filtered(fleet(2), pod("p", devices=7)) == [
        "Filtered nodes: []",
        f"Failed nodes: map[n000:{CORDONED} n001:{SEVEN}]",
        FINISHED,
    ]
    assert filtered(fleet(2), pod("p", devices=4))[1] == f"Failed nodes: map[n000:{CORDONED} n001:{FULL}]"
    assert filtered(cluster_of([]), pod("p", devices=7)) == ["Filtered nodes: []", "Failed nodes: map[]", FINISHED]


def test_a_large_fleet_is_counted() -> None:
    """Above the limit the lines are as many as in a small cluster, and as long; the chosen node is named."""
    cluster = fleet(MOST_NAMED + 2)
    cluster.assume(attrs.evolve(pod("other", devices=4), node_name="n101"), CoreMask(0xFF))
    assert filtered(cluster, pod("p", devices=4)) == [
        "POD p fits in Node:n101",
        "Filtered nodes: [34 nodes]",
        f"Failed nodes: map[{FULL}:34 nodes {CORDONED}:34 nodes]",
        FINISHED,
    ]
    assert filtered(cluster, pod("p", devices=7))[:2] == [
        "Filtered nodes: [0 nodes]",
        f"Failed nodes: map[{SEVEN}:68 nodes {CORDONED}:34 nodes]",
    ]


@pytest.mark.parametrize(("verbosity", "pending"), [(3, pod("p", devices=1)), (4, pod("p", cpu=1))])
def test_nothing_is_said_below_4_or_without_neuron(verbosity: int, pending: Pod) -> None:
    """The default verbosity logs outcomes only."""
    assert not filtered(fleet(3), pending, verbosity)


@pytest.fixture
def written() -> Callable[[], list[str]]:
    """Log everything up to the usage maps; return a function that returns the extension's lines."""
    stream = io.StringIO()
    logs.configure(verbosity=6, stream=stream)
    return lambda: [
        line.partition('] "')[2].removesuffix('"')
        for line in stream.getvalue().splitlines()
        if "extension_log.py" in line
    ]


def small() -> World:
    """Return a world with an inf1.6xlarge."""
    world = World()
    world.cluster.remove_node("n")
    world.cluster.put_node(node("n", "inf1.6xlarge"))
    return world


def bind_lines(written: Callable[[], list[str]]) -> list[str]:
    """Return the lines from the beginning of the bind."""
    return written()[written().index("Executing Bind Request!") :]


async def test_a_binding_that_hangs_is_seen(written: Callable[[], list[str]]) -> None:
    """The request is logged before it is sent, with the usage map before the allocation."""
    world = small()
    world.outcomes["p"] = HANG
    async with running(world):
        world.queue.add(pending("p", cores=9), 0.0)
        world.scheduler.wake_up.set()
        await until(lambda: world.count("p") == 1)
    assert bind_lines(written)[:-1] == [
        "Executing Bind Request!",
        "Determine if the pod %v is NeuronDevice podp",
        "Updating POD Annotation with alloc devices!",
        f"Return {CORE}",
        f"neuronDevUsageMap for resource:{CORE} in node: n is [{NONE}]",
        f"Allocated ids for POD p are: {NINE}",
    ]
    assert written()[-1].startswith(
        "Try to bind pod p in default namespace to node n with &Binding{ObjectMeta:{p  default  uid-p  0 0001-01-01"
        f" 00:00:00 +0000 UTC <nil> <nil> map[] map[AWS_NEURON_IDS:{NINE} NEURON_ALLOCATED:false NEURON_ALLOC_TIME:1 "
    )
    assert written()[-1].endswith(
        " [] []  []},Target:ObjectReference{Kind:Node,Namespace:,Name:n,UID:,APIVersion:,ResourceVersion:,"
        "FieldPath:,},}"
    )


async def test_a_binding_that_succeeds_is_told_in_the_order_of_the_extension(written: Callable[[], list[str]]) -> None:
    """The maps are those before the allocation; the last line but one has them after it."""
    world = small()
    async with running(world):
        world.queue.add(pending("p", cores=9), 0.0)
        world.scheduler.wake_up.set()
        await until(lambda: ("p", "n") in world.reports)
    of_devices = [f"Allocated devices list [{core // 4}] for other resource {DEVICE}" for core in range(9)]
    assert bind_lines(written)[7:] == [
        "Updating the DevUsageMap since the bind is successful!",
        f"Return {CORE}",
        f"neuronDevUsageMap for resource:{CORE} in node: n is [{NONE}]",
        f"neuronDevUsageMap for resource:{DEVICE} in node: n is [false false false false]",
        f"Allocated devices list {NINE} for resource {CORE}",
        *of_devices,
        f"Return {CORE}",
        (
            f"Succesfully updated the DevUsageMap [{HALF}]  and otherDevUsageMap [true true true false] after alloc for"
            " node n"
        ),
        "Finished executing Bind Request...",
    ]


async def test_devices_are_told_with_their_cores(written: Callable[[], list[str]]) -> None:
    """The other resource of a device is its cores, and the maps are exchanged."""
    world = small()
    world.outcomes["p"] = Bound()
    async with running(world):
        world.queue.add(pending("p", devices=2), 0.0)
        world.scheduler.wake_up.set()
        await until(lambda: ("p", "n") in world.reports)
    lines = bind_lines(written)
    assert "neuronDevUsageMap for resource:aws.amazon.com/neuron in node: n is [false false false false]" in lines
    assert [line for line in lines if "other resource" in line] == [
        f"Allocated devices list [{cores}] for other resource {CORE}" for cores in ("0 1 2 3", "4 5 6 7")
    ]
    assert lines[-2].startswith(
        "Succesfully updated the DevUsageMap [true true false false]  and otherDevUsageMap [true"
    )

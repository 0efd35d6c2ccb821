"""A pod with many terms about other pods is prepared beside the loop, and delays no other pod."""

import asyncio
from functools import partial
from itertools import count

import anyio
import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index import sums
from neuron_scheduler.controllers import side_lane
from neuron_scheduler.controllers.side_lane import SideLane
from neuron_scheduler.model.node import HOSTNAME_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup, asks_much
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import schedule_pod
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.control_plane.objects import pod_manifest
from tests.support.builders import GI, node, pod
from tests.support.queueing import new_queue
from tests.support.storage import claim, stored, volume, zoned
from tests.support.wired_scheduler import WiredScheduler

PROFILE = default_profile("my-scheduler")
MANY, TERMS = 500, 40


def lane_of(cluster: Cluster, queue: SchedulingQueue) -> SideLane:
    """Return a lane in which the time between two looks at the clock is a long turn."""
    return SideLane(
        cluster=cluster,
        queue=queue,
        profiles={"default-scheduler": PROFILE},
        warmup=IndexWarmup(),
        clock=partial(next, count()),
        on_ready=lambda: None,
        on_crash=lambda queued, _: queue.put_back_failed(queued, 0.0),
    )


def hostile(name: str = "hostile") -> Pod:
    """Return a pod that is compared with all other pods forty times."""
    terms = tuple(
        PodAffinityTerm(HOSTNAME_LABEL, LabelSelector((Requirement(f"x{i}", Operator.EXISTS),)), frozenset({"default"}))
        for i in range(TERMS)
    )
    return pod(name, cpu=1, constraints=Constraints(anti_affinity=terms))


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster with many pods."""
    cluster = Cluster()
    cluster.put_node(node("n", labels={HOSTNAME_LABEL: "n"}, pods=10_000))
    cluster.put_node(node("m", labels={HOSTNAME_LABEL: "m"}, pods=10_000))
    for i in range(MANY):
        cluster.put_pod(pod(f"p{i}", on="n", cpu=1))
    return cluster


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count comparisons with a selector; a test sets the number to 0 when a step ends."""
    counted = [0]
    matches = LabelSelector.matches

    def counting(self: LabelSelector, labels: dict[str, str]) -> bool:
        counted[0] += 1
        return matches(self, labels)

    monkeypatch.setattr(LabelSelector, "matches", counting)
    return counted


async def test_it_pauses_and_leaves_nothing_to_the_decision(cluster: Cluster, compared: list[int]) -> None:
    """No step compares more than a few dozen pods; the decision is as it would be, and compares hardly anything."""
    queue, longest = new_queue(), 0
    queue.add(hostile(), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    lane = lane_of(cluster, queue)
    assert asks_much(queued.pod)
    assert not queued.prepared

    async def watch() -> None:
        nonlocal longest
        while not queued.prepared:
            longest, compared[0] = max(longest, compared[0]), 0
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.prepare, queued)
        tasks.start_soon(watch)
    assert 0 < longest <= 2 * sums.AT_ONCE
    assert lane.next() is queued
    assert not asks_much(queued.pod) or queued.prepared
    compared[0] = 0
    assert schedule_pod(cluster, queued.pod, PROFILE) == schedule_pod(Cluster.fork(cluster), queued.pod, PROFILE)


async def test_it_pauses_where_nothing_is_left_to_build(cluster: Cluster) -> None:
    """What is built for the first of a thousand like pods is there for the others, which are looked at in turns."""
    queue, others = new_queue(), list[str]()
    lane = lane_of(cluster, queue)
    for name in "ab":
        queue.add(hostile(name), 0.0)
        queued = queue.pop(0.0)
        assert queued is not None
        others.clear()

        async def other(name: str = name) -> None:
            others.append(name)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await lane.prepare(queued)
            assert others == [name]


async def test_namespaces_take_turns(cluster: Cluster) -> None:
    """A hundred pods of a tenant delay another one's pod by one of them."""
    queue = new_queue()
    for name, namespace in (("a", "evil"), ("b", "evil"), ("c", "evil"), ("d", "good")):
        queue.add(attrs.evolve(hostile(name), namespace=namespace), 0.0)
    lane, names = lane_of(cluster, queue), []
    while (queued := queue.pop(0.0)) is not None:
        lane.put(queued)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.run)
        while len(lane.ready) < 4:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    while (queued := lane.next()) is not None:
        names.append(queued.pod.name)
    assert names.index("d") <= 1


async def test_pods_that_come_meanwhile_are_counted(cluster: Cluster) -> None:
    """Changes during the preparation are applied too."""
    queue = new_queue()
    queue.add(hostile(), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    lane = lane_of(cluster, queue)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.prepare, queued)
        for i in range(3 * sums.AT_ONCE):
            cluster.put_pod(pod(f"new{i}", on="m", cpu=1, labels={"x1": "y"} if i == 5 else {}))
            await anyio.lowlevel.checkpoint()
    assert lane.next() is queued
    decision = schedule_pod(cluster, queued.pod, PROFILE)
    assert getattr(decision, "node_name", None) == "n"


async def test_a_pod_that_is_ready_wakes_the_loop(cluster: Cluster) -> None:
    """The loop is woken when it can take the pod, for nothing else changes the queue."""
    queue, taken = new_queue(), list[QueuedPod | None]()
    queue.add(hostile(), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    lane = lane_of(cluster, queue)
    lane.on_ready = lambda: taken.append(lane.next())
    await lane.prepare(queued)
    assert taken == [queued]


async def test_one_that_is_gone_is_left_out(cluster: Cluster) -> None:
    """A pod that was deleted during its preparation is not returned."""
    queue = new_queue()
    queue.add(hostile(), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    lane = lane_of(cluster, queue)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.prepare, queued)
        await anyio.lowlevel.checkpoint()
        queue.remove(queued.pod.uid)
    assert lane.next() is None


async def test_too_much_happens(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod for which changes come too fast is tried again after its backoff."""
    queue = new_queue()
    queue.add(hostile(), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    monkeypatch.setattr("neuron_scheduler.cluster.tables.pods._MOST_LOGGED", 0)  # the log of changes is cut at once
    lane = lane_of(cluster, queue)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.prepare, queued)
        for i in count():
            cluster.put_pod(pod("changes", on="m", cpu=1, labels={"version": str(i)}))
            await anyio.lowlevel.checkpoint()
            if queued.place is not Place.IN_FLIGHT:
                break
    assert queued.place is Place.BACKOFF
    assert lane.next() is None


async def test_an_error_is_the_pod_s_own(cluster: Cluster) -> None:
    """After an error the pod is tried again after its backoff, and the lane continues."""
    queue = new_queue()
    queue.add(attrs.evolve(hostile(), scheduler_name="nobody"), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    await lane_of(cluster, queue).prepare(queued)
    assert queued.place is Place.BACKOFF


async def test_the_loop_takes_it_when_it_is_ready() -> None:
    """A pod that needed preparation is bound like any other."""
    world = WiredScheduler()
    terms = [{"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": {f"x{i}": "y"}}} for i in range(TERMS)]
    near = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    world.pods = {"h": pod_manifest("h", neuron=1, affinity=near), "a": pod_manifest("a", neuron=1)}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.parts.scheduling_loop.run)
        tasks.start_soon(world.parts.recorder.run)
        for manifest in world.pods.values():
            world.deliver(world.parts.pods, "ADDED", manifest)
        while not all("nodeName" in manifest["spec"] for manifest in world.pods.values()):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert world.requests["POST", "binding"] == 2


async def test_the_number_of_tasks_does_not_depend_on_that_of_pods() -> None:
    """Pods wait for their preparation in a queue, not each in a task of its own."""
    world, pods, most = WiredScheduler(), 40, 0
    terms = [{"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": {f"x{i}": "y"}}} for i in range(TERMS)]
    near = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    world.pods = {f"h{i}": pod_manifest(f"h{i}", affinity=near) for i in range(pods)}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.parts.scheduling_loop.run)
        tasks.start_soon(world.parts.recorder.run)
        await anyio.wait_all_tasks_blocked()
        before = len(asyncio.all_tasks())
        for manifest in world.pods.values():
            world.deliver(world.parts.pods, "ADDED", manifest)
        while not all("nodeName" in manifest["spec"] for manifest in world.pods.values()):
            most = max(most, len(asyncio.all_tasks()))
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert most < before + pods / 2


def test_others_do_not_come_here(cluster: Cluster) -> None:
    """A pod with usual terms, or one that is refused anyway, does not come here."""
    queue = new_queue()
    few = attrs.evolve(hostile("few"), constraints=Constraints(anti_affinity=hostile().constraints.anti_affinity[:3]))
    for ordinary in (pod("a"), few, attrs.evolve(hostile("b"), refusal="no")):
        queue.add(ordinary, 0.0)
        queued = queue.pop(0.0)
        assert queued is not None
        assert not asks_much(queued.pod) or queued.prepared


@pytest.mark.parametrize(("namespace", "is_taken"), [("default", True), ("empty", False)])
def test_it_takes_a_pod_that_would_be_compared_with_many(
    cluster: Cluster, namespace: str, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few terms are much work among many pods, unless few of these can match."""
    monkeypatch.setattr(side_lane, "_MOST_COMPARISONS", MANY - 1)
    term = attrs.evolve(hostile().constraints.anti_affinity[0], namespaces=frozenset({namespace}))
    asking = attrs.evolve(pod("asking", cpu=1, anti_affinity=(term,)), scheduler_name="default-scheduler")
    assert lane_of(cluster, new_queue()).takes(asking) == is_taken


def test_it_takes_a_pod_whose_volumes_would_be_counted_on_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unlike claim is counted."""
    zones = dict.fromkeys(map(str, range(10)), "x")
    unlike = [claim(f"c{size}", request=size * GI) for size in (1, 2)]
    cluster = stored(zoned(**zones), *unlike, *[volume(f"pv{size}", capacity=size * GI) for size in (1, 2)])
    monkeypatch.setattr(side_lane, "_MOST_COUNTED", 10)
    for names, is_taken in ((("c1",), False), (("c1", "c2"), True)):
        asking = attrs.evolve(pod(volume_claims=names), scheduler_name="default-scheduler")
        assert lane_of(cluster, new_queue()).takes(asking) == is_taken


async def test_a_pod_that_is_gone_is_not_prepared(cluster: Cluster, compared: list[int]) -> None:
    """A tenant may create and delete without end."""
    queue = new_queue()
    queue.add(hostile(), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.remove(queued.pod.uid)
    await lane_of(cluster, queue).prepare(queued)
    assert compared[0] == 0

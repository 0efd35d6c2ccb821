"""What the watch reports of pods goes to the cluster and the queue, and wakes only the pods it could help."""

import attrs

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.queue.queued_pod import Place
from tests.support.builders import node, pod
from tests.support.handlers import World


def test_pods_of_every_profile_are_queued(world: World) -> None:
    """The names that are served are ours, and no other."""
    assert world.queue.count(Place.UNSCHEDULABLE) == 3
    assert {name for _, name in world.queue.refused_by_plugin()} == {"one", "two"}


def test_what_happens_while_nobody_waits_wakes_nobody() -> None:
    """The loop is woken by what could help a pod that waits, and by one that comes."""
    world, woken = World(), list[str]()

    def happens(what: str) -> list[str]:
        woken.clear()
        world.queue.on_change = lambda: woken.append(what)
        world.nodes.added(node(f"n{what}", cpu=1000))
        there = pod(f"p{what}", on=f"n{what}", cpu=1000)
        world.pods.added(there)
        world.pods.updated(there, attrs.evolve(there, labels={"a": "b"}))
        world.pods.deleted(there)
        return woken

    assert happens("first") == []
    world.pods.added(pod("big", scheduler_name="one", cpu=9000))
    assert woken == ["first"]
    assert world.settle() == ["big"]
    assert happens("second")


def test_a_promise_wakes_others_once_its_pod_is_elsewhere(world: World) -> None:
    """Whoever bound the pod: what was kept for it is free for those of its priority or a lower one."""
    world.nodes.added(node("b", cpu=4000, created=1))
    promised = pod("promised", scheduler_name="one", cpu=4000, priority=5)
    world.cluster.nominate("b", Nomination(promised))
    world.pods.added(pod("lower", scheduler_name="one", cpu=4000))
    assert "lower" in world.settle()
    world.pods.added(attrs.evolve(promised, node_name="elsewhere"))
    assert "lower: placed" in world.settle()


def test_who_loses_a_promise_is_told(world: World) -> None:
    """A pod that others bind to a node may take what was promised there; a node that goes takes it for certain."""
    told: list[str] = []
    world.pods.came = told.append
    world.nodes.nomination_lost = lambda pod: told.append(pod.name)
    world.nodes.added(node("b", cpu=4000, created=1))
    world.cluster.nominate("b", Nomination(pod("promised", scheduler_name="one", cpu=4000)))
    foreign = pod("foreign", on="b", cpu=1000)
    world.pods.added(foreign)
    world.pods.updated(foreign, attrs.evolve(foreign, labels={"x": "y"}))
    world.nodes.deleted(node("b"))
    assert told == ["b", "promised"]


def test_many_pods_that_claim_the_same_cores_are_told_once_each(world: World) -> None:
    """A line and two Events a pod, not one of each for every pair of pods; the same when a replica takes over."""
    told = list[tuple[str, str]]()
    world.pods.double_booked = lambda pod, rival: told.append((pod.name, rival.name))
    world.nodes.added(node("n", "trn1.32xlarge"))
    for i in range(20):
        world.pods.added(pod(f"p{i}", devices=2, ids=(0, 1), on="n"))
    assert len(told) == 2 * 19
    assert ("p19", "p0") in told
    told.clear()
    world.pods.report_doubts()
    assert [name for name, _ in told] == [f"p{i}" for i in range(20)]


def test_what_was_contested_before_is_told_again(world: World) -> None:
    """Both owners hear of it, for whom nobody spoke while no replica was leading."""
    told: list[tuple[str, str]] = []
    world.pods.double_booked = lambda pod, rival: told.append((pod.name, rival.name))
    world.nodes.added(node("b", "trn1.32xlarge", created=1))
    for name in ("one", "other"):
        world.pods.added(pod(name, devices=1, on="b", ids=(3,)))
    told.clear()
    world.pods.report_doubts()
    assert sorted(told) == [("one", "other"), ("other", "one")]
    assert world.unknown == []


def test_an_unknown_holder_is_told_once_and_by_the_next_leader_again(world: World) -> None:
    """A change of the pod is no news, nor is another listing; a replica that takes over has not said it yet."""
    world.nodes.added(node("b", "trn1.32xlarge", created=1))
    forgot = pod("forgot", devices=1, on="b", scheduler_name="default-scheduler")
    want = [("forgot", "no annotation names its ids")]
    world.pods.added(forgot)
    changed = attrs.evolve(forgot, labels={"x": "y"}, resource_version="2")
    world.pods.updated(forgot, changed)
    world.pods.added(changed)
    assert world.unknown == want
    world.pods.report_doubts()
    assert world.unknown == want * 2
    world.pods.deleted(changed)
    world.pods.report_doubts()
    assert world.unknown == want * 2


def test_a_pod_that_cannot_be_read_is_an_unknown_holder(world: World) -> None:
    """Its owner hears of it once; one that is on no node holds nothing, and one that was read keeps what it had."""
    for name, uid, on in (("odd", "odd", "a"), ("odd", "odd", "a"), ("pending", "pending", ""), ("d0", "uid-d0", "a")):
        world.pods.malformed(Malformed("Pod", f"default/{name}", "bad", uid=uid, node_name=on))
    assert world.unknown == [("odd", "the pod object cannot be read")]


def test_what_a_pod_leaves_wakes_whom_it_suffices(world: World) -> None:
    """Too little is no help; devices enough are, once, though in pieces; then only a block is."""
    idle = pod("idle", on="a", cpu=500)
    world.pods.added(idle)
    world.pods.deleted(idle)
    assert world.settle() == []
    world.pods.deleted(pod("d1", devices=4, on="a"))
    assert world.settle() == []
    world.pods.deleted(pod("d2", devices=4, on="a"))
    assert world.settle() == ["devices"]
    world.pods.added(idle)
    world.pods.deleted(idle)
    assert world.settle() == []
    world.pods.deleted(pod("d3", devices=4, on="a"))
    assert world.settle() == ["devices: placed"]
    world.pods.deleted(pod("c", cpu=3000, on="a"))
    assert world.settle() == ["cpu: placed"]


def test_who_leaves_before_it_started_may_have_been_rejected(world: World) -> None:
    """A pod that ran, that somebody deleted, that had no node or could not be read was not."""
    for each in (
        pod("rejected", devices=1, on="a"),
        pod("ran", devices=1, on="a", started=5.0),
        pod("deleted", devices=1, on="a", terminating=True),
        pod("pending", scheduler_name="one", devices=16),
    ):
        world.pods.added(each)
        world.pods.deleted(each)
    world.pods.malformed(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="a"))
    world.pods.mended(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="a"))
    assumed = pod("assumed", scheduler_name="one", cpu=1)  # bound and rejected between two lists
    world.pods.added(assumed)
    world.cluster.assume(attrs.evolve(assumed, node_name="a"))
    world.pods.deleted(assumed)
    assert world.left == ["rejected", "assumed"]


def test_who_starts_is_told_once(world: World) -> None:
    """A start time appears once; a pod that has it when it is first seen started some time ago."""
    begun = pod("d1", devices=4, on="a", ids=range(4, 8), started=5.0)
    world.pods.updated(attrs.evolve(begun, started=None), begun)
    world.pods.updated(begun, attrs.evolve(begun, labels={"a": "b"}))
    world.pods.added(pod("old", on="a", started=5.0))
    assert world.started == ["d1"]


def test_a_pod_that_is_deleted_on_its_way_to_a_node_is_not_tried_again(world: World) -> None:
    """A finalizer may keep it for ever; its place is kept until the outcome of its Binding is known."""
    world.nodes.added(node("n1", devices=4))
    waiting = pod("p", devices=1, scheduler_name="one", priority=1)
    world.pods.added(waiting)
    queued = world.queue.pop(world.now)
    assert queued is not None
    assert queued.pod is waiting
    world.cluster.assume(attrs.evolve(waiting, node_name="n1"), CoreMask(0b11))
    world.pods.updated(waiting, attrs.evolve(waiting, terminating=True))
    assert world.cluster.is_assumed(waiting.uid)
    world.queue.failed(queued, world.now)  # the server has refused
    assert waiting.uid not in world.queue

"""Events of pods go to the cluster and the queue, and wake only the pods that they could help."""

from contextlib import suppress

import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.resources import MEMORY
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.queue.places import Place
from tests.support.builders import node, pod
from tests.support.handlers import World


def test_pods_of_every_profile_are_queued(world: World) -> None:
    """Only pods with one of our scheduler names are queued."""
    assert world.queue.count(Place.UNSCHEDULABLE) == 3
    assert {name for _, name in world.queue.refused_by_plugin()} == {"one", "two"}


def test_what_happens_while_nobody_waits_wakes_nobody() -> None:
    """The loop is woken by an event that could help a waiting pod, and by a new pod."""
    world, woken = World(), list[str]()

    def happens(prefix: str) -> list[str]:
        woken.clear()
        world.queue.on_change = lambda: woken.append(prefix)
        world.nodes.added(node(f"n{prefix}", cpu=1000))
        there = pod(f"p{prefix}", on=f"n{prefix}", cpu=1000)
        world.pods.added(there)
        world.pods.updated(there, attrs.evolve(there, labels={"a": "b"}))
        world.pods.deleted(there)
        return woken

    assert happens("first") == []
    world.pods.added(pod("big", scheduler_name="one", cpu=9000))
    assert woken == ["first"]
    assert world.settle() == ["big"]
    assert happens("second")


def test_a_nomination_wakes_others_once_its_pod_is_elsewhere(world: World) -> None:
    """Whichever scheduler bound it, its nominated space is free for pods of its priority or lower."""
    world.nodes.added(node("b", cpu=4000, created=1))
    nominated = pod("nominated", scheduler_name="one", cpu=4000, priority=5)
    world.cluster.nominate("b", Nomination(nominated))
    world.pods.added(pod("lower", scheduler_name="one", cpu=4000))
    assert "lower" in world.settle()
    world.pods.added(attrs.evolve(nominated, node_name="elsewhere"))
    assert "lower: placed" in world.settle()


def test_a_lost_nomination_is_reported(world: World) -> None:
    """A pod that another scheduler binds may take the nominated space; a deleted node always does."""
    reported: list[str] = []
    world.pods.came = reported.append
    world.nodes.nomination_lost = lambda pod: reported.append(pod.name)
    world.nodes.added(node("b", cpu=4000, created=1))
    world.cluster.nominate("b", Nomination(pod("nominated", scheduler_name="one", cpu=4000)))
    foreign = pod("foreign", on="b", cpu=1000)
    world.pods.added(foreign)
    world.pods.updated(foreign, attrs.evolve(foreign, labels={"x": "y"}))
    world.nodes.deleted(node("b"))
    assert reported == ["b", "nominated"]


def test_a_pod_that_another_scheduler_has_bound_meanwhile_comes_to_its_node(world: World) -> None:
    """It was assumed elsewhere, or with other cores; a Binding of ours that the watch confirms is no news."""
    came: list[str] = []
    world.pods.came = came.append
    for name in ("b", "c"):
        world.nodes.added(node(name, "trn1.32xlarge", created=1))
    for name, cores in (("ours", 0b11), ("elsewhere", 0b1100), ("others", 0b110000)):
        waiting = pod(name, scheduler_name="one", devices=1)
        world.cluster.assume(attrs.evolve(waiting, node_name="b"), CoreMask(cores))
    world.pods.added(pod("ours", scheduler_name="one", devices=1, ids=(0,), on="b"))
    assert came == []
    world.pods.added(pod("elsewhere", scheduler_name="one", devices=1, ids=(1,), on="c"))
    world.pods.added(pod("others", scheduler_name="one", devices=1, ids=(3,), on="b"))
    assert came == ["c", "b"]


def test_a_pod_that_asks_for_more_comes_to_its_node_once_more(world: World) -> None:
    """A resize in place takes space of which nobody has decided; nothing is reported, and less wakes other pods."""
    came: list[str] = []
    world.pods.came = came.append
    before = pod("there", devices=1, on="a", cpu=500)
    world.pods.added(before)
    world.unknown.clear()
    more = attrs.evolve(before, requests={**before.requests, MEMORY: 1})
    for old, new, want in ((before, more, ["a", "a"]), (more, more, ["a", "a"]), (more, before, ["a", "a"])):
        world.pods.updated(old, attrs.evolve(new, labels={"x": str(len(came))}))
        assert came == want
    assert world.unknown == []


def test_pods_of_a_list_come_to_their_nodes_at_its_end(world: World) -> None:
    """Before, those that have ended unseen still count beside the new ones; a list that breaks off is followed."""
    came: list[str] = []
    world.pods.came = came.append
    there = pod("there", devices=1, on="b", cpu=500)
    world.pods.added(there)
    came.clear()
    with suppress(TimeoutError), world.pods.replacing():
        world.pods.added(pod("new", on="a"))
        raise TimeoutError("the list breaks off")
    with world.pods.replacing():
        world.pods.updated(there, attrs.evolve(there, requests={**there.requests, MEMORY: 1}))
        world.pods.malformed(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="c"))
        world.pods.added(pod("newer", on="a"))
        world.pods.deleted(pod("c", cpu=3000, on="a"))
        assert came == []
    assert came == ["a", "b", "c"]
    with world.pods.replacing():
        pass
    world.pods.added(pod("later", on="a"))
    assert came == ["a", "b", "c", "a"]


@pytest.mark.parametrize("bound_to", ["b", "c"])
def test_a_nomination_ends_with_a_binding_that_cannot_be_read(world: World, bound_to: str) -> None:
    """Others are tried for the nominated space, and the pod counts once: on its node."""
    for name in ("b", "c"):
        world.nodes.added(node(name, cpu=4000, created=1))
    world.cluster.put_pod(pod("there", on="c", cpu=4000))
    nominated = pod("nominated", scheduler_name="one", cpu=4000, priority=5)
    world.pods.added(nominated)
    world.cluster.nominate("b", Nomination(nominated))
    world.pods.added(pod("lower", scheduler_name="one", cpu=3000))
    assert "lower" in world.settle()
    world.pods.malformed(Malformed("Pod", nominated.key, "bad", uid=nominated.uid, node_name=bound_to))
    assert world.cluster.nomination(nominated.uid) is None
    assert world.cluster.node_of(nominated.uid) == bound_to
    assert "lower: placed" in world.settle()


@pytest.mark.parametrize(("bound_to", "cores"), [("b", 0b11), ("c", None)])
def test_an_assumed_pod_whose_binding_cannot_be_read_is_where_it_is_bound(
    world: World, bound_to: str, cores: int | None
) -> None:
    """On the node that we chose it holds what we gave it; elsewhere that is unknown, and others may have its place."""
    noticed: list[tuple[str, str]] = []
    world.pods.noticed = lambda uid, node_name: noticed.append((uid, node_name))
    for name in ("b", "c"):
        world.nodes.added(node(name, "trn1.32xlarge", created=1))
    waiting = pod("waiting", scheduler_name="one", devices=1)
    world.pods.added(waiting)
    world.cluster.assume(attrs.evolve(waiting, node_name="b"), CoreMask(0b11))
    world.pods.malformed(Malformed("Pod", waiting.key, "bad", uid=waiting.uid, node_name=bound_to))
    pod_info = world.cluster.pod_info(waiting.uid)
    assert pod_info is not None
    assert (pod_info.pod.node_name, pod_info.cores) == (bound_to, cores)
    assert world.cluster.is_assumed(waiting.uid) is (bound_to == "b")
    assert noticed == [(waiting.uid, bound_to)]


def test_the_end_of_a_pod_that_cannot_be_read_is_noticed(world: World) -> None:
    """What waits for the node may have the space now; a pod that can be read again has been noticed as such."""
    noticed: list[tuple[str, str]] = []
    world.pods.noticed = lambda uid, node_name: noticed.append((uid, node_name))
    odd = Malformed("Pod", "default/odd", "bad", uid="uid-odd", node_name="a")
    world.pods.malformed(odd)
    world.pods.no_longer_malformed(odd)
    assert noticed == [("uid-odd", "a")] * 2
    world.pods.malformed(odd)
    world.pods.added(pod("odd", on="a"))
    world.pods.no_longer_malformed(odd)
    assert noticed == [("uid-odd", "a")] * 4


def test_pods_that_claim_the_same_cores_are_reported_once_each(world: World) -> None:
    """One log line and two Events per pod, not one for every pair of pods; the same when a replica takes over."""
    reported = list[tuple[str, str]]()
    world.pods.double_booked = lambda pod, rival: reported.append((pod.name, rival.name))
    world.nodes.added(node("n", "trn1.32xlarge"))
    for i in range(20):
        world.pods.added(pod(f"p{i}", devices=2, ids=(0, 1), on="n"))
    assert len(reported) == 2 * 19
    assert ("p19", "p0") in reported
    reported.clear()
    world.pods.report_doubts()
    assert [name for name, _ in reported] == [f"p{i}" for i in range(20)]


def test_cores_of_a_pod_that_a_list_no_longer_has_are_not_claimed_twice(world: World) -> None:
    """A list hands over new pods before it removes those that are gone; a real conflict is reported at its end."""
    reported: list[tuple[str, str]] = []
    world.pods.double_booked = lambda pod, rival: reported.append((pod.name, rival.name))
    world.nodes.added(node("b", "trn1.32xlarge", created=1))
    gone = pod("gone", devices=1, on="b", ids=(3,))
    world.pods.added(gone)
    with suppress(TimeoutError), world.pods.replacing():
        world.pods.added(pod("successor", devices=1, on="b", ids=(3,)))
        raise TimeoutError("the list breaks off")
    with world.pods.replacing():
        for name in ("one", "other"):
            world.pods.added(pod(name, devices=1, on="b", ids=(5,)))
        world.pods.deleted(gone)
        assert reported == []
    assert sorted(reported) == [("one", "other"), ("other", "one")]
    world.pods.added(pod("third", devices=1, on="b", ids=(5,)))
    assert ("third", "one") in reported


def test_an_unknown_holder_is_reported_once_by_each_leader(world: World) -> None:
    """A change of the pod or another list does not repeat it; a new leader does."""
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
    """It is reported once; a pod without a node uses nothing, and a pod that was readable keeps its devices."""
    for name, uid, on in (("odd", "odd", "a"), ("odd", "odd", "a"), ("pending", "pending", ""), ("d0", "uid-d0", "a")):
        world.pods.malformed(Malformed("Pod", f"default/{name}", "bad", uid=uid, node_name=on))
    assert world.unknown == [("odd", "the pod object cannot be read")]


def test_what_a_pod_leaves_wakes_whom_it_suffices(world: World) -> None:
    """Too little free space wakes no pod; enough devices in pieces do so once; then only a block does."""
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


def test_a_pod_that_goes_before_it_started_may_have_been_rejected(world: World) -> None:
    """Not if it ran, was deleted by a user, had no node or could not be read."""
    for gone in (
        pod("rejected", devices=1, on="a"),
        pod("ran", devices=1, on="a", started=5.0),
        pod("deleted", devices=1, on="a", terminating=True),
        pod("pending", scheduler_name="one", devices=16),
    ):
        world.pods.added(gone)
        world.pods.deleted(gone)
    world.pods.malformed(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="a"))
    world.pods.no_longer_malformed(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="a"))
    assumed = pod("assumed", scheduler_name="one", cpu=1)  # bound and rejected between two lists
    world.pods.added(assumed)
    world.cluster.assume(attrs.evolve(assumed, node_name="a"))
    world.pods.deleted(assumed)
    assert world.left == ["rejected", "assumed"]


def test_a_pod_that_is_deleted_on_its_way_to_a_node_is_not_tried_again(world: World) -> None:
    """A finalizer may keep the pod for ever; its space is kept until the outcome of its Binding is known."""
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

"""What a watch event changes in the cluster, and which changes are told."""

from contextlib import suppress

import attrs
import pytest

from neuron_scheduler.cluster import fold
from neuron_scheduler.cluster.changes import Change, NodeChanged, NodeGone, PodBound, PodGone
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import MEMORY
from neuron_scheduler.model.selecting_kinds import Namespace, Workload
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.neuron.core_mask import CoreMask
from tests.support.builders import node, pod
from tests.support.handlers import World

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
DB = LabelSelector((Requirement("app", Operator.IN, ("db",)),))
SERVICE = Workload("u", "v1", "Service", "default", "s", WEB)


def world_of(*names: str) -> World:
    """Return a world with nodes; what is told of them is forgotten."""
    world = World()
    for number, name in enumerate(names):
        world.nodes.on_added(node(name, "trn1.32xlarge", cpu=4000, created=number))
    world.told.changes.clear()
    return world


def lost_by(changes: list[Change]) -> list[Pod]:
    """Return the pods whose nominations are told to be lost."""
    return [pod for change in changes if isinstance(change, NodeChanged | NodeGone) for pod in change.lost]


def test_a_pod_that_comes_takes_space_and_a_node_that_goes_takes_nominations_along() -> None:
    """A change of labels takes no space."""
    world = world_of("b")
    nominated = pod("nominated", scheduler_name="one", cpu=4000)
    world.cluster.nominate("b", Nomination(nominated))
    foreign = pod("foreign", on="b", cpu=1000)
    world.pods.on_added(foreign)
    assert world.told.spaces() == ["b"]
    world.pods.on_updated(foreign, attrs.evolve(foreign, labels={"x": "y"}))
    assert world.told.spaces() == []
    world.nodes.on_deleted(node("b"))
    assert lost_by(world.told.changes) == [nominated]


def test_a_pod_that_another_scheduler_has_bound_meanwhile_takes_space() -> None:
    """It was assumed elsewhere, or with other cores; a Binding of ours that the watch confirms takes no more."""
    world = world_of("b", "c")
    for name, cores in (("ours", 0b11), ("elsewhere", 0b1100), ("others", 0b110000)):
        waiting = pod(name, scheduler_name="one", devices=1)
        world.cluster.assume(attrs.evolve(waiting, node_name="b"), CoreMask(cores))
    world.pods.on_added(pod("ours", scheduler_name="one", devices=1, ids=(0,), on="b"))
    assert world.told.spaces() == []
    world.pods.on_added(pod("elsewhere", scheduler_name="one", devices=1, ids=(1,), on="c"))
    world.pods.on_added(pod("others", scheduler_name="one", devices=1, ids=(3,), on="b"))
    assert world.told.spaces() == ["c", "b"]


def test_a_pod_that_asks_for_more_takes_space() -> None:
    """A resize in place takes space of which nobody has decided; nothing is reported."""
    world = world_of("a")
    before = pod("there", devices=1, on="a", cpu=500)
    world.pods.on_added(before)
    world.told.changes.clear()
    world.unknown.clear()
    more = attrs.evolve(before, requests={**before.requests, MEMORY: 1})
    for number, (old, new, want) in enumerate([(before, more, ["a"]), (more, more, []), (more, before, [])]):
        world.pods.on_updated(old, attrs.evolve(new, labels={"x": str(number)}))
        assert world.told.spaces() == want
    assert world.unknown == []


def test_space_that_the_pods_of_a_list_take_is_told_at_its_end() -> None:
    """Before, those that have ended unseen still count beside the new ones; a list that breaks off is followed."""
    world = world_of("a", "b")
    there, ended = pod("there", devices=1, on="b", cpu=500), pod("c", cpu=3000, on="a")
    for each in (there, ended):
        world.pods.on_added(each)
    world.told.changes.clear()
    listing = world.watches.observers.list_context
    with suppress(TimeoutError), listing():
        world.pods.on_added(pod("new", on="a"))
        raise TimeoutError("the list breaks off")
    with listing():
        world.pods.on_updated(there, attrs.evolve(there, requests={**there.requests, MEMORY: 1}))
        world.pods.on_malformed(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="c"))
        world.pods.on_added(pod("newer", on="a"))
        world.pods.on_deleted(ended)
        assert world.told.spaces() == []
    assert world.told.spaces() == ["a", "b", "c"]
    with listing():
        pass
    world.pods.on_added(pod("later", on="a"))
    assert world.told.spaces() == ["a"]


@pytest.mark.parametrize("bound_to", ["b", "c"])
def test_an_assumed_pod_whose_binding_cannot_be_read_is_an_unknown_holder(bound_to: str) -> None:
    """Another scheduler may have bound it, even to the node that we chose: what we gave it is not known to be its."""
    world = world_of("b", "c")
    waiting = pod("waiting", scheduler_name="one", devices=1)
    world.pods.on_added(waiting)
    world.cluster.assume(attrs.evolve(waiting, node_name="b"), CoreMask(0b11))
    world.told.changes.clear()
    world.pods.on_malformed(Malformed("Pod", waiting.key, "bad", uid=waiting.uid, node_name=bound_to))
    held = world.held_by("waiting")
    assert (held.pod.node_name, held.cores) == (bound_to, None)
    world.cluster.forget(waiting.uid)  # our Binding is refused
    assert world.held_by("waiting") is held
    (told,) = [change for change in world.told.changes if isinstance(change, PodBound)]
    assert told.after is held
    assert world.told.spaces() == [bound_to]


def test_the_end_of_a_pod_that_cannot_be_read_is_told() -> None:
    """A pod that could be read before keeps its devices, and one that can be read again has no end."""
    world = world_of("a")
    odd = Malformed("Pod", "default/odd", "bad", uid="uid-odd", node_name="a")
    world.pods.on_malformed(odd)
    world.pods.on_malformed_gone(odd)
    (end,) = [change for change in world.told.changes if isinstance(change, PodGone)]
    assert (end.pod.uid, end.freed) == ("uid-odd", "a")
    world.pods.on_malformed(odd)
    world.pods.on_added(pod("odd", on="a"))
    world.told.changes.clear()
    world.pods.on_malformed_gone(odd)
    world.pods.on_malformed(odd)
    assert world.told.changes == []
    assert not world.held_by("odd").unreadable


def test_a_nomination_does_not_outlive_the_machine() -> None:
    """When the node becomes another machine, its core numbers mean other cores; a label changes nothing."""
    world, before = world_of(), node("b", "trn1.32xlarge")
    world.nodes.on_added(before)
    nominated = pod("nominated", scheduler_name="one", devices=1)
    world.cluster.nominate("b", Nomination(nominated, cores=CoreMask(3)))
    labelled = attrs.evolve(before, labels={**before.labels, "x": "y"})
    world.nodes.on_updated(before, labelled)
    assert lost_by(world.told.changes) == []
    world.nodes.on_updated(labelled, node("b"))
    assert lost_by(world.told.changes) == [nominated]


def test_the_selectors_of_services_and_namespaces_follow_the_watch() -> None:
    """Only the latest state counts."""
    cluster, web, db = Cluster(), pod(labels={"app": "web"}), pod(labels={"app": "db"})
    fold.put(cluster, None, SERVICE)
    assert (cluster.workloads.selector_of(web), cluster.workloads.selector_of(db)) == (WEB, None)
    changed = attrs.evolve(SERVICE, selector=DB)
    fold.put(cluster, SERVICE, changed)
    assert (cluster.workloads.selector_of(web), cluster.workloads.selector_of(db)) == (None, DB)
    fold.remove(cluster, changed)
    assert cluster.workloads.selector_of(db) is None
    plain, labelled = Namespace("u", "ns"), Namespace("u", "ns", {"app": "web"})
    fold.put(cluster, None, plain)
    assert "ns" not in cluster.namespaces.select(WEB, frozenset())
    fold.put(cluster, plain, labelled)
    assert "ns" in cluster.namespaces.select(WEB, frozenset())
    fold.remove(cluster, labelled)
    assert "ns" not in cluster.namespaces.select(WEB, frozenset())

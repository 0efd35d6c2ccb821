"""kube-scheduler's preempt call: the nodes that are left out, what is remembered, and what is refused."""

import itertools
import json
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.extender import preempt as preempt_module
from neuron_scheduler.extender.preempt import MOST, UNSEEN, Preempt
from neuron_scheduler.extender.protocol import (
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MalformedRequestError,
    decode,
)
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, LabelSelector, Operator, Requirement, Taint
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import extender_profile, preemption_profile
from tests.control_plane.objects import pod_manifest
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

OF_APP_A = LabelSelector((Requirement("app", Operator.IN, ("a",)),))
BOTH_UNITS = {"limits": {"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "1"}}


def verb(
    cluster: Cluster,
    *,
    budgets: Sequence[DisruptionBudget] = (),
    clock: Callable[[], float] = lambda: 0.0,
    abandoned: Container[str] = (),
    own_names: Container[str] = ("my-scheduler",),
) -> Preempt:
    """Return the verb."""
    for budget in budgets:
        cluster.budgets.put(budget)
    return Preempt(
        cluster=cluster,
        profile=preemption_profile(),
        beside=extender_profile(),
        own_names=own_names,
        is_abandoned=lambda uid: uid in abandoned,
        clock=clock,
    )


def preemptor(**fields: Any) -> dict[str, Any]:
    """Return a pod of four devices as kube-scheduler sends it."""
    manifest = pod_manifest("q", neuron=4)
    manifest["metadata"]["uid"] = "uid-q"
    manifest["metadata"]["resourceVersion"] = "1"
    manifest["spec"].update({"priority": 10, "schedulerName": "default-scheduler", **fields})
    return manifest


def request(victims: dict[str, list[str]], *, about: dict[str, Any] | None = None) -> ExtenderPreemptionArgs:
    """Return a request with these victims by node."""
    meta = {name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for name, uids in victims.items()}
    text = {"Pod": about or preemptor(), "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
    return decode(json.dumps(text).encode(), ExtenderPreemptionArgs)


def answered(result: ExtenderPreemptionResult) -> dict[str, list[str]]:
    """Return the victims of an answer by node."""
    nodes = result.node_name_to_meta_victims
    assert nodes is not None
    return {name: [victim.uid for victim in victims.pods or ()] for name, victims in nodes.items()}


def holders(on: str, *, priority: int = 0, **fields: Any) -> list[Pod]:
    """Return pods that hold a device each of a node with 16."""
    return [pod(f"{on}-{i}", on=on, devices=1, ids=(i,), priority=priority, **fields) for i in range(16)]


def fleet() -> Cluster:
    """Return two full nodes; on the second one no pod may leave."""
    nodes = [node(name, "trn1.32xlarge") for name in ("a", "b")]
    return cluster_of(nodes, [*holders("a"), *holders("b", priority=10)])


async def test_victims_that_free_no_block_are_swapped() -> None:
    """And a node where no victims can free one is left out."""
    proposed = {"a": ["uid-a-1", "uid-a-6", "uid-a-11", "uid-a-12"], "b": ["uid-b-0"], "unknown": ["uid-x"]}
    result = await verb(fleet()).preempt(request(proposed))
    assert answered(result) == {"a": [f"uid-a-{i}" for i in range(4)]}


async def test_violations_are_counted() -> None:
    """kube-scheduler compares nodes by them."""
    cluster = cluster_of([node("a", "trn1.32xlarge")], holders("a", labels={"app": "a"}))
    budget = DisruptionBudget("b", "default", "b", OF_APP_A, 1, frozenset())
    result = await verb(cluster, budgets=[budget]).preempt(request({"a": ["uid-a-0"]}))
    assert result.node_name_to_meta_victims is not None
    assert result.node_name_to_meta_victims["a"].num_pdb_violations == 3


async def test_the_most_important_victim_comes_first() -> None:
    """kube-scheduler takes the first victim's priority for the highest."""
    bound = [pod(f"p{i}", on="a", devices=4, ids=range(4 * i, 4 * i + 4), priority=i % 2) for i in range(4)]
    cluster = cluster_of([node("a", "trn1.32xlarge")], bound)
    about = preemptor(containers=pod_manifest("q", neuron=8)["spec"]["containers"])
    result = await verb(cluster).preempt(request({"a": ["uid-p0"]}, about=about))
    assert answered(result) == {"a": ["uid-p1", "uid-p0"]}


async def test_pods_that_are_not_bound_yet_are_no_victims_if_they_are_our_own() -> None:
    """kube-scheduler refuses an answer with a pod that it does not know; its own assumed pods it does know."""
    cluster = cluster_of([node("a", "trn1.32xlarge")])
    machine = cluster.node("a")
    assert machine is not None
    for i, name in enumerate(("my-scheduler", "default-scheduler", "my-scheduler", "my-scheduler")):
        assumed = pod(f"p{i}", on="a", devices=4, scheduler_name=name)
        cluster.assume(assumed, type(machine.free_cores)(0xFF << 8 * i))
    result = await verb(cluster).preempt(request({"a": ["uid-p0"]}))
    assert answered(result) == {"a": ["uid-p1"]}


async def test_pods_whose_call_has_hung_up_are_no_victims_until_they_are_bound() -> None:
    """kube-scheduler has taken them off the node again; once they are bound it knows them."""
    cluster = cluster_of([node("a", "trn1.32xlarge")], [pod("bound", on="a", devices=12, ids=range(4, 16), priority=1)])
    cluster.assume(pod("assumed", on="a", devices=4, scheduler_name="default-scheduler"), CoreMask(0xFF))
    proposed = {"a": ["uid-bound"]}
    assert answered(await verb(cluster, abandoned={"uid-assumed"}).preempt(request(proposed))) == {"a": ["uid-bound"]}
    assert answered(await verb(cluster).preempt(request(proposed))) == {"a": ["uid-assumed"]}


async def test_for_a_pod_whose_binding_may_succeed_nobody_leaves() -> None:
    """kube-scheduler's call for it has failed, and its node fails kube-scheduler's own filters meanwhile."""
    cluster = fleet()
    cluster.put_node(node("cordoned", "trn1.32xlarge"))
    proposed = request({"a": ["uid-a-0", "uid-a-1", "uid-a-2", "uid-a-3"]})
    assert answered(await verb(cluster).preempt(proposed)) != {}
    cluster.assume(pod("q", on="cordoned", devices=4), CoreMask(0xFF))
    assert answered(await verb(cluster).preempt(proposed)) == {}


@pytest.mark.parametrize(
    "fields",
    [{"preemptionPolicy": "Never"}, {"containers": [{"name": "c", "resources": BOTH_UNITS}]}],
    ids=["it may not", "no node serves it"],
)
async def test_for_a_pod_that_evictions_do_not_help_nobody_leaves(fields: dict[str, Any]) -> None:
    """The answer has no node."""
    assert answered(await verb(fleet()).preempt(request({"a": ["uid-a-0"]}, about=preemptor(**fields)))) == {}


async def test_the_node_where_least_is_lost_is_named() -> None:
    """It is one node, by kube-scheduler's criteria: then it is known which pods it deletes."""
    nodes = [node(name, "trn1.32xlarge") for name in ("a", "b", "c")]
    priorities = {"a": 2, "b": 1, "c": 1}
    cluster = cluster_of(nodes, [pod for name, value in priorities.items() for pod in holders(name, priority=value)])
    result = await verb(cluster).preempt(request({name: [f"uid-{name}-0"] for name in priorities}))
    assert answered(result) == {"b": [f"uid-b-{i}" for i in range(4)]}


async def test_after_some_time_no_further_node_is_looked_at() -> None:
    """kube-scheduler has a timeout; one candidate is enough for it, although the last node would be cheaper."""
    names = [f"n{i}" for i in range(40)]
    pods = [holder for name in names for holder in holders(name, priority=-1 if name == "n39" else 0)]
    cluster = cluster_of([node(name, "trn1.32xlarge") for name in names], pods)
    proposed = {name: [f"uid-{name}-0"] for name in names}
    assert answered(await verb(cluster).preempt(request(proposed))).keys() == {"n39"}
    slow = partial(next, itertools.count(0.0, preempt_module.LONGEST / 10))
    assert answered(await verb(cluster, clock=slow).preempt(request(proposed))).keys() == {"n0"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no pod": ({"NodeNameToMetaVictims": {}}, "it has no Pod"),
    "whole pods": ({"Pod": preemptor(), "NodeNameToVictims": {}}, "NodeNameToMetaVictims; set nodeCacheCapable: true"),
    "an unreadable pod": ({"Pod": {"metadata": 3}, "NodeNameToMetaVictims": {}}, "Pod: "),
    "an ended pod": ({"Pod": {**preemptor(), "status": {"phase": "Failed"}}, "NodeNameToMetaVictims": {}}, "has ended"),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_cannot_be_read_is_refused(case: str) -> None:
    """The sentence names the field."""
    text, expected = BAD[case]
    args = decode(json.dumps(text).encode(), ExtenderPreemptionArgs)
    with pytest.raises(MalformedRequestError, match=expected):
        await verb(fleet()).preempt(args)


BOTH = ("a", "b")
FIRST_FOUR = [f"uid-a-{i}" for i in range(4)]
OF_B = {"b": [f"uid-b-{i}" for i in range(4)]}


def full_nodes() -> Cluster:
    """Return two nodes, each full of pods with a device each; those of node a are the cheaper ones."""
    nodes = [node(name, "trn1.32xlarge") for name in BOTH]
    return cluster_of(nodes, [*holders("a", priority=-1), *holders("b")])


@attrs.define(eq=False)
class Road:
    """kube-scheduler's calls about one pod, at the times that a test sets."""

    cluster: Cluster = attrs.field(factory=full_nodes)
    now: float = 0.0
    own_names: frozenset[str] = frozenset({"my-scheduler"})
    verb: Preempt = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget all answers, like a new process."""
        self.verb = verb(self.cluster, clock=lambda: self.now, own_names=self.own_names)

    async def ask(self, *names: str, nominated: str = "", **fields: Any) -> dict[str, list[str]]:
        """Return the victims that are named if kube-scheduler would evict pods of these nodes, or of both."""
        about = preemptor(**fields)
        about.setdefault("status", {})["nominatedNodeName"] = nominated
        proposed = {name: [f"uid-{name}-{i}" for i in range(4)] for name in names or BOTH}
        return answered(await self.verb.preempt(request(proposed, about=about)))

    def bound(self, uid: str) -> Pod:
        """Return a pod that is on a node."""
        pod_info = self.cluster.pod_info(uid)
        assert pod_info is not None
        return pod_info.pod

    def delete(self, *uids: str) -> None:
        """Show that pods are ending, as victims of kube-scheduler."""
        for uid in uids:
            self.cluster.put_pod(attrs.evolve(self.bound(uid), terminating=True, preempted=True))

    def end(self, *uids: str) -> None:
        for uid in uids:
            self.cluster.remove_pod(uid)


@pytest.fixture
async def road() -> Road:
    """kube-scheduler has just been told to evict four pods of node a."""
    road = Road()
    assert await road.ask() == {"a": FIRST_FOUR}
    return road


async def test_before_anything_is_seen_the_same_pods_are_named(road: Road) -> None:
    """Whatever else kube-scheduler proposes: it deletes them once more, which costs nothing."""
    road.cluster.put_node(node("c", "trn1.32xlarge"))
    for holder in holders("c", priority=-2):
        road.cluster.put_pod(holder)
    assert await road.ask("a", "b", "c") == {"a": FIRST_FOUR}


async def test_only_those_are_named_again_that_are_not_ending(road: Road) -> None:
    """kube-scheduler deletes by name, and a pod that ends may be followed by one of the same name."""
    road.delete(*FIRST_FOUR[:2])
    road.end(FIRST_FOUR[0])
    assert await road.ask() == {"a": FIRST_FOUR[2:]}


async def test_while_they_end_nobody_else_leaves(road: Road) -> None:
    """Their end wakes the pod, however long it takes and whatever kube-scheduler proposes."""
    road.delete(*FIRST_FOUR)
    for road.now in (0.1, UNSEEN + 1, 3600.0):
        assert await road.ask() == {}
        assert await road.ask("b") == {}
        assert await road.ask("b", nominated="a") == {}


async def test_when_they_have_ended_kube_scheduler_is_only_late(road: Road) -> None:
    """Its watch will show the end and wake the pod; but it may have a reason that we do not know."""
    road.delete(*FIRST_FOUR)
    road.now = 30.0
    road.end(*FIRST_FOUR)
    assert await road.ask("a", "b", nominated="a") == {}
    road.now += UNSEEN
    assert await road.ask("b", nominated="a") == {}
    road.now += 0.25
    assert await road.ask("a", "b", nominated="a") == OF_B
    assert await road.ask("a", "b", nominated="a") == OF_B


async def test_victims_that_are_not_deleted(road: Road) -> None:
    """A webhook may refuse it: after some time pods of another node may be named."""
    road.now = UNSEEN
    assert await road.ask() == {"a": FIRST_FOUR}
    assert await road.ask("b") == {}, "kube-scheduler refuses an answer with a node that it did not send"
    road.now += 0.25
    assert await road.ask("b") == OF_B


@pytest.mark.parametrize("ending", [False, True])
async def test_a_node_that_refuses_the_pod_is_given_up_at_once(road: Road, ending: bool) -> None:
    """It is cordoned, or a pod of another scheduler has taken the space."""
    if ending:
        road.delete(*FIRST_FOUR)
    before = road.cluster.node("a")
    assert before is not None
    road.cluster.put_node(attrs.evolve(before.node, unschedulable=True))
    assert await road.ask("b") == OF_B


async def test_a_taint_counts_if_kube_scheduler_does_not_propose_the_node(road: Road) -> None:
    """It is kube-scheduler that judges taints, and where it proposes the node it has judged it."""
    road.delete(*FIRST_FOUR)
    road.cluster.put_node(node("a", "trn1.32xlarge", taints=(Taint("x", Effect.NO_SCHEDULE),)))
    assert await road.ask("a", "b") == {}
    assert await road.ask("b") == OF_B


async def test_a_pod_of_high_priority_takes_the_space(road: Road) -> None:
    """The victims' end does not help any more, and there is no other block."""
    road.end(FIRST_FOUR[0])
    road.cluster.put_pod(pod("taker", on="a", devices=1, ids=(0,), priority=10))
    assert await road.ask("b") == OF_B


async def test_a_node_that_is_gone(road: Road) -> None:
    """So is its room."""
    road.end(*(f"uid-a-{i}" for i in range(16)))
    road.cluster.remove_node("a")
    assert await road.ask("b", nominated="a") == OF_B


async def test_each_pod_has_its_own_victims(road: Road) -> None:
    """What was named for one pod says nothing about another."""
    road.delete(*FIRST_FOUR)
    about = preemptor()
    about["metadata"]["uid"] = "uid-other"
    assert answered(await road.verb.preempt(request({"b": ["uid-b-0"]}, about=about))) == OF_B
    assert await road.ask() == {}


@pytest.mark.parametrize("known_from", ["the request", "the watch"])
async def test_after_a_restart_the_status_says_where(road: Road, known_from: str) -> None:
    """So it does on another replica, which may know it before kube-scheduler does, or after."""
    road.delete(*FIRST_FOUR)
    road.restart()
    nominated = "a" if known_from == "the request" else ""
    if not nominated:
        named = frozenset(FIRST_FOUR)
        waiting = pod("q", devices=4, priority=10)
        road.cluster.nominate("a", Nomination(waiting, cores=CoreMask(0xFF), victims=named))
    assert await road.ask(nominated=nominated) == {}
    road.end(*FIRST_FOUR)
    assert await road.ask("b", nominated=nominated) == {}
    road.now += UNSEEN + 0.25
    assert await road.ask("b", nominated=nominated) == OF_B
    assert await road.ask("b", nominated=nominated) == OF_B


async def test_a_nominated_node_where_more_must_leave_is_no_room() -> None:
    """The pods that leave there are not enough, so that victims are chosen as for any pod."""
    road = Road()
    road.delete(*FIRST_FOUR[:3])
    assert await road.ask("b", nominated="a") == OF_B


async def test_pods_that_kube_scheduler_does_not_know_are_not_named_again() -> None:
    """One of our own queue that is not bound yet: kube-scheduler would refuse the answer."""
    road = Road(own_names=frozenset())
    road.end(*FIRST_FOUR)
    road.cluster.assume(pod("own", on="a", devices=4, priority=-1, scheduler_name="my-scheduler"), CoreMask(0xFF))
    for uid in (f"uid-a-{i}" for i in range(4, 16)):
        road.cluster.put_pod(attrs.evolve(road.bound(uid), priority=10))
    assert await road.ask("a") == {"a": ["uid-own"]}
    road.verb.own_names = frozenset({"my-scheduler"})
    assert await road.ask("a") == {}


async def test_what_is_remembered_has_a_limit(road: Road) -> None:
    """The oldest answers are forgotten, and the newest are not."""
    for number in range(MOST):
        about = preemptor()
        about["metadata"]["uid"] = f"uid-{number}"
        await road.verb.preempt(request({"b": ["uid-b-0"]}, about=about))
    road.delete(*FIRST_FOUR)
    assert len(road.verb._earlier._answers) == MOST
    assert await road.ask("b") == OF_B
    assert len(road.verb._earlier._answers) == MOST

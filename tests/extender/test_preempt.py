"""kube-scheduler's preempt call: both forms of the request, the nodes that are left out, and what is refused."""

import json
from collections.abc import Container, Sequence
from typing import Any

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.extender import preempt as preempt_module
from neuron_scheduler.extender.preempt import Preempt
from neuron_scheduler.extender.protocol import (
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MalformedRequestError,
    decode,
)
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import extender_profile, preemption_profile
from tests.control_plane.objects import pod_manifest
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

OF_APP_A = LabelSelector((Requirement("app", Operator.IN, ("a",)),))
BOTH_UNITS = {"limits": {"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "1"}}


def verb(
    cluster: Cluster, *, budgets: Sequence[DisruptionBudget] = (), step: float = 0.0, abandoned: Container[str] = ()
) -> Preempt:
    """Return the verb; each look at its clock takes so many seconds."""
    now = [0.0]

    def clock() -> float:
        now[0] += step
        return now[0]

    return Preempt(
        cluster=cluster,
        profile=preemption_profile(),
        beside=extender_profile(),
        budgets=lambda: budgets,
        own_names={"my-scheduler"},
        abandoned=lambda uid: uid in abandoned,
        clock=clock,
    )


def preemptor(**fields: Any) -> dict[str, Any]:
    """Return a pod of four devices as kube-scheduler sends it."""
    manifest = pod_manifest("q", neuron=4)
    manifest["metadata"]["uid"] = "uid-q"
    manifest["metadata"]["resourceVersion"] = "1"
    manifest["spec"].update({"priority": 10, "schedulerName": "default-scheduler", **fields})
    return manifest


def request(
    victims: dict[str, list[str]] | None, *, whole: bool = False, about: dict[str, Any] | None = None
) -> ExtenderPreemptionArgs:
    """Return a request with these victims by node, whole pods or only their uids."""
    meta = full = None
    if victims is not None and whole:
        full = {
            name: {"Pods": [{"metadata": {"name": uid, "uid": uid}, "spec": {}} for uid in uids], "NumPDBViolations": 0}
            for name, uids in victims.items()
        }
    elif victims is not None:
        meta = {name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for name, uids in victims.items()}
    text = {"Pod": about or preemptor(), "NodeNameToVictims": full, "NodeNameToMetaVictims": meta}
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


@pytest.mark.parametrize("whole", [False, True], ids=["uids", "whole pods"])
async def test_both_forms_of_the_request_have_the_same_answer(whole: bool) -> None:
    """Victims that free no block are swapped, and a node where none can is left out."""
    proposed = {"a": ["uid-a-1", "uid-a-6", "uid-a-11", "uid-a-12"], "b": ["uid-b-0"], "unknown": ["uid-x"]}
    result = await verb(fleet()).preempt(request(proposed, whole=whole))
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
    slow = answered(await verb(cluster, step=preempt_module.LONGEST / 10).preempt(request(proposed)))
    assert slow.keys() == {"n0"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no pod": ({"NodeNameToMetaVictims": {}}, "it has no Pod"),
    "no nodes": ({"Pod": preemptor()}, "neither NodeNameToVictims nor NodeNameToMetaVictims"),
    "an unreadable pod": ({"Pod": {"metadata": 3}, "NodeNameToMetaVictims": {}}, "Pod: "),
    "an ended pod": ({"Pod": {**preemptor(), "status": {"phase": "Failed"}}, "NodeNameToMetaVictims": {}}, "has ended"),
    "an unreadable victim": (
        {"Pod": preemptor(), "NodeNameToVictims": {"a": {"Pods": [{"metadata": {"uid": "u"}}, 3]}}},
        r"NodeNameToVictims\['a'\].Pods\[1\]: ",
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_cannot_be_read_is_refused(case: str) -> None:
    """The sentence names the field."""
    text, expected = BAD[case]
    args = decode(json.dumps(text).encode(), ExtenderPreemptionArgs)
    with pytest.raises(MalformedRequestError, match=expected):
        await verb(fleet()).preempt(args)

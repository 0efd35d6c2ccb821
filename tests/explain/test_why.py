"""One answer for every pod: waiting, fitting, gated, bound, being deleted, of another scheduler; and for one node."""

from collections.abc import Iterator

import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.explain.answers import (
    Explanation,
    Verdict,
    from_json,
    to_json,
)
from neuron_scheduler.explain.waiting import waiting_list
from neuron_scheduler.explain.why import DELETED, MOST_ALIKE, MOST_NAMED, NoSuchNodeError, explain_on_node, explain_pod
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.model.volumes import Storage
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile, extender_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import NO_NODES_AVAILABLE
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.storage import IMMEDIATE, MADE, WAITING, claim, volume

TRN1 = "trn1.32xlarge"
PROFILE = default_profile("my-scheduler")
ALL = CoreMask((1 << 32) - 1)


def ours(name: str = "p", **fields: object) -> Pod:
    return pod(name, scheduler_name="my-scheduler", **fields)  # type: ignore[arg-type]  # passed on


def held(on: str, *ids: int) -> Pod:
    return pod(f"on-{on}-{ids[0]}", devices=len(ids), on=on, ids=ids)


def test_a_waiting_pod() -> None:
    """Sentence, cause, counts and groups; it survives the way to JSON and back."""
    cluster = cluster_of(
        [node("a", TRN1), node("b", TRN1, created=1), node("c", created=2)], [held("a", *range(12)), held("b", 0)]
    )
    answer = run(explain_pod(cluster, ours(devices=16, created=7.0), PROFILE))
    assert answer.message.startswith(
        "0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron. Fragmentation: 19 "
    )
    assert (answer.verdict, answer.cause, answer.nodes) == (Verdict.WAITS, "fragmentation", 3)
    assert [(group.names, group.cause) for group in answer.groups] == [
        (("b",), "capacity"),
        (("a",), "capacity"),
        (("c",), "capacity"),
    ]
    assert (answer.pod.asks, answer.pod.created) == ("16 Neuron devices", 7.0)
    assert from_json(to_json(answer), Explanation) == answer


def test_a_pod_that_fits() -> None:
    """The message says where it would go; nothing is assumed."""
    cluster = cluster_of([node("a", TRN1), node("b", TRN1, unschedulable=True)], [held("a", *range(4))])
    answer = run(explain_pod(cluster, ours(devices=4), PROFILE))
    assert (answer.verdict, answer.cause, answer.notes) == (Verdict.FITS, "", ())
    assert answer.message == "default/p fits now: it would be assigned to a (devices 4-7)."
    assert (answer.node_name, answer.ids) == ("a", (4, 5, 6, 7))
    assert [(group.names, group.plugin) for group in answer.groups] == [(("a",), ""), (("b",), "NodeUnschedulable")]
    assert cluster.pod_count == 1


def test_a_pod_whose_last_attempt_ended_in_an_error() -> None:
    """It may fit by the filters: what the API server said of its Binding is in its condition alone."""
    refused = attrs.evolve(ours(devices=4), scheduled=PodCondition("False", "SchedulerError", "a webhook denied it"))
    answer = run(explain_pod(cluster_of([node("a", TRN1)]), refused, PROFILE))
    assert (answer.verdict, answer.node_name) == (Verdict.FITS, "a")
    assert answer.message.startswith("Its condition says of the last attempt: a webhook denied it. default/p fits now")


def test_a_pod_that_waits_for_a_volume_on_its_node() -> None:
    """It fits, and yet it is not bound: neither alone, nor in the list, nor while the process waits for the claim."""
    cluster, waits = cluster_of([node("a")]), ours(volume_claims=("data",))
    cluster.volumes.put(MADE)
    cluster.volumes.put(claim(class_name="gp3", selected_node="a"))
    answer = run(explain_pod(cluster, waits, PROFILE))
    assert (answer.verdict, answer.cause) == (Verdict.WAITS, "volumes")
    assert answer.message == "default/p waits for PersistentVolumeClaim data, to be provisioned for a."
    assert answer.notes[-1] == "PersistentVolumeClaim data is Pending, to be provisioned for a."
    (line,) = run(waiting_list(cluster, [waits], lambda _: PROFILE)).pods
    assert line.message == "Waits for PersistentVolumeClaim data, to be provisioned for a."


def test_a_gated_pod() -> None:
    """It waits for its gates; what would happen without them is said, too."""
    answer = run(explain_pod(cluster_of([node("a")]), ours(gates=("team/quota",)), PROFILE))
    assert (answer.verdict, answer.cause) == (Verdict.GATED, "gated")
    assert answer.message == "Scheduling is blocked due to non-empty scheduling gates (team/quota)."
    assert answer.notes[-1] == "Without the gates: default/p fits now: it would be assigned to a."


@pytest.mark.parametrize("terminating", [False, True])
def test_a_bound_pod(terminating: bool) -> None:
    """It has a node and ids; nothing is searched for."""
    bound = attrs.evolve(held("a", *range(4)), terminating=terminating)
    answer = run(explain_pod(cluster_of([node("a", TRN1)], [bound]), bound, PROFILE))
    assert (answer.verdict, answer.node_name, answer.ids) == (Verdict.BOUND, "a", (0, 1, 2, 3))
    assert answer.message == "default/on-a-0 is on a (devices 0-3)."
    assert "a has 12 of 16 devices free, in 1 block of 8 and 1 block of 4; 24 of 32 cores free." in answer.notes
    assert ("being deleted" in answer.notes[-1]) == terminating


def test_a_bound_pod_with_unknown_ids_and_one_without_its_node() -> None:
    """What cannot be known is said."""
    unknown, lost = pod("u", devices=2, on="a"), pod("l", devices=2, on="gone", ids=(0, 1))
    cluster = cluster_of([node("a", TRN1)], [unknown, lost])
    notes = run(explain_pod(cluster, unknown, PROFILE)).notes
    assert notes[0].startswith("The ids of its Neuron are unknown: ")
    assert notes[1].startswith("a has 14 of 16 devices withheld; 32 of 32 cores withheld; 1 pod with unknown ids may")
    beside = run(explain_pod(cluster, ours(devices=1), PROFILE)).groups[0].arithmetic
    assert beside.endswith(", for pods with 1 device only: another pod's ids are unknown")
    assert run(explain_pod(cluster, lost, PROFILE)).notes == ("There is no node gone.",)


def test_an_assumed_pod() -> None:
    """Its Binding may not have been answered yet."""
    cluster, pending = cluster_of([node("a", TRN1)]), ours(devices=1)
    cluster.assume(attrs.evolve(pending, node_name="a"), CoreMask(3))
    answer = run(explain_pod(cluster, pending, PROFILE))
    assert (answer.verdict, answer.message) == (Verdict.BOUND, "default/p is about to be bound to a (device 0).")


def test_a_pod_that_is_being_deleted() -> None:
    """No scheduler gives it a node."""
    answer = run(explain_pod(cluster_of([node("a")]), ours(terminating=True), PROFILE))
    assert (answer.verdict, answer.message, answer.cause) == (Verdict.WAITS, DELETED, "pod")


def test_a_pod_of_another_scheduler() -> None:
    """The answer says whose decision this is; an extender's profile has no name, and serves any pod."""
    cluster, pending = cluster_of([node("a")]), pod()
    for answer in (explain_pod(cluster, pending, PROFILE), explain_on_node(cluster, pending, PROFILE, "a")):
        assert run(answer).decider == (
            "The pod's schedulerName is default-scheduler: my-scheduler does not decide it. If my-scheduler is to"
            " decide, set schedulerName: my-scheduler in its template, and create the pod again. This is what"
            " my-scheduler would do."
        )
    assert run(explain_pod(cluster, pending, extender_profile())).decider == ""
    assert run(explain_pod(cluster, pending, default_profile("default-scheduler"))).decider == ""


@pytest.mark.parametrize(
    ("first", "devices", "named"),
    [
        (pod("q", devices=4, on="a", ids=range(4)), 4, "default/q"),
        (pod("q", devices=4, on="a", ids=range(4), namespace="b"), 4, "a pod of another namespace"),
        (pod("q", devices=4, on="a", ids=range(4), admitted=True), 4, ""),
        (pod("q", devices=4, on="a", ids=range(4)), 8, ""),
        (pod("q", cpu=1, on="a"), 4, ""),
    ],
)
def test_a_pod_whose_binding_waits_for_another_one(first: Pod, devices: int, named: str) -> None:
    """One on the same node that asks for as much, has its ids, and has not started."""
    cluster, held = cluster_of([node("a", "trn1.32xlarge")], [first]), ours(devices=devices)
    cluster.assume(attrs.evolve(held, node_name="a"), CoreMask(0xFF << 16))
    note = f"Its Binding waits, 120 s at most, until {named} has started on a: the device plugin could confuse their"
    notes = run(explain_pod(cluster, held, PROFILE)).notes
    assert any(each.startswith(note) for each in notes) is bool(named)
    assert len(notes) == 1 + bool(named)


def test_a_pod_that_is_refused_as_a_whole() -> None:
    """All nodes are one group, with the pod's own reason."""
    cluster = cluster_of(node(f"n{i}", created=i) for i in range(9))
    answer = run(explain_pod(cluster, ours(refusal="two names of devices"), PROFILE))
    assert (answer.message, answer.cause) == ("0/9 nodes are available: two names of devices.", "pod")
    assert run(explain_pod(cluster, ours(devices=2, cores=3), PROFILE)).pod.asks == "2 resource names"
    (group,) = answer.groups
    assert (group.nodes, group.names, group.reason) == (9, ("n0", "n1", "n2", "n3", "n4"), "two names of devices")
    assert run(explain_pod(cluster_of([]), ours(), PROFILE)).message == NO_NODES_AVAILABLE


BOUND = "PersistentVolumeClaim data is Bound:"
IN_B = NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.IN, ("b",)),))


@pytest.mark.parametrize(
    ("stored", "note"),
    [
        ([], "PersistentVolumeClaim data does not exist."),
        ([claim(class_name="")], "PersistentVolumeClaim data is Pending, and has no StorageClass."),
        ([claim()], "PersistentVolumeClaim data is Pending: there is no StorageClass local."),
        (
            [claim(class_name="efs"), IMMEDIATE],
            "PersistentVolumeClaim data is Pending: StorageClass efs binds it before its pod gets a node.",
        ),
        (
            [claim(), WAITING],
            "PersistentVolumeClaim data is Pending: StorageClass local binds it when its pod gets a node.",
        ),
        ([claim(bound_to="pv")], "PersistentVolumeClaim data is Bound: its volume is pv."),
        ([claim(bound_to="pv", lost=True)], "PersistentVolumeClaim data is Lost: its volume is pv."),
        (
            [claim(bound_to="pv"), volume(on=(IN_B,), of="data")],
            f"{BOUND} its volume is pv; of 1 node that the pod's rules allow, 0 can mount it",
        ),
    ],
)
def test_a_pod_that_waits_for_its_volumes(stored: list[Storage], note: str) -> None:
    """Kubernetes' reason names no claim: the notes have the state of each."""
    cluster = cluster_of([node("a")])
    for each in stored:
        cluster.put_storage(each)
    answer = run(explain_pod(cluster, ours(volume_claims=("data",)), PROFILE))
    assert answer.cause == "volumes"
    assert note in [each.partition(" (topology.kubernetes.io/zone In (b)).")[0] for each in answer.notes]


def test_space_that_is_kept_for_others() -> None:
    """The cause, the sentence and the group say for whom; a pod of a higher priority does not wait for them."""
    cluster = cluster_of([node("a", TRN1)])
    cluster.nominate("a", Nomination(pod("first", devices=16, priority=5), ALL))
    answer = run(explain_pod(cluster, ours(devices=4), PROFILE))
    assert answer.cause == "nominated"
    (group,) = answer.groups
    assert (group.kept_for, group.cause) == (("default/first",), "nominated")
    assert group.arithmetic == "it would take the pod, but its space is kept for default/first"
    assert run(explain_pod(cluster, ours(devices=4, priority=6), PROFILE)).verdict is Verdict.FITS


def test_who_is_evicted_for_whom() -> None:
    """The preemptor's answer says how many pods of which node must end first, theirs for whom they are evicted."""
    preemptor, victim = ours("first", devices=16, priority=5), held("a", 0)
    cluster = cluster_of([node("a", TRN1)], [victim])
    cluster.nominate("a", Nomination(preemptor, ALL, frozenset({victim.uid})))
    room = "a is nominated for it: 1 pod there must end first."
    assert room in run(explain_pod(cluster, preemptor, PROFILE)).notes
    assert "It is evicted for default/first." in run(explain_pod(cluster, victim, PROFILE)).notes
    cluster.nominate("a", Nomination(preemptor, ALL, frozenset({victim.uid}), awaited=True))
    assert room not in run(explain_pod(cluster, preemptor, PROFILE)).notes


def test_its_own_nomination_is_not_in_its_way() -> None:
    """As in the decision; the cluster keeps it."""
    cluster, pending = cluster_of([node("a", TRN1)]), ours(devices=16)
    cluster.nominate("a", Nomination(pending, ALL))
    assert run(explain_pod(cluster, pending, PROFILE)).verdict is Verdict.FITS
    assert run(explain_on_node(cluster, pending, PROFILE, "a")).verdict is Verdict.FITS
    assert cluster.has_nominations


def test_many_different_figures_become_one_group() -> None:
    """The largest groups are shown; the others are counted together, with one example."""
    nodes = [node(f"n{i:02}", cpu=1_000 + i, created=i) for i in range(40)]
    answer = run(explain_pod(cluster_of(nodes), ours(cpu=64_000), PROFILE))
    assert len(answer.groups) == MOST_ALIKE + 1
    assert sum(group.nodes for group in answer.groups) == 40
    last = next(group for group in answer.groups if group.nodes > 1)
    assert (last.nodes, len(last.names)) == (40 - MOST_ALIKE, MOST_NAMED)
    assert last.arithmetic.startswith("different figures, such as on n08: needs 64 cpu; allocatable 1008m, ")


def test_every_filter_speaks_about_one_node() -> None:
    """Also those after the first that refuses it, each with its figures."""
    unknown = pod("u", cores=1, on="a")
    cluster = cluster_of([node("a", TRN1, unschedulable=True, cpu=1_000)], [held("a", *range(12)), unknown])
    answer = run(explain_on_node(cluster, ours(devices=8, cpu=2_000), PROFILE, "a"))
    assert [group.plugin for group in answer.groups] == ["NodeUnschedulable", "NodeResourcesFit", "NeuronTopology"]
    assert {group.names for group in answer.groups} == {("a",)}
    assert answer.groups[2].arithmetic.startswith("needs 8 Neuron devices; 4 of 16 free, in 1 block of 4")
    assert answer.message.startswith(
        "a does not take it: node(s) were unschedulable; Insufficient aws.amazon.com/neuron; Insufficient cpu"
    )


def test_one_node_that_takes_the_pod() -> None:
    """It says which ids the pod would get there, also if the decision would prefer another node."""
    cluster = cluster_of([node("a", TRN1), node("b", TRN1, created=1)], [held("a", *range(4))])
    answer = run(explain_on_node(cluster, ours(devices=4), PROFILE, "b"))
    assert (answer.verdict, answer.ids, answer.message) == (Verdict.FITS, (0, 1, 2, 3), "b takes it (devices 0-3).")
    assert [(group.plugin, group.arithmetic) for group in answer.groups] == [
        ("", "needs 4 Neuron devices; 16 of 16 free, in 1 block of 16")
    ]


def test_one_node_and_a_pod_that_no_scheduler_serves() -> None:
    """The node would take it, but the pod fits nowhere under that name."""
    answer = run(explain_on_node(cluster_of([node("a")]), pod("p", scheduler_name="my-schedular"), PROFILE, "a"))
    assert (answer.verdict, answer.node_name) == (Verdict.WAITS, "")
    assert answer.message.startswith("a would take this pod, but it stays Pending. No scheduler that is known here")


def test_one_node_and_a_pod_that_is_bound() -> None:
    """On its own node it is there; another node still says what it thinks."""
    bound = held("a", *range(4))
    cluster = cluster_of([node("a", TRN1), node("b", TRN1)], [bound])
    assert run(explain_on_node(cluster, bound, PROFILE, "a")).verdict is Verdict.BOUND
    elsewhere = run(explain_on_node(cluster, bound, PROFILE, "b"))
    assert (elsewhere.verdict, elsewhere.node_name, elsewhere.notes[-1]) == (Verdict.WAITS, "a", "The pod is on a.")


def test_a_node_that_does_not_exist_and_a_refused_pod() -> None:
    """The first is an error, and the second has no groups."""
    cluster = cluster_of([node("a")])
    with pytest.raises(NoSuchNodeError, match="there is no node x"):
        run(explain_on_node(cluster, ours(), PROFILE, "x"))
    refused = run(explain_on_node(cluster, ours(refusal="two names"), PROFILE, "a"))
    assert (refused.groups, refused.message) == ((), "a does not take it: two names.")


def test_the_cluster_may_change_in_the_pauses() -> None:
    """The answer is about one moment, and no step stumbles over a node that is gone."""
    nodes = [node(f"n{i}", cpu=1_000, created=i) for i in range(200)]
    cluster = cluster_of(nodes)
    answers = []

    def asked() -> Iterator[None]:
        answers.append((yield from explain_pod(cluster, ours(cpu=64_000), PROFILE)))

    for each, _ in zip(nodes, asked(), strict=False):
        cluster.remove_node(each.name)
    (answer,) = answers
    assert sum(group.nodes for group in answer.groups) == answer.nodes


def test_the_nodes_that_the_pod_means_come_first() -> None:
    """A tainted node that it selects says more than those that it does not select, and so does the cause."""
    taint = Taint("team", Effect.NO_SCHEDULE, "red")
    cluster = cluster_of([node("cpu"), node("a", TRN1, taints=(taint,)), node("b", "inf2.48xlarge", taints=(taint,))])
    answer = run(explain_pod(cluster, ours(devices=1, node_selector={INSTANCE_TYPE_LABEL: TRN1}), PROFILE))
    assert [group.names for group in answer.groups] == [("a",), ("cpu",), ("b",)]
    assert answer.cause == "taints"

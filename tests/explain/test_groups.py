"""What is said of a member of a group is what the scheduler decides about the whole group."""

from collections.abc import Sequence
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.explain.answers import Explanation, PodSummary, Verdict
from neuron_scheduler.explain.fit import how_many_of
from neuron_scheduler.explain.waiting import waiting_list
from neuron_scheduler.explain.why import ALONE, explain_on_node, explain_pod
from neuron_scheduler.kube.objects.groups.dialects import group_of
from neuron_scheduler.model.node import ULTRASERVER_4
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Owner, Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.replicated import PodSet, Replicated
from neuron_scheduler.model.selectors import LabelSelector, PodAffinityTerm
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.groups.gang import MOST_TERM_SETS
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.registry import GROUP_TOPOLOGY
from neuron_scheduler.serving.names import Names, as_seen
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

PROFILE: Final = default_profile("my-scheduler")
TRAIN: Final = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), least=4, expected=4)
NODES: Final = [node(f"trn2-{number}", "trn2.48xlarge") for number in range(3)]


def member(number: int, group: PodGroup = TRAIN, **rest: Any) -> Pod:
    """Return a member that takes a whole machine."""
    return pod(f"train-{number}", devices=16, rank=number, group=group, **rest)


def cluster_with(members: Sequence[Pod], nodes: int = 3) -> Cluster:
    """Return some nodes, and the members, which are bound where they say."""
    cluster = cluster_of(NODES[:nodes], [each for each in members if each.node_name])
    for each in members:
        cluster.groups.put(each)
    return cluster


def explained(cluster: Cluster, one: Pod) -> Explanation:
    return run(explain_pod(cluster, one, PROFILE))


def test_a_held_group_says_how_many_members_exist() -> None:
    """The sentence of the condition, and the cause of the metric; nothing is suggested for the pod alone."""
    members = [member(number) for number in range(3)]
    answer = explained(cluster_with(members), members[0])
    assert answer.message == (
        "Waiting for group default/train: 3 of 4 members exist. It starts when all 4 do. Pods"
        " that have ended, or have scheduling gates, do not count."
    )
    assert (answer.verdict, answer.cause, answer.changes) == (Verdict.WAITS, Cause.GROUP, ())
    assert (answer.pod.group, [group.nodes for group in answer.groups]) == ("train", [3])
    assert ALONE in answer.notes


def test_a_refused_group_says_how_many_fit_and_why_the_next_does_not() -> None:
    """Every member has the same answer, also in the list, and the cluster is as before."""
    members = [member(number) for number in range(4)]
    cluster = cluster_with(members)
    message = (
        "Group default/train needs room for 4 pods at once; 3 fit. With these placed, for the next one: 0/3 nodes"
        " are available: 3 Insufficient aws.amazon.com/neuron. Capacity: 0 Neuron devices free on 3 nodes, largest free"
        " block 0, pod needs 16."
    )
    answers = [explained(cluster, each) for each in members]
    assert {(answer.verdict, answer.cause, answer.message) for answer in answers} == {
        (Verdict.WAITS, Cause.CAPACITY, message)
    }
    lines = run(waiting_list(cluster, members, lambda _: PROFILE)).pods
    assert [(line.cause, line.message) for line in lines] == [(Cause.CAPACITY, message)] * 4
    assert cluster.assumed_count == 0


def test_two_jobs_with_one_name_for_their_group_are_both_named() -> None:
    """Also once the group has all that it needs, two pods of each: the others then wait as pods beyond the count."""
    a, b = ([member(number, owner=Owner("batch/v1", "Job", job)) for number in range(4)] for job in "ab")
    b = [attrs.evolve(each, uid=f"{each.uid}-b", name=f"b-{each.name}") for each in b]
    title = "default/train (pods of Job a and Job b)"
    assert explained(cluster_with([a[0], b[0]]), a[0]).message.startswith(f"Waiting for group {title}: 2 of 4 members")
    assert explained(cluster_with([*a, *b]), a[0]).message.startswith(f"Group {title} needs room for 4 pods at once")
    placed = [attrs.evolve(each, node_name=f"trn2-{place}") for place, each in enumerate((a[0], b[0], a[1]))]
    three = [attrs.evolve(each, group=attrs.evolve(TRAIN, least=3, expected=3)) for each in (*placed, b[1])]
    message = explained(cluster_with(three), three[3]).message
    assert message.startswith(f"Group {title} has the 3 members that it needs; for one more: 0/3 nodes are available")
    jobs = [attrs.evolve(each, owner=Owner("batch/v1", "Job", f"j{number}")) for number, each in enumerate([*a, *b])]
    assert "(pods of Job j0, Job j1, Job j2 and 5 more)" in explained(cluster_with(jobs), jobs[0]).message
    own = [attrs.evolve(each, owner=a[0].owner) for each in three]
    assert explained(cluster_with(own), own[3]).message.startswith("0/3 nodes are available")


def test_members_on_machines_of_several_families() -> None:
    """Nothing but their rules keeps them together, and their program is compiled for one family."""
    two = PodGroup(TRAIN.key, least=2, expected=2)
    members = [pod(f"train-{number}", devices=4, rank=number, group=two) for number in range(2)]
    for types, has_note in ((("inf1.6xlarge", "inf2.24xlarge"), True), (("trn2.48xlarge", "trn2u.48xlarge"), False)):
        cluster = cluster_of([node(name, name, devices=4) for name in types])
        for each in members:
            cluster.groups.put(each)
        templates = (PodSet(pod("t", devices=4, group=PodGroup(GroupKey(Dialect.KUEUE, "default", "t"), least=2)), 2),)
        for notes in (
            explained(cluster, members[0]).notes,
            run(how_many_of(cluster, Replicated(1, templates), PROFILE)).notes,
        ):
            mixed = [
                note for note in notes if note.startswith("The members of the group would be on machines of inf1 and")
            ]
            assert len(mixed) == has_note


NAME, COUNT = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
NONE: Final = "So the pod is in no group: it starts by itself."


@pytest.mark.parametrize(
    ("labels", "complaints"),
    [
        ({NAME: "train", COUNT: "4"}, []),
        ({"scheduling.x-k8s.io/pod-group": "train", "app": "train"}, []),
        ({COUNT: "4"}, [f"The label {COUNT} has no effect without {NAME}.", NONE]),
        (
            {NAME: "train", COUNT: "four"},
            [f"The label {COUNT} is four, no number from 1 to 100000: its group waits for no missing pods."],
        ),
        (
            {NAME: "train", f"{COUNT[:-1]}": "4"},
            [f"The label {COUNT[:-1]} has no meaning here; did you mean {COUNT}?"],
        ),
        ({NAME[:-5]: "train"}, [f"The label {NAME[:-5]} has no meaning here; did you mean {NAME}?", NONE]),
        (
            {"scheduling.x-k8s.io/podgroup": "train"},
            [
                (
                    "The label scheduling.x-k8s.io/podgroup has no meaning here; did you mean"
                    " scheduling.x-k8s.io/pod-group?"
                ),
                NONE,
            ],
        ),
    ],
)
def test_labels_that_were_to_name_a_group(labels: dict[str, str], complaints: list[str]) -> None:
    """A mistake in them is silent elsewhere; `why` and `fit` say it."""
    group = group_of("default", labels, {}, NO_CONSTRAINTS)
    mistaken = pod("train", devices=16, labels=labels, group=group)
    notes = [note for note in explained(cluster_with([]), mistaken).notes if note.startswith("The label")]
    assert notes == ([" ".join(complaints)] if complaints else [])
    fit = run(how_many_of(cluster_with([]), Replicated(1, (PodSet(mistaken),)), PROFILE))
    assert list(fit.notes) == notes


def test_of_counts_that_differ_the_largest_counts() -> None:
    """For the plan, as for the number that must exist; the first member says less."""
    members = [member(0, PodGroup(TRAIN.key, least=2)), *(member(number) for number in range(1, 4))]
    held, refused = (explained(cluster_with(members[:existing]), members[0]).message for existing in (3, 4))
    assert held == (
        "Waiting for group default/train: 3 of 4 members exist. It starts when all 4 do. Pods"
        " that have ended, or have scheduling gates, do not count."
    )
    assert refused.startswith(
        "Group default/train needs room for 4 pods at once; 3 fit. With these placed, for the next one"
    )


def test_a_half_bound_group_says_how_many_have_a_node() -> None:
    """Those that wait are counted against what the group still needs."""
    members = [*(member(number, on=f"trn2-{number}", ids=range(16)) for number in range(2)), member(2), member(3)]
    answers = [explained(cluster_with(members), each) for each in members]
    assert [answer.verdict for answer in answers] == [Verdict.BOUND] * 2 + [Verdict.WAITS] * 2
    assert answers[3].message.startswith(
        "Group default/train: 2 of 4 members have a node. The others need room at once; 1 fits. With these placed,"
        " for the next one: 0/3 "
    )


def test_a_group_that_fits() -> None:
    """Each member is told its own node, and that it gets none alone."""
    members = [member(number, PodGroup(TRAIN.key, least=3)) for number in range(3)]
    answers = [explained(cluster_with(members), each) for each in members]
    assert {answer.verdict for answer in answers} == {Verdict.FITS}
    assert sorted(answer.node_name for answer in answers) == ["trn2-0", "trn2-1", "trn2-2"]
    lines = run(waiting_list(cluster_with(members), members, lambda _: PROFILE)).pods
    assert [line.message for line in lines] == [f"Fits now, on {answer.node_name}." for answer in answers]
    note = "It is in group train: enough members get a node at once, or none does."
    on_node = run(explain_on_node(cluster_with(members), members[0], PROFILE, "trn2-0"))
    assert all(note in answer.notes for answer in (*answers, on_node))


def test_a_node_that_would_take_a_member_of_a_refused_group() -> None:
    """The pod stays Pending, and the group's refusal is said; the node is still judged for the pod alone."""
    members = [member(number) for number in range(4)]
    cluster = cluster_with(members)
    answer = run(explain_on_node(cluster, members[0], PROFILE, "trn2-0"))
    assert (answer.verdict, answer.node_name, answer.groups[0].plugin) == (Verdict.WAITS, "", "")
    assert answer.message.startswith(
        "trn2-0 would take this pod, but it stays Pending. Group default/train needs room for 4 pods at once; 3 fit."
    )


def test_a_complaint_about_the_group_itself() -> None:
    """Mixed priorities, and a topology that no node has; only for that one a new node may help."""
    members = [member(number, priority=number) for number in range(4)]
    mixed = explained(cluster_with(members), members[0])
    assert "members of group default/train have different priorities (0, 1, 2 and 3)" in mixed.message
    assert [(group.nodes, group.plugin, group.cause) for group in mixed.groups] == [(3, GROUP_TOPOLOGY, Cause.POD)]
    assert mixed.changes == ()
    far = member(0, PodGroup(TRAIN.key, topology=ULTRASERVER_4))
    absent = explained(cluster_with([far]), far)
    assert f"the label {ULTRASERVER_4}, but no node has that label" in absent.message
    assert {mixed.cause, absent.cause} == {Cause.POD}


@pytest.mark.parametrize(("sets", "refused"), [(MOST_TERM_SETS, False), (MOST_TERM_SETS + 1, True)])
def test_members_that_ask_many_different_things_about_other_pods(sets: int, refused: bool) -> None:
    """Each set is compared with all pods, and the loop does nothing else meanwhile; equal ones count once."""
    terms = [PodAffinityTerm("rack", LabelSelector(), frozenset({f"ns-{number}"})) for number in range(sets)]
    members = [member(number, anti_affinity=(terms[number % sets],)) for number in range(2 * sets)]
    answer = explained(cluster_with(members), members[0])
    assert ("more than 16 different sets of affinity terms" in answer.message) is refused


def test_a_group_whose_victims_are_ending_waits_for_them() -> None:
    """Nobody else has to go, and no node is needed."""
    members = [member(number, nominated_node_name=f"trn2-{number}") for number in range(4)]
    cluster = cluster_with(members, nodes=3)
    cluster.put_node(node("trn2-3", "trn2.48xlarge"))
    for number in range(4):
        cluster.put_pod(pod(f"old{number}", on=f"trn2-{number}", devices=16, ids=range(16), terminating=True))
        victims = frozenset({f"uid-old{number}"})
        cluster.nominate(f"trn2-{number}", Nomination(members[number], CoreMask((1 << 128) - 1), victims))
    (change,) = explained(cluster, members[0]).changes
    assert change.sentence.startswith("Wait: default/old0, default/old1, default/old2 and 1 more are Terminating on")


def test_a_refused_group_names_the_domain_that_it_requires() -> None:
    """Not what is free elsewhere: six machines are free here, and no UltraServer is."""
    group = PodGroup(TRAIN.key, least=4, expected=4, topology=ULTRASERVER_4)
    members = [member(number, group) for number in range(4)]
    nodes = [
        node(f"{server}{number}", "trn2u.48xlarge", labels={ULTRASERVER_4: server})
        for server in "ab"
        for number in range(4)
    ]
    cluster = cluster_of(nodes, [pod(f"u{server}", devices=1, on=f"{server}0", ids=[0]) for server in "ab"])
    for each in members:
        cluster.groups.put(each)
    message = explained(cluster, members[0]).message
    assert message.startswith("Group default/train needs room for 4 pods at once; 3 fit.")
    assert message.endswith(
        f"Fragmentation: no {ULTRASERVER_4} has room for all 4 members of the group, the roomiest for 3."
    )


def test_a_refused_group_names_the_member_that_does_not_fit() -> None:
    """If its members differ: the one that no node takes is the only one to look at."""
    members = [
        *(member(number) for number in range(2)),
        pod("odd", devices=16, group=TRAIN, node_selector={"no": "node"}),
    ]
    members.append(pod("launcher", group=TRAIN))
    message = explained(cluster_with(members), members[0]).message
    assert "for the next one, odd: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity" in message


def test_members_of_other_schedulers_count_and_are_not_placed() -> None:
    """A launcher without Neuron counts, whoever schedules it; a worker of another scheduler only with a node."""
    two = PodGroup(TRAIN.key, least=2)
    launcher = pod("launcher", group=two, scheduler_name="other")
    assert explained(with_ours(member(0, two), launcher), member(0, two)).verdict is Verdict.FITS
    mixed = with_ours(member(0, two), member(1, two, scheduler_name="other"))
    held = explained(mixed, member(0, two))
    assert held.verdict is Verdict.WAITS
    assert held.message == (
        "Waiting for group default/train: 1 of 2 members exist. It starts when all 2 do. Pods that have ended, or have"
        " scheduling gates, do not count. 1 more has the schedulerName other: no member without a node."
    )
    mixed.put_pod(bound := member(1, two, scheduler_name="other", on="trn2-0", ids=range(16)))
    mixed.groups.put(bound)
    assert explained(mixed, member(0, two)).verdict is Verdict.FITS


def test_a_group_of_another_scheduler_is_explained_as_if_it_were_ours() -> None:
    """Its members count for each other; of several other schedulers, they would not."""
    two = PodGroup(TRAIN.key, least=2)
    others = [member(number, two, scheduler_name="my-schedular") for number in range(2)]
    assert "With schedulerName my-scheduler: default/train-0 fits now" in "".join(
        explained(with_ours(*others), others[0]).notes
    )


def with_ours(*members: Pod) -> Cluster:
    cluster = cluster_with(members)
    cluster.groups.served = frozenset({"my-scheduler", "default-scheduler"})
    return cluster


def test_the_name_of_a_group_is_hidden_with_that_of_its_pod() -> None:
    """It may say what a job is called."""
    summary = PodSummary("default", "train-0", group="train")
    assert [as_seen(summary, Names(each)) for each in ("other", "default")] == [PodSummary("", ""), summary]

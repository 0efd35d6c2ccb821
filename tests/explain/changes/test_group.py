"""What would let a whole group in: more nodes, or fewer members, each tried with the plan of the scheduler."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final
from unittest import mock

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers import ChangeKind, Explanation, SuggestedChange, Verdict
from neuron_scheduler.explain.changes import group as new_nodes
from neuron_scheduler.explain.changes.group import NONE_FOR_GROUP
from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ULTRASERVER_4, Node
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.pod_group import COUNT_LABEL, Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.serving.names import Names, as_seen
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.thoroughness import examples

PROFILE: Final = default_profile("my-scheduler")
KEY: Final = GroupKey(Dialect.COSCHEDULING, "default", "train")
TRN2: Final = "trn2.48xlarge"


def of_group(count: int, *, topology: str = "", devices: int = 16, **rest: Any) -> list[Pod]:
    """Return the members of a group that asks for so many."""
    group = PodGroup(KEY, least=count, expected=count, topology=topology)
    return [pod(f"train-{i}", devices=devices, rank=i, group=group, **rest) for i in range(count)]


def cluster_with(nodes: Sequence[Node], members: Sequence[Pod], others: Sequence[Pod] = ()) -> Cluster:
    cluster = cluster_of(nodes, [*others, *(member for member in members if member.node_name)])
    for member in members:
        cluster.groups.put(member)
    return cluster


def explained(nodes: Sequence[Node], members: Sequence[Pod], others: Sequence[Pod] = ()) -> Explanation:
    return run(explain_pod(cluster_with(nodes, members, others), members[-1], PROFILE))


def by_kind(answer: Explanation) -> dict[ChangeKind, SuggestedChange]:
    return {change.kind: change for change in answer.changes}


def test_more_nodes_or_fewer_members() -> None:
    """The fewest nodes, and the most members."""
    answer = explained([node(f"n{i}", TRN2) for i in range(2)], of_group(4))
    assert [change.sentence for change in answer.changes] == [
        f"Run group default/train with 2 members instead of 4: it then fits. Lower its label {COUNT_LABEL} to 2, too.",
        f"Add 2 nodes of type {TRN2} (16 Neuron devices each): the group then fits.",
    ]
    assert by_kind(answer)[ChangeKind.NEW_NODE].autoscalers
    assert by_kind(answer)[ChangeKind.MEMBERS].detail == "members=2"


def test_pods_of_several_nodes_leave() -> None:
    """Those whose end lets all missing members in, with their budgets; not if more than 32 would have to go."""
    nodes = [node(f"n{i}", TRN2) for i in range(4)]
    half = [pod(f"o{i}", devices=8, on=f"n{i}", ids=range(8)) for i in range(3)]
    change = by_kind(explained(nodes, of_group(3, priority=1), half))[ChangeKind.DEPARTURE]
    assert change.sentence == (
        "Delete or evict default/o0 and default/o1 on n0 and n1: the group then fits, if no other pod takes the room"
        " first."
    )
    assert [(each.name, each.evictable) for each in change.pods] == [("o0", True), ("o1", True)]
    assert change.command == "kubectl delete pod --namespace default o0 o1"
    hidden = as_seen(change, Names("other"))
    assert hidden.sentence == "2 pods of several nodes end; you may not see all of them."
    many = [pod(f"o{i}-{id_}", devices=1, on=f"n{i}", ids=[id_]) for i in range(3) for id_ in range(16)]
    assert ChangeKind.DEPARTURE not in by_kind(explained(nodes[:3], of_group(3), many))


@pytest.mark.parametrize(("devices", "new"), [(16, 60), (8, 28)])
def test_what_would_let_a_large_group_in_is_found_in_few_steps(devices: int, new: int) -> None:
    """Members are planned a few times over, and few nodes are emptied: an answer has eight seconds."""
    nodes = [node(f"n{i}", TRN2, labels={ULTRASERVER_4: f"u{i // 4}"}) for i in range(300)]
    others = [pod(f"o{i}", devices=16, on=f"n{i}", ids=range(16)) for i in range(296)]
    members, steps = of_group(64, devices=devices), 0
    explaining = explain_pod(cluster_with(nodes, members, others), members[-1], PROFILE)
    try:
        while True:
            next(explaining)
            steps += 1
    except StopIteration as end:
        answer: Explanation = end.value
    assert steps < 1000
    assert by_kind(answer)[ChangeKind.NEW_NODE].sentence.startswith(f"Add {new} nodes of type")


def test_all_members_tolerate_a_taint_or_drop_a_selector() -> None:
    """As few as the plan for the whole group needs; a node without the taint is of no use to the others."""
    taint = Taint("team", Effect.NO_SCHEDULE, "a")
    tainted = [node("free", TRN2), *(node(f"n{i}", TRN2, taints=(taint,), labels={"rack": "r"}) for i in range(3))]
    job = Owner("batch/v1", "Job", "train")
    answer = by_kind(explained(tainted, of_group(4, owner=job)))
    assert answer[ChangeKind.TOLERATION].sentence == (
        "Tolerate the taint team=a:NoSchedule in all members: the group then fits. In its spec: tolerations:"
        ' [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}]. Job train makes the pod: change'
        " the template there."
    )
    assert ChangeKind.SELECTOR not in answer
    plain = [node(f"n{i}", TRN2, labels={"rack": "r"}) for i in range(4)]
    dropped = by_kind(explained(plain, of_group(4, node_selector={"rack": "r", "zone": "b"})))
    assert dropped[ChangeKind.SELECTOR].detail == "zone=b"
    inf = [node(f"n{i}", "inf2.48xlarge", labels={"rack": "r"}) for i in range(4)]
    inf.append(node("trn", TRN2, labels={"rack": "s"}))
    other = explained(inf, of_group(2, devices=1, node_selector={"rack": "s"}, cpu=6000))
    assert ChangeKind.SELECTOR not in by_kind(other)


def test_a_group_that_is_bound_in_part() -> None:
    """Those with a node count as members."""
    members = of_group(4)
    members[0] = attrs.evolve(members[0], node_name="n0", allocation={"AWS_NEURON_IDS": ",".join(map(str, range(16)))})
    answer = explained([node(f"n{i}", TRN2) for i in range(3)], members)
    assert by_kind(answer)[ChangeKind.MEMBERS].sentence.startswith(
        "Run group default/train with 3 members instead of 4"
    )
    assert by_kind(answer)[ChangeKind.NEW_NODE].sentence.startswith("Add 1 node of type")


def test_a_group_of_one_domain_gets_a_whole_one() -> None:
    """The nodes that are there are of no use to it if their domain has too few."""
    nodes = [node(f"n{i}", TRN2, labels={ULTRASERVER_4: "a"}) for i in range(2)]
    answer = explained(nodes, of_group(4, topology=ULTRASERVER_4))
    assert by_kind(answer)[ChangeKind.NEW_NODE].sentence == (
        f"Add a whole UltraServer, 4 nodes of type {TRN2} (16 Neuron devices each) with one value of the label"
        f" {ULTRASERVER_4}: the group then fits."
    )


@pytest.mark.parametrize(
    ("instance_type", "count", "offered"),
    [(TRN2, 4, "trn2u.48xlarge"), (TRN2, 3, "trn2u.48xlarge"), (TRN2, 5, ""), ("trn1.32xlarge", 4, "")],
)
def test_an_ultraserver_comes_whole_and_of_its_own_type(instance_type: str, count: int, offered: str) -> None:
    """Trn1 has none, none has five nodes, and nobody gets three of one."""
    new = by_kind(explained([node("n", instance_type)], of_group(count, topology=ULTRASERVER_4)))
    change = new.get(ChangeKind.NEW_NODE)
    assert (change.instance_type if change else "") == offered
    assert change is None or change.sentence.startswith("Add a whole UltraServer, 4 nodes of type trn2u.48xlarge")


def test_a_member_that_the_cluster_does_not_know_yet() -> None:
    """It counts as the others do."""
    members = of_group(2)
    cluster = cluster_with([node("n", TRN2)], members[:1])
    answer = run(explain_pod(cluster, members[1], PROFILE))
    assert [change.kind for change in answer.changes] == [ChangeKind.MEMBERS, ChangeKind.NEW_NODE]


def test_a_leader_whose_workers_are_still_to_come() -> None:
    """There are nodes for them, too; where none is found, nothing is said: nobody knows what they ask for."""
    group = PodGroup(GroupKey(Dialect.LEADER_WORKER_SET, "default", "serve group 0"), expected=4)
    nodes = [node(f"n{i}", TRN2) for i in range(4)]
    users = [pod(f"u{i}", devices=1, on=f"n{i}", ids=[0]) for i in range(2)]
    found = by_kind(explained(nodes, [pod("serve-0", devices=16, group=group)], users))
    assert found[ChangeKind.NEW_NODE].sentence.startswith("Add 2 nodes of type")
    asking = pod("serve-0", devices=16, group=group, requests={"vendor.example/card": 1})
    assert NONE_FOR_GROUP not in explained(nodes, [asking], users).notes


def test_a_number_of_new_nodes_that_cannot_suffice_is_not_planned() -> None:
    """A plan of a large group takes long, and leaves less to its other changes."""
    with mock.patch.object(new_nodes, "_used_of", wraps=new_nodes._used_of) as used_of:
        explained([node("n", TRN2)], of_group(4))
    assert [call.args[2] for call in used_of.call_args_list] == [3]


def test_what_does_not_help_a_group() -> None:
    """No type that takes a member, and no member that fits: a note says so; a held group just lacks members."""
    answer = explained([node("n", TRN2)], of_group(2, requests={"vendor.example/card": 1}))
    assert (answer.changes, answer.notes[-1]) == ((), NONE_FOR_GROUP)
    held = explained([node("n", TRN2)], of_group(4)[:3])
    assert (held.changes, NONE_FOR_GROUP in held.notes) == ((), False)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_each_change_of_a_group_lets_it_in(seed: int) -> None:
    """Made on the objects; with one node less it still waits."""
    dice = Random(seed)
    types = ("trn1.32xlarge", TRN2)
    nodes = [node(f"n{i}", dice.choice(types), created=i) for i in range(dice.randint(1, 4))]
    others = [
        pod(f"o{i}", devices=8, on=each.name, ids=range(8)) for i, each in enumerate(nodes) if dice.random() < 0.4
    ]
    selector = {INSTANCE_TYPE_LABEL: dice.choice(types)} if dice.random() < 0.5 else {}
    members = of_group(dice.randint(2, 6), devices=dice.choice([8, 16]), node_selector=selector)
    answer = explained(nodes, members, others)
    if answer.verdict is Verdict.FITS:
        return
    changes = by_kind(answer)
    new = changes[ChangeKind.NEW_NODE]
    number = int(new.sentence.split()[1])
    fresh = [node(f"fresh{i}", new.instance_type, created=9 + i) for i in range(number)]
    assert explained([*nodes, *fresh], members, others).verdict is Verdict.FITS
    assert explained([*nodes, *fresh[1:]], members, others).verdict is Verdict.WAITS
    if ChangeKind.MEMBERS in changes:
        count = int(changes[ChangeKind.MEMBERS].detail.removeprefix("members="))
        fewer = of_group(count, devices=members[0].neuron.total if members[0].neuron else 0, node_selector=selector)
        assert explained(nodes, fewer, others).verdict is Verdict.FITS

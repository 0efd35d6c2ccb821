"""What a search says of each kind of change: the sentence, the command, and the notes."""

from typing import Any

import pytest

from neuron_scheduler.explain.answers import ChangeKind, LeavingPod, SuggestedChange
from neuron_scheduler.explain.changes.search import ASKS_MUCH, KINDS, NONE_ALONE, NONE_HELPS, changes
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    Requirement,
    Taint,
)
from neuron_scheduler.scheduling.cycle.profile import default_profile, extender_profile
from neuron_scheduler.steps import run
from tests.support.brute_force import PROFILE
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, with_budgets
from tests.support.random_objects import WEB

TRN1 = "trn1.32xlarge"
DEDICATED = Taint("dedicated", Effect.NO_SCHEDULE, "team-a")


def trn1(name: str = "n", **fields: Any) -> Node:
    return node(name, TRN1, **fields)


def whole(name: str = "holder", on: str = "n", **fields: Any) -> Pod:
    """Return a pod that holds all devices of a trn1.32xlarge."""
    return pod(name, on=on, devices=16, ids=range(16), **fields)


def answer(
    nodes: list[Node],
    bound: list[Pod],
    pending: Pod,
    *,
    budgets: tuple[DisruptionBudget, ...] = (),
) -> tuple[dict[ChangeKind, SuggestedChange], tuple[str, ...]]:
    """Return the changes for a refused pod by kind, and the notes."""
    cluster = with_budgets(cluster_of(nodes, bound), budgets)
    found, notes = run(changes(cluster, pending, PROFILE, refused=refusal(cluster, pending)))
    return {change.kind: change for change in found}, notes


def test_every_kind_is_searched() -> None:
    """The kinds are searched in the order in which their changes are shown."""
    of_a_pod = [kind for kind in ChangeKind if kind is not ChangeKind.MEMBERS]
    assert [kind.__name__ for kind in KINDS] == [f"find_{kind.value}" for kind in of_a_pod]


def test_another_count() -> None:
    """The nearest count is offered, with all that the type serves."""
    found, _ = answer([trn1()], [], pod(devices=7))
    count = found[ChangeKind.COUNT]
    assert count.sentence == (
        "Ask for 8 Neuron devices instead of 7: it then goes to n; the counts that can be served are 1, 4, 8, 16."
    )
    assert (count.detail, count.node_name) == ("aws.amazon.com/neuron=8", "n")


def test_less_of_another_resource() -> None:
    """As much as is free at most where the pod fits but for that; not if Neuron is lacking, too."""
    user = pod("user", on="b", devices=4, ids=range(4), cpu=2_000)
    nodes = [trn1("a", cpu=4_000), trn1("b", cpu=8_000)]
    found, _ = answer(nodes, [user], pod(devices=8, cpu=64_000))
    change = found[ChangeKind.REQUESTS]
    assert change.sentence == "Ask for at most 6 cpu instead of 64: it then goes to b."
    assert (change.detail, change.node_name) == ("cpu=6", "b")
    assert ChangeKind.REQUESTS not in answer(nodes, [user], pod(devices=7, cpu=64_000))[0]


def test_several_containers_with_neuron() -> None:
    """One of them asks for another number; the sentence says which kind of container it is."""
    found, _ = answer([trn1()], [], pod(devices=(3, 1)))
    assert found[ChangeKind.COUNT].sentence.startswith("Ask for 4 Neuron devices instead of 3 in one container: ")
    found, _ = answer([trn1()], [], pod(devices=1, init=(7,)))
    assert found[ChangeKind.COUNT].sentence.startswith("Ask for 8 Neuron devices instead of 7 in one init container: ")


@pytest.mark.parametrize(
    ("kind", "where"),
    [("Job", "Job train makes the pod: change the template there."), ("ReplicaSet", "its Deployment.")],
)
def test_a_pod_that_a_controller_makes(kind: str, where: str) -> None:
    """A change of its spec belongs into the template."""
    pending = pod(devices=7, owner=Owner("batch/v1", kind, "train"))
    found, _ = answer([trn1(), node("b", "inf2.24xlarge", taints=(DEDICATED,))], [], pending)
    assert found[ChangeKind.COUNT].sentence.endswith(where)


@pytest.mark.parametrize("asked", [{"devices": 2}, {"cores": 8}, {"devices": 2, "cores": 8}])
def test_pairs(asked: dict[str, Any]) -> None:
    """The setting is named where a machine serves the pod only with it; for kube-scheduler's pods there is none."""
    trn2 = node("b", "trn2.48xlarge")
    found, _ = answer([trn2], [], pod(**asked))
    assert found[ChangeKind.PAIRS].sentence == (
        "Set allowAlignedPairs in the profile of my-scheduler: the pod then goes to b. Pairs of devices were never run"
        " on hardware."
    )
    assert ChangeKind.PAIRS not in answer([trn2], [pod("all", devices=16, on="b")], pod(**asked, pairs=True))[0]
    assert ChangeKind.PAIRS not in answer([trn1()], [], pod(devices=2))[0]
    cluster, pending = cluster_of([trn2]), pod(**asked)
    beside, _ = run(changes(cluster, pending, extender_profile(), refused=refusal(cluster, pending)))
    assert ChangeKind.PAIRS not in {change.kind for change in beside}


def test_a_pod_that_has_to_go() -> None:
    """It is named with all that whoever ends it has to know."""
    budget = DisruptionBudget("b", "default", "web", LabelSelector((Requirement("app", Operator.EXISTS),)))
    owner = Owner("apps/v1", "ReplicaSet", "web")
    holder = whole(labels={"app": "web"}, priority=3, started=40.0, owner=owner)
    found, notes = answer([trn1()], [holder], pod(devices=8, priority=9), budgets=(budget,))
    departure = found[ChangeKind.DEPARTURE]
    assert departure.pods == (
        LeavingPod("default", "holder", 3, 40.0, "16 Neuron devices", ("web",), violates=True, evictable=True),
    )
    assert departure.sentence == (
        "Delete or evict default/holder on n: the pod then goes there, if no other pod takes the room first."
        " A controller may start another pod in place of one that ends."
    )
    assert departure.command == ""  # its budget does not allow it
    assert notes == ()


def test_a_pod_that_is_ending() -> None:
    """The best answer is to wait, even if one other pod's end would do, too."""
    ending = [pod(f"p{i}", on="a", devices=8, ids=range(8 * i, 8 * i + 8), terminating=True) for i in (0, 1)]
    found, _ = answer([trn1("a"), trn1("b")], [*ending, whole("holder", "b")], pod(devices=16))
    departure = found[ChangeKind.DEPARTURE]
    assert departure.sentence == "Wait: default/p0 and default/p1 are Terminating on a, and then the pod goes there."
    assert (departure.command, departure.node_name) == ("", "a")


def test_a_pod_that_is_ending_although_no_budget_allows_it() -> None:
    """It goes in any case, so no other has to."""
    budget = DisruptionBudget("b", "default", "b", LabelSelector((Requirement("app", Operator.EXISTS),)))
    ending = pod("ending", on="n", cpu=500, terminating=True, labels={"app": "x"})
    beside = pod("beside", on="n", cpu=500, priority=-5)
    found, _ = answer([trn1(cpu=1000)], [ending, beside], pod(devices=8, cpu=500), budgets=(budget,))
    assert [each.name for each in found[ChangeKind.DEPARTURE].pods] == ["ending"]


def test_the_cheapest_of_equally_few() -> None:
    """A lower priority, and within the budgets, and a later start, in preemption's order."""
    budget = DisruptionBudget("b", "default", "b", LabelSelector((Requirement("app", Operator.IN, ("c",)),)))
    nodes = [trn1(name, created=age) for age, name in enumerate("abcd")]
    holders = [
        whole("a", "a", priority=5, started=1.0),
        whole("b", "b", priority=1, started=1.0),
        whole("c", "c", priority=0, started=1.0, labels={"app": "c"}),
        whole("d", "d", priority=1, started=9.0),
    ]
    found, _ = answer(nodes, holders, pod(devices=16, priority=9), budgets=(budget,))
    assert found[ChangeKind.DEPARTURE].node_name == "d"


def test_a_pod_of_the_same_namespace_first() -> None:
    """Who asks can end it, also if one of another namespace has run for less long; a lower priority comes before."""
    holders = [
        whole("theirs", "a", namespace="prod", started=9.0),
        whole("ours", "b", started=1.0),
        whole("urgent", "c", priority=1, started=9.0),
    ]
    found, _ = answer([trn1(name) for name in "abc"], holders, pod(devices=16))
    assert found[ChangeKind.DEPARTURE].command == "kubectl delete pod --namespace default ours"


def test_unknown_ids() -> None:
    """A pod with unknown ids blocks the node; it is named as such."""
    found, _ = answer([trn1()], [pod("lost", on="n", devices=1)], pod(devices=4))
    assert found[ChangeKind.DEPARTURE].sentence == (
        "Delete or evict default/lost (its Neuron ids are unknown) on n: the pod then goes there, if no other pod takes"
        " the room first."
    )


def test_an_unreadable_pod() -> None:
    """It may hold anything, so it has to go; the scheduler itself never evicts it."""
    cluster = cluster_of([trn1()])
    cluster.put_unreadable_pod(pod("lost", on="n"))
    pending = pod(devices=4, priority=9)
    found = run(changes(cluster, pending, PROFILE, refused=refusal(cluster, pending)))
    departure = next(change for change in found[0] if change.kind is ChangeKind.DEPARTURE)
    assert "default/lost (its object cannot be read)" in departure.sentence
    assert not departure.pods[0].evictable


def test_pods_that_come_back() -> None:
    """The end of a DaemonSet's pod is not offered: another one is there at once."""
    owner = Owner("apps/v1", "DaemonSet", "agent")
    found, _ = answer([trn1()], [whole(owner=owner)], pod(devices=4))
    assert ChangeKind.DEPARTURE not in found


def test_pods_of_the_same_controller() -> None:
    """Another one would be Pending in place of this one; one that is ending makes room all the same."""
    owner = Owner("apps/v1", "ReplicaSet", "web")
    pending = pod(devices=4, owner=owner)
    assert ChangeKind.DEPARTURE not in answer([trn1()], [whole(owner=owner)], pending)[0]
    assert ChangeKind.DEPARTURE in answer([trn1()], [whole(owner=owner, terminating=True)], pending)[0]
    assert ChangeKind.DEPARTURE in answer([trn1()], [whole(owner=owner, namespace="other")], pending)[0]


def test_a_search_that_is_cut_off() -> None:
    """Where the filters refuse too many nodes, a note says that others may do."""
    nodes = [trn1(f"n{i}", labels={ZONE_LABEL: "z"}) for i in range(70)]
    apart = PodAffinityTerm(ZONE_LABEL, WEB, frozenset({"default"}))
    bound = [pod(f"p{i}", on=f"n{i}", labels={"app": "web"}) for i in range(70)]
    _, notes = answer(nodes, bound, pod(anti_affinity=(apart,)))
    assert any("was cut off" in note for note in notes)


@pytest.mark.parametrize("holds", [{"devices": 16, "ids": range(16)}, {"cpu": 190_000}])
def test_a_search_on_a_full_fleet_is_cut_off(holds: dict[str, Any]) -> None:
    """What pods hold is counted on a thousand nodes, some of each kind: whatever lacks, and beside DaemonSets."""
    nodes = [trn1(f"n{i}") for i in range(1030)]
    bound = [pod(f"p{i}", on=f"n{i}", priority=1000 if i < 1029 else 9, **holds) for i in range(1030)]
    logs = [pod(f"log{i}", on=f"n{i}", cpu=50, owner=Owner("apps/v1", "DaemonSet", "log")) for i in range(1030)]
    found, notes = answer(nodes, [*bound, *logs], pod(devices=16, cpu=10_000))
    assert found[ChangeKind.DEPARTURE].node_name == "n1029"
    assert any("was cut off" in note for note in notes)


def test_more_pods_than_anybody_would_end() -> None:
    """A node that would have to lose very many pods is no suggestion."""
    bound = [pod(f"p{i}", on="n", cpu=100) for i in range(100)]
    found, _ = answer([node("n", cpu=10_000)], bound, pod(cpu=4_000))
    assert ChangeKind.DEPARTURE not in found


def test_a_pod_that_asks_much() -> None:
    """Each trial would count all other pods many times, so nothing is tried."""
    terms = tuple(PodAffinityTerm(f"rack-{i}", LabelSelector(), frozenset({"default"})) for i in range(40))
    pending = pod(devices=32, anti_affinity=terms)
    assert answer([trn1()], [], pending) == ({}, (ASKS_MUCH,))


def test_a_cordon() -> None:
    """The command lifts it, of a node that would take the pod."""
    nodes = [trn1(name, created=age, unschedulable=True) for age, name in enumerate("abc")]
    found, _ = answer(nodes, [whole("holder", "a")], pod(devices=4))
    assert found[ChangeKind.UNCORDON].sentence == "Lift the cordon of b: it then takes the pod."
    assert found[ChangeKind.UNCORDON].command == "kubectl uncordon b"


@pytest.mark.parametrize("name", ["--all", "-A", "a\nb", "a;b", "$(b)", "A"])
def test_a_name_that_a_shell_or_kubectl_might_obey(name: str) -> None:
    """Files may have any names; who is shown a command may run it, so there is none."""
    named, _ = answer([trn1(name)], [whole(name, name)], pod(devices=8))
    assert (named[ChangeKind.DEPARTURE].command, len(named[ChangeKind.DEPARTURE].pods)) == ("", 1)
    lifted, _ = answer([trn1(name, unschedulable=True)], [], pod(devices=8))
    assert (lifted[ChangeKind.UNCORDON].command, lifted[ChangeKind.UNCORDON].node_name) == ("", name)


def test_a_toleration() -> None:
    """It tolerates this taint and no other."""
    found, _ = answer([trn1(taints=(DEDICATED,))], [], pod(devices=4))
    toleration = found[ChangeKind.TOLERATION]
    assert toleration.detail == "dedicated=team-a:NoSchedule"
    assert '{"key": "dedicated", "operator": "Equal", "value": "team-a", "effect": "NoSchedule"}' in toleration.sentence


@pytest.mark.parametrize(
    "key",
    ["node.kubernetes.io/not-ready", "karpenter.sh/disrupted", "ebs.csi.aws.com/agent-not-ready"],
)
def test_taints_that_are_not_for_pods_to_tolerate(key: str) -> None:
    """A toleration is not offered for a node that is not fit for pods."""
    found, _ = answer([trn1(taints=(Taint(key, Effect.NO_SCHEDULE),))], [], pod(devices=4))
    assert ChangeKind.TOLERATION not in found


def test_many_values_are_not_all_written() -> None:
    """A requirement may have thousands of values."""
    zones = NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.IN, tuple(f"z{i}" for i in range(5000))),))
    found, _ = answer([trn1()], [], pod(devices=4, required_terms=(zones,)))
    assert found[ChangeKind.SELECTOR].detail == f"{ZONE_LABEL} In (z0, z1, z2, z3, and 4996 more)"


def test_another_instance_type() -> None:
    """It is one of the same family, because programs are compiled for a family; and the type is never dropped."""
    nodes = [trn1("a"), node("b", "inf2.24xlarge"), node("c", "trn1n.32xlarge"), node("d", "trn2.48xlarge")]
    pending = pod(devices=1, node_selector={INSTANCE_TYPE_LABEL: TRN1})
    found, _ = answer(nodes, [whole("holder", "a")], pending)
    assert (
        found[ChangeKind.INSTANCE_TYPE].sentence == "Select the instance type trn1n.32xlarge: the pod then goes to c."
    )
    assert ChangeKind.SELECTOR not in found
    found, _ = answer([nodes[0], nodes[1], nodes[3]], [whole("holder", "a")], pending)
    assert {*found} == {ChangeKind.DEPARTURE, ChangeKind.NEW_NODE}


@pytest.mark.parametrize(("zone", "offered"), [("a", False), ("b", True)])
def test_a_selector_of_a_zone_goes_only_if_the_family_stays(zone: str, offered: bool) -> None:
    """What matches the pod's rules today says for what it is compiled."""
    nodes = [trn1("a", labels={ZONE_LABEL: "a"}), node("b", "trn1n.32xlarge", labels={ZONE_LABEL: "b"})]
    nodes.append(node("c", "inf2.24xlarge" if zone == "a" else TRN1, labels={ZONE_LABEL: "c"}))
    found, _ = answer(nodes, [whole("x", "a"), whole("y", "b")], pod(devices=1, node_selector={ZONE_LABEL: zone}))
    assert (ChangeKind.SELECTOR in found) == offered


def test_a_pod_of_a_higher_priority_goes_last() -> None:
    """More pods of lower priority are named before it; if it must go, the sentence says that it is more important."""
    halves = [pod(f"low-{i}", on="b", devices=8, ids=range(8 * i, 8 * i + 8)) for i in (0, 1)]
    vip, pending = whole("vip", "a", priority=1000), pod(devices=16, priority=5)
    found, _ = answer([trn1("a"), trn1("b")], [vip, *halves], pending)
    assert [each.name for each in found[ChangeKind.DEPARTURE].pods] == ["low-0", "low-1"]
    found, _ = answer([trn1("a")], [vip], pending)
    assert found[ChangeKind.DEPARTURE].sentence == (
        "Delete or evict default/vip on a: the pod then goes there, if no other pod takes the room first."
        " default/vip has a higher priority than this pod."
    )
    assert found[ChangeKind.DEPARTURE].command == ""


def test_a_new_node() -> None:
    """A type of the cluster comes first, and autoscalers see the condition."""
    found, _ = answer([trn1()], [whole()], pod(devices=8))
    new = found[ChangeKind.NEW_NODE]
    assert (new.instance_type, new.autoscalers) == (TRN1, True)
    assert new.sentence == (
        f"Add a node of type {TRN1} (16 Neuron devices): it would take the pod. Karpenter and Cluster Autoscaler see "
        "from the pod's condition that a node is needed."
    )


def test_a_new_node_of_a_rare_group_that_the_pod_selects() -> None:
    """Of all groups only the most frequent are looked at."""
    groups = ["rare", *(f"often-{number}" for number in range(9)), *(f"often-{number}" for number in range(9))]
    nodes = [trn1(f"n{number}", labels={"group": group}) for number, group in enumerate(groups)]
    found, _ = answer(
        nodes, [whole(f"on-{each.name}", each.name) for each in nodes], pod(devices=8, node_selector={"group": "rare"})
    )
    assert found[ChangeKind.NEW_NODE].instance_type == TRN1


def test_a_new_node_of_a_group_whose_nodes_are_all_cordoned() -> None:
    """It would not be. Those of the other group have no room beside their DaemonSet."""
    nodes = [trn1(name, labels={"group": f"group-{name}"}, cpu=192_000, unschedulable=name == "a") for name in "ab"]
    bound = [whole("on-b", "b"), pod("agent", on="b", cpu=150_000, owner=Owner("apps/v1", "DaemonSet", "agent"))]
    found, _ = answer(nodes, bound, pod(devices=8, cpu=100_000))
    assert found[ChangeKind.NEW_NODE].instance_type == TRN1


def test_a_new_node_of_a_type_that_the_cluster_lacks() -> None:
    """If no type of the cluster would do, the smallest of the catalog is offered, with what is assumed."""
    found, _ = answer([node("n", "inf2.xlarge")], [], pod(devices=12))
    assert found[ChangeKind.NEW_NODE].instance_type == "inf2.48xlarge"
    assert (
        "if its cpu, memory, labels and taints suit the pod. The cluster has no such node"
        in found[ChangeKind.NEW_NODE].sentence
    )


@pytest.mark.parametrize("pending", [pod(devices=1, cpu=1 << 40), pod(devices=1, memory=1 << 45)])
def test_no_type_of_unknown_size_for_a_pod_that_is_larger_than_any_node(pending: Pod) -> None:
    """Nothing says that a type which the cluster lacks has more."""
    found, _ = answer([node("n", "inf2.xlarge"), node("cpu", cpu=1 << 41)], [], pending)
    assert ChangeKind.NEW_NODE not in found


def test_a_new_node_is_of_a_family_that_the_pod_means() -> None:
    """A program for the nodes that are there does not run on others."""
    found, _ = answer([node("n", "trn2.48xlarge")], [], pod(devices=12))
    assert ChangeKind.NEW_NODE not in found
    found, _ = answer([node("cpu")], [], pod(devices=12))
    assert found[ChangeKind.NEW_NODE].instance_type == "inf2.48xlarge"


def test_autoscalers_count_devices() -> None:
    """Where devices are free in pieces, they may add no node."""
    bound = [pod(f"p{i}", on="n", devices=1, ids=(i,)) for i in range(0, 16, 4)]
    found, _ = answer([trn1()], bound, pod(devices=4))
    assert found[ChangeKind.NEW_NODE].sentence.endswith("they may add no node.")


def test_autoscalers_do_not_see_every_pod() -> None:
    """One that waits for its victims has another status."""
    found, _ = answer([trn1()], [whole(terminating=True)], pod(devices=8, priority=9, nominated_node_name="n"))
    assert not found[ChangeKind.NEW_NODE].autoscalers
    assert found[ChangeKind.DEPARTURE].sentence.startswith("Wait: default/holder is Terminating on n")


def test_a_pod_with_gates() -> None:
    """No change lets it in while they are there."""
    assert answer([trn1()], [whole()], pod(devices=8, gates=("quota",))) == ({}, ())


def test_members_of_groups_that_would_have_to_go() -> None:
    """None of the pod's own group; of another one, how many pods there are, and no command."""
    job, other = (PodGroup(GroupKey(Dialect.COSCHEDULING, "default", name), 1, 1) for name in ("job", "other"))
    found, _ = answer([trn1()], [whole(group=job)], pod(devices=8, group=job))
    assert ChangeKind.DEPARTURE not in found
    cluster, pending = cluster_of([trn1()], [whole(group=other)]), pod(devices=8, group=job)
    cluster.groups.put(whole(group=other))
    (departure, _), _ = run(changes(cluster, pending, default_profile("ours"), refused=refusal(cluster, pending)))
    assert departure.sentence.endswith("default/holder is a member of group other, 1 pod.")
    assert (departure.kind, departure.command) == (ChangeKind.DEPARTURE, "")


def test_a_pod_that_never_preempts() -> None:
    """The scheduler evicts nobody for it, whatever the priorities are."""
    for never in (False, True):
        found, _ = answer([trn1()], [whole()], pod(devices=8, priority=9, never_preempts=never))
        assert found[ChangeKind.DEPARTURE].pods[0].evictable is not never


def test_no_single_change() -> None:
    """A note says so; kinds are not combined."""
    pending = pod(devices=4, requests={"vendor.example/card": 1})
    assert answer([trn1()], [], pending) == ({}, (NONE_ALONE,))


def test_the_pod_itself() -> None:
    """No change of the cluster helps a pod that can never be bound."""
    assert answer([trn1()], [], pod(devices=2, cores=3)) == ({}, (NONE_HELPS,))


def test_the_cluster_is_as_it_was() -> None:
    """The trials leave no trace: rows, nominations and decisions are those before."""
    nodes = [trn1("a"), trn1("b", unschedulable=True), trn1("c", taints=(DEDICATED,))]
    cluster = cluster_of(nodes, [whole("x", "a"), whole("y", "b")])
    pending = pod(devices=8)
    refused, before = refusal(cluster, pending), list(cluster.view.rows())
    found = run(changes(cluster, pending, PROFILE, refused=refused))
    assert {change.kind for change in found[0]} >= {ChangeKind.DEPARTURE, ChangeKind.NEW_NODE}
    assert all(now is then for now, then in zip(cluster.view.rows(), before, strict=True))
    assert refusal(cluster, pending) == refused

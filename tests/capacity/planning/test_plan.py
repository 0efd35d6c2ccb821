"""The plan: which whole machines are asked for, for whom, and when nothing is."""

from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.capacity.planning.need import MachineNeed
from neuron_scheduler.capacity.planning.plan import (
    CROWDED,
    NAMED_NODE,
    NO_TYPE,
    SHARED,
    UnplacedPod,
)
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Owner, PodCondition
from neuron_scheduler.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NEURON_CORE,
    NEURON_DEVICE,
)
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    Toleration,
)
from neuron_scheduler.neuron.core_mask import CoreMask
from tests.capacity.planning.worlds import (
    INF2,
    TRN1,
    UNSCHEDULABLE,
    broken,
    cluster_of,
    in_zone,
    machines,
    plan_for,
    steps_for,
    waiting,
)
from tests.support.builders import GI, node, pod
from tests.support.storage import claim, volume, zone

EVERY_PEER: Final = LabelSelector((Requirement("app", Operator.IN, ("w",)),))
EVERY_OTHER: Final = (0, 2, 4, 6, 8, 10)
"""Devices of an inf2.48xlarge in use: 6 are free, and no two are neighbours."""


def names(need: MachineNeed) -> list[str]:
    """Return the names of the pods of a need."""
    return [each.name for each in need.pods]


def term(key: str, *values: str) -> NodeSelectorTerm:
    """Return a term that requires a value of a label."""
    return NodeSelectorTerm((Requirement(key, Operator.IN, values),))


def test_one_pod_that_no_free_block_serves() -> None:
    """Two nodes have 12 free devices each, in pieces: one whole machine of their type is asked for."""
    plan = plan_for(cluster_of(broken("a"), broken("b")), [waiting("p", 4)])
    (need,) = plan.needs
    assert need.instance_type == TRN1
    assert need.silicon == {NEURON_DEVICE: 16}
    assert need.zones == ()
    assert names(need) == ["p"]
    assert (plan.serving, plan.hopeless) == ({}, {})


def test_a_pod_that_has_waited_too_long_counts_on_nobody() -> None:
    """
    Pods for which the autoscaler never adds a machine may come again and again: they delay others, not for ever.

    What the machine of an open request has left is used all the same.
    """
    cluster = cluster_of(broken("a"))
    other = waiting("other", 8, node_selector={INSTANCE_TYPE_LABEL: "trn2.48xlarge"})
    pods = [UnplacedPod(waiting("p", 4), overdue=True), UnplacedPod(other)]
    (need,) = plan_for(cluster, pods).needs
    assert names(need) == ["p"]
    plan = plan_for(cluster, [UnplacedPod(waiting("q", 4), overdue=True), *pods], coming={"r": need})
    assert (plan.needs, plan.serving) == ((), {"r": ("uid-p", "uid-q")})
    patient = [attrs.evolve(each, overdue=False) for each in pods]
    assert plan_for(cluster, patient).hopeless == {"uid-p": SHARED}


def test_the_smallest_machine_that_serves_the_most() -> None:
    """Three pods of 4 fill an inf2.48xlarge; one alone gets an inf2.24xlarge."""
    cluster = cluster_of(broken("a", INF2, EVERY_OTHER), broken("b", "inf2.24xlarge", (2,)))
    assert machines(plan_for(cluster, [waiting("p", 4)])) == ["inf2.24xlarge"]
    more = [UnplacedPod(waiting(f"p{i}", 4), overdue=True) for i in range(2)]
    assert machines(plan_for(cluster, more)) == [INF2]


@pytest.mark.parametrize("selector", [{"group": "rare"}, {}], ids=["selects it", "tolerates no other's taint"])
def test_a_rare_group_of_nodes_counts_for_pods_that_may_use_no_other(
    selector: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet may have more groups of nodes than are looked at."""
    monkeypatch.setattr("neuron_scheduler.cluster.fresh_node._MOST_GROUPS", 1)
    groups = ["rare", *(f"often-{number}" for number in range(9)), *(f"often-{number}" for number in range(9))]
    cluster = cluster_of(
        *(
            broken(
                f"n{number}",
                labels={"group": group},
                taints=() if group == "rare" else (Taint(group, Effect.NO_SCHEDULE),),
            )
            for number, group in enumerate(groups)
        )
    )
    (need,) = plan_for(cluster, [waiting("p", 4, node_selector=selector)]).needs
    assert names(need) == ["p"]


def test_a_pod_that_selects_one_node_says_nothing_about_machines_for_others() -> None:
    """A tenant's DaemonSet may fill one node, which the tenant's pod then selects."""
    layer = "topology.k8s.aws/network-node-layer-3"
    cluster = cluster_of(*(broken(f"n{number}", labels={layer: f"nn-{number}"}, cpu=192_000) for number in range(3)))
    cluster.put_pod(pod("full", on="n0", cpu=185_000, owner=Owner("apps/v1", "DaemonSet", "own")))
    pods = [waiting("own", 16, node_selector={layer: "nn-0"}), waiting("other", 4, cpu=10_000)]
    assert [names(need) for need in plan_for(cluster, pods).needs] == [["other"]]


def test_a_type_that_no_node_has_any_more() -> None:
    """A pod that names it gets it, as far as the catalog knows it; others get what the cluster has."""
    cluster = cluster_of(broken("a", "inf2.24xlarge", (1, 3, 5)), broken("b"))
    named = waiting("p", 8, required_terms=(term(INSTANCE_TYPE_LABEL, "trn1n.32xlarge", TRN1),))
    assert machines(plan_for(cluster, [named])) == [TRN1]
    assert machines(plan_for(cluster, [waiting("p", 8)])) == [TRN1]
    other = waiting("q", 8, node_selector={INSTANCE_TYPE_LABEL: INF2})
    overdue = [UnplacedPod(waiting("p", 8), overdue=True), UnplacedPod(other)]
    assert machines(plan_for(cluster, overdue)) == [TRN1]


@pytest.mark.parametrize(
    "fields",
    [
        {"node_selector": {ZONE_LABEL: "z1"}},
        {"required_terms": (term(ZONE_LABEL, "z1"),)},
        {"volume_claims": ("data",)},
    ],
)
def test_pods_that_are_bound_to_a_zone(fields: dict[str, Any]) -> None:
    """A selector, a required term or a volume says in which zone the machine must be."""
    cluster = cluster_of(broken("a", labels=in_zone("z0")), broken("b", labels=in_zone("z1")))
    bound_volume(cluster)
    (need,) = plan_for(cluster, [waiting("p", 4, **fields)]).needs
    assert need.zones == ("z1",)


def bound_volume(cluster: Cluster) -> None:
    """Add a claim whose volume is in zone z1."""
    cluster.put_storage(volume("pv", on=zone("z1"), of="data"))
    cluster.put_storage(claim("data", bound_to="pv"))


def test_pods_that_are_spread_over_zones() -> None:
    """The machine must be in the zone that lacks a pod."""
    spread = SpreadConstraint(ZONE_LABEL, 1, hard=True, selector=EVERY_PEER)
    peer = pod("peer", on="a", labels={"app": "w"})
    there, pods = broken("a", labels=in_zone("z0"))
    cluster = cluster_of((there, [*pods, peer]), broken("b", labels=in_zone("z1")))
    (need,) = plan_for(cluster, [waiting("p", 4, labels={"app": "w"}, spread=(spread,))]).needs
    assert need.zones == ("z1",)


@pytest.mark.parametrize(("key", "zones"), [(HOSTNAME_LABEL, ()), (ZONE_LABEL, ("z1",))])
def test_pods_that_others_keep_away(key: str, zones: tuple[str, ...]) -> None:
    """The zone matters where another pod closes one, not where there is any pod with anti-affinity."""
    away = PodAffinityTerm(key, EVERY_PEER, namespaces=frozenset({"default"}))
    there, pods = broken("a", labels=in_zone("z0", **{HOSTNAME_LABEL: "a"}))
    other = pod("other", on="a", anti_affinity=(away,))
    cluster = cluster_of((there, [*pods, other]), broken("b", labels=in_zone("z1")))
    (need,) = plan_for(cluster, [waiting("p", 4, labels={"app": "w"})]).needs
    assert need.zones == zones


@pytest.mark.parametrize(
    "fields",
    [
        {"scheduled": None},
        {"scheduled": PodCondition("False", "SchedulerError")},
        {"nominated_node_name": "a"},
        {"gates": ("gate",)},
        {"terminating": True},
        {"owner": Owner("apps/v1", "DaemonSet", "d")},
        {"refusal": "devices and cores"},
    ],
)
def test_pods_that_autoscalers_do_not_see(fields: dict[str, Any]) -> None:
    """Nothing is asked for them, and they take no room."""
    plan = plan_for(cluster_of(broken("a")), [waiting("p", 4, **fields)])
    assert (plan.needs, plan.hopeless) == ((), {})


@pytest.mark.parametrize(("awaited", "needs"), [(False, 0), (True, 1)])
def test_a_pod_that_has_a_turn_is_still_seen(awaited: bool, needs: int) -> None:
    """It may be Pending for long yet; one for which pods are evicted has a place."""
    cluster, pending = cluster_of(broken("a")), waiting("p", 4)
    cluster.nominate("a", Nomination(pending, CoreMask(255), frozenset({"uid-a-0"}), awaited=awaited))
    assert len(plan_for(cluster, [pending]).needs) == needs


def test_a_pod_that_a_draining_pod_makes_room_for() -> None:
    """What a terminating pod holds counts as free for one pod, and not for a second one."""
    there, pods = broken("a")
    draining = [attrs.evolve(each, terminating=each.name == "a-0") for each in pods]  # row 0 comes free
    cluster = cluster_of((there, draining))
    assert plan_for(cluster, [waiting("p", 4)]).needs == ()
    (need,) = plan_for(cluster, [waiting("p", 4), waiting("q", 4)]).needs
    assert names(need) == ["q"]


def test_a_namespace_with_many_pods_does_not_hide_the_others() -> None:
    """One plan asks for four machines for its pods; the next one goes on."""
    cluster = cluster_of(*(broken(f"n{number}") for number in range(8)))
    crowd = [UnplacedPod(waiting(f"x{number}", 8, namespace="crowd"), overdue=True) for number in range(8)]
    more = [UnplacedPod(waiting(f"y{number}", 4, namespace="crowd"), overdue=True) for number in range(4)]
    other = UnplacedPod(waiting("other", 4, created=1.0), overdue=True)
    plan = plan_for(cluster, [*crowd, *more, other])
    assert [names(need) for need in plan.needs] == [*([f"x{i}", f"x{i + 1}"] for i in range(0, 8, 2)), ["other"]]
    assert plan.hopeless == {f"uid-y{number}": CROWDED for number in range(4)}


def test_pods_that_need_cores() -> None:
    """A machine is asked for in the pod's unit."""
    held = [pod(f"h{core}", cores=1, on="a", ids=(core,)) for core in range(0, 32, 2)]
    cluster = cluster_of((node("a", TRN1), held))
    (need,) = plan_for(cluster, [waiting("p", cores=8)]).needs
    assert need.silicon == {NEURON_CORE: 32}
    assert need.devices == 16


def test_devices_that_are_in_use_as_cores() -> None:
    """By count a node has all of its devices free, and none is: the pod waits for ever, so a machine is asked for."""
    held = [pod(f"h{core}", cores=2, on="a", ids=(core, core + 1)) for core in range(0, 32, 2)]
    (need,) = plan_for(cluster_of((node("a", TRN1), held)), [waiting("p", 4)]).needs
    assert need.silicon == {NEURON_DEVICE: 16, NEURON_CORE: 32}


def test_cpu_and_memory() -> None:
    """They are the sum of the pods', with more cpu than any pod that waits, whoever that is."""
    cluster = cluster_of(broken("a", cpu=128_000))
    pods = [UnplacedPod(waiting(f"p{i}", 4, cpu=2_000, memory=GI), overdue=True) for i in range(2)]
    (need,) = plan_for(cluster, pods).needs
    assert need.host == {CPU: 4_000, MEMORY: 2 * GI}
    (need,) = plan_for(cluster, pods[:1]).needs
    assert need.host == {CPU: 2_001, MEMORY: GI}
    web = pod("web", cpu=50_000, scheduled=UNSCHEDULABLE)
    assert plan_for(cluster, [*pods, web]).needs[0].host[CPU] == 50_001
    (need,) = plan_for(cluster, [*pods, pod("half", cpu=127_000, scheduled=UNSCHEDULABLE)]).needs
    assert need.host[CPU] == 115_200  # nine tenths: Karpenter's own estimate of the machine may be lower


def test_other_resources_than_neuron() -> None:
    """They are the sum of the pods': an autoscaler buys a machine with network interfaces for EFA only if asked to."""
    amounts = {"vpc.amazonaws.com/efa": 2, "hugepages-2Mi": GI, EPHEMERAL_STORAGE: 10 * GI}
    cluster = cluster_of(broken("a", allocatable={name: 4 * amount for name, amount in amounts.items()}))
    plain = [waiting(f"p{i}", 4) for i in range(2)]
    pods = [UnplacedPod(attrs.evolve(each, requests={**each.requests, **amounts}), overdue=True) for each in plain]
    (need,) = plan_for(cluster, pods).needs
    assert need.host == {CPU: 1, **{name: 2 * amount for name, amount in amounts.items()}}
    assert need.silicon == {NEURON_DEVICE: 16}


def test_a_pod_that_needs_all_cpu_of_a_machine() -> None:
    """No more is asked for than an empty machine has beside its daemons, or nothing would be bought."""
    daemon = pod("d", on="a", cpu=1_000, owner=Owner("apps/v1", "DaemonSet", "d"))
    there, pods = broken("a", cpu=128_000)
    (need,) = plan_for(cluster_of((there, [*pods, daemon])), [waiting("p", 4, cpu=127_000)]).needs
    assert need.host == {CPU: 127_000}


@pytest.mark.parametrize(
    "fields",
    [
        {"node_selector": {HOSTNAME_LABEL: "a"}},
        {"required_terms": (term(HOSTNAME_LABEL, "a"),)},
        {"required_terms": (NodeSelectorTerm(fields=(Requirement("metadata.name", Operator.IN, ("a",)),)),)},
    ],
)
def test_a_pod_that_requires_a_node_by_its_name(fields: dict[str, Any]) -> None:
    """Karpenter ignores such a pod, and no new node would have the name."""
    plan = plan_for(cluster_of(broken("a", labels={HOSTNAME_LABEL: "a"})), [waiting("p", 4, **fields)])
    assert (plan.needs, plan.hopeless) == ((), {"uid-p": NAMED_NODE})


def test_no_type_holds_the_pod() -> None:
    """A pod that only an existing node of an unusual make could hold gets nothing, and it is said why."""
    odd, pods = broken("a", labels={"rare": "x", HOSTNAME_LABEL: "x"})  # the label is the machine's own
    plan = plan_for(cluster_of((odd, pods)), [waiting("p", 4, node_selector={"rare": "x"})])
    assert (plan.needs, plan.hopeless) == ((), {"uid-p": NO_TYPE})


def test_pods_that_may_not_share_a_machine() -> None:
    """A request speaks for all of its pods: one that goes to a tainted group is not asked for with one that cannot."""
    taint = Taint("team", Effect.NO_SCHEDULE, "a")
    tolerates = (Toleration("team", value="a"),)
    only_there = {"group": "a"}
    cluster = cluster_of(broken("n1", taints=(taint,), labels=only_there), broken("n2", labels={"group": "b"}))
    team = waiting("team", 4, tolerations=tolerates, node_selector=only_there)
    anyone = waiting("anyone", 4)
    plan = plan_for(cluster, [team, anyone])
    assert [names(need) for need in plan.needs] == [["team"], ["anyone"]]
    tolerant = plan_for(cluster, [team, waiting("tolerant", 4, tolerations=tolerates)])
    assert [(names(need), need.pattern.name) for need in tolerant.needs] == [(["team", "tolerant"], "team")]


def test_a_request_speaks_for_each_machine_that_may_be_bought() -> None:
    """Pods whose zones overlap only in part share no request: the autoscaler may buy where one of them cannot be."""
    cluster = cluster_of(*(broken(f"in-{zone}", labels=in_zone(zone)) for zone in ("z0", "z1", "z2")))
    pods = [waiting("p", 4, required_terms=(term(ZONE_LABEL, "z0", "z1"),))]
    pods.append(waiting("q", 4, required_terms=(term(ZONE_LABEL, "z1", "z2"),)))
    assert [(names(need), need.zones) for need in plan_for(cluster, pods).needs] == [
        (["p"], ("z0", "z1")),
        (["q"], ("z1", "z2")),
    ]


def test_a_pod_with_very_many_terms() -> None:
    """They are not tried one by one, or the pods of one user would delay the plan for all others; it is as hidden."""
    terms = tuple(term("group", f"g{number}") for number in range(2000))
    pods = [waiting("many", 4, required_terms=(*terms, term("group", "a"))), waiting("p", 4)]
    cluster = cluster_of(*(broken(name, labels=in_zone(name, group="a")) for name in "xyz"))
    steps = list(steps_for(cluster, pods))
    assert len(steps) < 200
    (need,) = plan_for(cluster, pods).needs
    assert names(need) == ["many", "p"]


def test_the_most_urgent_machine_comes_first() -> None:
    """Machines are packed by size, and asked for by the urgency of their pods."""
    cluster = cluster_of(broken("a"), broken("b", INF2, EVERY_OTHER))
    small = waiting("small", 2, node_selector={INSTANCE_TYPE_LABEL: INF2})
    large = waiting("large", 8, node_selector={INSTANCE_TYPE_LABEL: TRN1})
    assert [need.pods[0].name for need in plan_for(cluster, [small, large]).needs] == ["small", "large"]

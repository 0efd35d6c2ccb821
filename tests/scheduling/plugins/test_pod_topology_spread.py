"""PodTopologySpread: which domains are too full, and which are preferred; expected values from upstream's rules."""

from math import log
from typing import Any

import pytest

from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.selecting_kinds import Workload
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement, SpreadConstraint
from neuron_scheduler.scheduling.plugins import pod_topology_spread
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, schedule

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
CROWDED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"


def spread(key: str = ZONE_LABEL, *, max_skew: int = 1, hard: bool = True, **rest: Any) -> SpreadConstraint:
    """Return a constraint on the pods labelled `app: web`."""
    return SpreadConstraint(key, max_skew, hard=hard, **{"selector": WEB, **rest})


def web(*constraints: SpreadConstraint, **rest: Any) -> Pod:
    """Return a pod labelled `app: web` with these constraints."""
    return pod(**{"labels": {"app": "web"}, "spread": constraints, **rest})


def zones(**zone_of: str) -> list[Node]:
    """Return nodes in their zones, the older first; an empty zone is none."""
    return [
        node(name, created=i, labels={HOSTNAME_LABEL: name, **({ZONE_LABEL: zone} if zone else {})})
        for i, (name, zone) in enumerate(zone_of.items())
    ]


def pods(on: str, **rest: Any) -> list[Pod]:
    """Return a web pod on each of the nodes named by a letter."""
    return [pod(f"{name}{i}", on=name, **{"labels": {"app": "web"}, **rest}) for i, name in enumerate(on)]


NODES = zones(a="x", b="x", c="y", d="")


def test_evicting_pods_gives_no_node_a_label() -> None:
    """A crowded domain can be helped, a missing label cannot."""
    cluster = cluster_of(NODES, pods("a"))
    refusals = pod_topology_spread.filter_nodes(cluster.view, web(spread()), NodeSet(0b1111))
    assert {(r.reason, r.nodes, r.unresolvable) for r in refusals} == {
        (NO_LABEL, NodeSet(0b1000), True),
        (CROWDED, NodeSet(0b0011), False),
    }


SERVICE = Workload("uid-s", "v1", "Service", "default", "web", WEB)
OWNED = Workload("uid-rs", "apps/v1", "ReplicaSet", "default", "web", WEB)


@pytest.mark.parametrize(
    ("asked", "workload", "want"),
    [
        pytest.param(web(), SERVICE, "b", id="a Service"),
        pytest.param(pod(owner=Owner("apps/v1", "ReplicaSet", "web")), OWNED, "b", id="a ReplicaSet"),
        pytest.param(web(), None, "a", id="a pod without an owner"),
        pytest.param(web(devices=1), SERVICE, "a", id="a pod with Neuron is packed"),
        pytest.param(web(spread(max_skew=9)), SERVICE, "a", id="a pod with constraints of its own"),
    ],
)
def test_system_default(asked: Pod, workload: Workload | None, want: str) -> None:
    """Pods that belong together are spread over nodes and zones."""
    nodes = [
        node(name, "trn1.32xlarge", labels={ZONE_LABEL: "x", HOSTNAME_LABEL: name}, created=i)
        for i, name in enumerate("ab")
    ]
    cluster = cluster_of(nodes, pods("a"))
    if workload is not None:
        cluster.workloads.put(workload)
    decision = schedule(cluster, asked)
    assert decision[0] == want


def test_the_default_does_not_fill_neuron_nodes() -> None:
    """Spreading by default must not break up free blocks."""
    cluster = cluster_of([*zones(a="x"), node("t", "trn1.32xlarge", created=1)], pods("aaa"))
    cluster.workloads.put(SERVICE)
    assert schedule(cluster, web()) == ("a", ())


def test_weights_are_upstreams_scores_turned_round() -> None:
    """The highest and lowest score less the node's: counts times ln(domains + 2), in 64ths."""
    cluster = cluster_of(zones(a="x", b="y", c="z", d=""), pods("abbccc"))
    sums = dict.fromkeys(map(Slot, range(4)), 0)
    for weight, nodes in pod_topology_spread.preferred_weights(cluster.view, web(spread(hard=False)), NodeSet(0b1111)):
        for slot in sums:
            sums[slot] += weight * (nodes >> slot & 1)
    unit = round(64 * log(3 + 2))
    assert sums == {0: 3 * unit, 1: 2 * unit, 2: unit, 3: 0}


@pytest.mark.parametrize(("wanted", "fits"), [(20, True), (21, False), (2**31 - 1, False)])
def test_many_domains_wanted(wanted: int, fits: bool) -> None:
    """However many domains a constraint wants, they are counted, not looked up one by one."""
    nodes = zones(**{f"n{i}": "x" for i in range(20)})
    there = [web(name=f"p{i}", on=f"n{i}") for i in range(20)]
    asked = web(spread(HOSTNAME_LABEL, min_domains=wanted))
    if fits:
        assert schedule(cluster_of(nodes, there), asked)
    else:
        assert dict(refusal(cluster_of(nodes, there), asked).reasons) == {CROWDED: 20}


@pytest.mark.parametrize(("racks", "size"), [(5, 30), (100, 3)])
def test_pods_on_nodes_that_do_not_count(racks: int, size: int) -> None:
    """In large racks and in small ones; also after a matching pod there has gone, and after its node counts."""
    slots, first_ones = range(racks * size), range(0, racks * size, size)
    labels = [{"rack": f"r{slot // size}", "pool": "batch" if slot % size else "web"} for slot in slots]
    there = [web(name=f"p{slot}-{copy}", on=f"n{slot}") for slot in slots for copy in range(slot % 7)]
    cluster = cluster_of([node(f"n{slot}", created=slot, labels=labels[slot]) for slot in slots], there)
    asked = web(spread("rack"), node_selector={"pool": "web"})

    def counts() -> list[int]:
        ((_, column, _),) = pod_topology_spread.hard_counts(cluster.view, asked)
        return [column.value(Slot(slot)) for slot in first_ones]

    want = [slot % 7 for slot in first_ones]
    assert counts() == want
    cluster.remove_pod(next(each.uid for each in there if each.name == "p2-0"))
    assert counts() == want
    cluster.put_node(node("n2", created=2, labels={"rack": "r0", "pool": "web"}))
    assert counts() == [1, *want[1:]]

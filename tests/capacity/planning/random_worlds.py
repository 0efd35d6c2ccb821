"""Random clusters whose nodes are in pieces, with pods that wait for blocks."""

from random import Random
from typing import Any, Final

from neuron_scheduler.capacity.planning.plan import WaitingPod
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    PreferredTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    Toleration,
)
from tests.capacity.planning.worlds import INF2, TRN1, broken, cluster_of, waiting
from tests.support.builders import GI, pod
from tests.support.storage import claim, volume, zone

IN_PIECES: Final = {
    TRN1: (0, 5, 10, 15),
    "trn1n.32xlarge": (0, 5, 10, 15),
    INF2: (1, 4, 7, 10),
    "inf2.24xlarge": (1, 4),
}
"""Devices in use: no block of 4 is free, and as many as that are by count."""
WEB: Final = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
TAINT: Final = Taint("team", Effect.NO_SCHEDULE, "a")
ZONES: Final = ("z0", "z1")


def some_cluster(dice: Random, nodes: int = 4) -> Cluster:
    """Return a cluster in which no node has a free block of 4 devices."""
    cluster = cluster_of(*(some_node(dice, f"n{number}") for number in range(dice.randint(1, nodes))))
    for each in ZONES:
        cluster.put_storage(volume(f"pv-{each}", on=zone(each), of=f"data-{each}"))
        cluster.put_storage(claim(f"data-{each}", bound_to=f"pv-{each}"))
    return cluster


def some_node(dice: Random, name: str) -> tuple[Node, list[Pod]]:
    """Return a node in pieces, of some group and in some zone; now and then one of its pods is about to go."""
    instance_type = dice.choice(list(IN_PIECES))
    tainted = dice.random() < 0.2
    there, pods = broken(
        name,
        instance_type,
        IN_PIECES[instance_type],
        labels={ZONE_LABEL: dice.choice(ZONES), HOSTNAME_LABEL: name, "group": "a" if tainted else dice.choice("bc")},
        taints=(TAINT,) if tainted else (),
        cpu=dice.choice([64_000, 128_000]),
    )
    beside = [pod(f"{name}-web", on=name, labels={"app": "web"})] if dice.random() < 0.3 else []
    if instance_type == TRN1 and dice.random() < 0.2:
        beside.append(pod(f"{name}-cores", cores=2, on=name, ids=(6, 7)))
    return there, [*pods, *beside]


def some_pods(dice: Random, most: int = 10) -> list[WaitingPod]:
    """Return pods that wait, the most urgent first; many are alike."""
    kinds = [some_kind(dice) for _ in range(dice.randint(1, 3))]
    return [
        WaitingPod(
            waiting(f"w{number}", **dice.choice(kinds), created=float(number)),
            may_ask=dice.random() < 0.9,
            overdue=dice.random() < 0.4,
        )
        for number in range(dice.randint(1, most))
    ]


def some_kind(dice: Random) -> dict[str, Any]:
    """Return the fields of pods of one kind."""
    fields: dict[str, Any] = {"devices": dice.choice([4, 4, 8, 16])} if dice.random() < 0.9 else {"cores": 8}
    fields["cpu"] = dice.choice([0, 1_000, 20_000])
    fields["memory"] = dice.choice([0, GI])
    fields["labels"] = dice.choice([{}, {"app": "web"}])
    if dice.random() < 0.4:
        fields["node_selector"] = dice.choice(
            [{"group": "a"}, {"group": "b"}, {ZONE_LABEL: "z1"}, {INSTANCE_TYPE_LABEL: TRN1}, {ZONE_LABEL: "z2"}]
        )
    if dice.random() < 0.3:
        fields["tolerations"] = (Toleration("team", value="a"),)
    if dice.random() < 0.2:
        term = NodeSelectorTerm((Requirement(INSTANCE_TYPE_LABEL, Operator.IN, (TRN1, INF2, "trn2.48xlarge")),))
        fields["required_terms"] = (term,)
    if dice.random() < 0.2:
        fields["preferred_terms"] = (
            PreferredTerm(1, NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.IN, ("z1",)),))),
        )
    return fields | _about_others(dice)


def _about_others(dice: Random) -> dict[str, Any]:
    """Return constraints by which pods depend on other pods or on volumes; most have none."""
    match dice.randint(0, 9):
        case 0:
            return {"anti_affinity": (PodAffinityTerm(HOSTNAME_LABEL, WEB, frozenset({"default"})),)}
        case 1:
            key = dice.choice([ZONE_LABEL, HOSTNAME_LABEL])
            return {"spread": (SpreadConstraint(key, dice.choice([1, 2]), hard=dice.random() < 0.7, selector=WEB),)}
        case 2:
            return {"volume_claims": (f"data-{dice.choice(ZONES)}",)}
        case 3:
            return {"affinity": (PodAffinityTerm(ZONE_LABEL, WEB, frozenset({"default"})),)}
        case _:
            return {}

"""
Random clusters and pods, with all the fields that a decision reads.

The caller passes the dice: hypothesis' own, which shrink a failure, or a seeded generator, which is fifty times as
fast. Every pool of values is small, so that values coincide.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from neuron_scheduler.model.node import (
    ACCELERATED_HARDWARE,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    NEURON_HEALTH,
    ZONE_LABEL,
    Image,
    Node,
)
from neuron_scheduler.model.pod import HostPort, Owner, Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.model.selecting_kinds import Workload
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
from tests.support.builders import GI, node, pod

T = TypeVar("T")

NAMES = ("a", "b", "c", "d", "e", "f")
TYPES = (
    "trn1.32xlarge",
    "trn1.32xlarge",
    "ml.trn1.32xlarge",
    "inf2.24xlarge",
    "inf2.xlarge",
    "trn2.48xlarge",
    "",
    "m5",
)
ASKED: tuple[Mapping[str, Any], ...] = (
    {},
    *({"devices": n} for n in (1, 1, 2, 3, 4, 7, 8, 16)),
    *({"cores": n} for n in (1, 1, 2, 3, 8, 9)),
    {"devices": (1, 1)},
    {"devices": (4, 1)},
    {"devices": 1, "init": (4,)},
    {"alias": 2},
    {"devices": 4, "cores": 8},
    {"devices": 16, "cores": 64},
)
REFUSED: tuple[Mapping[str, Any], ...] = (
    {"refusal": "two names of devices"},
    {"volume_claims": ("data",)},
    {"inline_volumes": ("disk",)},
    {"resource_claims": ("claim",)},
)
KEYS = ("dedicated", "spot")
ULTRASERVER = "neuron.amazonaws.com/ultraserver-server-id-4"
LABELS: tuple[Mapping[str, str], ...] = ({}, {"app": "web"}, {"app": "web", "rank": "5"}, {"app": "db"})
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
RANKED = LabelSelector((Requirement("rank", Operator.IN, ("5",)),))
NOT_DB = LabelSelector((Requirement("app", Operator.NOT_IN, ("db",)),))
WEB_OR_DB = LabelSelector((Requirement("app", Operator.IN, ("web", "db")),))
TEAM = LabelSelector((Requirement("team", Operator.IN, ("a",)),))
NO_TEAM = LabelSelector((Requirement("team", Operator.DOES_NOT_EXIST),))
IMAGES = ("web:1", "db:1", "db@sha256:1", "proxy:latest")
OWNERS = (None, Owner("apps/v1", "ReplicaSet", "web"), Owner("apps/v1", "ReplicaSet", "none"))


def some_node(dice: Random, name: str) -> Node:
    """Return a node with random values in all fields that a filter or a preference reads."""
    labels = {
        ZONE_LABEL: dice.choice(["x", "y", "y", None]),
        HOSTNAME_LABEL: dice.choice([name, name, name, "a", None]),
        "rank": dice.choice(["5", "7", "+6", "1_0", None]),
        ULTRASERVER: dice.choice(["0000000000000000", "0000000000000000", "bog79p1y8tetj5uu", None]),
    }
    return node(
        name,
        dice.choice(TYPES),
        created=dice.randint(0, 3),
        labels={key: value for key, value in labels.items() if value is not None},
        cpu=dice.choice([8_000, 64_000]),
        memory=dice.choice([0, 32 * GI, 64 * GI]),
        pods=dice.choice([2, 110, 110]),
        allocatable=_rarely(dice, lambda: dice.choice([{NEURON_DEVICE: 3}, {NEURON_CORE: 5}]), {}),
        taints=_rarely(dice, lambda: _several(dice, _taint, 2), ()),
        unschedulable=dice.random() < 0.1,
        neuron_fault=_rarely(dice, lambda: dice.choice((NEURON_HEALTH, ACCELERATED_HARDWARE)), ""),
        images=tuple(dict.fromkeys(_several(dice, _image, 3))),
        refusal="cannot be read" if dice.random() < 0.05 else "",
    )


def bound_pod(dice: Random, name: str) -> Pod:
    """Return a pod on some node, existing or not, with legal, illegal or no ids."""
    asked = dice.choice((*ASKED, {"devices": 1, "cores": 1}, {"devices": 2, "cores": 3}))
    unit = "cores" if "devices" not in asked else "devices"
    count = sum(sum(c) if isinstance(c, tuple) else c for key, c in asked.items() if key in (unit, "alias"))
    start = dice.randint(0, 4) * 4
    return pod(
        name,
        on=dice.choice(NAMES),
        ids=range(start, start + count) if count and dice.random() < 0.8 else None,
        cpu=dice.choice([0, 500, 9_000]),
        memory=dice.choice([0, GI]),
        host_ports=_rarely(dice, lambda: _several(dice, _port, 2), ()),
        **_affinities(dice, often=0.1),
        labels=dice.choice(LABELS),
        namespace=dice.choice(["default", "default", "default", "other"]),
        terminating=dice.random() < 0.1,
        pairs=dice.random() < 0.3,
        **asked,
    )


def nominated_pod(dice: Random, name: str, node_name: str) -> Pod:
    """
    Return a pod with known ids, as if it were on the node where space is kept for it.

    Only its amounts and its ports matter to other pods. Its priority is as often that of a `pending_pod` (0) as not.
    """
    count = dice.choice([0, 1, 4, 16])
    return pod(
        name,
        on=node_name,
        devices=count,
        ids=range(count) if count else None,
        cpu=dice.choice([0, 8_000, 60_000]),
        host_ports=_rarely(dice, lambda: _several(dice, _port, 2), ()),
        namespace="kept",
        priority=dice.choice([-1, 0, 0, 5]),
    )


def pending_pod(dice: Random, name: str) -> Pod:
    """Return a pod with random values in all fields."""
    return pod(
        name,
        labels=dice.choice(LABELS),
        owner=dice.choice(OWNERS),
        spread=_rarely(dice, lambda: _several(dice, spread_constraint, 2), ()),
        namespace=dice.choice(["default", "default", "default", "other"]),
        images=_several(dice, lambda dice: dice.choice(IMAGES), 2),
        volume_images=_rarely(dice, lambda: ("web:1",), ()),
        cpu=dice.choice([0, 500, 9_000]),
        memory=dice.choice([0, GI]),
        requests={"vpc.amazonaws.com/efa": 1} if dice.random() < 0.05 else {},
        host_ports=_rarely(dice, lambda: _several(dice, _port, 2), ()),
        tolerations=_several(dice, _toleration, 3),
        node_selector=_rarely(dice, lambda: dice.choice([{ZONE_LABEL: "x"}, {INSTANCE_TYPE_LABEL: "inf2.xlarge"}]), {}),
        required_terms=_rarely(dice, lambda: _several(dice, _term, 3), None),
        preferred_terms=tuple(PreferredTerm(dice.randint(1, 100), _term(dice)) for _ in range(dice.randint(0, 3))),
        **_affinities(dice, often=0.2),
        **(dice.choice(REFUSED) if dice.random() < 0.05 else {}),
        **dice.choice(ASKED),
        pairs=dice.random() < 0.3,
    )


def _rarely(dice: Random, drawn: Callable[[], Any], otherwise: Any) -> Any:
    return drawn() if dice.random() < 0.2 else otherwise


def _several(dice: Random, draw: Callable[[Random], T], most: int) -> tuple[T, ...]:
    return tuple(draw(dice) for _ in range(dice.randint(0, most)))


def _taint(dice: Random) -> Taint:
    return Taint(dice.choice(KEYS), dice.choice(tuple(Effect)), dice.choice(["", "x"]))


def _toleration(dice: Random) -> Toleration:
    if dice.random() < 0.3:
        return dice.choice([Toleration(exists=True), Toleration("node.kubernetes.io/unschedulable", exists=True)])
    return Toleration(
        dice.choice(KEYS),
        exists=dice.random() < 0.5,
        value=dice.choice(["", "x"]),
        effect=dice.choice([None, *Effect]),
        unreadable=dice.random() < 0.1,
    )


def _term(dice: Random) -> NodeSelectorTerm:
    fields = _rarely(dice, lambda: _several(dice, _field, 2), ())
    return NodeSelectorTerm(_several(dice, _requirement, 2), fields, unreadable=dice.random() < 0.1)


def _requirement(dice: Random) -> Requirement:
    operator = dice.choice(tuple(Operator))
    match operator:
        case Operator.IN | Operator.NOT_IN:
            key = dice.choice([ZONE_LABEL, "rank", INSTANCE_TYPE_LABEL])
            return Requirement(key, operator, tuple(dice.choices(["x", "y", "5", "trn1.32xlarge"], k=2)))
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            return Requirement(dice.choice([ZONE_LABEL, "rank"]), operator)
        case Operator.GT | Operator.LT:
            return Requirement("rank", operator, dice.choice([("5",), ("7",), ("1_0",), ("5", "6")]))


def _field(dice: Random) -> Requirement:
    operator = dice.choice([Operator.IN, Operator.IN, Operator.NOT_IN])
    return Requirement("metadata.name", operator, (dice.choice((*NAMES, "none")),))


def spread_constraint(dice: Random) -> SpreadConstraint:
    """Return a constraint, hard or soft, on a few keys and selectors."""
    return SpreadConstraint(
        dice.choice([ZONE_LABEL, ZONE_LABEL, HOSTNAME_LABEL, "rank", ULTRASERVER]),
        max_skew=dice.choice([1, 1, 2, 3]),
        hard=dice.random() < 0.5,
        selector=dice.choice([WEB, WEB, WEB, NOT_DB, LabelSelector(), None]),
        min_domains=dice.choice([1, 1, 2, 3]),
        honor_affinity=dice.random() < 0.7,
        honor_taints=dice.random() < 0.3,
    )


def some_workloads(dice: Random) -> list[Workload]:
    """Return a few Services and controllers, with equal or different selectors."""
    workloads = [
        Workload(
            "uid-rs", "apps/v1", "ReplicaSet", "default", "web", dice.choice([WEB, NOT_DB, LabelSelector(), None])
        ),
        Workload("uid-sts", "apps/v1", "StatefulSet", "other", "web", WEB),
        Workload("uid-s1", "v1", "Service", "default", "s1", WEB),
        Workload("uid-s2", "v1", "Service", "default", "s2", LabelSelector((*WEB.requirements, *RANKED.requirements))),
        Workload("uid-s3", "v1", "Service", "other", "s3", RANKED),
        Workload("uid-s4", "v1", "Service", "default", "s4", dice.choice([None, LabelSelector()])),
    ]
    return [workload for workload in workloads if dice.random() < 0.5]


def _port(dice: Random) -> HostPort:
    return HostPort(dice.choice(["TCP", "UDP"]), dice.choice([80, 443]), dice.choice([_ANYWHERE, "::1", "10.0.0.1"]))


_ANYWHERE = HostPort("TCP", 1).ip


def some_namespaces(dice: Random) -> dict[str, Mapping[str, str]]:
    """Return the namespaces that pods are in, and one that is empty, with labels."""
    return {name: dice.choice([{}, {"team": "a"}, {"team": "b"}]) for name in ("default", "other", "empty")}


def _affinities(dice: Random, *, often: float) -> dict[str, Any]:
    return {
        name: _several(dice, _affinity, 2)
        for name in ("affinity", "anti_affinity", "preferred_affinity", "preferred_anti_affinity")
        if dice.random() < often
    }


def _affinity(dice: Random) -> PodAffinityTerm:
    return PodAffinityTerm(
        dice.choice([ZONE_LABEL, ZONE_LABEL, HOSTNAME_LABEL, "rank", ULTRASERVER]),
        dice.choice([WEB, WEB, RANKED, NOT_DB, WEB_OR_DB, LabelSelector(), None]),
        frozenset(dice.choice([("default",), ("default",), ("other",), ("default", "other"), ()])),
        dice.choice([None, None, None, LabelSelector(), TEAM, NO_TEAM]),
        weight=dice.choice([1, 7, 100]),
    )


def _image(dice: Random) -> Image:
    return Image((dice.choice(IMAGES), dice.choice(IMAGES)), dice.choice([20, 400, 900, 5_000]) << 20)

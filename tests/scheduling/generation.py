"""
Clusters and pods by the throw of dice, in all the words that a decision reads.

The dice are given: hypothesis' own, which shrink what fails, or a seeded generator's, which are fifty times as fast.
Every pool of values is small, so that values meet.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    PreferredTerm,
    Requirement,
    Taint,
    Toleration,
)
from tests.builders import GI, node, pod

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
)
REFUSED: tuple[Mapping[str, Any], ...] = (
    {"refusal": "two names of devices"},
    {"hard_spread": 1},
    {"volume_claims": ("data",)},
    {"inline_volumes": ("disk",)},
    {"resource_claims": ("claim",)},
    {"affinity": (PodAffinityTerm("zone", None),)},
)
KEYS = ("dedicated", "spot")


def some_node(dice: Random, name: str) -> Node:
    """Return a node that may differ in anything a filter or a preference reads."""
    labels = {ZONE_LABEL: dice.choice(["x", "y", None]), "rank": dice.choice(["5", "7", "+6", "1_0", None])}
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
        neuron_unhealthy=dice.random() < 0.1,
        refusal="cannot be read" if dice.random() < 0.05 else "",
    )


def bound_pod(dice: Random, name: str) -> Pod:
    """Return a pod on some node, there or not, with legal, illegal or no ids."""
    asked = dice.choice((*ASKED, {"devices": 1, "cores": 1}))
    count = sum(sum(c) if isinstance(c, tuple) else c for key, c in asked.items() if key != "init")
    start = dice.randint(0, 4) * 4
    return pod(
        name,
        on=dice.choice(NAMES),
        ids=range(start, start + count) if count and dice.random() < 0.8 else None,
        cpu=dice.choice([0, 500, 9_000]),
        memory=dice.choice([0, GI]),
        host_ports=_rarely(dice, lambda: _several(dice, _port, 2), ()),
        anti_affinity=(_affinity(dice),) if dice.random() < 0.02 else (),
        **asked,
    )


def pending_pod(dice: Random, name: str) -> Pod:
    """Return a pod that uses any of the words a pod has."""
    return pod(
        name,
        labels=dice.choice([{}, {"app": "web"}]),
        cpu=dice.choice([0, 500, 9_000]),
        memory=dice.choice([0, GI]),
        requests={"vpc.amazonaws.com/efa": 1} if dice.random() < 0.05 else {},
        host_ports=_rarely(dice, lambda: _several(dice, _port, 2), ()),
        tolerations=_several(dice, _toleration, 3),
        node_selector=_rarely(dice, lambda: dice.choice([{ZONE_LABEL: "x"}, {INSTANCE_TYPE_LABEL: "inf2.xlarge"}]), {}),
        required_terms=_rarely(dice, lambda: _several(dice, _term, 3), None),
        preferred_terms=tuple(PreferredTerm(dice.randint(1, 100), _term(dice)) for _ in range(dice.randint(0, 3))),
        **(dice.choice(REFUSED) if dice.random() < 0.05 else {}),
        **dice.choice(ASKED),
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


def _port(dice: Random) -> HostPort:
    return HostPort(dice.choice(["TCP", "UDP"]), dice.choice([80, 443]), dice.choice([_ANYWHERE, "::1", "10.0.0.1"]))


_ANYWHERE = HostPort("TCP", 1).ip


def _affinity(dice: Random) -> PodAffinityTerm:
    web = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
    return PodAffinityTerm(
        "zone",
        dice.choice([None, LabelSelector(), web]),
        frozenset(dice.choice([("default",), ("other",), ()])),
        dice.choice([None, None, LabelSelector()]),
    )

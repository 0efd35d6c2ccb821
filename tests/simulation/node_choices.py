"""
Which nodes a seed gets, what happens to them, and which unreadable objects appear.

Refuses to choose faults.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from tests.simulation import poison
from tests.simulation.deeds import Cordon, CreateNode, DeleteNode, SetHealthy, Taint
from tests.simulation.moments import after, moment, pair
from tests.simulation.poison import Poison, RemovePoison
from tests.simulation.scenario import Deed

TYPES: Final = (
    *("trn1.32xlarge", "trn1.32xlarge", "trn1.32xlarge", "inf2.48xlarge", "inf2.24xlarge", "inf2.xlarge"),
    *("trn2.48xlarge", "inf1.6xlarge", "inf1.24xlarge", "m5.xlarge"),
)
MOST: Final = 6


def nodes(dice: Random) -> tuple[tuple[str, str], ...]:
    """Return the names and types of a few nodes, at least one of which has Neuron devices."""
    count = dice.choice((1, 2, 2, 3, 4, MOST))
    first = dice.choice([each for each in TYPES if each != "m5.xlarge"])
    return (("n1", first), *((f"n{number}", dice.choice(TYPES)) for number in range(2, count + 1)))


def deeds(dice: Random, nodes: Sequence[tuple[str, str]], quiet_at: float) -> list[Deed]:
    """Return what happens to nodes, and what is stored that nobody can read."""
    chosen: list[Deed] = []
    for _ in range(dice.choice((0, 0, 1, 2, 4))):
        node, instance_type = dice.choice(nodes)
        chosen.extend(dice.choice(_KINDS)(dice, node, instance_type, quiet_at))
    if dice.random() < 0.2:
        for number in range(dice.choice((1, 3))):
            chosen.extend(_poison(dice, f"bad{number}", quiet_at))
    return chosen


def _poison(dice: Random, name: str, quiet_at: float) -> list[Deed]:
    kind, at = dice.choice(poison.KINDS), moment(dice, 0.1, quiet_at)
    node = "n1" if kind in poison.PODS_OF and dice.random() < 0.3 else ""
    stored: list[Deed] = [Poison(at=at, kind=kind, name=name, node=node)]
    removed = RemovePoison(at=after(dice, at, quiet_at), kind=kind, name=name)
    return [*stored, removed] if node or dice.random() < 0.5 else stored


def _cordoned(dice: Random, node: str, _type: str, quiet_at: float) -> list[Deed]:
    first, second = pair(dice, quiet_at)
    return [Cordon(at=first, node=node), Cordon(at=second, node=node, ends=True)]


def _tainted(dice: Random, node: str, _type: str, quiet_at: float) -> list[Deed]:
    first, second = pair(dice, quiet_at)
    effect = dice.choice(("NoSchedule", "PreferNoSchedule"))
    return [Taint(at=first, node=node, effect=effect), Taint(at=second, node=node)]


def _unhealthy(dice: Random, node: str, _type: str, quiet_at: float) -> list[Deed]:
    first, second = pair(dice, quiet_at)
    fewer, all_again = (
        SetHealthy(at=first, node=node, missing=dice.choice((1, 2, 99))),
        SetHealthy(at=second, node=node, missing=0),
    )
    return [fewer, all_again] if dice.random() < 0.7 else [fewer]


def _replaced(dice: Random, node: str, instance_type: str, quiet_at: float) -> list[Deed]:
    """The node is deleted and comes back under its pods, sometimes as a machine of another type."""
    first, second = pair(dice, quiet_at)
    new_type = dice.choice((instance_type, instance_type, dice.choice(TYPES)))
    return [DeleteNode(at=first, node=node), CreateNode(at=second, node=node, instance_type=new_type)]


def _removed(dice: Random, node: str, _type: str, quiet_at: float) -> list[Deed]:
    return [DeleteNode(at=moment(dice, 1, quiet_at), node=node)]


def _joined(dice: Random, _node: str, _type: str, quiet_at: float) -> list[Deed]:
    name = f"n{dice.randint(MOST + 1, MOST + 3)}"
    return [CreateNode(at=moment(dice, 1, quiet_at), node=name, instance_type=dice.choice(TYPES))]


_KINDS: Final[Sequence[Callable[[Random, str, str, float], list[Deed]]]] = (
    *(_cordoned, _tainted, _unhealthy, _replaced, _replaced, _removed, _joined),
)

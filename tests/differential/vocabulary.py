"""The parts of the API that generated clusters and pods may use, and the names and values in them."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

import attrs

Object = dict[str, Any]
T = TypeVar("T")

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
RACK: Final = "rack"
ZONES: Final = ("z1", "z2", "z3")

NAMESPACES: Final = {
    "default": {},
    "blue": {"team": "sea", "tier": "1"},
    "green": {"team": "land", "tier": "1"},
    "grey": {"team": "land"},
}
"""Namespaces that every generated cluster has, and their labels."""


@attrs.frozen
class Vocabulary:
    """
    The features that may appear beside taints, node affinity, ports and resources.

    Attributes:
        quiet: these four are rare, so that kube-scheduler reaches the filters after them.
    """

    quiet: bool = False
    spread: bool = False
    affinity: bool = False
    volumes: bool = False


VOCABULARIES: Final = {
    "plain": Vocabulary(),
    "spread": Vocabulary(quiet=True, spread=True),
    "affinity": Vocabulary(quiet=True, affinity=True),
    "volumes": Vocabulary(quiet=True, volumes=True),
    "all": Vocabulary(spread=True, affinity=True, volumes=True),
}
"""What is compared, each by worlds of its own."""


def chance(dice: Random, share: float) -> bool:
    """
    Return True in that share of cases, in hundredths.

    The lowest draw is False: hypothesis shrinks draws towards zero, and an emptier world is simpler.
    """
    return dice.randrange(100) >= 100 - round(100 * share)


def sometimes(dice: Random, share: float, make: Callable[[], T]) -> T | None:
    """Return a result of `make` in that share of cases, else None."""
    return make() if chance(dice, share) else None


def several(dice: Random, most: int, make: Callable[[], T], *, least: int = 1) -> list[T]:
    return [make() for _ in range(dice.randint(least, most))]


def sample(dice: Random, words: Sequence[T], *, least: int = 1, most: int = 2) -> list[T]:
    return dice.sample(words, dice.randint(least, min(most, len(words))))


def given(**fields: Any) -> Object:
    """Return the fields with a value: zero, empty and None are left out."""
    return {name: value for name, value in fields.items() if value not in (None, "", 0, [], {})}

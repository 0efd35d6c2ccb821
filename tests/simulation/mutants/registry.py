"""All mutants, and a seed that catches each of them, as it was found last."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from tests.simulation.mutants import bindings, cluster, connections, groups, lease, queue, watches, writes
from tests.simulation.mutants.mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = tuple(
    mutant
    for family in (bindings, connections, lease, cluster, watches, queue, groups, writes)
    for mutant in family.MUTANTS
)
CAUGHT: Final = Path(__file__).with_name("caught.json")


@attrs.frozen
class Catch:
    """
    How a mutant was caught.

    Attributes:
        seed: one of the first 500.
        oracles: those that fail on it, and do not without the mutant.
    """

    seed: int
    oracles: tuple[str, ...]


def named(name: str) -> Mutant:
    """
    Return a mutant.

    Raises:
        KeyError: there is none of that name.
    """
    for mutant in MUTANTS:
        if mutant.name == name:
            return mutant
    raise KeyError(f"there is no mutant {name!r}; --mutants lists them")


def caught() -> Mapping[str, Catch]:
    """Return the recorded catches by the mutants' names."""
    recorded = json.loads(CAUGHT.read_text()) if CAUGHT.exists() else {}
    return {name: Catch(entry["seed"], tuple(entry["oracles"])) for name, entry in recorded.items()}


def record(catches: Mapping[str, Catch]) -> None:
    """Write the catches, in the order of the mutants; those of other mutants are kept."""
    known = {**caught(), **catches}
    kept = {
        mutant.name: {"seed": known[mutant.name].seed, "oracles": list(known[mutant.name].oracles)}
        for mutant in MUTANTS
        if mutant.name in known
    }
    CAUGHT.write_text(json.dumps(kept, indent=2) + "\n")

"""Each mutant still changes the package, and the simulation notices it."""

from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.hunt import SEEDS
from tests.simulation.jobs import Job
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.registry import MUTANTS, caught
from tests.simulation.runner import Runner
from tests.support.thoroughness import FAST

CAUGHT = caught()
CHECKED = [mutant.name for mutant in MUTANTS if mutant.name in CAUGHT][:: 8 if FAST else 1]
"""A process for each takes some seconds."""


@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: each.name)
def test_each_mutant_changes_the_package(each: Mutant) -> None:
    """Its texts are in the source once, and what comes out can be compiled."""
    sources: dict[Path, str] = {}
    for edit in each.edits:
        before = sources.setdefault(edit.path, edit.path.read_text())
        sources[edit.path] = each.changed(before, [edit])
        assert sources[edit.path] != before
    for path, source in sources.items():
        compile(source, str(path), "exec")


def test_enough_mutants_are_caught() -> None:
    """Each is caught within 500 seeds; names that are not in the table any more are not kept."""
    assert {mutant.name for mutant in MUTANTS} == CAUGHT.keys()
    assert all(catch.seed < SEEDS for catch in CAUGHT.values())


@pytest.mark.parametrize("name", CHECKED)
def test_the_simulation_notices_each_mutant(name: str) -> None:
    """On its recorded seed the same oracle fails; `--find-mutants` finds another seed when scenarios have changed."""
    with Runner(1, name) as runner:
        (result,) = runner.all([Job(seed=CAUGHT[name].seed)])
    assert result.oracles & set(CAUGHT[name].oracles), result


def test_names_are_unique() -> None:
    """A name stands for one mutant."""
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []

"""The mutants fit the code and the tests, and the simulation notices its own; `python -m tests.mutants` tries all."""

from collections import Counter

import pytest

from tests.mutants.hunt import SEEDS
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.registry import MUTANTS, named
from tests.simulation.jobs import Job
from tests.simulation.runner import Runner
from tests.support.thoroughness import FAST

CHECKED = [mutant.name for mutant in MUTANTS if mutant.seed is not None][:: 8 if FAST else 1]
"""A process for each takes some seconds."""


@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: each.name)
def test_each_mutant_can_be_made(each: Mutant) -> None:
    """Its texts are in their files exactly once, and what comes out is another file, which can be compiled."""
    sources = each.sources()
    assert sources
    for file, source in sources.items():
        if file.endswith(".py"):
            compile(source, file, "exec")


def test_something_must_notice_each() -> None:
    """It names tests that exist, or a seed that `--find` finds, and the oracles."""
    for each in MUTANTS:
        assert each.tests or each.seed is not None, each.name
        assert each.seed is None or (0 <= each.seed < SEEDS and each.oracles), each.name
        for test in each.tests:
            file, _, function = test.partition("::")
            text = (ROOT / file).read_text()
            assert f"def {function.partition('[')[0]}(" in text or not function, f"{each.name}: {test}"


def test_there_are_enough_for_all_rooms() -> None:
    """A name stands for one mutant, and most that tests notice need no control plane."""
    assert [name for name, count in Counter(each.name for each in MUTANTS).items() if count > 1] == []
    assert sum(each.seed is not None for each in MUTANTS) >= 68
    assert sum(bool(each.tests) for each in MUTANTS) >= 44
    assert sum(bool(each.tests) and not each.plane for each in MUTANTS) >= 36


@pytest.mark.parametrize("name", CHECKED)
def test_the_simulation_notices_each_mutant(name: str) -> None:
    """On its recorded seed the same oracle fails; `--find` finds another seed when scenarios have changed."""
    mutant = named(name)
    assert mutant.seed is not None
    with Runner(1, mutant) as runner:
        (result,) = runner.all([Job(seed=mutant.seed)])
    assert result.oracles & set(mutant.oracles), result

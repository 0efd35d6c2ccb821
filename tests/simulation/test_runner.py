"""Whatever a simulated seed does, its runner says what it was, and what it takes to see it again."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.simulation.jobs import Job
from tests.simulation.reduction import compact, expanded, smallest
from tests.simulation.runner import ROOT, Runner
from tests.support.toy_simulation import CRASHES, FAILS, HANGS

TOY = "tests.support.toy_simulation"


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `python -m tests.simulation` with the toy."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--simulation", TOY, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_end_of_a_simulation_is_told_apart() -> None:
    """A violation, a crash and a simulation that never ends are results, and the next seed runs all the same."""
    with Runner(2, simulation=TOY) as runner:
        results = runner.all([Job(seed=seed, cpu_seconds=1) for seed in range(7)])
    ends = {result.seed: result.end for result in results if result.end != "passed"}
    assert ends == {FAILS: "violated", CRASHES: "crashed", HANGS: "hung"}
    assert results[FAILS].oracles == {"dry shoes"}
    assert "RuntimeError: a crash of the simulation" in results[CRASHES].trouble
    assert "in simulate" in results[HANGS].trouble


def test_a_failing_seed_is_made_small_and_printed() -> None:
    """Only what the failure needs is left, and the printed command replays just that."""
    ran = command("--seeds", "0:4")
    assert ran.returncode == 1
    assert "4 seeds: 3 passed, 1 violated" in ran.stdout
    assert "40 rain" in ran.stdout
    assert "2 times it rained on 1 replicas and 1 nodes\nVIOLATION at 4.000 s, dry shoes: they are wet" in ran.stdout
    replay = ran.stdout.rpartition("Replay: python -m tests.simulation ")[2].split()
    assert replay == ["3", "--without", "d1-d4,d6-d10,f1-f2,f4-f7,f9-f10,n2,r2-r3"]
    again = command(*replay)
    assert again.returncode == 1
    assert "2 times it rained on 1 replicas and 1 nodes" in again.stdout


@pytest.mark.parametrize(("needed", "at_once"), [((), 1), (("d3",), 2), (("d0", "f7", "f8"), 1), (("f0", "f9"), 3)])
def test_smallest_leaves_out_all_that_is_not_needed(needed: tuple[str, ...], at_once: int) -> None:
    """Whatever parts a failure needs, these are left, and no others."""
    parts = tuple(f"{letter}{number}" for letter in "df" for number in range(10))

    def fails(candidates: Sequence[tuple[str, ...]]) -> list[bool]:
        return [not set(needed) & set(left_out) for left_out in candidates]

    assert set(parts) - set(smallest(parts, fails, at_once=at_once)) == set(needed)


def test_names_of_parts_are_short_and_read_back() -> None:
    """Ranges are written and read."""
    names = ("f10", "d1", "d2", "d3", "f2", "f1", "r1")
    assert compact(names) == "d1-d3,f1-f2,f10,r1"
    assert set(expanded("d1-d3,f1-2,f10,r1")) == set(names)
    with pytest.raises(ValueError, match="is no part of a scenario"):
        expanded("d1-f2")

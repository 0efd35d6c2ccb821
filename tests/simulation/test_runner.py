"""Whatever a simulated seed does, its runner says what it was, and what it takes to see it again."""

import subprocess
import sys

from tests.simulation.jobs import Job
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

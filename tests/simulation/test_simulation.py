"""
A bounded number of seeds keeps every promise, and a seed is one history.

`make soak` runs any number. The seeds are fixed: a run that fails, fails again.
"""

import re
import subprocess
import sys
from typing import Final

import pytest

from tests.mutants.mutant import ROOT
from tests.simulation.history import printable
from tests.simulation.jobs import Job
from tests.simulation.runner import Runner
from tests.simulation.scenarios import scenario_of
from tests.support.thoroughness import examples

SHARES: Final = 8
"""Tests that run beside each other; each simulates one seed at a time."""
SEEDS: Final = examples(16)
"""Of each share; a seed takes half a second to a second of CPU."""


@pytest.mark.parametrize("share", range(SHARES))
def test_seeds_keep_every_promise(share: int) -> None:
    """No oracle finds anything; otherwise the smallest failing scenario and its history are printed."""
    seeds = f"{share * SEEDS}:{(share + 1) * SEEDS}"
    command = [sys.executable, "-m", "tests.simulation", "--seeds", seeds, "--processes", "1", "--stop-at-first"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_seed_is_one_history() -> None:
    """Two processes of their own write the same history, byte by byte."""
    jobs = [Job(seed=seed, tells=True) for seed in range(examples(8))]
    histories = []
    for _ in range(2):
        with Runner(1) as runner:
            histories.append([(result.digest, result.history, result.end) for result in runner.all(jobs)])
    assert histories[0] == histories[1]
    assert len({digest for digest, _, _ in histories[0]}) == len(jobs)


def test_deeds_of_one_moment_keep_their_order() -> None:
    """A token that is issued and written at one moment is not written before it is issued, for example."""
    with Runner(1) as runner:
        (result,) = runner.all([Job(seed=2066, tells=True)])
    happened = re.findall(r"^ *[\d.]+ deed +(?!refused)(\S.*)$", result.history, re.MULTILINE)
    moments = [deed.at for deed in scenario_of(2066).deeds]
    assert len(set(moments)) < len(moments) - 5
    assert happened == [printable(str(deed)) for deed in scenario_of(2066).deeds]

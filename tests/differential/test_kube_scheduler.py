"""
kube-scheduler 1.36 and our filters agree about every pod without Neuron, node by node and reason by reason.

A scenario is one pending pod in one generated world. `SCENARIOS=5000` in the environment asks for more of them than
the default, `FIRST_WORLD=1000` for others than those that have always agreed.
"""

import os
from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.differential.comparison import disagreements, recorded
from tests.differential.judge import Judge, run_judge
from tests.differential.vocabulary import VOCABULARIES
from tests.differential.world import PENDING, world

SCENARIOS: Final = int(os.environ.get("SCENARIOS", "1000"))
FIRST_WORLD: Final = int(os.environ.get("FIRST_WORLD", "100"))
WORLDS: Final = range(FIRST_WORLD, FIRST_WORLD - (-SCENARIOS // (PENDING * len(VOCABULARIES))))

pytestmark = pytest.mark.control_plane


@pytest.fixture(scope="module")
async def judge() -> AsyncIterator[Judge]:
    """Run kube-scheduler for all worlds."""
    async with run_judge() as judge:
        yield judge


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize("number", WORLDS)
async def test_both_schedulers_say_the_same_of_every_pod_of_a_world(judge: Judge, number: int, name: str) -> None:
    """The feasible nodes and the counts of refusals by reason are those of kube-scheduler."""
    recording = await recorded(judge, number, world(number, VOCABULARIES[name]))
    different = list(disagreements(recording))
    assert not different, "\n".join(different)

"""
kube-scheduler and our filters agree about every pod without Neuron, node by node and reason by reason.

A scenario is one pending pod in a generated world. hypothesis generates the worlds from a seed. `smallest.py` minimises
a world with a disagreement and writes it to `fixtures/found-<vocabulary>.jsonl`, where `test_fixtures.py` compares it
without a server. Once both sides agree, its line may be moved to `settled.jsonl`.

The environment variable `SCENARIOS=5000` asks for more scenarios, `SEED=7` for other ones.
"""

import os
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Final

import attrs
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from tests.differential.comparison import disagreements, recorded
from tests.differential.judge import Judge, run_judge
from tests.differential.recording import FOLDER, write
from tests.differential.smallest import smallest
from tests.differential.vocabulary import VOCABULARIES
from tests.differential.world import PENDING, World, world

SCENARIOS: Final = int(os.environ.get("SCENARIOS", "1000"))
SEED: Final = int(os.environ.get("SEED", "0"))
NUMBERS: Final = count()
"""Names of worlds: each is used once, so a scheduler's remaining state of the last world has no effect."""

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(900)]  # one test has thousands of scenarios


class DisagreementError(AssertionError):
    """Both sides were asked about a world and disagree."""

    def __init__(self, name: str, made: World) -> None:
        """Keep the world."""
        super().__init__(f"about world {name}")
        self.name = name
        self.made = made


@attrs.frozen
class Courtroom:
    """The judge on an event loop in another thread: hypothesis's exceptions must not pass through coroutines."""

    _portal: BlockingPortal
    _judge: Judge

    def ask(self, name: str, made: World) -> None:
        """Ask both sides about a world; raise if they disagree."""
        if any(disagreements(self._portal.call(recorded, self._judge, name, made))):
            raise DisagreementError(name, made)

    def report(self, disagreement: DisagreementError, vocabulary: str) -> str:
        """Minimise the world, write it to a file, and return the report."""
        minimal = self._portal.call(smallest, self._judge, disagreement.name, disagreement.made)
        if minimal is None:
            return f"Disagreement {disagreement} ({vocabulary}), but not when both sides were asked again."
        file = FOLDER / f"found-{vocabulary}.jsonl"
        write(file, [minimal])
        again = f"Compare again, without a server: pytest tests/differential/test_fixtures.py -k {file.stem}"
        return "\n\n".join([f"Disagreement {disagreement} ({vocabulary}):", *disagreements(minimal), again])


@pytest.fixture(scope="module")
def courtroom() -> Iterator[Courtroom]:
    """Run kube-scheduler for all worlds."""
    with (
        start_blocking_portal("asyncio", {"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(run_judge()) as judge,
    ):
        yield Courtroom(portal, judge)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_both_schedulers_say_the_same_of_every_pod_of_a_world(courtroom: Courtroom, vocabulary: str) -> None:
    """The feasible nodes and the counts of refusals by reason are those of kube-scheduler."""

    @seed(SEED)
    @settings(
        max_examples=-(-SCENARIOS // (PENDING * len(VOCABULARIES))),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    @given(dice=st.randoms(use_true_random=False))
    def ask(dice: Random) -> None:
        name = f"w{next(NUMBERS)}"
        courtroom.ask(name, world(dice, VOCABULARIES[vocabulary], name=name))

    disagreement = None
    try:
        ask()
    except DisagreementError as error:
        disagreement = error
    if disagreement is not None:
        pytest.fail(courtroom.report(disagreement, vocabulary), pytrace=False)

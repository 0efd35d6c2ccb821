"""
Looks for a seed that catches a mutant, among the first 500: those first whose scenarios have what it needs to show.

A seed that fails without the mutant too does not count, nor does a simulation that crashes: an oracle has to say what
is wrong, and only because of the mutant.
"""

import re
import threading
from collections.abc import Iterable, Sequence
from typing import Final, Self

import attrs

from tests.mutants.mutant import Mutant
from tests.simulation.jobs import Job, Result
from tests.simulation.runner import Runner

SEEDS: Final = 500
"""The seeds from 0 on among which a mutant has to be caught."""
CPU_SECONDS: Final = 60
"""For one seed: a mutant may make the scheduler run in circles."""


@attrs.frozen
class Catch:
    """The oracles that fail on a seed, and do not without the mutant."""

    seed: int
    oracles: Sequence[str]


@attrs.define(eq=False)
class Hunt:
    """
    Hunts mutants; a context manager, with a process in which nothing is changed.

    Attributes:
        processes: how many seeds are simulated at the same time.
    """

    processes: int
    _plain: Runner = attrs.field(factory=lambda: Runner(1), init=False)
    _one_at_a_time: threading.Lock = attrs.field(factory=threading.Lock, init=False)  # `last` is asked in any thread
    _plans: dict[int, str] = attrs.field(factory=dict, init=False)
    _fails_anyway: dict[int, frozenset[str]] = attrs.field(factory=dict, init=False)

    def __enter__(self) -> Self:
        self._plain.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._plain.__exit__()

    def catch(self, mutant: Mutant, seeds: Iterable[int]) -> tuple[Catch | None, str]:
        """Return a catch, None if there is none on the seeds, and a few words about it."""
        catching: list[Result] = []
        ends: dict[str, int] = {}

        def is_caught(result: Result) -> bool:
            ends[result.end] = ends.get(result.end, 0) + 1
            if result.end == "violated" and result.oracles - self._without_mutant(result.seed):
                catching.append(result)
            return bool(catching)

        with Runner(self.processes, mutant) as runner:
            for _ in runner.run((Job(seed=seed, cpu_seconds=CPU_SECONDS) for seed in seeds), last=is_caught):
                pass
        note = "".join(f"; {count} {end}" for end, count in ends.items() if end not in ("passed", "violated"))
        if not catching:
            return None, f"survives {sum(ends.values())} seeds{note}"
        found = catching[0]
        oracles = found.oracles - self._without_mutant(found.seed)
        violation = next(violation for violation in found.violations if violation.oracle in oracles)
        text = f"seed {found.seed}, {violation.oracle}: {violation.text[:200]}{note}"
        return Catch(found.seed, sorted(oracles)), text

    def likely_first(self, mutant: Mutant) -> list[int]:
        """Return the seeds: first the recorded one, then those whose scenarios match the most of what it shows with."""
        if mutant.where and not self._plans:
            planned = self._plain.all([Job(seed=seed, plans=True) for seed in range(SEEDS)])
            self._plans = {result.seed: result.history for result in planned}
        patterns = [re.compile(pattern) for pattern in mutant.where]

        def rank(seed: int) -> tuple[bool, int, int]:
            matches = sum(pattern.search(self._plans[seed]) is not None for pattern in patterns)
            return seed != mutant.seed, -matches, seed

        return sorted(range(SEEDS), key=rank)

    def _without_mutant(self, seed: int) -> frozenset[str]:
        """Return the oracles that fail on a seed without any mutant."""
        with self._one_at_a_time:
            if seed not in self._fails_anyway:
                (result,) = self._plain.all([Job(seed=seed)])
                self._fails_anyway[seed] = result.oracles
            return self._fails_anyway[seed]

"""
Looks for a seed that catches a mutant, among the first 500: those first whose scenarios have what it needs to show.

A seed that fails without the mutant too does not count, nor does a simulation that crashes: an oracle has to say what
is wrong, and only because of the mutant.
"""

import re
import threading
from typing import Final, Self

import attrs

from tests.simulation.jobs import Job, Result
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.registry import Catch, caught
from tests.simulation.runner import Runner

SEEDS: Final = 500
"""The seeds from 0 on among which a mutant has to be caught."""
CPU_SECONDS: Final = 60
"""For one seed: a mutant may make the scheduler run in circles."""


@attrs.define(eq=False)
class Hunt:
    """
    Hunts mutants; a context manager, with a process in which nothing is changed.

    Attributes:
        processes: how many seeds are simulated at the same time.
    """

    processes: int
    _plain: Runner = attrs.field(init=False)
    _one_at_a_time: threading.Lock = attrs.field(factory=threading.Lock, init=False)  # `last` is asked in any thread
    _plans: dict[int, str] = attrs.field(factory=dict, init=False)
    _fails_anyway: dict[int, frozenset[str]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._plain = Runner(1)

    def __enter__(self) -> Self:
        self._plain.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._plain.__exit__()

    def catch(self, mutant: Mutant, *, most_tries: int = SEEDS) -> tuple[Catch | None, str]:
        """Return a catch, None if there is none in so many of the seeds, and a line about it."""
        catching: list[Result] = []
        ends: dict[str, int] = {}

        def is_caught(result: Result) -> bool:
            ends[result.end] = ends.get(result.end, 0) + 1
            if result.end == "violated" and result.oracles - self._without_mutant(result.seed):
                catching.append(result)
            return bool(catching)

        with Runner(self.processes, mutant.name) as runner:
            jobs = (Job(seed=seed, cpu_seconds=CPU_SECONDS) for seed in self._likely_first(mutant)[:most_tries])
            for _ in runner.run(jobs, last=is_caught):
                pass
        note = "".join(f"; {count} {end}" for end, count in ends.items() if end not in ("passed", "violated"))
        if not catching:
            return None, f"SURVIVES {sum(ends.values())} seeds: {mutant.name}{note}\n"
        found = catching[0]
        oracles = found.oracles - self._without_mutant(found.seed)
        violation = next(violation for violation in found.violations if violation.oracle in oracles)
        catch = Catch(found.seed, tuple(sorted(oracles)))
        return catch, f"{mutant.name}: seed {catch.seed}, {violation.oracle}: {violation.text[:200]}{note}\n"

    def _likely_first(self, mutant: Mutant) -> list[int]:
        """Return the seeds: first the recorded one, then those whose scenarios match the most of what it shows with."""
        if mutant.where and not self._plans:
            planned = self._plain.all([Job(seed=seed, plans=True) for seed in range(SEEDS)])
            self._plans = {result.seed: result.history for result in planned}
        patterns = [re.compile(pattern) for pattern in mutant.where]

        known = caught().get(mutant.name)

        def rank(seed: int) -> tuple[bool, int, int]:
            matches = sum(pattern.search(self._plans[seed]) is not None for pattern in patterns)
            return known is None or seed != known.seed, -matches, seed

        return sorted(range(SEEDS), key=rank)

    def _without_mutant(self, seed: int) -> frozenset[str]:
        """Return the oracles that fail on a seed without any mutant."""
        with self._one_at_a_time:
            if seed not in self._fails_anyway:
                (result,) = self._plain.all([Job(seed=seed)])
                self._fails_anyway[seed] = result.oracles
            return self._fails_anyway[seed]

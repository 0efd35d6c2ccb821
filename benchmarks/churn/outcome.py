"""The figures of a run, and the means of several runs of the same cell."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from benchmarks.churn.simulation import Simulation


@attrs.frozen
class Waits:
    """
    How long pods waited for a place, in seconds; a pod that never got one has waited until the end.

    Attributes:
        pods: how many.
        unplaced: the share that got no place.
    """

    pods: int
    mean: float
    p50: float
    p99: float
    unplaced: float


@attrs.frozen
class Outcome:
    """
    One run.

    Attributes:
        utilisation: share of the devices that were in use after the warm-up.
        attempts: decisions for each pod.
        waits: of the pods that came after the warm-up, all together (0) and by size.
    """

    scenario: str
    load: float
    cpu: float
    memory: float
    contender: str
    seed: int
    utilisation: float
    attempts: float
    waits: Mapping[int, Waits]

    def record(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return attrs.asdict(self)


def waits_of(simulation: Simulation) -> Mapping[int, Waits]:
    """Return how long the pods waited that came after the warm-up, all together (0) and by size."""
    by_size: dict[int, list[tuple[float, bool]]] = {0: []}
    for arrival in simulation.workload.arrivals:
        if arrival.at >= simulation.begins:
            placed_at = simulation.placed_at.get(arrival.pod.uid)
            waited = (simulation.now if placed_at is None else placed_at) - arrival.at
            for size in (0, arrival.size):
                by_size.setdefault(size, []).append((waited, placed_at is None))
    return {size: _waits(waits) for size, waits in sorted(by_size.items()) if waits}


def _waits(waits: Sequence[tuple[float, bool]]) -> Waits:
    times = sorted(waited for waited, _ in waits)
    return Waits(
        pods=len(waits),
        mean=statistics.fmean(times),
        p50=times[(len(times) - 1) // 2],
        p99=times[max(0, -(-len(times) * 99 // 100) - 1)],
        unplaced=sum(unplaced for _, unplaced in waits) / len(waits),
    )


@attrs.frozen
class Summary:
    """
    The runs of one contender at one load: means over the seeds.

    Attributes:
        deviation: standard deviation of the utilisation; 0 for a single run.
        waits: means over the runs for each size (0: all).
    """

    contender: str
    runs: int
    utilisation: float
    deviation: float
    attempts: float
    waits: Mapping[int, Waits]


def summary(outcomes: Iterable[Outcome]) -> Summary:
    """Return the means of the runs of one contender at one load; there must be at least one."""
    runs = list(outcomes)
    utilisations = [outcome.utilisation for outcome in runs]
    sizes = sorted(set.intersection(*(set(outcome.waits) for outcome in runs)))
    return Summary(
        contender=runs[0].contender,
        runs=len(runs),
        utilisation=statistics.fmean(utilisations),
        deviation=statistics.stdev(utilisations) if len(runs) > 1 else 0.0,
        attempts=statistics.fmean(outcome.attempts for outcome in runs),
        waits={size: _mean([outcome.waits[size] for outcome in runs]) for size in sizes},
    )


def _mean(values: Sequence[Waits]) -> Waits:
    def of(name: str) -> float:
        return statistics.fmean(getattr(waits, name) for waits in values)

    return Waits(sum(waits.pods for waits in values), of("mean"), of("p50"), of("p99"), of("unplaced"))

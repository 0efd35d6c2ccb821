"""
The project's targets for its speed, compared with records: every target is a ratio within one label.

Absolute rates depend on the machine, so they are no targets, except for the CPU of a pod.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from benchmarks.contest.records import Record
from benchmarks.contest.workloads import WORKLOADS

OURS: Final = "ours"
LOOP: Final = "binding-loop"
BARE_LOOP: Final = "binding-loop without policies"
KUBE_SCHEDULER: Final = "kube-scheduler"
EXTENDER: Final = "kube-scheduler with extender"
PLAIN: Final = "one-shape"
HEADLINE: Final = ("one-shape", "mix")
CONSTRAINED: Final = {"spread-zone": 5.0, "spread-hostname": 5.0, "anti-affinity": 7.0, "affinity": 7.0}
MOST_CPU: Final = 0.8  # milliseconds per pod


@attrs.frozen
class Bar:
    """
    One target.

    Attributes:
        value: the measured one; None if a part of it was not measured.
        wanted: the minimum, or with `at_most` the maximum.
    """

    title: str
    value: float | None
    wanted: float
    unit: str = "x"
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether it is met; None if it was not measured."""
        if self.value is None:
            return None
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted


@attrs.frozen
class Figures:
    """The records of one label, and their medians."""

    records: tuple[Record, ...]

    def runs(self, nodes: int, workload: str, contender: str) -> list[Record]:
        """Return the runs in the order in which they were made."""
        wanted = (nodes, workload, contender)
        return [
            record
            for record in self.records
            if (record.cell.nodes, record.cell.workload, record.cell.contender) == wanted
        ]

    def median(self, nodes: int, workload: str, contender: str, of: Callable[[Record], float]) -> float | None:
        """Return the median of a figure over the runs; None without runs."""
        runs = self.runs(nodes, workload, contender)
        return statistics.median(map(of, runs)) if runs else None

    def rate(self, nodes: int, workload: str, contender: str = OURS) -> float | None:
        """Return the median of pods per second."""
        return self.median(nodes, workload, contender, lambda record: record.rate)

    def best_rate(self, nodes: int, workload: str, contender: str) -> float | None:
        """Return the most pods per second of any run."""
        return max((record.rate for record in self.runs(nodes, workload, contender)), default=None)

    def cells(self) -> list[tuple[int, str]]:
        """Return every (nodes, workload) with a record, in the order of the matrix."""
        cells = {(record.cell.nodes, record.cell.workload) for record in self.records}
        return sorted(cells, key=lambda cell: (cell[0], list(WORKLOADS).index(cell[1])))


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Return ours divided by theirs; None if one is missing or theirs is 0."""
    return ours / theirs if ours is not None and theirs else None


def bars(records: Iterable[Record]) -> list[Bar]:
    """Return all targets, in the order in which they were set."""
    figures = Figures(tuple(records))
    return [*_beside_peers(figures), *_beside_ourselves(figures), *_costs(figures)]


def _beside_peers(figures: Figures) -> Iterator[Bar]:
    for wanted, peer in ((0.7, LOOP), (0.55, BARE_LOOP)):
        for nodes in (1_000, 5_000):
            for workload in HEADLINE:
                value = ratio(figures.rate(nodes, workload), figures.rate(nodes, workload, peer))
                yield Bar(f"{workload} at {nodes:,} nodes, of the {peer}", value, wanted)
    for nodes in (1_000, 5_000, 15_000):
        for workload in HEADLINE:
            value = ratio(figures.rate(nodes, workload), figures.rate(nodes, workload, KUBE_SCHEDULER))
            yield Bar(f"{workload} at {nodes:,} nodes, of kube-scheduler", value, 3.5)
    for nodes in (1_000, 5_000, 15_000):
        ours = figures.rate(nodes, "mix")
        best, median = figures.best_rate(nodes, "mix", EXTENDER), figures.rate(nodes, "mix", EXTENDER)
        yield Bar(f"mix at {nodes:,} nodes, of the best run with an extender", ratio(ours, best), 5.0)
        yield Bar(f"mix at {nodes:,} nodes, of the median run with an extender", ratio(ours, median), 10.0)
    for workload, wanted in CONSTRAINED.items():
        value = ratio(figures.rate(5_000, workload), figures.rate(5_000, workload, KUBE_SCHEDULER))
        yield Bar(f"{workload} at 5,000 nodes, of kube-scheduler", value, wanted)


def _beside_ourselves(figures: Figures) -> Iterator[Bar]:
    plain = figures.rate(5_000, PLAIN)
    for workload, wanted in {**dict.fromkeys(CONSTRAINED, 0.8), "workloads": 0.7}.items():
        yield Bar(f"{workload} at 5,000 nodes, of {PLAIN}", ratio(figures.rate(5_000, workload), plain), wanted)
    for nodes in (1_000, 5_000, 15_000):
        value = ratio(figures.rate(nodes, "unlike"), figures.rate(nodes, PLAIN))
        yield Bar(f"unlike at {nodes:,} nodes, of {PLAIN}", value, 0.9)
    for workload in HEADLINE:
        value = ratio(figures.rate(5_000, workload), figures.rate(1_000, workload))
        yield Bar(f"{workload} at 5,000 nodes, of the same at 1,000", value, 0.9)


def _costs(figures: Figures) -> Iterator[Bar]:
    for nodes in (1_000, 5_000):
        for workload in HEADLINE:
            value = figures.median(nodes, workload, OURS, lambda record: record.cpu_per_pod)
            yield Bar(f"CPU per pod, {workload} at {nodes:,} nodes", value, MOST_CPU, " ms", at_most=True)
    ours = [record for record in figures.records if record.cell.contender == OURS]
    lost = float(sum(record.events_lost for record in ours)) if ours else None
    yield Bar("Events lost, all runs", lost, 0.0, "", at_most=True)

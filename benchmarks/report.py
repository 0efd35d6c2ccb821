"""
The results of `benchmarks.throughput`: medians, ratios, and whether the targets are met.

Every target is a ratio within one label, because absolute rates depend on the machine; except for the CPU of a pod.

    python -m benchmarks.report [--label L] [--file F]

Prints a page and writes it, with its plots, beside the records: `throughput.md`, `throughput-*.svg`. A run that is
marked with `!` did not bind all pods.
"""

import argparse
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from benchmarks.contest import records
from benchmarks.contest.plots import bar_chart
from benchmarks.contest.records import Record
from benchmarks.contest.workloads import ALL_WORKLOADS_AT, WORKLOADS

OURS: Final = "ours"
LOOP: Final = "binding-loop"
BARE_LOOP: Final = "binding-loop without policies"
KUBE_SCHEDULER: Final = "kube-scheduler"
EXTENDER: Final = "kube-scheduler with extender"
PLAIN: Final = "one-shape"
HEADLINE: Final = ("one-shape", "mix")
CONSTRAINED: Final = {"spread-zone": 5.0, "spread-hostname": 5.0, "anti-affinity": 7.0, "affinity": 7.0}
MOST_CPU: Final = 0.8  # milliseconds per pod
CONTENDERS: Final = {
    OURS: "#2f6fde",
    LOOP: "#8b949e",
    BARE_LOOP: "#c3c9d1",
    KUBE_SCHEDULER: "#e08a3c",
    EXTENDER: "#b5482f",
}
"""Each contender's color in the plots."""
COLUMNS: Final = (
    "",
    "pods/s",
    "ours is",
    "to last Event",
    "first bind s",
    "CPU ms/pod",
    "servers ms/pod",
    "peak MiB",
    "every run",
)


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
    def verdict(self) -> str:
        """Whether it is met."""
        if self.value is None:
            return "not measured"
        met = self.value <= self.wanted if self.at_most else self.value >= self.wanted
        return "met" if met else "**not met**"


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

    def cells(self) -> list[tuple[int, str]]:
        """Return every (nodes, workload) with a record, in the order of the matrix."""
        cells = {(record.cell.nodes, record.cell.workload) for record in self.records}
        return sorted(cells, key=lambda cell: (cell[0], list(WORKLOADS).index(cell[1])))


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Return ours divided by theirs; None if one is missing or theirs is 0."""
    return ours / theirs if ours is not None and theirs else None


def bars(figures: Figures) -> list[Bar]:
    """Return all targets, in the order in which they were set."""
    return [*_beside_peers(figures), *_beside_ourselves(figures), *_costs(figures)]


def _beside_peers(figures: Figures) -> Iterator[Bar]:
    def beside(peer: str, nodes: int, workload: str, wanted: float) -> Bar:
        value = ratio(figures.rate(nodes, workload), figures.rate(nodes, workload, peer))
        return Bar(f"{workload} at {nodes:,} nodes, of {'the ' * (peer != KUBE_SCHEDULER)}{peer}", value, wanted)

    for peer, wanted, sizes in (
        (LOOP, 0.7, (1_000, 5_000)),
        (BARE_LOOP, 0.55, (1_000, 5_000)),
        (KUBE_SCHEDULER, 3.5, (1_000, 5_000, 15_000)),
    ):
        for nodes in sizes:
            for workload in HEADLINE:
                yield beside(peer, nodes, workload, wanted)
    for nodes in (1_000, 5_000, 15_000):
        ours = figures.rate(nodes, "mix")
        best = max((record.rate for record in figures.runs(nodes, "mix", EXTENDER)), default=None)
        median = figures.rate(nodes, "mix", EXTENDER)
        yield Bar(f"mix at {nodes:,} nodes, of the best run with an extender", ratio(ours, best), 5.0)
        yield Bar(f"mix at {nodes:,} nodes, of the median run with an extender", ratio(ours, median), 10.0)
    for workload, wanted in CONSTRAINED.items():
        yield beside(KUBE_SCHEDULER, 5_000, workload, wanted)


def _beside_ourselves(figures: Figures) -> Iterator[Bar]:
    for workload, wanted in {**dict.fromkeys(CONSTRAINED, 0.8), "workloads": 0.7, "groups": 0.8}.items():
        value = ratio(figures.rate(5_000, workload), figures.rate(5_000, PLAIN))
        yield Bar(f"{workload} at 5,000 nodes, of {PLAIN}", value, wanted)
    for nodes in (1_000, 5_000, 15_000):
        value = ratio(figures.rate(nodes, "unlike"), figures.rate(nodes, PLAIN))
        yield Bar(f"unlike at {nodes:,} nodes, of {PLAIN}", value, 0.9)
    for workload in HEADLINE:
        value = ratio(figures.rate(5_000, workload), figures.rate(1_000, workload))
        yield Bar(f"{workload} at 5,000 nodes, of the same at 1,000", value, 0.9)


def _costs(figures: Figures) -> Iterator[Bar]:
    for nodes in (1_000, 5_000):
        for workload in HEADLINE:
            value = figures.median(nodes, workload, OURS, _cpu_per_pod)
            yield Bar(f"CPU per pod, {workload} at {nodes:,} nodes", value, MOST_CPU, " ms", at_most=True)
    ours = [record for record in figures.records if record.cell.contender == OURS]
    lost = float(sum(record.events_lost for record in ours)) if ours else None
    yield Bar("Events lost, all runs", lost, 0.0, "", at_most=True)


def show(measured: Sequence[Record], folder: Path) -> None:
    """Print the page and write it with its plots into the folder."""
    page = "\n".join(_page(measured))
    print(page)
    (folder / "throughput.md").write_text(page + "\n")
    for name, picture in _plots(Figures(tuple(measured))):
        (folder / f"throughput-{name}.svg").write_text(picture)


def _page(measured: Sequence[Record]) -> Iterator[str]:
    if not measured:
        yield "There are no records."
        return
    figures, last = Figures(tuple(measured)), measured[-1]
    yield f"# Throughput of {last.label}\n"
    machine = last.machine
    yield (
        f"{machine['cpu']}, {machine['cores']} cores shared by etcd, kube-apiserver, the contender and the benchmark; "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, Python {machine['python']}, "
        f"Kubernetes {machine['kubernetes']}, {last.when[:10]}. "
        "Medians; `!` marks a run that did not bind all pods. Pods per second are from the first to the last bind; "
        "`first bind` is seconds from the start of the process; CPU is the contender's own, Events included."
    )
    yield "\n## Targets\n"
    yield from markdown_table(("", "measured", "target", ""), map(_bar_row, bars(figures)))
    for nodes, workload in figures.cells():
        runs = figures.runs(nodes, workload, OURS) or figures.records
        yield f"\n## {nodes:,} nodes, {runs[0].pods:,} pods: {WORKLOADS[workload].title}\n"
        rows = [
            _row(figures, nodes, workload, contender)
            for contender in CONTENDERS
            if figures.runs(nodes, workload, contender)
        ]
        yield from markdown_table(COLUMNS if workload != "paced" else ("", "p50 ms", "p99 ms", "CPU ms/pod"), rows)


def _bar_row(bar: Bar) -> tuple[str, ...]:
    measured = "-" if bar.value is None else f"{bar.value:.2f}{bar.unit}"
    return bar.title, measured, f"{'<=' if bar.at_most else '>='} {bar.wanted:g}{bar.unit}", bar.verdict


def _row(figures: Figures, nodes: int, workload: str, contender: str) -> tuple[str, ...]:
    runs = figures.runs(nodes, workload, contender)
    cpu = figures.median(nodes, workload, contender, _cpu_per_pod)
    if workload == "paced":
        return contender, _latency(runs, 0.50), _latency(runs, 0.99), f"{cpu:.2f}"
    times = ratio(figures.rate(nodes, workload), figures.rate(nodes, workload, contender))
    event_rate = figures.median(nodes, workload, contender, lambda record: record.event_rate)
    started = figures.median(nodes, workload, contender, lambda record: record.start_seconds or 0.0)
    servers = figures.median(
        nodes, workload, contender, lambda record: record.server_cpu_seconds * 1e3 / max(record.bound, 1)
    )
    peak = figures.median(nodes, workload, contender, lambda record: record.peak_bytes / 2**20)
    return (
        contender,
        f"{figures.rate(nodes, workload, contender):.0f}",
        f"{times:.2f}x" if times else "-",
        f"{event_rate:.0f}" if event_rate else "-",
        f"{started:.1f}" if started else "-",
        f"{cpu:.2f}",
        f"{servers:.2f}",
        f"{peak:.0f}",
        " ".join(f"{run.rate:.0f}{'' if run.complete else '!'}" for run in runs),
    )


def _latency(runs: Iterable[Record], share: float) -> str:
    """Return a percentile over the pods of all runs, in milliseconds."""
    latencies = sorted(latency for run in runs for latency in run.latencies)
    return f"{percentile(latencies, share) * 1e3:.1f}" if latencies else "-"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the sorted values that this share of them does not exceed."""
    return values[max(0, -(-len(values) * round(share * 1_000) // 1_000) - 1)]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table whose source is readable, too."""
    rows = [head, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for number, row in enumerate(rows):
        cells = (
            text.ljust(width) if not at else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"| {' | '.join(cells)} |"
        if not number:
            rules = ("-" * width if not at else "-" * (max(width, 2) - 1) + ":" for at, width in enumerate(widths))
            yield f"| {' | '.join(rules)} |"


def _plots(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield (name, SVG)."""
    cells = [cell for cell in figures.cells() if cell[1] != "paced"]
    most = max((nodes for nodes, _ in cells), default=0)
    at = ALL_WORKLOADS_AT if any(nodes == ALL_WORKLOADS_AT for nodes, _ in cells) else most
    two = {contender: CONTENDERS[contender] for contender in (OURS, KUBE_SCHEDULER)}
    rates = {
        WORKLOADS[workload].title: {contender: figures.rate(at, workload, contender) for contender in two}
        for nodes, workload in cells
        if nodes == at
    }
    yield "workloads", bar_chart("The pods that are slow elsewhere", f"pods per second, {at:,} nodes", two, rates)
    sizes = [nodes for nodes, workload in cells if workload == "mix"]
    by_size = {
        f"{nodes:,} nodes": {contender: figures.rate(nodes, "mix", contender) for contender in CONTENDERS}
        for nodes in sizes
    }
    yield "nodes", bar_chart("What more nodes cost", "pods per second, 1/4/8/16 devices", CONTENDERS, by_size)
    cpu = {
        f"{nodes:,} nodes": {
            contender: figures.median(nodes, "mix", contender, _cpu_per_pod) for contender in CONTENDERS
        }
        for nodes in sizes
    }
    yield "cpu", bar_chart("What a pod costs", "ms of the contender's own CPU, 1/4/8/16 devices", CONTENDERS, cpu)


def _cpu_per_pod(record: Record) -> float:
    return record.cpu_per_pod


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _parser.add_argument("--label", help="default: the one measured last")
    _parser.add_argument("--file", type=Path, default=records.RECORDS)
    _arguments = _parser.parse_args()
    show(records.of_label(records.read(_arguments.file), _arguments.label), _arguments.file.parent)

"""
Whether what was sampled for an hour is flat, and the tables that say so.

Memory is judged by the median of the slopes between two samples (Theil and Sen), which no single jump moves. Its bound
is less than the smallest object that a process could keep for each pod: whatever is remembered for each pod by mistake
exceeds it. What is kept for some minutes on purpose, such as the series of Events, grows with the load; so only samples
are compared between which the load has not reached a new high. Values and text only.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Final

import attrs

from benchmarks.endurance.samples import Sample

MIB: Final = 1 << 20
BYTES_PER_POD: Final = 16  # no object of Python is smaller, and an entry of a dict takes a hundred bytes
STEP: Final = 2 * MIB  # by which an allocator may grow at any time: two arenas of Python
KEPT_SECONDS: Final = 360.0  # for which something of a pod is kept on purpose (event_recorder.SERIES_SECONDS)
SHORTEST: Final = 600.0  # seconds in which growth can be judged
TOO_SHORT: Final = "too short to judge"
MORE_TASKS: Final = 3  # than an idle replica has: a request to its own port
KEPT: Final = 72  # connections that a leader keeps: as many as requests can be on their way (pools.py)
MORE_DESCRIPTORS: Final = 8.0  # between beginning and end: less than the number moves from sample to sample
LOUD_PER_REQUEST: Final = 3.0  # warnings and errors for each request that met a fault

Point = tuple[float, float]


@attrs.frozen
class Finding:
    """
    One thing that was judged.

    Attributes:
        seen, bound: figures for people.
    """

    what: str
    seen: str
    bound: str
    holds: bool


def slope(points: Sequence[Point]) -> float:
    """Return the median of the slopes between all pairs of points with different times; 0 without such a pair."""
    return _median_slope(combinations(points, 2))


def _median_slope(pairs: Iterable[tuple[Point, Point]]) -> float:
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] != a[0]]
    return statistics.median(slopes) if slopes else 0.0


def memory(life: Sequence[Sample], begin: float, end: float) -> Finding:
    """Judge the memory of one process between two moments, from all of its samples."""
    peaks = dict(zip((sample.at for sample in life), highest_loads(life), strict=True))
    samples = [sample for sample in life if begin <= sample.at <= end]
    pairs = [(a, b) for a, b in combinations(samples, 2) if peaks[a.at] == peaks[b.at]]
    compared = max((b.at - a.at for a, b in pairs), default=0.0)
    growth = _median_slope([((a.at, a.memory), (b.at, b.memory)) for a, b in pairs]) * _seconds(samples)
    pods = samples[-1].bound - samples[0].bound if samples else 0
    most = pods * BYTES_PER_POD + STEP
    long_enough = compared >= SHORTEST
    return Finding(
        f"{_name(life)}: memory in {_seconds(samples) / 60:.0f} minutes with {pods} pods",
        f"{growth / MIB:+.2f} MiB, {growth / pods if pods else 0:+.1f} bytes a pod",
        f"{most / MIB:.2f} MiB" if long_enough else TOO_SHORT,
        growth <= most or not long_enough,
    )


def highest_loads(life: Sequence[Sample]) -> list[int]:
    """Return for each sample the most pods that were bound within `KEPT_SECONDS` until then."""
    highest, loads, first = 0, [], 0
    for sample in life:
        while life[first].at < sample.at - KEPT_SECONDS:
            first += 1
        highest = max(highest, sample.bound - life[first].bound)
        loads.append(highest)
    return loads


def descriptors(samples: Sequence[Sample]) -> Finding:
    """Judge the descriptors of one process under load."""
    growth, long_enough = _growth(samples, lambda sample: sample.descriptors), _seconds(samples) >= SHORTEST
    return Finding(
        f"{_name(samples)}: descriptors under load",
        f"{growth:+.1f}",
        f"+{MORE_DESCRIPTORS:g}" if long_enough else TOO_SHORT,
        growth <= MORE_DESCRIPTORS or not long_enough,
    )


def at_rest(sample: Sample, before: Sequence[Sample]) -> list[Finding]:
    """Judge an idle process at the end by those that were idle at the beginning: a leader by the leader."""
    tasks = max((each.tasks for each in before if each.leads is sample.leads), default=0) + MORE_TASKS
    files = max((each.descriptors for each in before if each.leads is sample.leads), default=0) + KEPT
    left = sum(sample.pending.values()) + sample.in_flight + sample.waiting
    name = sample.replica
    return [
        Finding(f"{name}: tasks at the end", str(sample.tasks), str(tasks), sample.tasks <= tasks),
        Finding(f"{name}: descriptors at the end", str(sample.descriptors), str(files), sample.descriptors <= files),
        Finding(f"{name}: pods and Bindings in its queues at the end", str(left), "0", left == 0),
    ]


def log_rate(samples: Iterable[Sample], requests: int, minutes: float) -> Finding:
    """Judge the warnings and errors of all processes by the requests that met a fault."""
    last: dict[str, Sample] = {sample.replica: sample for sample in samples}
    lines, loud = (sum(count) for count in zip(*((each.lines, each.loud) for each in last.values()), strict=True))
    most = requests * LOUD_PER_REQUEST
    return Finding(
        "log",
        f"{lines / minutes:.0f} lines a minute; {loud} warnings and errors",
        f"{most:.0f} warnings and errors: {LOUD_PER_REQUEST:g} for each request that met a fault",
        loud <= most,
    )


def table(findings: Iterable[Finding]) -> str:
    """Return a Markdown table."""
    rows = [("what", "seen", "bound", "holds"), ("-", "-", "-", "-")]
    rows += [(each.what, each.seen, each.bound, "yes" if each.holds else "NO") for each in findings]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def course(samples: Sequence[Sample], minutes: float) -> str:
    """
    Return a Markdown table of what the samples show over time: a line for each process and so many minutes.

    Pods a second are those since the line of the same process before, or since its first sample.
    """
    lines = ["| minute | replica | leads | MiB | tasks | descriptors | pending | bound | a second | log lines |"]
    lines.append("| - | - | - | - | - | - | - | - | - | - |")
    before: dict[str, Sample] = {}
    for each in samples:
        last = before.get(each.replica)
        if last is None or int(each.at / 60 / minutes) != int(last.at / 60 / minutes):
            before[each.replica] = each
            lines.append(
                f"| {each.at / 60:.1f} | {each.replica} | {'yes' if each.leads else 'no'} | {each.memory / MIB:.1f} "
                f"| {each.tasks} | {each.descriptors} | {sum(each.pending.values())} | {each.bound} "
                f"| {0.0 if last is None else rate(last, each):.1f} | {each.lines} |"
            )
    return "\n".join(lines)


def rate(first: Sample, last: Sample) -> float:
    """Return the pods that were bound between two samples, a second."""
    return (last.bound - first.bound) / (last.at - first.at) if last.at > first.at else 0.0


def fastest(samples: Sequence[Sample], seconds: float = 60.0) -> float:
    """Return the highest rate within so many seconds, or a little more."""
    highest, first = 0.0, 0
    for last in samples:
        while last.at - samples[first].at >= seconds:
            highest = max(highest, rate(samples[first], last))
            first += 1
    return highest


def _growth(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    return slope([(sample.at, value(sample)) for sample in samples]) * _seconds(samples)


def _seconds(samples: Sequence[Sample]) -> float:
    return samples[-1].at - samples[0].at if samples else 0.0


def _name(samples: Sequence[Sample]) -> str:
    return samples[0].replica if samples else "nobody"

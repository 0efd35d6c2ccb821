"""
What came of a replay, as text for a person.

Does not compute a figure: all are in the answer.
"""

import time
from collections.abc import Iterator
from typing import Final

from neuron_scheduler.commands.age import age
from neuron_scheduler.explain.answers.replay_report import DifferentDecision, ReplayReport, Waits
from neuron_scheduler.model.wording import counted
from neuron_scheduler.telemetry.paragraphs import GREEN, YELLOW, Paragraphs

MOST_SHOWN: Final = 10
"""Differences that are shown if not all are asked for."""
_LAST: Final = 253402300799.0  # of the year 9999; files may have any number
_INDENT: Final = "  "


def lines(report: ReplayReport, paragraphs: Paragraphs, *, every: bool = False) -> Iterator[str]:
    """Yield the lines; `every` shows all differences that the report has."""
    colour = YELLOW if report.different else GREEN
    for line in paragraphs.wrapped(_headline(report)):
        yield paragraphs.coloured(line, colour)
    if report.recorded is not None and report.other is not None:
        for sentence in _simulated(report.recorded, report.other):
            yield from paragraphs.wrapped(sentence)
    shown = report.differences if every else report.differences[:MOST_SHOWN]
    for difference in shown:
        yield ""
        yield from _difference(difference, paragraphs)
    if report.different > len(shown):
        yield ""
        yield from paragraphs.wrapped(f"{report.different - len(shown)} more; -o wide shows more of them.")
    if report.notes:
        yield ""
    for note in report.notes:
        yield from paragraphs.wrapped(f"Note: {note}.", rest=_INDENT)


def _headline(report: ReplayReport) -> str:
    if not report.decisions:
        return "The journal has no decision that could be made again."
    made = f"{counted(report.decisions, 'decision')} in {age(report.last - report.first)}"
    if not report.different:
        return f"{made}: all are the same."
    return f"{made}: {counted(report.different, 'is another one', 'are other ones')} now."


def _simulated(recorded: Waits, other: Waits) -> Iterator[str]:
    if not other.pods:
        yield "The journal has no pods with a schedulerName of this configuration."
        return
    fewer = recorded.waited - other.waited
    if fewer:
        verdict = f"With this profile {counted(abs(fewer), 'pod')} {'fewer' if fewer > 0 else 'more'} would have waited"
    else:
        verdict = "With this profile as many pods would have waited"
    yield (
        f"{verdict} ({other.waited} in place of {recorded.waited}, of {other.pods}), and"
        f" {other.never} in place of {recorded.never} would still wait at the end."
    )
    yield (
        f"All waits together: {age(other.seconds)} in place of {age(recorded.seconds)}; the longest:"
        f" {age(other.longest)} in place of {age(recorded.longest)}. Both are simulated, without preemption."
    )


def _difference(difference: DifferentDecision, paragraphs: Paragraphs) -> Iterator[str]:
    pod, at = difference.pod, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(max(difference.at, 0.0), _LAST)))
    asks = f", {pod.asks}" if pod.asks else ""
    yield from paragraphs.wrapped(f"{at} {pod.namespace}/{pod.name}{asks}", rest=_INDENT)
    yield from paragraphs.wrapped(f"then: {difference.then}", first=_INDENT, rest=_INDENT * 2)
    yield from paragraphs.wrapped(f"now:  {difference.now}", first=_INDENT, rest=_INDENT * 2)
    yield from paragraphs.wrapped(f"why:  {difference.why}", first=_INDENT, rest=_INDENT * 2)

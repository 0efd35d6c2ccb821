"""
The pods that wait, as a table like kubectl's: a line for each, with its age and the cause.

Does not wrap a line: a table is read by programs such as grep, too.
"""

from collections.abc import Iterator, Sequence

import attrs

from neuron_scheduler.commands.age import age
from neuron_scheduler.explain.answers.lists import Waiting, WaitingPod
from neuron_scheduler.model.wording import clipped
from neuron_scheduler.telemetry.line_formats import printable


@attrs.frozen
class WaitingText:
    """
    Writes tables.

    Attributes:
        wide: with the scheduler's name and the message.
        now: seconds since the epoch.
        place: where the pods were looked for, such as `in namespace ml`.
    """

    wide: bool = False
    now: float = 0.0
    place: str = "in the cluster"

    def lines(self, waiting: Waiting) -> Iterator[str]:
        """Yield the lines of the table, or a sentence if no pod waits."""
        if not waiting.pods:
            yield f"No pod that asks for Neuron waits {self.place}."
            return
        heading = ["NAMESPACE", "NAME", "ASKS FOR", "AGE", "CAUSE"]
        rows = [heading + (["SCHEDULER", "MESSAGE"] if self.wide else [])]
        rows += [self._row(line) for line in waiting.pods]
        yield from table(rows)

    def _row(self, line: WaitingPod) -> list[str]:
        pod = line.pod
        old = age(self.now - pod.created) if pod.created and self.now else "<unknown>"
        cells = [pod.namespace, pod.name, pod.asks, old, line.cause or "fits"]
        return cells + ([pod.scheduler_name, line.message] if self.wide else [])


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield aligned lines, the columns three blanks apart; the last one may be long."""
    shown = [[printable(clipped(cell)) for cell in row[:-1]] + [printable(row[-1])] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

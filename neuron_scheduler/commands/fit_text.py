"""The answer to "how many more fit?" as text for a person."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final

import attrs

from neuron_scheduler.commands.output import cut
from neuron_scheduler.explain.answers import Fit, PlannedPod
from neuron_scheduler.model.wording import count_text
from neuron_scheduler.neuron.annotations import runs_of
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import GREEN, INDENT, RED, YELLOW, Paragraphs

MOST_NODES: Final = 20
"""Lines of nodes if not all are asked for; nodes that follow each other and get the same share one."""
_IDS: Final = 32
_SHORTEST_NAME: Final = 16


@attrs.frozen
class FitText:
    """
    Writes answers.

    Attributes:
        every_node: list all nodes.
    """

    paragraphs: Paragraphs
    every_node: bool = False

    def lines(self, fit: Fit) -> Iterator[str]:
        colour = GREEN if fit.fitting >= max(fit.asked, 1) else YELLOW if fit.fitting else RED
        yield from self.paragraphs.wrap(headline(fit), code=colour)
        for line in _remarks(fit):
            yield from self.paragraphs.wrap(line)
        if fit.placed:
            yield from self.paragraphs.section("Where they go")
            yield from self._nodes(fit)
        if fit.limit is not None:
            title = "What limits the rest" if fit.fitting < fit.asked else "Why no more fit"
            yield from self.paragraphs.section(f"{title} ({fit.limit.cause.replace('_', ' ')})")
            yield from self.paragraphs.indent(fit.limit.message)
        yield from self.paragraphs.notes(fit.notes)

    def _nodes(self, fit: Fit) -> Iterator[str]:
        by_node: dict[str, list[PlannedPod]] = {}
        for pod in fit.placed:
            by_node.setdefault(pod.node_name, []).append(pod)
        rows = [(printable(name), printable(pods[0].instance_type), _ids_text(pods)) for name, pods in by_node.items()]
        alike = [[*same] for _, same in groupby(rows, key=itemgetter(1, 2))]
        shown = [[row] for row in rows] if self.every_node else alike[:MOST_NODES]
        named = [(name, f" and {len(more)} more" if more else "") for (name, *_), *more in shown]
        type_width = max(len(instance_type) for (_, instance_type, _), *_ in shown)
        room = max(self.paragraphs.width - type_width - _IDS, _SHORTEST_NAME)
        width = min(room, max(len(name) + len(more) for name, more in named))
        for (name, more), ((_, instance_type, ids), *_) in zip(named, shown, strict=True):
            node = f"{cut(name, width - len(more))}{more}".ljust(width)
            yield from self.paragraphs.wrap(
                ids, first=f"{INDENT}{node}  {instance_type.ljust(type_width)}  ", rest=INDENT * 2
            )
        hidden = len(rows) - sum(map(len, shown))
        if hidden:
            yield from self.paragraphs.indent(f"and {count_text(hidden, 'more node')} (-o wide lists all)")


def headline(fit: Fit) -> str:
    """Return the answer in a sentence, such as `12 of 16 replicas of Job train fit now (8 Neuron devices each).`."""
    replicas = count_text(fit.asked or fit.total, "replica" if fit.pods_per_replica == 1 else "group")
    number = f"{fit.fitting} of {replicas}" if fit.asked else f"{replicas}{'' if fit.limit else ' or more'}"
    of_workload = f" of {fit.name}" if fit.name else ""
    each = f" ({fit.asks} each)" if fit.asks else ""
    return f"{number}{of_workload} {'fits' if fit.fitting == 1 else 'fit'} now{each}."


def _remarks(fit: Fit) -> Iterator[str]:
    if fit.never:
        yield "Never on these nodes: it would not fit if all other pods were gone, either."
    of_next = len(fit.placed) - fit.fitting * fit.pods_per_replica
    if of_next > 0:
        yield f"Of the next group {of_next} of {fit.pods_per_replica} pods would fit: they are of no use alone."
    if fit.asked and fit.total > fit.asked:
        yield f"There is room for {'' if fit.limit else 'at least '}{fit.total - fit.asked} more."


def _ids_text(pods: Sequence[PlannedPod]) -> str:
    """Return what the pods of one node are given: `2 pods: devices 0-7, devices 8-15`."""
    parts = []
    for part, of_part in groupby(pods, key=attrgetter("part")):
        given = list(of_part)
        number = count_text(len(given), part or "pod")
        ids = " | ".join(runs_of(pod.ids) for pod in given if pod.ids)
        units = f"{given[0].unit}s" if sum(len(pod.ids) for pod in given) > 1 else given[0].unit
        parts.append(f"{number}: {units} {ids}" if ids else number)
    return "; ".join(parts)

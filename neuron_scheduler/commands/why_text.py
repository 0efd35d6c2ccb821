"""
An explanation as text for a person: the sentence of the Event, the cause in plain words, the nodes, what would help.

Short by default: the largest groups of each reason and a few names; `-o wide` has all of them.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from neuron_scheduler.commands.output import age, table
from neuron_scheduler.explain.answers import (
    Explanation,
    LeavingPod,
    NodeGroup,
    PodSummary,
    SuggestedChange,
    Verdict,
    Waiting,
    WaitingEntry,
)
from neuron_scheduler.model.wording import clip, count_text, few_names
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import GREEN, INDENT, RED, YELLOW, Paragraphs

MOST_GROUPS: Final = 3
"""Groups of one reason that are shown if not all are asked for."""
MOST_REASONS: Final = 8
MOST_LISTED: Final = 3
"""Names of a group's nodes that are shown likewise."""

CAUSES: Final[Mapping[str, str]] = {
    Cause.UNTRIED: "It has not been tried yet.",
    Cause.GATED: "Its scheduling gates must be removed first, by whoever set them.",
    Cause.GROUP: "Its group needs more members than exist, and they are placed together.",
    Cause.ERROR: "The last attempt ended in an error; it is tried again.",
    Cause.CAPACITY: "Not enough Neuron devices or cores are free, or no node has so many.",
    Cause.FRAGMENTATION: "Enough Neuron devices or cores are free, but in pieces: no node has such a free block.",
    Cause.INVALID_COUNT: "No node serves that number of Neuron devices or cores, even when it is empty.",
    Cause.UNKNOWN_HOLDER: "Pods whose device ids are unknown may hold what it needs. It stays Pending until they end.",
    Cause.UNHEALTHY: "The nodes report a problem with a Neuron device.",
    Cause.NOMINATED: "Space is free, but it is kept for pods of the same or a higher priority.",
    Cause.RESOURCES: "The nodes that it may use lack cpu, memory or another resource, room for a pod, or a host port.",
    Cause.TAINTS: "The nodes that it may use are cordoned, or have taints that it does not tolerate.",
    Cause.AFFINITY: "No node matches its node selector, affinity and topology spread, and other pods' anti-affinity.",
    Cause.VOLUMES: "Its volumes or resource claims are missing, cannot be bound, or cannot be used on the nodes.",
    Cause.POD: "No node can take it as it is; the pod itself must be changed.",
    Cause.OTHER: "See the reasons of the nodes.",
}
"""What each cause means, for a person."""


@attrs.frozen
class WhyText:
    """
    Writes explanations.

    Attributes:
        wide: with all groups and names that the answer has.
        now: seconds since the epoch; 0 if the ages of pods are not known.
    """

    paragraphs: Paragraphs
    wide: bool = False
    now: float = 0.0

    def lines(self, explanation: Explanation) -> Iterator[str]:
        yield from self.paragraphs.wrap(explanation.decider)
        about_another_node = explanation.verdict is Verdict.WAITS and explanation.node_name
        yield from self._title(explanation.pod, Verdict.BOUND if about_another_node else explanation.verdict)
        yield ""
        yield from self.paragraphs.wrap(explanation.message)
        meaning = CAUSES.get(explanation.cause, "")
        if meaning:
            yield ""
            yield from self.paragraphs.wrap(f"{explanation.cause.replace('_', ' ').capitalize()}: {meaning}")
        if explanation.capacity_request:
            yield ""
            yield from self.paragraphs.wrap(explanation.capacity_request)
        if explanation.groups:
            alone = ", for this pod alone" if explanation.pod.group else ""
            yield from self.paragraphs.section(f"Nodes by reason ({count_text(explanation.nodes, 'node')}{alone})")
            yield from self._groups(explanation.groups)
        if explanation.changes:
            yield from self.paragraphs.section("What would let it in")
            for change in explanation.changes:
                yield from self._change(change)
        yield from self.paragraphs.notes(explanation.notes)

    def _title(self, pod: PodSummary, verdict: Verdict) -> Iterator[str]:
        about = [*filter(None, [pod.asks]), f"priority {pod.priority}"]
        about += [f"group {clip(pod.group)}"] if pod.group else []
        old = age(self.now - pod.created) if pod.created and self.now else ""
        states = {
            Verdict.FITS: ("fits", GREEN),
            Verdict.WAITS: (f"has been Pending for {old}" if old else "is Pending", YELLOW),
            Verdict.GATED: (f"has been gated for {old}" if old else "is gated", YELLOW),
            Verdict.BOUND: ("has a node", GREEN),
        }
        state, colour = states[verdict]
        title = f"{pod.namespace}/{pod.name} {state} ({', '.join(about)})"
        yield from self.paragraphs.wrap(title, code=colour)

    def _groups(self, groups: Sequence[NodeGroup]) -> Iterator[str]:
        by_reason: dict[tuple[str, ...], list[NodeGroup]] = {}
        for group in groups:
            by_reason.setdefault((group.plugin, group.reason, str(bool(group.kept_for))), []).append(group)
        shown = [*by_reason.values()][: None if self.wide else MOST_REASONS]
        for of_reason in shown:
            yield from self._reason(of_reason)
        left = sum(group.nodes for of_reason in [*by_reason.values()][len(shown) :] for group in of_reason)
        if left:
            yield from self.paragraphs.indent(f"{count_text(left, 'more node')} for other reasons (-o wide shows all)")

    def _reason(self, groups: Sequence[NodeGroup]) -> Iterator[str]:
        first, count = groups[0], sum(group.nodes for group in groups)
        if not first.plugin:
            line, colour = f"{count_text(count, 'node')}: would take the pod", GREEN
        elif first.kept_for:
            line, colour = f"{count_text(count, 'node')}: would take the pod, but the space is kept for others", YELLOW
        else:
            line, colour = f"{count_text(count, 'node')}: {first.reason} [{first.plugin}]", RED
        yield from self.paragraphs.indent(line, code=colour)
        shown = groups if self.wide else groups[:MOST_GROUPS]
        for group in shown:
            yield from self._group(group)
        left = sum(group.nodes for group in groups[len(shown) :])
        if left:
            yield from self.paragraphs.indent(
                f"{count_text(left, 'more node')} with other figures (-o wide shows all)", 2
            )

    def _group(self, group: NodeGroup) -> Iterator[str]:
        names = group.names if self.wide else group.names[:MOST_LISTED]
        more = group.nodes - len(names)
        listed = f"{', '.join(map(clip, names))}{f' and {more} more' if more else ''}"
        kind = f" ({clip(group.instance_type)})" if group.instance_type else ""
        yield from self.paragraphs.wrap(f"{listed}{kind}", first=INDENT * 2, rest=INDENT * 3)
        if group.arithmetic:
            yield from self.paragraphs.indent(group.arithmetic, 3)

    def _change(self, change: SuggestedChange) -> Iterator[str]:
        yield from self.paragraphs.wrap(change.sentence, first=f"{INDENT}- ", rest=INDENT * 2)
        for pod in change.pods:
            yield from self.paragraphs.wrap(self._leaving_text(pod), first=INDENT * 2, rest=INDENT * 3)
        if change.command:
            yield f"{INDENT * 2}$ {printable(change.command)}"

    def _leaving_text(self, pod: LeavingPod) -> str:
        about = [pod.asks] if pod.asks else []
        about.append(f"priority {pod.priority}{'; the scheduler may evict it' if pod.evictable else ''}")
        if pod.started and self.now:
            about.append(f"started {age(self.now - pod.started)} ago")
        if pod.budgets:
            violated = "would be violated" if pod.violates else "allows it"
            about.append(f"disruption budget {few_names(pod.budgets)} {violated}")
        name = f"{pod.namespace}/{pod.name}" if pod.name else "a pod that you may not see"
        return f"{name} ({', '.join(about)})"


def waiting_lines(waiting: Waiting, place: str, now: float, *, wide: bool = False) -> Iterator[str]:
    """
    Yield the table of what waits, or a sentence; `place` is where, such as `in namespace ml`.

    `now` is in seconds since the epoch; `wide` adds the scheduler's name and the message.
    """
    if not waiting.pods:
        yield f"No pod that asks for Neuron is Pending {place}."
        return
    grouped = any(line.pod.group for line in waiting.pods)
    rows = [["NAMESPACE", "NAME", "ASKS FOR", "AGE", "CAUSE", *(["GROUP"] if grouped else []), "SCHEDULER", "MESSAGE"]]
    for line, *others in _alike(waiting.pods, wide=wide):
        pod, cause = line.pod, line.cause or "fits"
        old = age(now - pod.created) if pod.created and now else "<unknown>"
        group = [pod.group] if grouped else []
        name = f"{pod.name} and {len(others)} more" if others else pod.name
        rows.append([pod.namespace, name, pod.asks, old, cause, *group, pod.scheduler_name, line.message])
    yield from table(rows if wide else [row[:-2] for row in rows])


def _alike(pods: Iterable[WaitingEntry], *, wide: bool) -> Iterable[Sequence[WaitingEntry]]:
    """Return the members of each group, and each controller's pods, that look alike; the longest wait comes first."""
    rows: dict[Hashable, list[WaitingEntry]] = defaultdict(list)
    for line in pods:
        pod = line.pod
        of = pod.group or pod.owner or pod.name
        message = line.message if wide else ""
        rows[pod.namespace, of, pod.asks, pod.scheduler_name, line.cause, message].append(line)
    return rows.values()

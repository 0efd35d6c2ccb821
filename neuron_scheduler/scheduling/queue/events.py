"""
The events since the queue last looked, and which waiting pods they may help.

Events come in bursts: they are collected by kind, with the pods, the nodes and the claims that they happened to, and
evaluated once. Hints are asked for kinds of refusal (`RefusalKind`), which many waiting pods share. An event whose
details are unknown, or too many, may help all pods that its plugins refused.

Upstream: queueing hints, `isSchedulableAfter...` of each plugin. Most plugins judge a node by itself, so the node must
now pass all the plugins that refused the pod and have a hint. For plugins that look at other pods, it depends on the
pods that the event happened to. Pods of lower priority that could be evicted are left out of account: a hint may say
yes too often, never no too often.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set as AbstractSet
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any, Final

import attrs

from neuron_scheduler.cluster.index.nodeset import NO_NODES
from neuron_scheduler.cluster.rows.node_info import NodeInfo, without_nomination
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm
from neuron_scheduler.scheduling.cycle.refusals import nodes_not_refused
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NodeHint, RowHint
from neuron_scheduler.scheduling.plugins.inter_pod_affinity import BY_PLACED_PODS
from neuron_scheduler.scheduling.plugins.registry import (
    CONCERNED_BY,
    COUNTING_PODS,
    COUNTING_VOLUMES,
    GROUP_TOPOLOGY,
    PLUGINS,
)
from neuron_scheduler.scheduling.queue.places import QueuedPod

_HINTS: Final[Mapping[str, NodeHint[Any] | RowHint[Any]]] = {
    plugin.name: plugin.hint for plugin in PLUGINS if plugin.hint is not None
}
MOST_ASKED = 256
"""Different pods in one burst of events; beyond, comparing them with the waiting pods costs more than it saves."""
_AS_LONG: Final = 4
"""Comparisons of terms that take as long as asking one hint about a node."""
_MOST_COMPARED: Final = 1 << 15
"""Terms and requirements of a pod, times different pods in one burst: some milliseconds, like an attempt for them."""
MOST_NODES: Final = 256
"""Nodes in one burst of events; beyond, asking a hint about all of them costs more than the attempt that it saves."""
_MOST_HINTS: Final = 1 << 12
"""Nodes in one burst, times `RefusalKind.comparisons`; beyond, asking about all of them takes as long as an attempt."""
RowOf = Callable[[str], NodeInfo | None]
"""A node as it is now, by name; None if it is not known."""


@attrs.frozen(cache_hash=True)
class HintInput:
    """
    What the plugins that refused a pod look at in it, and nothing else, so that pods that are alike in it are equal.

    Attributes:
        by_plugin: names of plugins that have a hint, each with what the plugin looks at.
        evicts_below: pods below this priority could be evicted for it; None if it never preempts, or has done so.
    """

    by_plugin: tuple[tuple[str, Hashable], ...] = ()
    evicts_below: int | None = None


NO_HINT_INPUT: Final = HintInput()


def hint_input_of(pod: Pod, plugins: frozenset[str], *, has_nomination: bool = False) -> HintInput:
    """Return what these plugins, which refused a pod, look at in it; a pod with a nomination evicts no other pods."""
    return HintInput(
        by_plugin=tuple([(name, hint.looks_at(pod)) for name, hint in _HINTS.items() if name in plugins]),
        evicts_below=None if pod.never_preempts or has_nomination else pod.priority,
    )


def is_acceptable(hint_input: HintInput, node_info: NodeInfo) -> bool:
    """Return whether a node passes now all the plugins that refused the pod and have a hint."""
    if hint_input.evicts_below is not None:
        node_info = node_info.without_lower_priority(hint_input.evicts_below)
    return all(_HINTS[name].accepts(looked_at, node_info) for name, looked_at in hint_input.by_plugin)


@attrs.frozen(cache_hash=True)
class PodChange:
    """The part of a pod that came or went which can matter to other pods; one that changed went and came."""

    namespace: str
    labels: frozenset[tuple[str, str]]
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    has_volumes: bool = False


@attrs.frozen(cache_hash=True)
class Interest:
    """
    How a refused pod selects other pods, and what they may select it by; equal for the replicas of a workload.

    Attributes:
        comparisons: terms and requirements that each other pod is compared with.
        equalities: a pod that it selects has one of these labels; None if that is not known.
    """

    namespace: str
    labels: frozenset[tuple[str, str]]
    selectors: tuple[LabelSelector, ...]
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    comparisons: int = 0
    equalities: frozenset[tuple[str, str]] | None = attrs.field(default=None, eq=False)

    def may_select(self, other: PodChange) -> bool:
        return self.equalities is None or not self.equalities.isdisjoint(other.labels)

    def concerns(self, other: PodChange, event: ClusterEvent) -> bool:
        """Return whether the other pod may matter; one that is added never helps a pod that must be apart from it."""
        is_added, mine = event is ClusterEvent.ASSIGNED_POD_ADDED, dict(self.labels)
        terms = self.affinity if is_added else (*self.affinity, *self.anti_affinity)
        return (self.may_select(other) and self._selects(other, terms)) or (
            not is_added and any(_may_match(term, self.namespace, mine) for term in other.anti_affinity)
        )

    def _selects(self, other: PodChange, terms: Sequence[PodAffinityTerm]) -> bool:
        labels = dict(other.labels)
        return (
            other.namespace == self.namespace and any(selector.matches(labels) for selector in self.selectors)
        ) or any(_may_match(term, other.namespace, labels) for term in terms)


def pod_change(pod: Pod) -> PodChange:
    return PodChange(
        namespace=pod.namespace,
        labels=frozenset(pod.labels.items()),
        anti_affinity=pod.constraints.anti_affinity,
        has_volumes=bool(pod.constraints.volume_claims or pod.constraints.disks),
    )


def interest_of(pod: Pod, plugins: frozenset[str]) -> Interest | None:
    """Return which pods matter to a pod that these plugins refused; None if none of the plugins counts pods."""
    if not plugins & COUNTING_PODS:
        return None
    constraints = pod.constraints
    selectors = tuple({c.selector: None for c in constraints.spread if c.hard and c.selector is not None})
    of_terms = [term.selector for term in (*constraints.affinity, *constraints.anti_affinity) if term.selector]
    equalities = [_first_equality(selector) for selector in (*selectors, *of_terms)]
    return Interest(
        namespace=pod.namespace,
        labels=frozenset(pod.labels.items()),
        selectors=selectors,
        affinity=constraints.affinity,
        anti_affinity=constraints.anti_affinity,
        comparisons=constraints.comparisons,
        equalities=frozenset(chain.from_iterable(equalities)) if all(equalities) else None,
    )


def _first_equality(selector: LabelSelector) -> Sequence[tuple[str, str]]:
    """Return labels of which a pod that matches has one; none if it may have others."""
    first = next((each for each in selector.requirements if each.operator is Operator.IN), None)
    return [] if first is None else [(first.key, value) for value in first.values]


def pods_may_help(
    event: ClusterEvent,
    happened_to: AbstractSet[PodChange | None],
    concerned: frozenset[str],
    interest: Interest | None,
) -> bool:
    """
    Return whether an event may help a pod because of the pods that it happened to; None stands for unknown ones.

    `concerned` are the plugins that refused the waiting pod and are concerned by the event.
    """
    if len(happened_to) > MOST_ASKED and concerned & (COUNTING_PODS | COUNTING_VOLUMES):
        return True
    if concerned & COUNTING_VOLUMES and any(pod is None or pod.has_volumes for pod in happened_to):
        return True
    if not concerned & COUNTING_PODS:
        return False
    if interest is None:
        return True
    compared = [pod for pod in happened_to if pod is not None and interest.may_select(pod)]
    return len(compared) * interest.comparisons > _MOST_COMPARED or any(
        pod is None or interest.concerns(pod, event) for pod in happened_to
    )


def _may_match(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
    """Return whether a term may match a pod; a namespace selector always may: namespaces are unknown here."""
    if term.selector is None or not term.selector.matches(labels):
        return False
    return term.namespace_selector is not None or namespace in term.namespaces


@attrs.frozen(cache_hash=True)
class RefusalKind:
    """
    What refused a pod, and which events may change that; many waiting pods share one.

    Attributes:
        plugins: names of those whose answer has to change.
        hint_input: what those of the plugins that have a hint look at in the pods.
        interest: which other pods matter to them; None if no plugin that counts pods refused them.
        refused_by: names of those that refused them last.
        group: of members that are outside of its domain, which may move with a node that has one.
        parts: of a pod, 0 for few: the hints look at expressions, values and tolerations, of which there may be many.
    """

    plugins: frozenset[str] = frozenset()
    hint_input: HintInput = NO_HINT_INPUT
    interest: Interest | None = None
    scheduler_name: str = ""
    refused_by: frozenset[str] = frozenset()
    group: GroupKey | None = None
    parts: int = attrs.field(default=0, eq=False)

    @property
    def comparisons(self) -> int:
        """How often the pods are compared with each pod, or node."""
        of_pods = 0 if self.interest is None else self.interest.comparisons
        return 1 + (of_pods + self.parts) // _AS_LONG


def refusal_kind_of(
    pod: Pod, refused_by: frozenset[str], waits_for: frozenset[str], *, has_nomination: bool = False
) -> RefusalKind:
    """Return the kind of a pod that some plugins refused, and that waits for a change of the answers of some."""
    return RefusalKind(
        waits_for,
        hint_input_of(pod, waits_for, has_nomination=has_nomination),
        interest_of(pod, waits_for),
        pod.scheduler_name,
        refused_by,
        pod.group.key if pod.group is not None and GROUP_TOPOLOGY in waits_for else None,
        pod.parts,
    )


@attrs.define(eq=False)
class PendingEvents:
    """
    Events by kind, each with the objects that it happened to; None stands for those that are unknown or too many.

    Attributes:
        merged: what stands in place of this; it has all of this, and some more.
    """

    pods: dict[ClusterEvent, set[PodChange | None]] = attrs.field(factory=dict)
    rows: dict[ClusterEvent, dict[str, NodeInfo] | None] = attrs.field(factory=dict)
    claims: dict[ClusterEvent, set[str]] = attrs.field(factory=dict)
    merged: "PendingEvents | None" = None

    def __bool__(self) -> bool:
        return bool(self.pods or self.claims)

    def note(self, event: ClusterEvent, pods: Collection[Pod], on: NodeInfo | None, claim: str = "") -> None:
        """Note an event: with the only claim that it concerns, or with what is known of its pods and its node."""
        if claim:
            self.claims.setdefault(event, set()).add(claim)
            return
        known = self.pods.setdefault(event, set())
        if len(known) <= MOST_ASKED:
            known.update(map(pod_change, pods) if pods else (None,))
        rows = self.rows.setdefault(event, {})
        if on is None or rows is None or len(rows) >= MOST_NODES:
            self.rows[event] = None
        else:
            rows[on.node.name] = on

    def note_all(self, later: "PendingEvents") -> None:
        """Note all events of another value, which came later."""
        for event, pods in later.pods.items():
            known = self.pods.setdefault(event, set())
            if len(known) <= MOST_ASKED:
                known |= pods
            rows, more = self.rows.setdefault(event, {}), later.rows[event]
            self.rows[event] = None if rows is None or more is None or len(rows | more) > MOST_NODES else rows | more
        for event, claims in later.claims.items():
            self.claims.setdefault(event, set()).update(claims)

    @property
    def count(self) -> int:
        """How many pods, with their terms, and nodes one refused pod is compared with at most, at least 1."""
        pods = (pod for pods in self.pods.values() for pod in pods)
        terms = sum(1 if pod is None else 1 + len(pod.anti_affinity) // _AS_LONG for pod in pods)
        return max(1, terms + sum(map(len, filter(None, self.rows.values()))))

    def as_of_now(self, row: RowOf) -> "PendingEvents":
        """Return the events with the nodes as they are now."""
        rows = {
            event: known and {name: row(name) or node_info for name, node_info in known.items()}
            for event, known in self.rows.items()
        }
        return attrs.evolve(self, rows=rows)

    def wake_ups(self, pod: Pod, kind: RefusalKind) -> Iterator[tuple[ClusterEvent, list[str] | None]]:
        """Yield each event that may help a refused pod, with the names of nodes that may take it; None: unknown."""
        for event in self.pods:
            concerned = kind.plugins & CONCERNED_BY[event]
            if concerned or not kind.plugins:
                try:
                    takers = self._takers(event, pod, kind, concerned)
                except Exception:  # noqa: BLE001 - a needless attempt does no harm, and reports what is wrong
                    takers = None
                if takers is None or takers:
                    yield event, takers
        for event, claims in self.claims.items():
            names = (f"{pod.namespace}/{name}" for name in pod.constraints.volume_claims)
            if not kind.plugins or (kind.plugins & CONCERNED_BY[event] and not claims.isdisjoint(names)):
                yield event, None

    def _takers(self, event: ClusterEvent, pod: Pod, kind: RefusalKind, concerned: frozenset[str]) -> list[str] | None:
        if not concerned or pods_may_help(event, self.pods[event], concerned, kind.interest):
            return None
        if concerned <= COUNTING_PODS | COUNTING_VOLUMES:
            return []
        rows = self.rows[event]
        if rows is None or len(rows) * kind.comparisons > _MOST_HINTS:
            return None
        if event is ClusterEvent.NODE_LABELS and any(_has_member(row, kind) for row in rows.values()):
            return None
        return [name for name, node_info in rows.items() if _may_take(node_info, pod, kind)]


def _has_member(node_info: NodeInfo, kind: RefusalKind) -> bool:
    groups = (info.pod.group for info in node_info.pod_infos.values())
    return kind.group is not None and any(group is not None and group.key == kind.group for group in groups)


def _may_take(node_info: NodeInfo, pod: Pod, kind: RefusalKind) -> bool:
    """Return whether a node may take a refused pod beside the others for which space is kept there."""
    others = without_nomination(node_info, pod.uid, pod.group).with_nominated(pod.priority)
    return is_acceptable(kind.hint_input, others)


def _less_barred(view: View, pod: Pod, kind: RefusalKind, names: list[str]) -> list[str]:
    """
    Return the nodes without those that a plugin without a hint refuses as they are now, whatever pods it may evict.

    A hint would need the state of other objects, such as the volume of a claim. Members of a group may help each other.
    Terms of placed pods are not asked: there may be very many.
    """
    if pod.group is not None:
        return names
    slots, below = {name: view.slot(name) for name in names}, kind.hint_input.evicts_below
    rows = [view.row(slot) for slot in slots.values() if slot is not None]
    evicts = below is not None and any(row.without_lower_priority(below) is not row for row in rows)
    left = reduce(or_, (1 << slot for slot in slots.values() if slot is not None), NO_NODES)
    steps = [
        step for plugin in PLUGINS if plugin.hint is None and plugin.name in kind.plugins for step in plugin.filters
    ]

    def ask(recording: View) -> None:
        nonlocal left
        for step in steps:
            if left and step is not BY_PLACED_PODS:
                refusals = [each for each in step.refuse(recording, pod, left) if each.unresolvable or not evicts]
                if evicts and step.refuse_emptied is not None:
                    refusals += step.refuse_emptied(recording, pod, left)
                left = nodes_not_refused(left, refusals)

    if view.index_requests(ask).lacking:
        return names  # an attempt builds the indexes in steps
    return [name for name, slot in slots.items() if slot is None or left >> slot & 1]


def has_acceptable(pod: Pod, kind: RefusalKind, nodes: list[str], view: View) -> bool:
    """Return whether one of the nodes may still take a pod of a kind; nodes that do not are removed from the list."""
    is_asked = False
    while nodes:
        try:
            node_info = view.node(nodes[-1])
            if node_info is None or _may_take(node_info, pod, kind):
                if is_asked:
                    return True
                is_asked, nodes[:] = True, _less_barred(view, pod, kind, nodes)
                continue
        except Exception:  # noqa: BLE001 - as above
            return True
        nodes.pop()
    return False


@attrs.define(eq=False)
class InFlightEvents:
    """
    Events during an attempt that takes a while, so that none is missed by the pods that it refuses.

    Upstream: `inFlightEvents` in `pkg/scheduler/backend/queue/active_queue.go`, for every popped pod. Here only groups
    and the search for victims take longer than one synchronous step, one attempt at a time.

    Attributes:
        queued: the popped pod; None if no event needs to be noted.
        events: what has happened since `begin`.
    """

    queued: QueuedPod | None = None
    events: PendingEvents = attrs.field(factory=PendingEvents)

    def begin(self, queued: QueuedPod) -> None:
        self.queued, self.events = queued, PendingEvents()

    def end(self) -> None:
        if self.queued is not None:
            self.queued, self.events = None, PendingEvents()

    def note(self, event: ClusterEvent, pods: Sequence[Pod], on: NodeInfo | None, claim: str) -> None:
        """Note an event, unless it happened to the pod itself: space that was kept for it was free for it before."""
        if self.queued is None:
            return
        others = [pod for pod in pods if pod.uid != self.queued.pod.uid]
        if others or not pods:
            self.events.note(event, others, on, claim)

    def may_help(self, pod: Pod, kind: RefusalKind, row: RowOf) -> bool:
        """Return whether one of the events may help a pod of the attempt, now that it is known what refused it."""
        return any(self.events.as_of_now(row).wake_ups(pod, kind))

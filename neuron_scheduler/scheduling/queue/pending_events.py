"""
The events since the queue last looked, and which waiting pods they may help.

Events come in bursts: they are collected by kind, with the pods, the nodes and the claims that they happened to, and
evaluated once. Waiting pods are in groups of equal (refusing plugins, hint input, interest in other pods), so that
hints are asked for groups. An event whose details are unknown, or too many, may help all pods that its plugins refused.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set as AbstractSet
from functools import partial

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.registry import CONCERNED_BY
from neuron_scheduler.scheduling.queue.hints import (
    NO_HINT_INPUT,
    HintInput,
    NodeChange,
    acceptable,
    hint_input_of,
    may_accept,
)
from neuron_scheduler.scheduling.queue.interest import (
    MOST_ASKED,
    Interest,
    PodChange,
    interest_of,
    may_help,
    pod_changes,
)
from neuron_scheduler.scheduling.queue.places import QueuedPod

_MOST_CHECKS = 20_000
"""Groups times changed nodes; beyond, the hints cost more than the attempts they save."""
_MOST_BEFORE = 16
"""States of one node in one burst of events; beyond, the node counts as new."""

RowOf = Callable[[str], NodeInfo | None]
"""A node as it is now, by name; None if it is not known."""


def unknown_row(_name: str) -> None:
    """Return None: without a cluster, nodes are taken as they were at the event."""


@attrs.frozen(cache_hash=True)
class Group:
    """
    The properties that waiting pods have in common.

    Attributes:
        plugins: names of those whose answer has to change: that refused them last, or would refuse them even if pods of
            lower priority left.
        hint_input: what those of the plugins that have a hint look at in the pods.
        interest: which other pods matter to them; None if no plugin that counts pods refused them.
        scheduler_name: their profile.
        refused_by: names of those that refused them last.
    """

    plugins: frozenset[str] = frozenset()
    hint_input: HintInput = NO_HINT_INPUT
    interest: Interest | None = None
    scheduler_name: str = ""
    refused_by: frozenset[str] = frozenset()


def group_of(
    pod: Pod,
    refused_by: frozenset[str],
    *,
    against_preemption: frozenset[str] = frozenset(),
    has_nomination: bool = False,
) -> Group:
    """Return the group of a pod that some plugins refused, and others would refuse whichever pods are preempted."""
    plugins = refused_by | against_preemption
    return Group(
        plugins,
        hint_input_of(pod, plugins, has_nomination=has_nomination),
        interest_of(pod, plugins),
        pod.scheduler_name,
        refused_by,
    )


@attrs.frozen
class WakeUp:
    """
    An event and a group that it may help.

    Attributes:
        nodes: names of those that may take a pod of the group; None if they are unknown.
        claims: only the pods that use one of them; None for all.
    """

    event: ClusterEvent
    group: Group
    nodes: tuple[str, ...] | None = None
    claims: AbstractSet[str] | None = None

    def concerns(self, pod: Pod) -> bool:
        """Return whether the event may help this pod of the group."""
        names = pod.constraints.volume_claims
        return self.claims is None or any(f"{pod.namespace}/{name}" in self.claims for name in names)


@attrs.define(eq=False)
class PendingEvents:
    """Events by kind, each with the objects that it happened to; None stands for unknown objects."""

    _pods: dict[ClusterEvent, set[PodChange | None]] = attrs.field(factory=dict)
    _changes: dict[ClusterEvent, dict[str, NodeChange] | None] = attrs.field(factory=dict)
    _claims: dict[ClusterEvent, set[str]] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self._pods or self._claims)

    def note(self, event: ClusterEvent, pods: Collection[Pod], on: NodeChange | None, claim: str = "") -> None:
        """Note an event: with the only claim that it concerns, or with what is known of its pods and its node."""
        if claim:
            self._claims.setdefault(event, set()).add(claim)
            return
        known = self._pods.setdefault(event, set())
        if len(known) <= MOST_ASKED:
            known.update(pod_changes(event, pods))
        changes = self._changes.setdefault(event, {})
        if on is None or changes is None or len(changes) > _MOST_CHECKS:
            self._changes[event] = None
            return
        name = on.node_info.node.name
        earlier = changes.get(name)  # a waiting pod may have been refused before it, or between the two
        before = on.before if earlier is None else (*earlier.before, *on.before)
        changes[name] = NodeChange(on.node_info, before if len(before) <= _MOST_BEFORE else (None,))

    def wake_ups(self, groups: Collection[Group], row: RowOf) -> Iterator[WakeUp | None]:
        """Yield for each event and group that the event may help the two, with the nodes as they are now; else None."""
        for event in sorted(self._pods):
            yield from self._wake_ups(event, groups, row)
        for event in sorted(self._claims):
            for group in groups:
                concerned = group.plugins & CONCERNED_BY[event]
                yield WakeUp(event, group, claims=self._claims[event]) if concerned else None

    def _wake_ups(self, event: ClusterEvent, groups: Collection[Group], row: RowOf) -> Iterator[WakeUp | None]:
        """Yield for each group how the event may help it; also if a hint fails, as upstream does with an error."""
        changes = self._changes[event]
        if changes is not None and len(changes) * len(groups) > _MOST_CHECKS:
            changes = None
        if changes is not None:
            changes = {name: NodeChange(row(name) or known.node_info, known.before) for name, known in changes.items()}
        for group in groups:
            try:
                wake_up = _wake_up(event, self._pods[event], changes, group)
            except Exception:  # noqa: BLE001 - a needless attempt does no harm, and reports what is wrong
                wake_up = WakeUp(event, group)
            yield wake_up


def _wake_up(
    event: ClusterEvent,
    pods: AbstractSet[PodChange | None],
    changes: Mapping[str, NodeChange] | None,
    group: Group,
) -> WakeUp | None:
    """Return how an event may help a group; None if it does not. `changes` is None if the nodes are not known."""
    if changes is None:
        return WakeUp(event, group) if may_help(event, pods, group.plugins, group.interest) else None
    takers: list[str] = []
    ask = partial(_takers, group, changes, takers)
    if not may_help(event, pods, group.plugins, group.interest, local=ask):
        return None
    return WakeUp(event, group, tuple(takers) or None)


def any_acceptable(group: Group, nodes: list[str], row: RowOf) -> bool:
    """Return whether one of the nodes may still take a pod of a group; nodes that do not are removed from the list."""
    while nodes:
        try:
            node_info = row(nodes[-1])
            if node_info is None or acceptable(group.hint_input, node_info):
                return True
        except Exception:  # noqa: BLE001 - as above
            return True
        nodes.pop()
    return False


def _takers(group: Group, changes: Mapping[str, NodeChange], takers: list[str], concerned: frozenset[str]) -> bool:
    """Add the names of the nodes that may take a pod of the group now, because a `concerned` plugin may accept it."""
    takers += [name for name, change in changes.items() if may_accept(group.hint_input, change, concerned=concerned)]
    return bool(takers)


@attrs.define(eq=False)
class InFlightEvents:
    """
    Events for the one pod whose decision takes a while, so that none is missed when it is refused.

    Upstream: `inFlightEvents` in `pkg/scheduler/backend/queue/active_queue.go`, for every popped pod. Here most
    decisions are one synchronous step, in which no event can come. Only the search for victims takes longer, for one
    pod at a time.

    Attributes:
        queued: the pod; None if there is none, and no event needs to be noted.
        events: what has happened since `begin`.
    """

    queued: QueuedPod | None = None
    events: PendingEvents = attrs.field(factory=PendingEvents)

    def begin(self, queued: QueuedPod) -> None:
        """Note events for this pod from now on."""
        self.queued, self.events = queued, PendingEvents()

    def end(self, queued: QueuedPod) -> None:
        """Note no more events if they were for this pod."""
        if self.queued is queued:
            self.queued, self.events = None, PendingEvents()

    def note(self, event: ClusterEvent, pods: Sequence[Pod], on: NodeChange | None, claim: str) -> None:
        """Note an event, unless it happened to the pod itself: space that was kept for it was free for it before."""
        if self.queued is None:
            return
        others = [pod for pod in pods if pod.uid != self.queued.pod.uid]
        if others or not pods:
            self.events.note(event, others, on, claim)

    def may_help(self, queued: QueuedPod, group: Group, row: RowOf) -> bool:
        """Return whether one of the events may help the pod, now that it is known what refused it."""
        wake_ups = self.events.wake_ups((group,), row) if self.queued is queued else ()
        return any(wake_up is not None and wake_up.concerns(queued.pod) for wake_up in wake_ups)

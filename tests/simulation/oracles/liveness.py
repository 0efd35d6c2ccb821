"""
No pod that fits is asleep: it is bound within a bound after the last fault, or a process has ended and has as long
again.

Whether a pod fits is decided by the simple scheduler of `tests.support.oracle`, node by node, on the objects that the
API server has. Only time in which a pod has fitted without a break counts. Lenient where the scheduler has promised to
wait: space that is nominated to a pod of the same or a higher priority, or kept for it, and a node whose kubelet has
not yet admitted an earlier pod (decision 11). A nomination to a node that would refuse its pod, whoever it evicts
there, keeps nothing. Pods with claims on volumes are left out: they wait for others. The members of a group
that must start together fit if enough of them do at once, each on another node; pods of a LeaderWorkerSet are left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selecting_kinds import NAMESPACES
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from tests.simulation.oracles.change import Object, Report, encoded, uid_of
from tests.simulation.oracles.free_devices import FreeDevices
from tests.simulation.oracles.group_words import counts, is_lws, least_of, words_of
from tests.simulation.oracles.reading import node_name_of
from tests.support.oracle import pod_reason, refusals
from tests.support.oracle_affinity import affinity_refusals
from tests.support.oracle_spread import spread_refusals

Tables = Callable[[str], Iterable[Object]]
"""Returns the objects of a kind, by its plural, that the API server has now."""
BOUND: Final = 30.0
"""Seconds."""
MOST_TRIES: Final = 2_000
"""Of a search for the places of one group; what it has not found then is not asked for."""


@attrs.frozen(kw_only=True)
class Unit:
    """
    Pods of which so many must be bound at once.

    Attributes:
        waiting: pending pods; `missing` of them are needed.
        bound, pods: all pods with a node, and all pods.
        inferred: their group has no count.
    """

    waiting: tuple[Pod, ...]
    missing: int
    bound: Sequence[Pod]
    pods: Sequence[Pod]
    inferred: bool = False


@attrs.define(eq=False, kw_only=True)
class Liveness:
    """
    Looks for pods that fit and wait.

    Attributes:
        report: told what is wrong.
        tables: the objects of the API server.
        quiet_at: when the last fault is over.
        left_out: namespaces whose pods cannot be bound, for reasons that are not the scheduler's.
        fits_since: since when each pending pod has fitted, by uid.
    """

    report: Report
    tables: Tables
    quiet_at: float
    left_out: frozenset[str] = frozenset()
    fits_since: dict[str, float] = attrs.field(factory=dict)
    _reported: set[str] = attrs.field(factory=set)

    def sampled(self, now: float, *, restarted_at: float = 0.0, alive: bool = True) -> None:
        """
        Look at every pending pod.

        `restarted_at` is when a process last ended or started; `alive` is whether any runs now.
        """
        if now < self.quiet_at:
            return
        fitting = self._fitting()
        self.fits_since = {pod.uid: self.fits_since.get(pod.uid, now) for pod, _ in fitting}
        for pod, node in fitting:
            since = max(self.fits_since[pod.uid], self.quiet_at, restarted_at)
            if now - since > BOUND and pod.uid not in self._reported:
                self._reported.add(pod.uid)
                why = "" if alive else "; no process runs"
                self.report("liveness", f"{pod.key} has fitted on {node} for {now - since:.0f} s and waits{why}")

    def _fitting(self) -> list[tuple[Pod, str]]:
        """Return the pending pods of ours that fit, each with a node."""
        return [(pod, name) for unit in self.units() for pod, name in (self.places_for(unit) or ())]

    def units(self) -> list[Unit]:
        """Return the pending pods of ours, each alone or with those that must be bound together with it."""
        objects = {uid_of(obj): obj for obj in self.tables("pods")}
        pods = [pod for pod in _read(PODS, objects.values()) if isinstance(pod, Pod)]
        return [*_units([pod for pod in pods if self._waits(pod)], pods, objects)]

    def places_for(self, unit: Unit, *, at_once: bool = False) -> list[tuple[Pod, str]] | None:
        """
        Return nodes on which enough of these pods fit at once, each on another one; None if there are none.

        No node on which the kubelet has an earlier pod to admit will do for several units, or for any if `at_once`.
        """
        nodes, labels, devices = self._nodes(), self._namespaces(), FreeDevices(self.tables)

        def takes(pod: Pod, node: Node, placed: Sequence[Pod]) -> bool:
            beside = [*unit.bound, *placed, *_nominated(nodes, unit.pods, pod)]
            here = (each for each in beside if each.node_name == node.name)
            fits = _fits(nodes, beside, pod, node, labels, at_once=at_once)
            return fits and (not pod.claims or devices.fit(pod, node.name, here))

        return _matched(unit.waiting, unit.missing, nodes, takes)

    def place_for(self, pods: Iterable[Object], pod: Object) -> str:
        """Return a node on which a pod fits beside others; empty if there is none."""
        nodes, labels = self._nodes(), self._namespaces()
        bound = [each for each in _read(PODS, pods) if isinstance(each, Pod) and each.node_name]
        (wanted,) = _read(PODS, [pod])
        among = [] if wanted.claims else nodes  # which devices the pod had that is left out, nobody knows
        return next((node.name for node in among if _takes(nodes, bound, wanted, node, labels)), "")

    def _nodes(self) -> list[Node]:
        return [node for node in _read(NODES, self.tables("nodes")) if isinstance(node, Node)]

    def _namespaces(self) -> Mapping[str, Mapping[str, str]]:
        return {value.name: value.labels for value in _read(NAMESPACES, self.tables("namespaces")) if value}

    def _waits(self, pod: Pod) -> bool:
        ours = (
            pod.scheduler_name == "my-scheduler"
            and pod.namespace not in self.left_out
            and not (pod.node_name or pod.terminating or pod.gates)
        )
        alone = attrs.evolve(pod, constraints=attrs.evolve(pod.constraints, resource_claims=()))
        return ours and not pod.constraints.volume_claims and not pod_reason(alone)


def _units(pending: Sequence[Pod], pods: Sequence[Pod], objects: Mapping[str, Object]) -> Iterator[Unit]:
    """Yield each pod that may be bound alone, and the members of a group that must be bound together."""
    words = {uid: words for uid, obj in objects.items() if (words := words_of(obj)) is not None}
    bound = [pod for pod in pods if pod.node_name]
    for pod in pending:
        if pod.uid not in words:
            yield Unit(waiting=(pod,), missing=1, bound=bound, pods=pods)
    for name in dict.fromkeys(words[pod.uid].name for pod in pending if pod.uid in words):
        ours = [pod for pod in pending if pod.uid in words and words[pod.uid].name == name]
        members = [uid for uid, each in words.items() if each.name == name and counts(objects[uid])]
        least = least_of(objects[uid] for uid in members)
        missing = least - sum(bool(node_name_of(objects[uid])) for uid in members) if least else len(ours)
        if is_lws(objects[ours[0].uid]) or len(members) < least or len({pod.priority for pod in ours}) > 1:
            continue
        if least and missing <= 0:
            yield from (Unit(waiting=(pod,), missing=1, bound=bound, pods=pods) for pod in ours)
        elif missing <= len(ours):
            yield Unit(waiting=tuple(ours), missing=missing, bound=bound, pods=pods, inferred=not least)


def _matched(
    waiting: Sequence[Pod], missing: int, nodes: Sequence[Node], takes: Callable[[Pod, Node, Sequence[Pod]], bool]
) -> list[tuple[Pod, str]] | None:
    """Return so many of the pods, each with a node of its own, the choosiest first; every choice is tried."""
    choices = {pod.uid: [node for node in nodes if takes(pod, node, ())] for pod in waiting}
    ordered = sorted(waiting, key=lambda pod: len(choices[pod.uid]))
    left = MOST_TRIES

    def extended(number: int, found: list[tuple[Pod, str]]) -> list[tuple[Pod, str]] | None:
        nonlocal left
        if len(found) == missing:
            return found
        if len(found) + len(ordered) - number < missing or left <= 0:
            return None
        pod, placed, left = ordered[number], [attrs.evolve(pod, node_name=name) for pod, name in found], left - 1
        # a pod that looks at others may fit only beside them, so its first choices say nothing
        among = nodes if pod.constraints.affinity or pod.constraints.spread else choices[pod.uid]
        for node in among:
            free = all(name != node.name for _, name in found)
            if free and takes(pod, node, placed) and (more := extended(number + 1, [*found, (pod, node.name)])):
                return more
        return extended(number + 1, found)

    return extended(0, [])


def _nominated(nodes: Sequence[Node], pods: Sequence[Pod], pod: Pod) -> list[Pod]:
    """Return the other pods to which space is nominated that this pod must not take, as if they were there."""
    others = [
        other for other in pods if not other.node_name and other.uid != pod.uid and other.priority >= pod.priority
    ]
    return [
        attrs.evolve(other, node_name=node.name)
        for other in others
        for node in nodes
        if (node.name == other.nominated_node_name and _could_be_there(node, pods, other))
        or re.search(rf"Kept for it as .*\b{node.name} \(", other.refused_because)
    ]


def _could_be_there(node: Node, pods: Sequence[Pod], pod: Pod) -> bool:
    """Return whether a node takes a pod once all are gone that it may evict."""
    here = [other for other in pods if other.node_name == node.name and other.priority >= pod.priority]
    return not refusals(node, here, pod)


def _fits(
    nodes: Sequence[Node],
    bound: Sequence[Pod],
    pod: Pod,
    node: Node,
    namespaces: Mapping[str, Mapping[str, str]],
    *,
    at_once: bool = False,
) -> bool:
    several = at_once or (pod.neuron is not None and pod.neuron.total > 1)
    here = [p for p in bound if p.node_name == node.name]
    if several and any(p.neuron and not p.admitted for p in here):
        return False  # the Binding may have to wait until the kubelet has admitted that pod
    return _takes(nodes, bound, pod, node, namespaces)


def _takes(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, node: Node, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    here = [p for p in bound if p.node_name == node.name]
    return not (
        refusals(node, here, pod)
        or spread_refusals(nodes, bound, pod, node)
        or affinity_refusals(nodes, bound, pod, node, namespaces)
    )


def _read(resource: Any, objects: Iterable[Object]) -> list[Any]:
    """Return the objects as values; what has ended is None, what cannot be read says so itself."""
    return [resource.decode(encoded(obj)).value for obj in objects]

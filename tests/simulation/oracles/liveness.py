"""
No pod that fits is asleep: it is bound within a bound after the last fault, or a process has ended and has as long
again.

Whether a pod fits is decided by the simple scheduler of `tests.support.oracle`, node by node, on the objects that the
API server has. Only time in which a pod has fitted without a break counts. Lenient where the scheduler has promised to
wait: space that is nominated to a pod of the same or a higher priority, and a node whose kubelet has not yet admitted
an earlier pod (decision 11). A nomination to a node that would refuse its pod, whoever it evicts there, keeps nothing.
Pods with claims are left out: they wait for others. The members of a group that must start together fit if all of
them do at once, each on another node.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import attrs

from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selecting_kinds import NAMESPACES
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from tests.simulation.oracles.change import Object, Report, encoded
from tests.support.oracle import pod_reason, refusals
from tests.support.oracle_affinity import affinity_refusals
from tests.support.oracle_spread import spread_refusals

Tables = Callable[[str], Iterable[Object]]
"""Returns the objects of a kind, by its plural, that the API server has now."""
BOUND: Final = 30.0
"""Seconds."""


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
        """Return the pending pods of ours that fit, each with the first such node."""
        pods = [pod for pod in _read(PODS, self.tables("pods")) if isinstance(pod, Pod)]
        pending = [pod for pod in pods if self._waits(pod)]
        if not pending:
            return []
        nodes, labels = self._nodes(), self._namespaces()
        fitting = []
        for wanted in _at_once(pending, pods):
            bound, names = [p for p in pods if p.node_name], dict[str, Pod]()
            for pod in wanted:
                beside = [*bound, *_nominated(nodes, pods, pod)]
                fits = (n.name for n in nodes if n.name not in names and _fits(nodes, beside, pod, n, labels))
                if (name := next(fits, None)) is not None:
                    names[name] = pod
                    bound.append(attrs.evolve(pod, node_name=name))
            if len(names) == len(wanted):
                fitting += [(pod, name) for name, pod in names.items()]
        return fitting

    def place_for(self, pods: Iterable[Object], pod: Object) -> str:
        """Return a node on which a pod fits beside others; empty if there is none."""
        nodes, labels = self._nodes(), self._namespaces()
        bound = [each for each in _read(PODS, pods) if isinstance(each, Pod) and each.node_name]
        (wanted,) = _read(PODS, [pod])
        return next((node.name for node in nodes if _takes(nodes, bound, wanted, node, labels)), "")

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
        return ours and not pod.constraints.volume_claims and not pod_reason(pod)


def _at_once(pending: Sequence[Pod], pods: Sequence[Pod]) -> Iterator[list[Pod]]:
    """Yield each pod that may be bound alone, and the members of a group that must be bound together."""
    for key, waiting in groupby(sorted(pending, key=_group_name), _group_name):
        members, ours = [pod for pod in pods if _group_name(pod) == key and not pod.terminating], [*waiting]
        group, placed = ours[0].group, sum(bool(pod.node_name) for pod in members)
        if group is None or (group.least and placed >= group.least):
            yield from ([pod] for pod in ours)
        elif not group.least:
            yield ours
        elif sum(not pod.gates for pod in members) >= group.least:
            yield ours[: group.least - placed]


def _group_name(pod: Pod) -> str:
    return "" if pod.group is None else f"{pod.group.key.dialect} {pod.group.key}"


def _nominated(nodes: Sequence[Node], pods: Sequence[Pod], pod: Pod) -> list[Pod]:
    """Return the other pods to which space is nominated that this pod must not take, as if they were there."""
    others = [
        other
        for other in pods
        if other.nominated_node_name and not other.node_name and other.uid != pod.uid and other.priority >= pod.priority
    ]
    return [
        attrs.evolve(other, node_name=node.name)
        for other in others
        for node in nodes
        if node.name == other.nominated_node_name and _could_be_there(node, pods, other)
    ]


def _could_be_there(node: Node, pods: Sequence[Pod], pod: Pod) -> bool:
    """Return whether a node takes a pod once all are gone that it may evict."""
    here = [other for other in pods if other.node_name == node.name and other.priority >= pod.priority]
    return not refusals(node, here, pod)


def _fits(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, node: Node, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    several, here = pod.neuron is not None and pod.neuron.total > 1, [p for p in bound if p.node_name == node.name]
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

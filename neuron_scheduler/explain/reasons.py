"""
The decision about one pod with all its reasons: the message, the counts, and every node in a group.

The message is that of `FitError`, and the groups are made from the refusals of the same diagnosis, so their numbers
cannot differ from what the Event and the condition say. A group has the nodes that lack the same for the same reason,
or that take the pod; it is made on a fork, so slots and node sets stay valid. Who asks about one node gets what every
filter says of it, also those that come after the first that refuses it.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, from_slots, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers.explanation import FilterCount, FilterVerdict, NodeGroup, NodeHolder
from neuron_scheduler.explain.arithmetic import sentence_of, taking
from neuron_scheduler.explain.subject import ids_in, ids_text
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import clipped, few_names
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.filters import kept_for_others, nodes_with_nominations
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import (
    Decision,
    FitError,
    NoNode,
    cause_of,
    diagnosis,
    refusals,
    select_node,
    stage,
)
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PluginName, PodRefusal, Refusal
from neuron_scheduler.scheduling.plugins.neuron_topology import free_units_of

MOST_NAMED: Final = 5
MOST_ALIKE: Final = 8
"""Groups with one reason and instance type; nodes with yet other figures are one group together."""
AT_ONCE: Final = 64
"""Nodes that are looked at before other tasks may run."""

_Key = tuple[str, str, tuple[str, ...]]
"""What equal nodes have in common: the sentence, the instance type, and the pods for which space is kept."""


@attrs.frozen
class _Part:
    """Nodes that the same refusals name; none for nodes that take the pod."""

    nodes: NodeSet
    refusals: tuple[Refusal, ...] = ()


def merged(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Return the refusals with one for each plugin, reason and kind: nominations make two of them."""
    by_reason: dict[tuple[PluginName, str, bool], Refusal] = {}
    for refusal in refusals:
        if refusal.nodes:
            key = (refusal.plugin, refusal.reason, refusal.unresolvable)
            known = by_reason.get(key)
            by_reason[key] = refusal if known is None else attrs.evolve(known, nodes=known.nodes | refusal.nodes)
    return tuple(by_reason.values())


def filter_counts(refusals: Iterable[Refusal]) -> tuple[FilterCount, ...]:
    """Return how many nodes each refusal names."""
    return tuple(
        FilterCount(refusal.plugin, refusal.reason, refusal.nodes.bit_count(), refusal.unresolvable)
        for refusal in refusals
    )


def groups_of(
    cluster: Cluster, pod: Pod, profile: Profile, refusals: Sequence[Refusal]
) -> Generator[None, None, tuple[NodeGroup, ...]]:
    """
    Return the groups, the most promising first; yields when other tasks may run.

    Args:
        cluster: one that nobody changes; the pod has no nomination there.
        pod: whom the groups take or refuse.
        profile: whose filters.
        refusals: all of them (`merged`).
    """
    parts = _parts(cluster.view.live, refusals)
    doubtful = nodes_with_nominations(cluster, pod.priority)
    kept = less(kept_for_others(cluster, pod, profile), parts[0].nodes) if doubtful else NO_NODES
    groups = []
    for part in parts:
        for kind in (_Part(part.nodes & kept, part.refusals), _Part(less(part.nodes, kept), part.refusals)):
            if kind.nodes:
                found = yield from _of_part(cluster, pod, kind, doubtful=doubtful, keeps=bool(kind.nodes & kept))
                groups += [(_promise(cluster, pod, kind, group), group) for group in found]
    return tuple(group for _, group in sorted(groups, key=lambda pair: pair[0]))


def _parts(live: NodeSet, refusals: Sequence[Refusal]) -> list[_Part]:
    """Return the nodes by the refusals that name them, those that no refusal names first."""
    parts = [_Part(live)]
    for refusal in refusals:
        split = []
        for part in parts:
            inside = part.nodes & refusal.nodes
            split.append(attrs.evolve(part, nodes=less(part.nodes, inside)))
            if inside:
                split.append(_Part(inside, (*part.refusals, refusal)))
        parts = [split[0], *(part for part in split[1:] if part.nodes)]
    return parts


def _promise(cluster: Cluster, pod: Pod, part: _Part, group: NodeGroup) -> tuple[float, ...]:
    """
    Return the order of the groups: nodes that take the pod, those that would, then by how far they came.

    Of equal ones, those with more free devices or cores come first, then the larger groups. Of nodes that take the pod,
    those with fewer come first, as the decision prefers them.
    """
    node_info, free = cluster.node(group.names[0]), 0
    if pod.neuron is not None and node_info is not None:
        free = free_units_of(pod.neuron.resource)(node_info)
    if not part.refusals or group.kept_for:
        return (1.0 if group.kept_for else 0.0, 0.0, free, -group.nodes)
    return (2.0, -max(stage(pod, refusal)[0] for refusal in part.refusals), -free, -group.nodes)


def _of_part(
    cluster: Cluster, pod: Pod, part: _Part, *, doubtful: NodeSet, keeps: bool
) -> Generator[None, None, list[NodeGroup]]:
    reasons = tuple(dict.fromkeys(refusal.reason for refusal in part.refusals))
    sentence = sentence_of(part.refusals[0].plugin, cluster.view, pod) if part.refusals else taking(cluster.view, pod)
    slots: dict[_Key, list[Slot]] = {}
    for number, slot in enumerate(slots_of(part.nodes), start=1):
        node_info = cluster.view.row(slot)
        kept_for = _nominated(node_info, pod) if keeps else ()
        if doubtful >> slot & 1:
            node_info = node_info.with_nominated(pod.priority)
        text = _kept_text(kept_for) if kept_for else sentence(slot, node_info, reasons)
        slots.setdefault((text, node_info.node.instance_type, kept_for), []).append(slot)
        if number % AT_ONCE == 0:
            yield
    yield
    return (yield from _limited(cluster, pod, part, slots))


def _nominated(node_info: NodeInfo, pod: Pod) -> tuple[str, ...]:
    """Return the pods for which a node keeps space that this pod may not take."""
    return tuple(nomination.pod.key for nomination in node_info.nominations if nomination.pod.priority >= pod.priority)


def _kept_text(kept_for: Sequence[str]) -> str:
    return f"it would take the pod, but its space is kept for {few_names(kept_for)}"


def _limited(
    cluster: Cluster, pod: Pod, part: _Part, slots: dict[_Key, list[Slot]]
) -> Generator[None, None, list[NodeGroup]]:
    """Return the largest groups of each instance type, and one with the others."""
    by_type: dict[str, list[_Key]] = {}
    for key in slots:
        by_type.setdefault(key[1], []).append(key)
    groups = []
    for instance_type, keys in by_type.items():
        largest = nsmallest(MOST_ALIKE + 1, keys, key=lambda key: (-len(slots[key]), key))
        groups += [_group(cluster, pod, part, key, slots[key]) for key in largest[:MOST_ALIKE]]
        if len(keys) > MOST_ALIKE:
            text, _, kept_for = largest[MOST_ALIKE]
            name = cluster.view.row(slots[largest[MOST_ALIKE]][0]).node.name
            shown = {*largest[:MOST_ALIKE]}
            others = [slot for key in keys if key not in shown for slot in slots[key]]
            key = (f"different figures, such as on {clipped(name)}: {text}", instance_type, kept_for)
            groups.append(_group(cluster, pod, part, key, others))
        yield
    return groups


def _group(cluster: Cluster, pod: Pod, part: _Part, key: _Key, slots: list[Slot]) -> NodeGroup:
    text, instance_type, kept_for = key
    cause = cause_of(pod, part.refusals) if part.refusals else ""
    nodes = from_slots(slots, max(slots) + 1)
    return NodeGroup(
        nodes=len(slots),
        names=tuple(_oldest_names(cluster, nodes)),
        instance_type=instance_type,
        plugin=part.refusals[0].plugin if part.refusals else "",
        reason=part.refusals[0].reason if part.refusals else "",
        arithmetic=text,
        cause=Cause.NOMINATED if kept_for else cause,
        kept_for=kept_for,
    )


def _oldest_names(cluster: Cluster, nodes: NodeSet) -> Iterable[str]:
    for _ in range(MOST_NAMED):
        if not nodes:
            return
        oldest = cluster.view.oldest(nodes)
        yield cluster.view.row(oldest).node.name
        nodes = less(nodes, 1 << oldest)


def all_refusals(cluster: Cluster, slot: Slot, pod: Pod, profile: Profile) -> list[Refusal]:
    """Return why a node refuses a pod, with the nominated pods or without them, by every filter; empty if it passes."""
    node_info = cluster.view.row(slot)
    refusals = _of_every_filter(cluster, slot, pod, profile)
    with_nominated = node_info.with_nominated(pod.priority)
    if with_nominated is not node_info:
        with cluster.row_replaced(slot, with_nominated):
            refusals = [*_of_every_filter(cluster, slot, pod, profile), *refusals]
    return refusals


def _of_every_filter(cluster: Cluster, slot: Slot, pod: Pod, profile: Profile) -> list[Refusal]:
    nodes = 1 << slot
    steps = profile.plan(pod).filters
    return [refusal for step in steps for refusal in step.refuse(cluster.view, pod, nodes) if refusal.nodes & nodes]


def verdicts(
    cluster: Cluster, slot: Slot, pod: Pod, profile: Profile, refusals: Iterable[Refusal]
) -> Iterator[FilterVerdict]:
    """Yield what each plugin of the profile says of a node with these refusals, in kube-scheduler's order."""
    by_plugin: dict[str, list[Refusal]] = {name: [] for name in profile.plugins}
    for refusal in refusals:
        by_plugin.setdefault(refusal.plugin, []).append(refusal)
    node_info = cluster.view.row(slot).with_nominated(pod.priority)
    for name, of_plugin in by_plugin.items():
        if not of_plugin:
            yield FilterVerdict(name, passes=True)
            continue
        reasons = tuple(dict.fromkeys(refusal.reason for refusal in of_plugin))
        text = sentence_of(of_plugin[0].plugin, cluster.view, pod)(slot, node_info, reasons)
        yield FilterVerdict(name, passes=False, reasons=reasons, arithmetic=text, cause=cause_of(pod, of_plugin))


def holders(node_info: NodeInfo) -> tuple[NodeHolder, ...]:
    """Return the pods that hold Neuron on a node, and those for which it is kept; by their ids, unknown ones last."""
    held = [
        _holder(node_info, pod_info.pod, pod_info.cores)
        for pod_info in node_info.pod_infos.values()
        if pod_info.cores is None or pod_info.cores
    ]
    held += [
        _holder(node_info, nomination.pod, nomination.cores, kept=True)
        for nomination in node_info.nominations
        if nomination.cores
    ]
    return tuple(sorted(held, key=lambda holder: (holder.unknown, holder.ids, holder.namespace, holder.name)))


def _holder(node_info: NodeInfo, pod: Pod, cores: CoreMask | None, *, kept: bool = False) -> NodeHolder:
    return NodeHolder(
        namespace=pod.namespace,
        name=pod.name,
        asks=asked(pod.neuron),
        priority=pod.priority,
        unit="" if pod.neuron is None else pod.neuron.unit,
        ids=ids_in(node_info.machine, cores, pod),
        kept=kept,
        unknown=cores is None,
    )


@attrs.frozen
class Reasons:
    """
    What was decided, and why.

    Attributes:
        outcome: of the decision.
        message: for people, as the Event has it.
        filters, groups: as in `Explanation`.
    """

    outcome: Decision | FitError
    message: str
    filters: tuple[FilterCount, ...] = ()
    groups: tuple[NodeGroup, ...] = ()

    @property
    def cause(self) -> str:
        """What the pod waits for; empty if it fits."""
        return self.outcome.cause if isinstance(self.outcome, FitError) else ""


def reasons(cluster: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, Reasons]:
    """
    Decide a pod and return all reasons; yields when other tasks may run.

    Args:
        cluster: a fork that nobody else uses; the pod's own nomination is removed from it.
        pod: it need not be pending.
        profile: whose filters.
    """
    yield from warmed_up(cluster, pod, profile)
    result = select_node(cluster, pod, profile)
    yield
    if isinstance(result, NoNode) and result.pod_refusal is not None:
        return _of_refused_pod(cluster, pod, profile, result, result.pod_refusal)
    outcome: Decision | FitError
    if isinstance(result, Decision):
        outcome, message = result, _fits(pod, result)
        cluster.clear_nomination(pod.uid)
        named = merged(refusals(cluster, pod, profile))
    else:
        diagnosed = diagnosis(cluster, pod, profile, result)
        outcome, message = diagnosed.fit_error, diagnosed.fit_error.text
        cluster.clear_nomination(pod.uid)
        named = merged(diagnosed.refusals)
    yield
    groups = yield from groups_of(cluster, pod, profile, named)
    return Reasons(outcome, message, filter_counts(named), groups)


def warmed_up(cluster: Cluster, pod: Pod, profile: Profile) -> Iterator[None]:
    """Build the indexes that the decision about a pod and its reasons need; yields when other tasks may run."""
    warmup = IndexWarmup()
    yield from warmup.of(cluster, pod, profile)
    yield from warmup.of_refusal(cluster, pod, profile)


def _of_refused_pod(cluster: Cluster, pod: Pod, profile: Profile, result: NoNode, refusal: PodRefusal) -> Reasons:
    """Return the reasons of a pod that is refused whatever the nodes are: all of them are one group."""
    error, view = diagnosis(cluster, pod, profile, result).fit_error, cluster.view
    count = view.node_count
    if not count:
        return Reasons(error, error.text)
    names = tuple(node_info.node.name for node_info in islice(view.rows(), MOST_NAMED))
    group = NodeGroup(count, names, plugin=refusal.plugin, reason=refusal.reason, cause=error.cause)
    counts = (FilterCount(refusal.plugin, refusal.reason, count, unresolvable=True),)
    return Reasons(error, error.text, counts, (group,))


def _fits(pod: Pod, decision: Decision) -> str:
    """Return where a pod would go, in the words of the Event."""
    return f"{pod.key} fits now: it would be assigned to {decision.node_name}{ids_text(decision.ids, pod)}."

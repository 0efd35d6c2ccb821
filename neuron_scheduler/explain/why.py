"""
Why one pod waits, or where it would go: the one answer behind the command, the endpoint and the page.

It runs in the scheduling process, too, so it pauses: no step takes longer than a heartbeat can wait. It works on a fork
of the cluster, which shares everything until one of the two changes it and takes about as long as a decision. So the
whole answer is true of one moment, although the cluster changes in the pauses. Does not decide by anything but the
filters or change the cluster that it is asked about.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, from_slots, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers import (
    Change,
    Explanation,
    NodeGroup,
    PodSummary,
    Verdict,
)
from neuron_scheduler.explain.arithmetic import free_on, sentence_of
from neuron_scheduler.explain.changes.search import changes
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import clipped, few_names
from neuron_scheduler.neuron.annotations import numbered
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.filters import kept_for_others
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import (
    Decision,
    FitError,
    cause_of,
    decide_on,
    diagnosis,
    refusal_of_pod,
    refusals,
    select_node,
    stage,
)
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PluginName, PodRefusal, Refusal
from neuron_scheduler.scheduling.plugins.neuron_topology import free_units_of


def explain_pod(
    cluster: Cluster,
    pod: Pod,
    profile: Profile,
    *,
    budgets: Sequence[DisruptionBudget] = (),
) -> Generator[None, None, Explanation]:
    """
    Return why the pod waits, or that it fits; yields whenever other tasks may run.

    Args:
        cluster: may change in the pauses; the answer is about its state at one of them.
        pod: pending, gated, bound or being deleted, of any scheduler.
        profile: with whose filters it is decided.
        budgets: all PodDisruptionBudgets, for the pods that would have to leave.
    """
    yield from warmed_up(cluster, pod, profile)  # a fork shares the indexes, but what it builds itself is lost with it
    fork = cluster.fork()
    yield
    if pod.node_name or fork.node_of(pod.uid) is not None:
        return _of_bound_pod(fork, pod)
    if pod.terminating:
        return Explanation(summary_of(pod), Verdict.WAITS, DELETED, cause=Cause.POD, nodes=fork.view.node_count)
    return (yield from _of_pending_pod(fork, pod, profile, budgets=budgets))


def _of_pending_pod(
    fork: Cluster, pod: Pod, profile: Profile, *, budgets: Sequence[DisruptionBudget]
) -> Generator[None, None, Explanation]:
    outcome, explanation = yield from _decided(fork, pod, profile)
    suggested: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    if isinstance(outcome, FitError):
        suggested, notes = yield from changes(fork, pod, profile, refused=outcome, budgets=budgets)
    explanation = attrs.evolve(explanation, changes=suggested, notes=(*notes_on(pod, profile), *notes))
    return _gated(explanation, pod) if pod.gates else explanation


def _gated(explanation: Explanation, pod: Pod) -> Explanation:
    """Return the explanation of a pod with scheduling gates from that of the same pod without them."""
    return attrs.evolve(
        explanation,
        verdict=Verdict.GATED,
        cause=Cause.GATED,
        message=f"{SCHEDULING_GATED} ({few_names(pod.gates)}).",
        notes=(*explanation.notes, f"Without the gates: {explanation.message}"),
    )


def _of_bound_pod(fork: Cluster, pod: Pod) -> Explanation:
    """Return where a pod is; a pod on a node that does not exist, too."""
    known = fork.pod_info(pod.uid)
    name = fork.node_of(pod.uid) or pod.node_name
    node_info = fork.node(name)
    ids = () if known is None or node_info is None else ids_in(node_info.machine, known.cores, known.pod)
    notes = [] if node_info is not None else [f"There is no node {name}."]
    if known is not None and known.cores is None and node_info is not None:
        notes.append(
            f"The ids of its Neuron are unknown: {clipped(known.problem)}. Until it ends, its node gets no pod that"
            " asks for more than one device or core, but fewer than all."
        )
    if node_info is not None and node_info.machine is not None:
        notes.append(f"{name} has {free_on(node_info)}.")
    if pod.terminating:
        notes.append("The pod is being deleted; until it is gone, it holds what it holds.")
    state = "is about to be bound to" if fork.is_assumed(pod.uid) else "is on"
    message = f"{pod.key} {state} {name}{ids_text(ids, pod)}."
    return Explanation(
        summary_of(pod),
        Verdict.BOUND,
        message,
        nodes=fork.view.node_count,
        notes=tuple(notes),
        node_name=name,
        ids=ids,
    )


def explain_on_node(cluster: Cluster, pod: Pod, profile: Profile, node_name: str) -> Generator[None, None, Explanation]:
    """
    Return whether one node takes the pod; yields whenever other tasks may run.

    Every filter is asked, also those after the first refusal: each group is this node, with what one of them says. The
    arguments are those of `explain_pod`; there need not be a node of that name.
    """
    yield from warmed_up(cluster, pod, profile)
    fork = cluster.fork()
    yield
    yield from warmed_up(fork, pod, profile)
    slot, decision = fork.view.slot(node_name), decide_on(fork, pod, profile, node_name)
    if slot is None:
        return Explanation(summary_of(pod), Verdict.WAITS, f"There is no node {node_name}.")
    fork.clear_nomination(pod.uid)
    if fork.node_of(pod.uid) == node_name:
        return _of_bound_pod(fork, pod)
    return (yield from _of_one_node(fork, pod, profile, slot, decision))


def _of_one_node(
    fork: Cluster, pod: Pod, profile: Profile, slot: Slot, decision: Decision | tuple[str, ...]
) -> Generator[None, None, Explanation]:
    name, bound_to, notes = fork.view.row(slot).node.name, fork.node_of(pod.uid), [*notes_on(pod, profile)]
    if bound_to is not None:
        notes.append(f"The pod is on {bound_to}.")
    by_plugin: dict[PluginName | None, list[Refusal]] = {}
    if isinstance(decision, Decision):
        by_plugin[None] = []
        message = f"{name} takes it{ids_text(decision.ids, pod)}."
        answer = Explanation(summary_of(pod), Verdict.FITS, message, node_name=name, ids=decision.ids)
    else:
        refusals = [] if refusal_of_pod(fork.view, pod, profile) else all_refusals(fork, slot, pod, profile)
        for refusal in refusals:
            by_plugin.setdefault(refusal.plugin, []).append(refusal)
        reasons = dict.fromkeys([refusal.reason.removesuffix(".") for refusal in refusals] or decision)
        answer = Explanation(summary_of(pod), Verdict.WAITS, f"{name} does not take it: {'; '.join(reasons)}.")
    groups: list[NodeGroup] = []
    for of_plugin in by_plugin.values():
        groups += yield from groups_of(fork, pod, profile, merged(of_plugin), among=1 << slot)
    verdict = Verdict.GATED if pod.gates else answer.verdict
    return attrs.evolve(answer, verdict=verdict, nodes=1, groups=tuple(groups), notes=tuple(notes))


def summary_of(pod: Pod) -> PodSummary:
    """Return what is shown of a pod."""
    return PodSummary(
        namespace=pod.namespace,
        name=pod.name,
        scheduler_name=pod.scheduler_name,
        priority=pod.priority,
        created=pod.created,
        asks=asked(pod.neuron),
    )


SCHEDULING_GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"
"""kube-apiserver's message in the condition of a gated pod."""
DELETED: Final = "The pod is being deleted, so no scheduler gives it a node."


def notes_on(pod: Pod, profile: Profile) -> Iterator[str]:
    """Yield what a reader must know to read the answer about a pending pod."""
    if profile.scheduler_name not in ("", pod.scheduler_name):
        yield (
            f"The pod's schedulerName is {clipped(pod.scheduler_name)}, so another scheduler decides it. This is what"
            f" {profile.scheduler_name} would decide."
        )
    if pod.gates:
        yield f"Its scheduling gates: {few_names(pod.gates)}. The rest is what would happen without them."


def ids_in(machine: Machine | None, cores: CoreMask | None, pod: Pod) -> tuple[int, ...]:
    """Return what a pod holds of a machine, in the unit of its request; empty if that is nothing or unknown."""
    if machine is None or not cores or pod.neuron is None:
        return ()
    width = machine.cores_per_device if pod.neuron.unit is Unit.DEVICE else 1
    return tuple(number for number in range(machine.size(pod.neuron.unit)) if int(cores) >> number * width & 1)


def ids_text(ids: tuple[int, ...], pod: Pod) -> str:
    """Return ` (devices 0-3)`; empty without ids."""
    return f" ({numbered(ids, pod.neuron.unit)})" if ids and pod.neuron is not None else ""


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


def groups_of(
    cluster: Cluster, pod: Pod, profile: Profile, refusals: Sequence[Refusal], *, among: NodeSet
) -> Generator[None, None, tuple[NodeGroup, ...]]:
    """
    Return the groups, the most promising first; yields when other tasks may run.

    Args:
        cluster: one that nobody changes; the pod has no nomination there.
        pod: whom the groups take or refuse.
        profile: whose filters.
        refusals: all of them (`merged`).
        among: which nodes.
    """
    parts = _parts(among, refusals)
    kept = less(kept_for_others(cluster, pod, profile), parts[0].nodes)
    groups = []
    for part in parts:
        for kind in (_Part(part.nodes & kept, part.refusals), _Part(less(part.nodes, kept), part.refusals)):
            if kind.nodes:
                found = yield from _of_part(cluster, pod, kind, keeps=bool(kind.nodes & kept))
                groups += [(_promise(cluster, pod, kind, group), group) for group in found]
    return tuple(group for _, group in sorted(groups, key=lambda pair: pair[0]))


def _parts(among: NodeSet, refusals: Sequence[Refusal]) -> list[_Part]:
    """Return the nodes by the refusals that name them, those that no refusal names first."""
    parts = [_Part(among)]
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


def _of_part(cluster: Cluster, pod: Pod, part: _Part, *, keeps: bool) -> Generator[None, None, list[NodeGroup]]:
    reasons = tuple(dict.fromkeys(refusal.reason for refusal in part.refusals))
    sentence = sentence_of(part.refusals[0].plugin if part.refusals else None, cluster.view, pod)
    slots: dict[_Key, list[Slot]] = {}
    for number, slot in enumerate(slots_of(part.nodes), start=1):
        node_info = cluster.view.row(slot)
        kept_for = _nominated(node_info, pod) if keeps else ()
        with_nominated = node_info.with_nominated(pod.priority)
        text = _kept_text(kept_for) if kept_for else sentence(slot, with_nominated, reasons)
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
    oldest = islice(cluster.view.oldest_first(from_slots(slots, max(slots) + 1)), MOST_NAMED)
    return NodeGroup(
        nodes=len(slots),
        names=tuple(cluster.view.row(slot).node.name for slot in oldest),
        instance_type=instance_type,
        plugin=part.refusals[0].plugin if part.refusals else "",
        reason=part.refusals[0].reason if part.refusals else "",
        arithmetic=text,
        cause=Cause.NOMINATED if kept_for else cause,
        kept_for=kept_for,
    )


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


def _decided(
    cluster: Cluster, pod: Pod, profile: Profile
) -> Generator[None, None, tuple[Decision | FitError, Explanation]]:
    """
    Decide a pod and return the outcome with all reasons; yields when other tasks may run.

    Args:
        cluster: a fork that nobody else uses; the pod's own nomination is removed from it.
        pod: it need not be pending.
        profile: whose filters.
    """
    yield from warmed_up(cluster, pod, profile)
    result, nodes = select_node(cluster, pod, profile), cluster.view.node_count
    yield
    if isinstance(result, Decision):
        cluster.clear_nomination(pod.uid)
        named = merged(refusals(cluster, pod, profile))
        outcome: Decision | FitError = result
        answer = Explanation(summary_of(pod), Verdict.FITS, _fits(pod, result), nodes=nodes)
        answer = attrs.evolve(answer, node_name=result.node_name, ids=result.ids)
    else:
        diagnosed = diagnosis(cluster, pod, profile, result)
        outcome = diagnosed.fit_error
        answer = Explanation(summary_of(pod), Verdict.WAITS, outcome.text, cause=outcome.cause, nodes=nodes)
        cluster.clear_nomination(pod.uid)
        if result.pod_refusal is not None:
            return outcome, _of_refused_pod(answer, cluster, result.pod_refusal)
        named = merged(diagnosed.refusals)
    yield
    groups = yield from groups_of(cluster, pod, profile, named, among=cluster.view.live)
    return outcome, attrs.evolve(answer, groups=groups)


def warmed_up(cluster: Cluster, pod: Pod, profile: Profile) -> Iterator[None]:
    """Build the indexes that the decision about a pod and its reasons need; yields when other tasks may run."""
    warmup = IndexWarmup()
    yield from warmup.of(cluster, pod, profile)
    yield from warmup.of_refusal(cluster, pod, profile)


def _of_refused_pod(answer: Explanation, cluster: Cluster, refusal: PodRefusal) -> Explanation:
    """Return the answer about a pod that is refused whatever the nodes are: all of them are one group."""
    if not answer.nodes:
        return answer
    names = tuple(node_info.node.name for node_info in islice(cluster.view.rows(), MOST_NAMED))
    group = NodeGroup(answer.nodes, names, plugin=refusal.plugin, reason=refusal.reason, cause=answer.cause)
    return attrs.evolve(answer, groups=(group,))


def _fits(pod: Pod, decision: Decision) -> str:
    """Return where a pod would go, in the words of the Event."""
    return f"{pod.key} fits now: it would be assigned to {decision.node_name}{ids_text(decision.ids, pod)}."

"""
Why one pod waits, or where it would go: the one answer behind the command, the endpoint and the page.

No step takes longer than a heartbeat of the scheduling process can wait. The answer is computed on a fork, which costs
about as much as a decision: it shares everything with the cluster until one of the two changes it. So the whole answer
is true of one moment, although the cluster changes in the pauses. The filters alone decide.
"""

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, from_slots, membership, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers import Explanation, NodeGroup, PodSummary, Verdict
from neuron_scheduler.explain.arithmetic import free_on, sentence_of, states_of_claims, unprovisioned_text
from neuron_scheduler.explain.changes.group import group_changes, prepare_new_nodes
from neuron_scheduler.explain.changes.search import changes
from neuron_scheduler.explain.groups import Waits, decide_in_group, label_complaints, mixed_text
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import CLAIM_GATE, DEFAULT_SCHEDULER, Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.model.wording import clip, count_text, few_names
from neuron_scheduler.neuron.annotations import has_ids, ids_in_words, lookup_amounts
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.neuron_shortage import request_text
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.refusals import (
    cause_of,
    cause_of_pod,
    kept_for_others,
    nodes_meant,
    refusal_of_pod,
    refusals,
    refusals_on,
    stage,
)
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, NoNode, decide_on, fit_error, select_node
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PluginName, PodRefusal, Refusal
from neuron_scheduler.scheduling.plugins.neuron_topology import free_units_of
from neuron_scheduler.scheduling.preemption.nominations import turn_text
from neuron_scheduler.scheduling.preemption.search import priorities_on

DELETED: Final = "The pod is being deleted, so no scheduler gives it a node."
SCHEDULER_NAME: Final = "scheduler_name"
"""The cause of a pod that no known scheduler serves; such a pod is in no queue, and in no metric."""
ALONE: Final = "The nodes are those for this pod alone; what would let it in is for its whole group."
MOST_NAMED: Final = 5
MOST_ALIKE: Final = 8
"""Groups with one reason and instance type; nodes with yet other figures are one group together."""
AT_ONCE: Final = 64
"""Nodes that are looked at before other tasks may run."""
_Kind = tuple[tuple[Refusal, ...], str, bool]
"""What nodes that may become one group have in common: the refusals, the instance type, and whether space is kept."""
_Figures = tuple[str, tuple[str, ...]]
"""The sentence, and the pods for which space is kept."""


class NoSuchNodeError(Exception):
    """The cluster has no node of the name in question."""


def explain_pod(cluster: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, Explanation]:
    """
    Return why the pod waits, or that it fits; yields whenever other tasks may run.

    Args:
        cluster: may change in the pauses; the answer is about its state at one of them.
        pod: pending, gated, bound or being deleted, of any scheduler.
        profile: with whose filters it is decided.
    """
    if pod.neuron is not None:
        yield from prepare_new_nodes(cluster.view, pod)
    fork = yield from _prepared_fork(cluster, pod, profile)
    if pod.node_name or fork.node_of(pod.uid) is not None:
        return _of_bound_pod(fork, pod)
    if pod.terminating:
        return Explanation(summary_of(pod), Verdict.WAITS, DELETED, cause=Cause.POD, nodes=fork.view.node_count)
    return (yield from _of_pending_pod(fork, pod, profile))


def _prepared_fork(cluster: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, Cluster]:
    yield from warm_up(cluster, pod, profile)  # the fork shares it, and what it builds itself is lost with it
    fork = cluster.fork()
    yield
    yield from warm_up(fork, pod, profile)  # what changed too fast before
    return fork


def _of_pending_pod(fork: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, Explanation]:
    result: Decision | NoNode | Waits
    mixed = ""
    if fork.groups.group_to_plan(pod) is None:
        result = select_node(fork, pod, profile)
    else:
        decided = yield from decide_in_group(fork.fork(), pod, profile)
        result, mixed = decided[pod.uid], _mixed_text(fork, decided)
    nodes, decider = fork.view.node_count, decider_text(pod, profile)
    notes = tuple(filter(None, (*notes_on(pod), mixed, turn_text(fork, pod), _room_text(fork, pod))))
    yield
    fork.clear_nomination(pod.uid)
    pod_refusal, known = (result.pod_refusal, result.too_late) if isinstance(result, NoNode) else (None, ())
    if isinstance(result, Waits):
        pod_refusal = result.complaint
    if pod_refusal is not None:
        groups = tuple(_of_all_nodes(fork, pod_refusal))
    else:
        groups = yield from groups_of(fork, pod, profile, refusals(fork, pod, profile, known), among=fork.view.live)
    if isinstance(result, Waits):
        refused = result.refused
        suggested, more = (yield from group_changes(fork, pod, *refused, profile)) if refused else ((), ())
        answer = Explanation(summary_of(pod), Verdict.WAITS, result.message, result.cause, nodes, groups, suggested)
        answer = attrs.evolve(answer, notes=(*notes, ALONE, *more))
    elif isinstance(result, Decision) and (claim := unprovisioned_text(fork.view, pod)):
        message = f"{pod.key} waits for {claim}."
        answer = Explanation(summary_of(pod), Verdict.WAITS, message, Cause.VOLUMES, nodes, groups, notes=notes)
    elif isinstance(result, Decision):
        where = f"{profile.scheduler_name} would assign it to" if decider else "it would be assigned to"
        message = f"{pod.key} fits now: {where} {result.node_name}{ids_text(result.ids, pod)}."
        if pod.scheduled is not None and pod.scheduled.message:  # the filters know nothing of a refused Binding
            message = f"Its condition says of the last attempt: {pod.scheduled.message.rstrip('.')}. {message}"
        answer = Explanation(summary_of(pod), Verdict.FITS, message, nodes=nodes, groups=groups, notes=notes)
        answer = attrs.evolve(answer, node_name=result.node_name, ids=result.ids)
    else:
        error = fit_error(fork, pod, profile, result)
        yield
        suggested, more = yield from changes(fork, pod, profile, refused=error)
        answer = Explanation(summary_of(pod), Verdict.WAITS, error.text, error.cause, nodes, groups, suggested)
        answer = attrs.evolve(answer, notes=(*notes, *more))
    if answer.cause == Cause.VOLUMES:
        of_claims = islice(states_of_claims(fork.view, pod), MOST_NAMED)
        answer = attrs.evolve(answer, notes=(*answer.notes, *of_claims))
    if unserved_text(pod, profile):
        return _of_unserved_pod(answer, pod, profile)
    answer = attrs.evolve(answer, decider=decider)
    return _with_gates(answer, pod) if pod.gates else answer


def _mixed_text(fork: Cluster, decided: Mapping[str, Decision | Waits]) -> str:
    """Return that members with Neuron would be on machines of several families; empty if they would not."""
    nodes = [each.node_name for each in decided.values() if isinstance(each, Decision) and each.placement is not None]
    rows = [fork.node(name) for name in nodes]
    return mixed_text(row.node.instance_type for row in rows if row is not None)


def decider_text(pod: Pod, profile: Profile) -> str:
    """Return a sentence if the default scheduler decides the pod, and not the profile that explains it; else empty."""
    if pod.scheduler_name != DEFAULT_SCHEDULER or profile.scheduler_name in ("", DEFAULT_SCHEDULER):
        return ""
    ours = profile.scheduler_name
    return (
        f"The pod's schedulerName is {DEFAULT_SCHEDULER}: {ours} does not decide it. {remedy_text(ours)}"
        f" This is what {ours} would do."
    )


def unserved_text(pod: Pod, profile: Profile) -> str:
    """Return a sentence if no known scheduler serves the pod, which the profile then explains; empty if one does."""
    name = pod.scheduler_name
    if profile.scheduler_name in ("", name) or name == DEFAULT_SCHEDULER:
        return ""
    known = f"No scheduler that is known here serves {clip(name)}; if one does, it decides."
    return f"{known} {remedy_text(profile.scheduler_name)}"


def remedy_text(ours: str, whose: str = "its template") -> str:
    return f"If {ours} is to decide, set schedulerName: {ours} in {whose}, and create the pod again."


def _of_unserved_pod(explanation: Explanation, pod: Pod, profile: Profile) -> Explanation:
    """Return the explanation of a pod that no known scheduler serves from that of the same pod with our name."""
    return Explanation(
        explanation.pod,
        Verdict.WAITS,
        unserved_text(pod, profile),
        SCHEDULER_NAME,
        explanation.nodes,
        notes=(*explanation.notes, f"With schedulerName {profile.scheduler_name}: {explanation.message}"),
    )


def _of_all_nodes(cluster: Cluster, refusal: PodRefusal) -> Iterator[NodeGroup]:
    """Yield the group of a pod that is refused whatever the nodes are: all of them."""
    names = tuple(node_info.node.name for node_info in islice(cluster.view.rows(), MOST_NAMED))
    if names:
        cause = cause_of_pod(refusal)
        yield NodeGroup(cluster.view.node_count, names, plugin=refusal.plugin, reason=refusal.reason, cause=cause)


def gates_text(pod: Pod) -> str:
    """Return why a pod with gates is not tried."""
    if pod.gates == (CLAIM_GATE,):
        return f"Waiting for a resource claim: {pod.refusal}."
    return f"Scheduling is blocked due to non-empty scheduling gates ({few_names(pod.gates)})."


def _with_gates(explanation: Explanation, pod: Pod) -> Explanation:
    """Return the explanation of a pod with scheduling gates from that of the same pod without them."""
    if pod.gates == (CLAIM_GATE,):
        return attrs.evolve(explanation, cause=Cause.VOLUMES, message=gates_text(pod), groups=())
    return attrs.evolve(
        explanation,
        verdict=Verdict.GATED,
        cause=Cause.GATED,
        message=gates_text(pod),
        notes=(*explanation.notes, f"Without the gates: {explanation.message}"),
    )


def _of_bound_pod(fork: Cluster, pod: Pod) -> Explanation:
    known = fork.pod_info(pod.uid)
    name = fork.node_of(pod.uid) or pod.node_name
    node_info = fork.node(name)
    ids = () if known is None or node_info is None else ids_held(node_info.machine, known.cores, known.pod)
    notes = [] if node_info is not None else [f"There is no node {name}."]
    if known is not None and known.cores is None and node_info is not None:
        notes.append(
            f"The ids of its Neuron are unknown: {clip(known.problem)}. Until it ends, its node gets no pod that"
            " asks for more than one device or core, but fewer than all."
        )
    if node_info is not None and node_info.machine is not None:
        notes.append(f"{name} has {free_on(node_info)}.")
    nominations = () if node_info is None else node_info.nominations
    preemptors = [each.pod.key for each in nominations if pod.uid in each.victims and not each.awaited]
    if preemptors:
        notes.append(f"It is evicted for {few_names(preemptors)}.")
    if pod.terminating:
        notes.append("The pod is being deleted; until it is gone, it holds what it holds.")
    if not pod.node_name and (wait := _fence_text(fork, pod, name)):
        notes.append(wait)
    if not pod.node_name and (claim := unprovisioned_text(fork.view, pod)):
        notes.append(f"It waits for {claim}.")
    state = "is about to be bound to" if fork.is_assumed(pod.uid) else "is on"
    message = f"{pod.key} {state} {name}{ids_text(ids, pod)}."
    return Explanation(
        summary_of(pod), Verdict.BOUND, message, nodes=fork.view.node_count, notes=tuple(notes), node_name=name, ids=ids
    )


def _fence_text(fork: Cluster, pod: Pod, node_name: str) -> str:
    """Return that a pod's Binding waits for another pod, which has not started there; empty if it does not."""
    node_info = fork.node(node_name)
    machine = None if node_info is None else node_info.machine
    if node_info is None or machine is None or pod.neuron is None:
        return ""
    amounts = lookup_amounts(pod.neuron, machine)
    for other in (info.pod for info in node_info.pod_infos.values()):
        if other.admitted or other.neuron is None or not has_ids(other):
            continue
        if not amounts.isdisjoint(lookup_amounts(other.neuron, machine)):
            named = other.key if other.namespace == pod.namespace else "a pod of another namespace"
            wait = f"Its Binding waits, 120 s at most, until {named} has started on {node_name}"
            return f"{wait}: the device plugin could confuse their devices."
    return ""


def _room_text(fork: Cluster, pod: Pod) -> str:
    """Return on which node other pods are evicted for a pod; empty if none are."""
    name, nomination = fork.nomination(pod.uid) or ("", None)
    node_info = fork.node(name)
    if nomination is None or nomination.awaited or node_info is None:
        return ""
    count = len(nomination.victims & node_info.pod_infos.keys())
    return f"{name} is nominated for it: {count_text(count, 'pod')} there must end first." if count else ""


def explain_on_node(cluster: Cluster, pod: Pod, profile: Profile, node_name: str) -> Generator[None, None, Explanation]:
    """
    Return whether one node takes the pod, as `explain_pod`. Raises NoSuchNodeError.

    Every filter is asked, also those after the first refusal: each group is this node, with what one of them says.
    """
    fork = yield from _prepared_fork(cluster, pod, profile)
    slot, decision = fork.view.slot(node_name), decide_on(fork, pod, profile, node_name)
    if slot is None:
        raise NoSuchNodeError(f"there is no node {clip(node_name)}")
    fork.clear_nomination(pod.uid)
    if fork.node_of(pod.uid) == node_name:
        return _of_bound_pod(fork, pod)
    kept_away = unserved_text(pod, profile)
    if not kept_away and fork.groups.group_to_plan(pod) is not None:
        in_group = (yield from decide_in_group(fork.fork(), pod, profile))[pod.uid]
        kept_away = in_group.message if isinstance(in_group, Waits) else ""
    return (yield from _of_one_node(fork, pod, profile, slot, decision, kept_away=kept_away))


def _of_one_node(
    fork: Cluster, pod: Pod, profile: Profile, slot: Slot, decision: Decision | tuple[str, ...], *, kept_away: str
) -> Generator[None, None, Explanation]:
    """Return the answer; `kept_away` says why the pod gets no node at all, although this one may take it."""
    name, notes = fork.view.row(slot).node.name, [*notes_on(pod)]
    bound_to = fork.node_of(pod.uid) or pod.node_name
    if bound_to:
        notes.append(f"The pod is on {bound_to}.")
    by_plugin: dict[PluginName | None, list[Refusal]] = {}
    if isinstance(decision, Decision):
        by_plugin[None] = []
        message = f"{name} takes it{ids_text(decision.ids, pod)}."
        answer = Explanation(summary_of(pod), Verdict.FITS, message, node_name=name, ids=decision.ids)
        if kept_away:
            message = f"{name} would take this pod, but it stays Pending. {kept_away}"
            answer = Explanation(summary_of(pod), Verdict.WAITS, message)
    else:
        found: list[Refusal] = []
        if refusal_of_pod(fork.view, pod, profile) is None:
            found = refusals_on(fork, slot, pod, profile, every_filter=True)
        for refusal in found:
            by_plugin.setdefault(refusal.plugin, []).append(refusal)
        reasons = dict.fromkeys([refusal.reason.removesuffix(".") for refusal in found] or decision)
        message = f"{name} does not take it: {'; '.join(reasons)}."
        answer = Explanation(summary_of(pod), Verdict.WAITS, message, node_name=bound_to)
    groups: list[NodeGroup] = []
    for of_plugin in by_plugin.values():
        groups += yield from groups_of(fork, pod, profile, of_plugin, among=1 << slot)
    verdict = Verdict.GATED if pod.gates not in ((), (CLAIM_GATE,)) else answer.verdict
    answer = attrs.evolve(answer, verdict=verdict, nodes=1, groups=tuple(groups), notes=tuple(notes))
    return attrs.evolve(answer, decider=decider_text(pod, profile))


def summary_of(pod: Pod) -> PodSummary:
    names = [name for name in NEURON_NAMES if pod.requests.get(name)]
    return PodSummary(
        namespace=pod.namespace,
        name=pod.name,
        scheduler_name=pod.scheduler_name,
        priority=pod.priority,
        created=pod.created,
        asks=request_text(pod.neuron) or (f"{len(names)} resource names" if len(names) > 1 else ""),
        group="" if pod.group is None else pod.group.key.title,
        owner="" if pod.owner is None else f"{pod.owner.kind} {pod.owner.name}",
    )


def pods_of(name: str, pods: Iterable[Pod]) -> str:
    """Return which of the pods a group, Job or Deployment of a name has, the pending ones first; empty if none."""
    found = sorted((bool(pod.node_name), pod.key) for pod in pods if name in _names_of_many(pod))
    return (
        f"; {clip(name)} has {count_text(len(found), 'pod')}: {few_names([key for _, key in found])}" if found else ""
    )


def _names_of_many(pod: Pod) -> Iterator[str]:
    if pod.group is not None:
        yield pod.group.key.title
    if pod.owner is not None:
        yield pod.owner.name
        yield pod.owner.name.rpartition("-")[0]  # a Deployment's ReplicaSet


def notes_on(pod: Pod) -> Iterator[str]:
    """Yield what a reader must know to read the answer about a pending pod."""
    if pod.gates not in ((), (CLAIM_GATE,)):
        yield f"Its scheduling gates: {few_names(pod.gates)}. The rest is what would happen without them."
    if pod.group is not None:
        yield f"It is in group {clip(pod.group.key.title)}: enough members get a node at once, or none does."
    yield from label_complaints(pod)


def ids_held(machine: Machine | None, cores: CoreMask | None, pod: Pod) -> tuple[int, ...]:
    """Return what a pod holds of a machine, in the unit of its request; empty if that is nothing or unknown."""
    if machine is None or not cores:
        return ()
    unit = _unit_of(pod)
    width = machine.cores_per_device if unit is Unit.DEVICE else 1
    return tuple(number for number in range(machine.size(unit)) if int(cores) >> number * width & 1)


def _unit_of(pod: Pod) -> Unit:
    """Return in what a pod's ids count; a pod with ids and no request has them by claims."""
    return Unit.DEVICE if pod.neuron is None else pod.neuron.unit


def ids_text(ids: tuple[int, ...], pod: Pod) -> str:
    """Return ` (devices 0-3)`; empty without ids."""
    return f" ({ids_in_words(ids, _unit_of(pod))})" if ids else ""


def groups_of(
    cluster: Cluster, pod: Pod, profile: Profile, found: Sequence[Refusal], *, among: NodeSet
) -> Generator[None, None, tuple[NodeGroup, ...]]:
    """
    Return the groups, the most promising first; yields when other tasks may run.

    Nobody changes the cluster, in which the pod has no nomination; `found` are all refusals of the nodes `among`.
    """
    meant, kept = nodes_meant(cluster.view, pod, profile), kept_for_others(cluster, pod, profile)
    kinds: dict[_Kind, dict[_Figures, list[Slot]]] = {}
    for by, nodes in (yield from _by_refusals(found, among)).items():
        sentence = sentence_of(by[0].plugin if by else None, cluster.view, pod)
        reasons = tuple(dict.fromkeys(refusal.reason for refusal in by))
        is_kept = membership(kept & nodes if by else NO_NODES, among.bit_length())
        alike = defaultdict[tuple[str, bool], dict[_Figures, list[Slot]]](dict)
        for number, slot in enumerate(slots_of(nodes), start=1):
            node_info = cluster.view.row(slot)
            kept_for = _nominated_pods(node_info, pod) if is_kept(slot) else ()
            if kept_for:
                text = f"it would take the pod, but its space is kept for {few_names(kept_for)}"
            else:
                text = sentence(slot, node_info.with_nominated(pod.priority), reasons)
            figures = alike[node_info.node.instance_type, bool(kept_for)]
            figures.setdefault((text, kept_for), []).append(slot)
            if number % AT_ONCE == 0:
                yield
        kinds |= {(by, *of_nodes): figures for of_nodes, figures in alike.items()}
    groups: list[tuple[tuple[float, ...], NodeGroup]] = []
    for kind, figures in sorted(kinds.items(), key=lambda entry: next(iter(entry[1].values()))[0]):  # the oldest first
        yield
        for shown, slots in _largest(cluster, figures):
            nodes = from_slots(slots, max(slots) + 1)
            group = _group(cluster, pod, kind, shown, nodes)
            groups.append((_promise(cluster, pod, kind[0], group, excluded=not nodes & meant), group))
            yield
    return tuple(group for _, group in sorted(groups, key=lambda pair: pair[0]))


def _by_refusals(found: Sequence[Refusal], among: NodeSet) -> Generator[None, None, dict[tuple[Refusal, ...], NodeSet]]:
    """Return the nodes by all that refuse them, in the order of `found`; the refusals there have no nodes."""
    nodes_by: dict[tuple[Refusal, ...], NodeSet] = {(): among}
    for refusal in found:
        named, split = attrs.evolve(refusal, nodes=NO_NODES), dict[tuple[Refusal, ...], NodeSet]()
        for by, nodes in nodes_by.items():
            more = by if named in by else (*by, named)  # nominations make two
            inside = nodes & refusal.nodes
            for each, part in ((by, nodes ^ inside), (more, inside)):
                if part:
                    split[each] = split.get(each, NO_NODES) | part
        nodes_by = split
        yield
    return nodes_by


def _nominated_pods(node_info: NodeInfo, pod: Pod) -> tuple[str, ...]:
    return tuple(nomination.pod.key for nomination in node_info.nominations if nomination.pod.priority >= pod.priority)


def _largest(cluster: Cluster, figures: dict[_Figures, list[Slot]]) -> Iterator[tuple[_Figures, list[Slot]]]:
    order = nsmallest(MOST_ALIKE + 1, figures, key=lambda each: (-len(figures[each]), each))
    yield from ((each, figures[each]) for each in order[:MOST_ALIKE])
    if len(figures) > MOST_ALIKE:
        text, kept_for = example = order[MOST_ALIKE]
        name = cluster.view.row(figures[example][0]).node.name
        others = [slot for each in figures.keys() - {*order[:MOST_ALIKE]} for slot in figures[each]]
        yield (f"different figures, such as on {clip(name)}: {text}", kept_for), others


def _group(cluster: Cluster, pod: Pod, kind: _Kind, figures: _Figures, nodes: NodeSet) -> NodeGroup:
    (by, instance_type, _), (text, kept_for) = kind, figures
    some = islice(cluster.view.rows_of(nodes), MOST_NAMED)
    return NodeGroup(
        nodes=nodes.bit_count(),
        names=tuple(node_info.node.name for node_info in some),
        instance_type=instance_type,
        plugin=by[0].plugin if by else "",
        reason=by[0].reason if by else "",
        arithmetic=text,
        cause=Cause.NOMINATED if kept_for else cause_of(pod, by) if by else "",
        kept_for=kept_for,
    )


def _promise(
    cluster: Cluster, pod: Pod, by: Sequence[Refusal], group: NodeGroup, *, excluded: bool
) -> tuple[float, ...]:
    """
    Return the order of the groups: nodes that take the pod, those that would, those that no rule excludes; then by how
    far they came.

    Of equal ones, those with more free devices or cores come first, then the larger groups. Of nodes that take the pod,
    those with fewer come first, as the decision prefers them.
    """
    node_info, free = cluster.node(group.names[0]), 0
    if pod.neuron is not None and node_info is not None:
        free = free_units_of(pod.neuron.resource)(node_info)
    if not by or group.kept_for:
        return (1.0 if group.kept_for else 0.0, 0.0, free, -group.nodes)
    return (3.0 if excluded else 2.0, -max(stage(pod, refusal)[0] for refusal in by), -free, -group.nodes)


def warm_up(cluster: Cluster, pod: Pod, profile: Profile) -> Iterator[None]:
    """Build the indexes that the decision about a pod and its reasons need; yields when other tasks may run."""
    warmup = IndexWarmup()
    yield from warmup.prepare(cluster, pod, profile)
    yield from warmup.prepare_refusal(cluster, pod, profile)
    yield from cluster.view.prepare(lambda view: view.postings(priorities_on))

"""
Why one pod waits, or where it would go: the one answer behind the command, the endpoint and the page.

It runs in the scheduling process, too, so it pauses: no step takes longer than a heartbeat can wait. It works on a fork
of the cluster, which shares everything until one of the two changes it and takes about as long as a decision. So the
whole answer is true of one moment, although the cluster changes in the pauses. Does not decide by anything but the
filters or change the cluster that it is asked about.
"""

from collections.abc import Generator, Sequence

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers.explanation import Change, Explanation, FilterVerdict, NodeExplanation, Verdict
from neuron_scheduler.explain.arithmetic import free_on
from neuron_scheduler.explain.changes.search import changes
from neuron_scheduler.explain.reasons import all_refusals, holders, reasons, verdicts, warmed_up
from neuron_scheduler.explain.subject import (
    DELETED,
    SCHEDULING_GATED,
    bound_text,
    ids_in,
    ids_text,
    notes_on,
    summary,
    unknown_text,
)
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import few_names
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, decide_on, refusal_of_pod
from neuron_scheduler.scheduling.plugins.cause import Cause


def explain_pod(
    cluster: Cluster,
    pod: Pod,
    profile: Profile,
    *,
    budgets: Sequence[DisruptionBudget] = (),
    now: float = 0.0,
) -> Generator[None, None, Explanation]:
    """
    Return why the pod waits, or that it fits; yields whenever other tasks may run.

    Args:
        cluster: may change in the pauses; the answer is about its state at one of them.
        pod: pending, gated, bound or being deleted, of any scheduler.
        profile: with whose filters it is decided.
        budgets: all PodDisruptionBudgets, for the pods that would have to leave.
        now: seconds since the epoch.
    """
    yield from warmed_up(cluster, pod, profile)  # a fork shares the indexes, but what it builds itself is lost with it
    fork = cluster.fork()
    yield
    if pod.node_name or fork.node_of(pod.uid) is not None:
        return _of_bound_pod(fork, pod)
    if pod.terminating:
        return Explanation(summary(pod), Verdict.WAITS, DELETED, cause=Cause.POD, nodes=fork.view.node_count)
    return (yield from _of_pending_pod(fork, pod, profile, budgets=budgets, now=now))


def _of_pending_pod(
    fork: Cluster, pod: Pod, profile: Profile, *, budgets: Sequence[DisruptionBudget], now: float
) -> Generator[None, None, Explanation]:
    found = yield from reasons(fork, pod, profile)
    suggested: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    decision = found.outcome if isinstance(found.outcome, Decision) else None
    if isinstance(found.outcome, FitError):
        suggested, notes = yield from changes(fork, pod, profile, refused=found.outcome, budgets=budgets, now=now)
    explanation = Explanation(
        summary(pod),
        Verdict.WAITS if decision is None else Verdict.FITS,
        found.message,
        cause=found.cause,
        nodes=fork.view.node_count,
        filters=found.filters,
        groups=found.groups,
        changes=suggested,
        notes=(*notes_on(pod, profile), *notes),
        node_name="" if decision is None else decision.node_name,
        ids=() if decision is None else decision.ids,
    )
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
        notes.append(unknown_text(known))
    if node_info is not None and node_info.machine is not None:
        notes.append(_free_note(node_info))
    if pod.terminating:
        notes.append("The pod is being deleted; until it is gone, it holds what it holds.")
    message = bound_text(pod, name, ids_text(ids, pod), assumed=fork.is_assumed(pod.uid))
    return Explanation(
        summary(pod, name),
        Verdict.BOUND,
        message,
        nodes=fork.view.node_count,
        notes=tuple(notes),
        node_name=name,
        ids=ids,
    )


def _free_note(node_info: NodeInfo) -> str:
    return f"{node_info.node.name} has {free_on(node_info)}."


def explain_on_node(
    cluster: Cluster, pod: Pod, profile: Profile, node_name: str
) -> Generator[None, None, NodeExplanation]:
    """
    Return what every filter says of one node; yields whenever other tasks may run.

    The arguments are those of `explain_pod`; there need not be a node of that name.
    """
    yield from warmed_up(cluster, pod, profile)
    fork = cluster.fork()
    yield
    yield from warmed_up(fork, pod, profile)
    slot, decision = fork.view.slot(node_name), decide_on(fork, pod, profile, node_name)
    if slot is None:
        return NodeExplanation(summary(pod), node_name, Verdict.WAITS, f"There is no node {node_name}.")
    fork.clear_nomination(pod.uid)
    if fork.node_of(pod.uid) == node_name:
        return _of_bound_pod_here(fork, pod, slot)
    return _of_pod_and_node(fork, pod, profile, slot, decision)


def _of_bound_pod_here(fork: Cluster, pod: Pod, slot: Slot) -> NodeExplanation:
    bound, node_info = _of_bound_pod(fork, pod), fork.view.row(slot)
    on_free = _free_note(node_info)
    return NodeExplanation(
        bound.pod,
        bound.node_name,
        Verdict.BOUND,
        bound.message,
        instance_type=node_info.node.instance_type,
        free=free_on(node_info),
        holders=holders(node_info),
        ids=bound.ids,
        notes=tuple(note for note in bound.notes if note != on_free),  # `free` says it
    )


def _of_pod_and_node(
    fork: Cluster, pod: Pod, profile: Profile, slot: Slot, decision: Decision | tuple[str, ...]
) -> NodeExplanation:
    node_info = fork.view.row(slot)
    name, notes = node_info.node.name, [*notes_on(pod, profile)]
    if fork.node_of(pod.uid) is not None:
        notes.append(f"The pod is on {fork.node_of(pod.uid)}.")
    ids = () if isinstance(decision, tuple) else decision.ids
    said: tuple[FilterVerdict, ...] = ()
    if refusal_of_pod(fork.view, pod, profile) is None:
        said = tuple(verdicts(fork, slot, pod, profile, all_refusals(fork, slot, pod, profile)))
    if isinstance(decision, tuple):
        reasons_here = [r.removesuffix(".") for verdict in said for r in verdict.reasons] or [*decision]
        verdict, message = Verdict.WAITS, f"{name} does not take it: {'; '.join(dict.fromkeys(reasons_here))}."
    else:
        verdict, message = Verdict.FITS, f"{name} takes it{ids_text(ids, pod)}."
    return NodeExplanation(
        summary(pod),
        name,
        Verdict.GATED if pod.gates else verdict,
        message,
        instance_type=node_info.node.instance_type,
        filters=said,
        free=free_on(node_info),
        holders=holders(node_info),
        ids=ids,
        notes=tuple(notes),
    )

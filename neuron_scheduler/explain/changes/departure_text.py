"""
A departure in words: which pods have to go, what that means, and the command that ends them.

Does not say that nothing else ends with them: a controller may start others in their place, and the sentence says so.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers.explanation import Change, ChangeKind, LeavingPod
from neuron_scheduler.explain.changes.question import Question
from neuron_scheduler.explain.changes.wording import kubectl
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import few, few_names
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.preemption.victims import by_importance


def change_of(question: Question, node_info: NodeInfo, gone: Sequence[Pod]) -> Change:
    """Return the end of these pods of a node as a change; those that must be ended come first, by importance."""
    live = by_importance(pod for pod in gone if not pod.terminating)
    ending = by_importance(pod for pod in gone if pod.terminating)
    violating = question.disruption_allowance.violating(live)
    pods = tuple(_leaving(question, node_info, pod, violates=pod.uid in violating) for pod in (*live, *ending))
    return Change(
        ChangeKind.DEPARTURE,
        " ".join(_sentences(question, node_info, live, ending, pods)),
        command=_command(live),
        node_name=node_info.node.name,
        pods=pods,
        instance_type=node_info.node.instance_type,
    )


def _leaving(question: Question, node_info: NodeInfo, pod: Pod, *, violates: bool) -> LeavingPod:
    info = node_info.pod_infos.get(pod.uid)
    budgets = question.disruption_allowance.budgets
    return LeavingPod(
        pod.namespace,
        pod.name,
        priority=pod.priority,
        started=pod.started or 0.0,
        asks=asked(pod.neuron),
        budgets=tuple(budget.name for budget in budgets if budget.counts(pod)),
        violates=violates,
        evictable=info is not None and not info.unreadable and pod.priority < question.pod.priority,
    )


def _sentences(
    question: Question, node_info: NodeInfo, live: Sequence[Pod], ending: Sequence[Pod], pods: Sequence[LeavingPod]
) -> Iterator[str]:
    """Yield what is to be done, and what whoever does it should know."""
    name = node_info.node.name
    are = "is" if len(ending) == 1 else "are"
    if not live:
        yield f"Wait: {_named(node_info, ending)} {are} ending on {name}, and then the pod goes there."
        return
    yield f"End or evict {_named(node_info, live)} on {name}: the pod then goes there."
    if ending:
        yield f"{_named(node_info, ending)} {are} ending already."
    budgets = dict.fromkeys(budget for pod in pods if pod.violates for budget in pod.budgets)
    if budgets:
        which = f"the disruption budget{_s(budgets)} {few_names(list(budgets))}"
        yield f"This goes beyond what {which} allow{_s(budgets, 's', '')}."
    their = _s(live, "Its", "Their")
    if all(pod.evictable for pod in pods[: len(live)]) and not question.pod.never_preempts:
        them = _s(live, "it", "them")
        yield f"{their} priority is lower, so the scheduler may evict {them} itself."
    if any(pod.owner is not None for pod in live):
        yield f"{their} controller{_s(live)} may start {_s(live, 'another in its', 'others in their')} place."


def _s(things: Collection[object], one: str = "", several: str = "s") -> str:
    """Return the form of a word for one thing or for several."""
    return one if len(things) == 1 else several


def _named(node_info: NodeInfo, pods: Sequence[Pod]) -> str:
    return few([f"{pod.key}{_remark(node_info, pod)}" for pod in pods])


def _remark(node_info: NodeInfo, pod: Pod) -> str:
    info = node_info.pod_infos.get(pod.uid)
    if info is None:
        return " (it is pending, and space is kept for it)"
    if info.unreadable:
        return " (its object cannot be read)"
    return " (its Neuron ids are unknown)" if info.cores is None else ""


def _command(pods: Sequence[Pod]) -> str:
    by_namespace: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        by_namespace[pod.namespace].append(pod.name)
    commands = [
        kubectl("delete", "pod", "--namespace", namespace, *names, names=(namespace, *names))
        for namespace, names in by_namespace.items()
    ]
    return " && ".join(commands) if all(commands) else ""

"""
INSTANCE_TYPE: the pod selects another instance type that the cluster has.

Only for a pod that selects instance types: any other pod may go to every type already. All that it requires of the
node's type is replaced by the one type; what else it requires stays. Smallest: of the types that take it now, the one
whose machines have the fewest devices, then by name; the sentence names the others.
"""

from collections.abc import Iterator
from typing import Final, cast

import attrs

from neuron_scheduler.explain.answers.explanation import Change, ChangeKind
from neuron_scheduler.explain.changes.question import Found, Note, Question, any_of, with_template
from neuron_scheduler.model.node import BETA_INSTANCE_TYPE_LABEL, INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement

_TYPE_LABELS: Final = (INSTANCE_TYPE_LABEL, BETA_INSTANCE_TYPE_LABEL)
_MOST_TRIED: Final = 32
_NOT_ALL: Final = Note(f"Only {_MOST_TRIED} instance types were tried.")


def selects_types(pod: Pod) -> bool:
    """Return whether a pod requires anything of the node's instance type."""
    terms = pod.constraints.required_terms or ()
    return any(key in pod.constraints.node_selector for key in _TYPE_LABELS) or any(
        expression.key in _TYPE_LABELS for term in terms for expression in term.expressions
    )


def depends_on_type(pod: Pod) -> bool:
    """Return whether it may matter for a pod which instance type a node has, apart from its devices."""
    constraints = pod.constraints
    keys = {term.topology_key for term in (*constraints.affinity, *constraints.anti_affinity)}
    keys |= {constraint.topology_key for constraint in constraints.spread}
    return selects_types(pod) or any(key in keys for key in _TYPE_LABELS)


def selecting(pod: Pod, value: str | None) -> Pod:
    """Return the pod as it is if it selects one type by the label's value; None for a pod that selects none."""
    constraints = pod.constraints
    selector = {key: each for key, each in constraints.node_selector.items() if key not in _TYPE_LABELS}
    if value is not None:
        selector[INSTANCE_TYPE_LABEL] = value
    terms = constraints.required_terms
    if terms is not None:
        terms = tuple(_without_type(term) for term in terms)
        terms = None if any(not (term.expressions or term.fields or term.unreadable) for term in terms) else terms
    return attrs.evolve(pod, constraints=attrs.evolve(constraints, node_selector=selector, required_terms=terms))


def _without_type(term: NodeSelectorTerm) -> NodeSelectorTerm:
    """Return a term without its requirements of the type; a term that was empty matches nothing, and stays so."""
    if not (term.expressions or term.fields):
        return NodeSelectorTerm((Requirement(INSTANCE_TYPE_LABEL, Operator.IN, ()),))
    return attrs.evolve(term, expressions=tuple(each for each in term.expressions if each.key not in _TYPE_LABELS))


def find(question: Question) -> Iterator[Found]:
    """Yield the smallest type that takes the pod."""
    if not selects_types(question.pod):
        return
    free = selecting(question.pod, None)
    yield from question.warmed_up(selecting(free, "any"))
    values = _likely(question, free)
    yield None
    fitting: list[tuple[int, str, str]] = []
    for value in values[:_MOST_TRIED]:
        decision = question.decision(selecting(question.pod, value))
        if decision is not None:
            fitting.append((_devices(question, decision.node_name), value, decision.node_name))
        yield None
    if len(values) > _MOST_TRIED:
        yield _NOT_ALL
    for _, value, _ in sorted(fitting):
        decision = question.decision(selecting(question.pod, value))
        if decision is not None:
            others = [other for _, other, _ in sorted(fitting) if other != value]
            yield _change(question.pod, value, decision.node_name, others)
            return


def _likely(question: Question, free: Pod) -> list[str]:
    """Return the types of the nodes that take the pod if it selects none."""
    view = question.cluster.view
    by_type = view.labelled(INSTANCE_TYPE_LABEL)
    nodes = view.live if question.reads_other_nodes else question.fitting(free, view.live)
    return sorted(value for value in cast(frozenset[str], by_type.values) if by_type.get(value) & nodes)


def _devices(question: Question, node_name: str) -> int:
    node_info = question.cluster.node(node_name)
    return 0 if node_info is None or node_info.machine is None else node_info.machine.devices


def _change(pod: Pod, value: str, node_name: str, others: list[str]) -> Change:
    also = f" {any_of(others)} would do, too." if others else ""
    return Change(
        ChangeKind.INSTANCE_TYPE,
        with_template(f"Select the instance type {value}: the pod then goes to {node_name}.{also}", pod),
        node_name=node_name,
        instance_type=value,
        detail=f"{INSTANCE_TYPE_LABEL}={value}",
    )

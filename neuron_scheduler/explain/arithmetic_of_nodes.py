"""What a node's object lacks for a pod: cordons, taints, labels, features (see `arithmetic`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.model.wording import clipped, few_names, first_of
from neuron_scheduler.scheduling.plugins import node_affinity, node_unschedulable

_MOST_VALUES: Final = 4
_Sentence = Callable[[Slot, NodeInfo, Sequence[str]], str]


def cordon(_view: View, _pod: Pod) -> _Sentence:
    """Return what keeps a node closed."""

    def sentence(_slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        if node_unschedulable.UNREADABLE in reasons:
            return f"its object could not be read: {clipped(node_info.node.refusal)}"
        return "it is cordoned (spec.unschedulable)"

    return sentence


def name(_view: View, pod: Pod) -> _Sentence:
    """Return which node the pod names."""
    return lambda _slot, _node_info, _reasons: f"the pod names the node {clipped(pod.node_name)}"


def taints(_view: View, pod: Pod) -> _Sentence:
    """Return the taints that the pod does not tolerate."""

    @lru_cache(maxsize=1024)
    def of_list(node_taints: tuple[Taint, ...]) -> str:
        untolerated = [
            taint_text(taint)
            for taint in node_taints
            if taint.effect is not Effect.PREFER_NO_SCHEDULE and not any(t.tolerates(taint) for t in pod.tolerations)
        ]
        return f"the pod does not tolerate {few_names(untolerated)}"

    return lambda _slot, node_info, _reasons: of_list(node_info.node.taints)


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it: `key=value:effect`."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def affinity(_view: View, pod: Pod) -> _Sentence:
    """Return which selected label a node lacks, or which required term it misses."""
    keys, terms = tuple(pod.constraints.node_selector), pod.constraints.required_terms

    @lru_cache(maxsize=1024)
    def unselected(values: tuple[str | None, ...]) -> tuple[str, ...]:
        here = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
        missed = ((key, value) for key, value in pod.constraints.node_selector.items() if here.get(key) != value)
        return tuple(_selected(key, value, here) for key, value in islice(missed, _MOST_VALUES))

    def sentence(_slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        if node_affinity.NOT_NAMED in reasons:
            return "the pod's required node affinity names other nodes"
        labels = node_info.node.labels
        missed = unselected(tuple(map(labels.get, keys)))
        if terms is not None and not any(term.matches(labels, node_info.node.name) for term in terms):
            of_terms = tuple(_missed(term, node_info.node) for term in terms[:_MOST_VALUES])
            missed += of_terms or ("the pod's required node affinity is empty",)
        return first_of(missed) if len(missed) != 1 else missed[0]

    return sentence


def _selected(key: str, value: str, labels: Mapping[str, str]) -> str:
    return f"the pod selects {clipped(key)}={clipped(value)}, {_here(key, labels)}"


def _here(key: str, labels: Mapping[str, str]) -> str:
    """Return what a node has of a label."""
    return f"here it is {clipped(labels[key]) or 'empty'}" if key in labels else "which is not here"


def _missed(term: NodeSelectorTerm, node: Node) -> str:
    """Return which requirements of a term a node misses."""
    if term.unreadable:
        return "a term of the pod's node affinity cannot be read"
    return first_of(_missed_parts(term, node)) or "a term of the pod's node affinity is empty"


def _missed_parts(term: NodeSelectorTerm, node: Node) -> Iterator[str]:
    for expression in term.expressions:
        if not expression.matches(node.labels):
            yield f"the pod requires {requirement_text(expression)}, {_here(expression.key, node.labels)}"
    for field in term.fields:
        if not field.matches({"metadata.name": node.name}):
            yield f"the pod requires {requirement_text(field)}"


def requirement_text(requirement: Requirement) -> str:
    """Return a requirement as people read it: `zone in (a, b)`, `spot does not exist`."""
    key, values = clipped(requirement.key), ", ".join(map(clipped, requirement.values[:_MOST_VALUES]))
    if len(requirement.values) > _MOST_VALUES:
        values += ", ..."
    texts = {
        Operator.EXISTS: f"that {key} exists",
        Operator.DOES_NOT_EXIST: f"that {key} does not exist",
        Operator.IN: f"{key}={values}" if len(requirement.values) == 1 else f"{key} in ({values})",
        Operator.NOT_IN: f"{key} not in ({values})",
        Operator.GT: f"{key} above {values}",
        Operator.LT: f"{key} below {values}",
    }
    return texts[requirement.operator]


def features(_view: View, pod: Pod) -> _Sentence:
    """Return the features that a node's kubelet does not declare."""

    def sentence(_slot: Slot, node_info: NodeInfo, _reasons: Sequence[str]) -> str:
        declared = node_info.node.declared_features
        missing = [feature for feature in pod.constraints.required_features if feature not in declared]
        return f"its kubelet does not declare {few_names(missing)}"

    return sentence

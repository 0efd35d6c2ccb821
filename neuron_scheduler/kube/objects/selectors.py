"""
Label selectors, node selector terms, taints and tolerations: from the wire -> `model.selectors`.

Equal requirements and tolerations become one object each, so that indexes keyed by them stay small. What does not parse
matches nothing, as upstream (`component-helpers/scheduling/corev1/nodeaffinity`).
"""

import re
from collections.abc import Iterable
from typing import Final

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import byte_bounded_memo, intern, share
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    Taint,
    Toleration,
    parse_int64,
)

_MOST_OF_OTHERS: Final = 500  # with the values: each volume, or each pod, may be compared with each claim or budget
_OPERATORS: Final = {operator.value: operator for operator in Operator}
_EFFECTS: Final = {effect.value: effect for effect in Effect}
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_SELECTOR_OPERATORS: Final = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)


def label_selector(selector: wire.Selector | None) -> LabelSelector | None:
    """
    Return the label selector, None if there is none.

    Raises:
        ValueError: an operator or a value cannot be read.
    """
    if selector is None:
        return None
    requirements = [requirement((key, "In", (value,))) for key, value in (selector.match_labels or {}).items()]
    expressions = selector.match_expressions or ()
    requirements.extend(requirement((e.key, e.operator, tuple(e.values or ()))) for e in expressions)
    read = tuple(r for r in requirements if r is not None and r.operator in _SELECTOR_OPERATORS)
    if len(read) < len(requirements):
        raise ValueError("a label selector has an operator or a value that cannot be read")
    return LabelSelector(read)


def selector_of_others(selector: wire.Selector | None) -> LabelSelector | None:
    """As `label_selector`, of what is no pod and has no `pod_limits`; ValueError also for too many parts."""
    expressions = (selector.match_expressions or ()) if selector is not None else ()
    values = sum(len(expression.values or ()) for expression in expressions)
    if selector is not None and len(selector.match_labels or ()) + len(expressions) + values > _MOST_OF_OTHERS:
        raise ValueError(f"a label selector has more than {_MOST_OF_OTHERS} requirements and values")
    return label_selector(selector)


def node_term(term: wire.NodeTerm) -> NodeSelectorTerm:
    """Return the term; if a part of it cannot be read, it matches nothing."""
    expressions = tuple(requirement((e.key, e.operator, tuple(e.values or ()))) for e in term.match_expressions or ())
    fields = tuple(_field(e.key, e.operator, tuple(e.values or ())) for e in term.match_fields or ())
    read = tuple(e for e in expressions if e is not None), tuple(f for f in fields if f is not None)
    return NodeSelectorTerm(*read, unreadable=None in expressions or None in fields)


@byte_bounded_memo()
def requirement(parts: tuple[str, str, tuple[str, ...]]) -> Requirement | None:
    """Return the requirement of key, operator and values, None where `labels.NewRequirement` gives an error."""
    key, name, values = parts
    if not all(map(_LABEL_VALUE.fullmatch, values)):
        return None
    operator = _OPERATORS.get(name)
    match operator:
        case None:
            return None
        case Operator.IN | Operator.NOT_IN:
            good = bool(values)
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            good = not values
        case Operator.GT | Operator.LT:
            good = len(values) == 1 and parse_int64(values[0]) is not None
    if not good:
        return None
    return Requirement(intern(key), operator, tuple(map(intern, values)))


def _field(key: str, name: str, values: tuple[str, ...]) -> Requirement | None:
    operator = _OPERATORS.get(name)
    if key != "metadata.name" or operator not in (Operator.IN, Operator.NOT_IN) or len(values) != 1:
        return None
    return Requirement(key, operator, (intern(values[0]),))


def tolerations(structs: Iterable[wire.Toleration] | None) -> tuple[Toleration, ...]:
    """Return tolerations; an absent operator is Equal, and one that no release has enabled makes it unreadable."""
    return share(
        tuple(_toleration((t.key or "", t.operator or "Equal", t.value or "", t.effect)) for t in structs or ())
    )


@byte_bounded_memo()
def taint(parts: tuple[str, str, str]) -> Taint:
    """
    Return the taint of key, value and effect.

    Raises:
        ValueError: there is no such effect.
    """
    key, value, name = parts
    effect = _EFFECTS.get(name)
    if effect is None:
        raise ValueError(f"taint {key} has the unknown effect {name!r}")
    return Taint(key=key, effect=effect, value=value)


@byte_bounded_memo()
def _toleration(parts: tuple[str, str, str, str | None]) -> Toleration:
    key, operator, value, name = parts
    return Toleration(
        key=key,
        exists=operator == "Exists",
        value=value,
        effect=_EFFECTS.get(name) if name else None,
        unreadable=operator not in ("Equal", "Exists") or bool(name and name not in _EFFECTS),
    )

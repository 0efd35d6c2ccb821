"""
SELECTOR: the pod drops keys of its node selector, or requirements of its required node affinity.

Smallest: the fewest of them, after which some node takes the pod. A key of the node selector is one. If the required
node affinity has one term, each of its requirements is one; several terms are alternatives, and only all of them
together can be dropped. Up to `_MOST_SHOWN` sets with as few are offered, because only the pod's owner knows what it
can do without.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

import attrs

from neuron_scheduler.explain.answers.explanation import Change, ChangeKind
from neuron_scheduler.explain.changes.question import Found, Note, Question, with_template
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm, Requirement
from neuron_scheduler.model.wording import clipped, few

_MOST_SHOWN: Final = 3
_MOST_TRIED: Final = 64
_MOST_VALUES: Final = 4
_NOT_ALL: Final = Note(f"Only {_MOST_TRIED} ways of dropping node selectors were tried.")
WHOLE: Final = "its required node affinity"


@attrs.frozen
class Part:
    """
    What a pod can drop: exactly one of these.

    Attributes:
        key: of the node selector.
        requirement: of the only term of the required node affinity.
        whole: all of the required node affinity.
    """

    key: str | None = None
    requirement: Requirement | None = None
    whole: bool = False


def parts(constraints: Constraints) -> tuple[Part, ...]:
    """Return all that a pod with these constraints can drop."""
    keys = [Part(key=key) for key in sorted(constraints.node_selector)]
    terms = constraints.required_terms
    if terms is None:
        return tuple(keys)
    requirements = dict.fromkeys((*terms[0].expressions, *terms[0].fields)) if len(terms) == 1 else {}
    if len(terms) == 1 and not terms[0].unreadable and requirements:
        return (*keys, *(Part(requirement=requirement) for requirement in requirements))
    return (*keys, Part(whole=True))


def without(pod: Pod, dropped: Sequence[Part]) -> Pod:
    """Return the pod without these parts."""
    constraints = pod.constraints
    keys = {part.key for part in dropped}
    requirements = {part.requirement for part in dropped}
    selector = {key: value for key, value in constraints.node_selector.items() if key not in keys}
    terms = constraints.required_terms
    if any(part.whole for part in dropped):
        terms = None
    elif terms is not None and len(terms) == 1:
        expressions = tuple(each for each in terms[0].expressions if each not in requirements)
        fields = tuple(each for each in terms[0].fields if each not in requirements)
        emptied = not (expressions or fields) and (terms[0].expressions or terms[0].fields)
        terms = None if emptied else (NodeSelectorTerm(expressions, fields, unreadable=terms[0].unreadable),)
    return attrs.evolve(pod, constraints=attrs.evolve(constraints, node_selector=selector, required_terms=terms))


def find(question: Question) -> Iterator[Found]:
    """Yield the smallest sets of requirements without which the pod fits."""
    pod = question.pod
    every = parts(pod.constraints)
    if not every:
        return
    free = without(pod, every)
    yield from question.warmed_up(free)
    if not question.reads_other_nodes and question.decision(free) is None:
        return
    tried = shown = 0
    for size in range(1, len(every) + 1):
        for dropped in combinations(every, size):
            if tried == _MOST_TRIED:
                yield _NOT_ALL
                return
            tried += 1
            other = without(pod, dropped)
            yield from question.warmed_up(other)
            decision = question.decision(other)
            yield None if decision is None else _change(pod, dropped, decision.node_name)
            shown += decision is not None
            if shown == _MOST_SHOWN:
                return
        if shown:
            return


def _change(pod: Pod, dropped: Sequence[Part], node_name: str) -> Change:
    named = [described(pod, part) for part in dropped]
    return Change(
        ChangeKind.SELECTOR,
        with_template(f"Drop {few(named)} from the pod's required nodes: it then goes to {node_name}.", pod),
        node_name=node_name,
        detail="; ".join(named),
    )


def described(pod: Pod, part: Part) -> str:
    """Return what is dropped, as people read it: `key=value`, `key In (a, b)`, or words for the whole affinity."""
    if part.key is not None:
        return f"{part.key}={pod.constraints.node_selector[part.key]}"
    if part.requirement is None:
        return WHOLE
    values = part.requirement.values
    more = f", and {len(values) - _MOST_VALUES} more" if len(values) > _MOST_VALUES else ""
    written = f" ({', '.join(map(clipped, values[:_MOST_VALUES]))}{more})" if values else ""
    return f"{part.requirement.key} {part.requirement.operator.value}{written}"

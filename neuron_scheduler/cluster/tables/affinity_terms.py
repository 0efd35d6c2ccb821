"""
The (anti-)affinity terms of pods on nodes: which of them match a pod, and how many pods have each in each domain.

A term is posted under its namespaces and one equality of its selector; the few without an equality are posted together.
So only those terms are tried that could match a pod's labels. Equal terms of several pods are one term here.
"""

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Self, TypeVar

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.index.rollup import Domains, Rollup, larger
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Constraints, Pod
from neuron_scheduler.model.selectors import Operator, PodAffinityTerm

MOST_OF_A_NAMESPACE = 2000
"""
Different terms that the bound pods of one namespace may have; further ones are ignored.

A pod's decision looks at each term that matches it: the first time that takes 9 ms for so many, in any namespace.
"""

_WORTH_APPLYING = 16  # so many changes are applied one by one even if few pods have the term
_Key = TypeVar("_Key")
_Equality = tuple[str, str] | None
_Posting = tuple[str | None, _Equality]
_Directory = CopyOnWrite[_Posting, dict[PodAffinityTerm, None]]


class TermKind(enum.StrEnum):
    """The kind of an (anti-)affinity term; the value is its name in `Constraints`."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti_affinity"
    PREFERRED_AFFINITY = "preferred_affinity"
    PREFERRED_ANTI_AFFINITY = "preferred_anti_affinity"


_KINDS = tuple(TermKind)
_Term = tuple[TermKind, PodAffinityTerm]
_terms_of = attrgetter(*_KINDS)


@attrs.define(eq=False)
class _PodsWithTerm:
    """
    How many pods on each node have a term.

    Attributes:
        posted: where the term is posted.
        namespace: the first pod's; the term counts towards its limit.
        numbers: pods by slot, where there are any.
    """

    posted: tuple[_Posting, ...] = ()
    namespace: str = ""
    numbers: dict[Slot, int] = attrs.field(factory=dict)

    def copy(self) -> Self:
        return type(self)(self.posted, self.namespace, dict(self.numbers))


@attrs.define(eq=False)
class _Totals:
    """The pods with a term by domain, and the changes that the rollup does not contain yet."""

    rollup: Rollup
    pending: list[tuple[Slot, int]] = attrs.field(factory=list)


@attrs.define(eq=False)
class TermTable:
    """
    All terms of pods that are on a node.

    A directory's keys are a namespace (None where the term has a namespace selector) and an equality that a matching
    pod's labels must have (None where the selector has none).

    Attributes:
        changes: how often a term or a slot has changed.
    """

    _directories: dict[TermKind, _Directory] = attrs.field(factory=lambda: {kind: CopyOnWrite() for kind in TermKind})
    _pods_with: CopyOnWrite[_Term, _PodsWithTerm] = attrs.field(factory=CopyOnWrite)
    _totals: dict[_Term, _Totals] = attrs.field(factory=dict)
    _of_namespace: Counter[str] = attrs.field(factory=Counter)
    _left_out: Counter[tuple[str, TermKind, PodAffinityTerm]] = attrs.field(factory=Counter)
    changes: int = 0

    def replace(self, slot: Slot, old: Pod | None, new: Pod | None) -> None:
        """Replace the terms of a pod on a node by those of its new state; None if it is not there."""
        before = NO_CONSTRAINTS if old is None else old.constraints
        after = NO_CONSTRAINTS if new is None else new.constraints
        if before is after or _terms_of(before) == _terms_of(after):
            return
        self.changes += 1
        if new is not None:
            for kind, term in _terms_by_kind(after):
                self._add(kind, term, slot, new)
        if old is not None:
            for kind, term in _terms_by_kind(before):
                self._discard(kind, term, slot, old)

    @property
    def left_out(self) -> int:
        """How many terms are ignored, because their namespace has too many."""
        return len(self._left_out)

    @property
    def has_any(self) -> bool:
        return bool(self._pods_with.by_key)

    def has_terms(self, kind: TermKind) -> bool:
        return bool(self._directories[kind].by_key)

    def matching_terms(
        self, kind: TermKind, pod: Pod, namespace_labels: Mapping[str, str]
    ) -> Iterator[PodAffinityTerm]:
        """Yield the terms that match a pod, whose namespace has these labels."""
        directory = self._directories[kind].by_key
        for namespace in (pod.namespace, None) if directory else ():
            for equality in (*pod.labels.items(), None):
                for term in directory.get((namespace, equality), ()):
                    if _matches(term, pod, namespace_labels):
                        yield term

    def totals(self, kind: TermKind, term: PodAffinityTerm, domains: Domains) -> Column:
        """Return how many pods have a term in the domain of each slot."""
        known, within = self._totals.get((kind, term)), larger(domains)
        if known is None or not known.rollup.can_follow(within):
            *_, rollup = Rollup.build(dict(self._pods_with.by_key[kind, term].numbers), within)
            known = self._totals[kind, term] = _Totals(rollup)
        known.rollup.follow(within)
        for slot, change in known.pending:
            known.rollup.add(slot, change, within)
        known.pending.clear()
        return known.rollup.totals_in(domains)

    def terms_of(self, kind: TermKind, pod: Pod) -> Sequence[PodAffinityTerm]:
        """Return the terms of a pod on a node, without those that are ignored."""
        terms: Sequence[PodAffinityTerm] = getattr(pod.constraints, kind)
        left_out = self._left_out
        return [term for term in terms if (pod.uid, kind, term) not in left_out] if left_out else terms

    def fork(self) -> "TermTable":
        """Return an independent copy, which counts totals anew."""
        return TermTable(
            directories={kind: directory.copy() for kind, directory in self._directories.items()},
            pods_with=self._pods_with.copy(),
            of_namespace=self._of_namespace.copy(),
            left_out=self._left_out.copy(),
        )

    def _change(self, kind: TermKind, term: PodAffinityTerm, slot: Slot, change: int) -> _PodsWithTerm:
        pods_with_term, totals = self._pods_with.to_change((kind, term), _PodsWithTerm), self._totals.get((kind, term))
        numbers = pods_with_term.numbers
        numbers[slot] = numbers.get(slot, 0) + change
        if not numbers[slot]:
            del numbers[slot]
        if totals is not None:
            totals.pending.append((slot, change))
            if len(totals.pending) > len(numbers) + _WORTH_APPLYING:
                del self._totals[kind, term]
        return pods_with_term

    def _add(self, kind: TermKind, term: PodAffinityTerm, slot: Slot, pod: Pod) -> None:
        known = (kind, term) in self._pods_with.by_key
        if not known and self._of_namespace[pod.namespace] >= MOST_OF_A_NAMESPACE:
            self._left_out[pod.uid, kind, term] += 1
            return
        pods_with_term = self._change(kind, term, slot, 1)
        if not known:
            self._of_namespace[pod.namespace] += 1
            directory = self._directories[kind]
            pods_with_term.posted, pods_with_term.namespace = tuple(_postings_for(directory, term)), pod.namespace
            for posting in pods_with_term.posted:
                directory.to_change(posting, dict)[term] = None

    def _discard(self, kind: TermKind, term: PodAffinityTerm, slot: Slot, pod: Pod) -> None:
        if (pod.uid, kind, term) in self._left_out:
            _one_less(self._left_out, (pod.uid, kind, term))
            return
        pods_with_term = self._change(kind, term, slot, -1)
        if pods_with_term.numbers:
            return
        self._pods_with.remove((kind, term))
        self._totals.pop((kind, term), None)
        _one_less(self._of_namespace, pods_with_term.namespace)
        directory = self._directories[kind]
        for posting in pods_with_term.posted:
            terms = directory.to_change(posting, dict)
            del terms[term]
            if not terms:
                directory.remove(posting)


def _one_less(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _terms_by_kind(constraints: Constraints) -> Iterator[tuple[TermKind, PodAffinityTerm]]:
    """Yield the terms that could match a pod: those that have a selector."""
    for kind, terms in zip(_KINDS, _terms_of(constraints), strict=True):
        for term in terms:
            if term.selector is not None:
                yield kind, term


def _postings_for(directory: _Directory, term: PodAffinityTerm) -> Iterator[_Posting]:
    """Yield where to post a term: in each namespace under the equality with the fewest other terms."""
    posted = directory.by_key
    choices = [
        [(requirement.key, value) for value in requirement.values]
        for requirement in (term.selector.requirements if term.selector else ())
        if requirement.operator is Operator.IN
    ]
    for namespace in term.namespaces if term.namespace_selector is None else (None,):
        equalities = min(
            choices, key=lambda choice: sum(len(posted.get((namespace, each), ())) for each in choice), default=None
        )
        for equality in dict.fromkeys(equalities) if equalities is not None else (None,):
            yield namespace, equality


def _matches(term: PodAffinityTerm, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    namespaces = term.namespace_selector
    return pod.namespace in term.namespaces or (namespaces is not None and namespaces.matches(namespace_labels))

"""
The (anti-)affinity terms that pods on nodes bear: which of them mean a pod, and how many bear them in each domain.

A term is posted under its namespaces and one equality of its selector, the few without one in a list of their own, so
that of thousands of terms only those are tried that could match a pod's labels. Terms that two pods share are one.
"""

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TypeVar

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.index.rollup import Domains, Rollup
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Constraints, Pod
from neuron_scheduler.model.selectors import Operator, PodAffinityTerm

MOST_OF_A_NAMESPACE = 5000
"""
Different terms that the bound pods of one namespace may have; further ones are ignored.

A pod's decision looks at each term that matches it: so many terms take 50 to 100 ms, in any namespace.
"""

_WORTH_APPLYING = 16  # changes that are applied rather than summing up anew, however few bear the term


class TermKind(enum.StrEnum):
    """How a pod bears a term; the value is the name in `Constraints`."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti_affinity"
    PREFERRED_AFFINITY = "preferred_affinity"
    PREFERRED_ANTI_AFFINITY = "preferred_anti_affinity"


_BEARINGS = tuple(TermKind)
_terms_of = attrgetter(*_BEARINGS)
_NOTHING_BORNE = _terms_of(NO_CONSTRAINTS)

_Key = TypeVar("_Key")
_Equality = tuple[str, str] | None
_Directory = dict[str | None, dict[_Equality, dict[PodAffinityTerm, None]]]


@attrs.define(eq=False)
class _Bearers:
    """
    The pods that bear one term. The term counts towards the limit of the first pod's namespace.

    What is held is a column over nodes where the label is different on every node, else a rollup; `_pending` are the
    changes that it does not know of.
    """

    posted: tuple[tuple[str | None, _Equality], ...]
    namespace: str
    numbers: dict[Slot, int] = attrs.field(factory=dict)
    _held: Column | Rollup | None = None
    _pending: list[tuple[Slot, int]] = attrs.field(factory=list)

    def add(self, slot: Slot, change: int) -> None:
        """Change how many bear the term on a node."""
        number = self.numbers.get(slot, 0) + change
        if number:
            self.numbers[slot] = number
        else:
            del self.numbers[slot]
        if self._held is None:
            return
        self._pending.append((slot, change))
        if len(self._pending) > len(self.numbers) + _WORTH_APPLYING:
            self._held = None
            self._pending.clear()

    def renumber(self, new_slots: Mapping[Slot, Slot]) -> None:
        """Take that nodes have other slots from now on."""
        self.numbers = {new_slots[slot]: number for slot, number in self.numbers.items()}
        self._held = None
        self._pending.clear()

    def totals(self, domains: Domains, size: int) -> Column:
        """Return how many bear the term in the domain of each of `size` slots."""
        held = self._held
        if domains.unique:
            if not isinstance(held, Column):
                held = self._held = Column.sparse(self.numbers, size)
                self._pending.clear()
        elif not isinstance(held, Rollup) or not held.follow(domains):
            held = self._held = Rollup.build(dict(self.numbers), domains, size)
            self._pending.clear()
        for slot, change in self._pending:
            if isinstance(held, Rollup):
                held.add(slot, change)
            else:
                number = held.value(slot)
                held.replace(slot, number, number + change)
        self._pending.clear()
        if isinstance(held, Rollup):
            return held.totals
        keyed = domains.postings.keyed
        return held.masked(keyed) if held.positive & ~keyed else held


@attrs.define(eq=False)
class TermTable:
    """
    All terms borne by pods that are on a node.

    A directory's keys are a namespace (None where the term has a namespace selector), then an equality that a matching
    pod's labels must have (None where the selector has none).
    """

    _directories: dict[TermKind, _Directory] = attrs.field(factory=lambda: {kind: {} for kind in TermKind})
    _bearers: dict[tuple[TermKind, PodAffinityTerm], _Bearers] = attrs.field(factory=dict)
    _of_namespace: Counter[str] = attrs.field(factory=Counter)
    _left_out: Counter[tuple[str, TermKind, PodAffinityTerm]] = attrs.field(factory=Counter)

    def replace(self, slot: Slot, old: Pod | None, new: Pod | None) -> None:
        """Take what a pod bears on a node in place of what it bore there before."""
        before = NO_CONSTRAINTS if old is None else old.constraints
        after = NO_CONSTRAINTS if new is None else new.constraints
        if before is after or _terms_of(before) == _terms_of(after):
            return
        if new is not None:
            for kind, term in _borne(after):
                self._add(kind, term, slot, new)
        if old is not None:
            for kind, term in _borne(before):
                self._discard(kind, term, slot, old)

    @property
    def left_out(self) -> int:
        """How many terms are ignored, because their namespace has too many."""
        return len(self._left_out)

    @property
    def has_any(self) -> bool:
        """Whether any pod bears any term."""
        return bool(self._bearers)

    def has_terms(self, kind: TermKind) -> bool:
        """Tell whether any term is borne in this way."""
        return bool(self._directories[kind])

    def matching(
        self, kind: TermKind, pod: Pod, namespace_labels: Mapping[str, str]
    ) -> Iterator[tuple[PodAffinityTerm, _Bearers]]:
        """Yield the borne terms that match a pod, whose namespace has these labels, with those that bear them."""
        directory = self._directories[kind]
        for namespace in (pod.namespace, None) if directory else ():
            posted = directory.get(namespace)
            for equality in (*pod.labels.items(), None) if posted else ():
                for term in posted.get(equality, ()) if posted else ():
                    if _means(term, pod, namespace_labels):
                        yield term, self._bearers[kind, term]

    def renumber(self, new_slots: Mapping[Slot, Slot]) -> None:
        """Take that nodes have other slots from now on."""
        for bearers in self._bearers.values():
            bearers.renumber(new_slots)

    def fork(self) -> "TermTable":
        """Return an independent copy, whose totals are summed up anew when asked."""
        return TermTable(
            directories={
                kind: {
                    namespace: {equality: dict(terms) for equality, terms in posted.items()}
                    for namespace, posted in directory.items()
                }
                for kind, directory in self._directories.items()
            },
            bearers={
                key: _Bearers(found.posted, found.namespace, dict(found.numbers))
                for key, found in self._bearers.items()
            },
            of_namespace=self._of_namespace.copy(),
            left_out=self._left_out.copy(),
        )

    def _add(self, kind: TermKind, term: PodAffinityTerm, slot: Slot, pod: Pod) -> None:
        bearers = self._bearers.get((kind, term))
        if bearers is None and self._of_namespace[pod.namespace] >= MOST_OF_A_NAMESPACE:
            self._left_out[pod.uid, kind, term] += 1
            return
        if bearers is None:
            self._of_namespace[pod.namespace] += 1
            posted = tuple(_places(self._directories[kind], term))
            for namespace, equality in posted:
                of_namespace = self._directories[kind].setdefault(namespace, {})
                of_namespace.setdefault(equality, {})[term] = None
            bearers = self._bearers[kind, term] = _Bearers(posted, pod.namespace)
        bearers.add(slot, 1)

    def _discard(self, kind: TermKind, term: PodAffinityTerm, slot: Slot, pod: Pod) -> None:
        if (pod.uid, kind, term) in self._left_out:
            _one_less(self._left_out, (pod.uid, kind, term))
            return
        bearers = self._bearers[kind, term]
        bearers.add(slot, -1)
        if bearers.numbers:
            return
        del self._bearers[kind, term]
        _one_less(self._of_namespace, bearers.namespace)
        directory = self._directories[kind]
        for namespace, equality in bearers.posted:
            del directory[namespace][equality][term]
            if not directory[namespace][equality]:
                del directory[namespace][equality]
            if not directory[namespace]:
                del directory[namespace]


def _one_less(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _borne(constraints: Constraints) -> Iterator[tuple[TermKind, PodAffinityTerm]]:
    """Yield the terms that could match some pod."""
    for kind, terms in zip(_BEARINGS, _terms_of(constraints), strict=True):
        for term in terms:
            if term.selector is not None:
                yield kind, term


def _places(directory: _Directory, term: PodAffinityTerm) -> Iterator[tuple[str | None, _Equality]]:
    """Yield where to post a term: in each namespace under the equality that the fewest other terms are posted under."""
    choices = [
        [(requirement.key, value) for value in requirement.values]
        for requirement in (term.selector.requirements if term.selector else ())
        if requirement.operator is Operator.IN
    ]
    for namespace in term.namespaces if term.namespace_selector is None else (None,):
        posted = directory.get(namespace, {})
        equalities = min(choices, key=lambda choice: sum(len(posted.get(one, ())) for one in choice), default=None)
        for equality in dict.fromkeys(equalities) if equalities is not None else (None,):
            yield namespace, equality


def _means(term: PodAffinityTerm, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    among = term.namespace_selector
    return pod.namespace in term.namespaces or (among is not None and among.matches(namespace_labels))

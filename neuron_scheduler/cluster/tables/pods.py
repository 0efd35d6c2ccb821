"""
The pods on nodes, posted by namespace and label, and how many of them match a selector on each node.

A count for a selector is built from the smallest posting that contains all its pods, and kept up to date from a log of
changes of pods; it is built again if the log has become longer than that posting.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import attrs

from neuron_scheduler.cluster.index.change_log import ChangeLog
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite
from neuron_scheduler.cluster.index.indexes import FEW_PARTS, evict_if_full
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.index.rollup import Domains, Rollup
from neuron_scheduler.cluster.tables.selecting_kinds import Namespaces
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator

_MOST_COLUMNS = 1024
_MOST_LOGGED = 4096
_AT_ONCE = 64
"""Pods, or changes, after which a preparation yields."""
_WORTH_READING = 16  # up to so many changes are read from the log even if the posting is smaller


@attrs.frozen(cache_hash=True)
class PodQuery:
    """
    Definition of a count: the pods that match a selector.

    Attributes:
        selectors: a pod counts if it matches all of them.
        namespaces: a pod counts in these only; None for all.
        terminating: whether pods that are being deleted count (affinity counts them, spreading does not).
    """

    selectors: tuple[LabelSelector, ...]
    namespaces: frozenset[str] | Namespaces | None
    terminating: bool

    def matches(self, pod: Pod) -> bool:
        if pod.terminating and not self.terminating:
            return False
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        for selector in self.selectors:  # noqa: SIM110  # called for every pod: a generator costs twice as much
            if not selector.matches(pod.labels):
                return False
        return True

    def count(self, pods: Iterable[tuple[Pod, Slot]], numbers: dict[Slot, int]) -> None:
        for pod, slot in pods:
            if self.matches(pod):
                numbers[slot] = numbers.get(slot, 0) + 1

    def changes(self, log: Iterable[tuple[Slot, Pod, int]]) -> Iterator[tuple[Slot, int]]:
        """Yield the changes of the count, (slot, change), for logged changes of pods."""
        for slot, pod, change in log:
            if self.matches(pod):
                yield slot, change


@attrs.define(eq=False)
class _Count:
    """A column, and the position in the log up to which it is correct, which is when it was last asked for."""

    column: Column
    last_used: int

    def add(self, slot: Slot, change: int) -> None:
        number = self.column.value(slot)
        self.column.replace(slot, number, number + change)


@attrs.define(eq=False)
class _Total:
    """A rollup, likewise; it follows changes of nodes by itself."""

    rollup: Rollup
    last_used: int


@attrs.define(eq=False)
class PodTable:
    """
    All pods that are on a node, with their slots.

    The postings' keys are (namespace, label, value) and (namespace,); the values are uids.
    """

    _pods: dict[str, tuple[Pod, Slot]] = attrs.field(factory=dict)
    _postings: CopyOnWrite[tuple[str, ...], dict[str, None]] = attrs.field(factory=CopyOnWrite)
    _namespaces: dict[str, None] = attrs.field(factory=dict)
    _counts: dict[PodQuery, _Count] = attrs.field(factory=dict)
    _rollups: dict[tuple[PodQuery, str], _Total] = attrs.field(factory=dict)
    _log: ChangeLog[tuple[Slot, Pod, int]] = attrs.field(factory=ChangeLog)  # pods that came (1) or went (-1)
    _preparing: int = 0

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, pod: Pod, slot: Slot) -> None:
        before = self._pods.get(pod.uid)
        if before is not None and before[1] == slot and _has_same_counts(before[0], pod):
            self._pods[pod.uid] = (pod, slot)
            return
        self.remove(pod.uid)
        self._pods[pod.uid] = (pod, slot)
        for key in _keys(pod):
            self._postings.to_change(key, dict)[pod.uid] = None
        self._namespaces[pod.namespace] = None
        self._record(slot, pod, 1)

    def remove(self, uid: str) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._unpost(before[0])
            self._record(before[1], before[0], -1)

    def counts(self, definition: PodQuery) -> Column:
        """Return how many matching pods there are on each slot."""
        count = self._counts.get(definition)
        if count is not None and count.last_used == self._log.end:
            return count.column
        candidates = self._to_build_from(definition, None if count is None else count.last_used)
        if count is None or candidates is not None:
            evict_if_full(self._counts, _MOST_COLUMNS)
            count = _Count(Column.sparse(self._numbers(definition, candidates or ())), self._log.end)
            self._counts[definition] = count
        else:
            for slot, change in definition.changes(self._log.changes_since(count.last_used)):
                count.add(slot, change)
            count.last_used = self._log.end
        return count.column

    def totals(self, definition: PodQuery, domains: Domains) -> Column:
        """Return how many matching pods there are in the domain of each slot."""
        if domains.has_only_single_nodes:
            counts, keyed = self.counts(definition), domains.postings.keyed
            return counts.mask(keyed) if counts.positive & ~keyed else counts
        key = (definition, domains.key)
        rolled = self._rollups.get(key)
        followed = rolled is not None and rolled.rollup.follow(domains)
        if rolled is not None and followed and rolled.last_used == self._log.end:
            return rolled.rollup.totals
        candidates = self._to_build_from(definition, rolled.last_used if rolled is not None and followed else None)
        if rolled is None or candidates is not None:
            evict_if_full(self._rollups, _MOST_COLUMNS)
            *_, rollup = Rollup.build(self._numbers(definition, candidates or ()), domains)
            rolled = self._rollups[key] = _Total(rollup, self._log.end)
        else:
            for slot, change in definition.changes(self._log.changes_since(rolled.last_used)):
                rolled.rollup.add(slot, change, domains)
            rolled.last_used = self._log.end
        return rolled.rollup.totals

    def is_ready(self, definition: PodQuery, domains: Domains | None = None) -> bool:
        """Return whether `counts`, or `totals` in these domains, have few changes to catch up with."""
        known = self._count_of(definition, domains)
        return known is not None and self._log.end - known.last_used <= _AT_ONCE

    def prepare(self, definition: PodQuery, domains: Callable[[], Domains] | None = None) -> Iterator[None]:
        """
        Count the pods that match, a few at a time; at a yield other tasks may run and change pods.

        Prepares for `totals` if `domains` is given (called at the end), else for `counts`. If too many pods change
        meanwhile, the result is dropped, and `counts` or `totals` counts all pods in one step.
        """
        known = self._count_of(definition, None if domains is None else domains())
        if known is not None and self._log.covers(known.last_used):
            yield from self._catch_up(definition, known, domains)
            return
        start, numbers = self._log.end, dict[Slot, int]()
        uids = list(self._candidates(definition))
        pods = self._pods  # as they are now, in less time than a list takes
        if len(uids) > _AT_ONCE:
            self._pods = dict(pods)  # as in `Cluster.fork`
        rollup: Rollup | None = None
        self._preparing += 1
        try:
            for first in range(0, len(uids), _AT_ONCE):
                definition.count([pods[uid] for uid in uids[first : first + _AT_ONCE]], numbers)
                yield
            within = None if domains is None else domains()
            if within is not None and not within.has_only_single_nodes:
                for built in Rollup.build(numbers, within):
                    rollup = built
                    yield
        finally:
            self._preparing -= 1
        if not self._log.covers(start):
            return
        if within is None or rollup is None:
            evict_if_full(self._counts, _MOST_COLUMNS)
            self._counts[definition] = _Count(Column.sparse(numbers), start)
        else:
            evict_if_full(self._rollups, _MOST_COLUMNS)
            self._rollups[definition, within.key] = _Total(rollup, start)

    def most_compared(self, definition: PodQuery) -> int:
        """Return how many comparisons of pods with requirements a count takes at most."""
        namespaces, each = definition.namespaces, sum(1 + len(s.requirements) for s in definition.selectors)
        is_one = isinstance(namespaces, frozenset) and len(namespaces) == 1
        return each * (len(self._candidates(definition)) if is_one else len(self._pods))

    def fork(self) -> "PodTable":
        """Return an independent copy, which counts anew."""
        pods, self._pods = self._pods, dict(self._pods)  # as in `Cluster.fork`
        return PodTable(pods=pods, postings=self._postings.copy(), namespaces=dict(self._namespaces))

    def _count_of(self, definition: PodQuery, domains: Domains | None) -> "_Count | _Total | None":
        if domains is None or domains.has_only_single_nodes:
            return self._counts.get(definition)
        total = self._rollups.get((definition, domains.key))
        return total if total is not None and total.rollup.can_follow(domains) else None

    def _catch_up(
        self, definition: PodQuery, known: "_Count | _Total", domains: Callable[[], Domains] | None
    ) -> Iterator[None]:
        """Apply the changes in the log to a count, a few at a time."""
        while self._log.end - known.last_used > _AT_ONCE and self._log.covers(known.last_used):
            changes = definition.changes(self._log.changes_since(known.last_used, _AT_ONCE))
            if isinstance(known, _Count):
                for slot, change in changes:
                    known.add(slot, change)
            else:
                within = None if domains is None else domains()
                if within is None or not known.rollup.follow(within):
                    return  # nodes have changed their labels too often: `totals` builds it again
                for slot, change in changes:
                    known.rollup.add(slot, change, within)
            known.last_used += _AT_ONCE
            yield

    def _numbers(self, definition: PodQuery, candidates: Iterable[str]) -> dict[Slot, int]:
        numbers: dict[Slot, int] = {}
        definition.count((self._pods[uid] for uid in candidates), numbers)
        return numbers

    def _to_build_from(self, definition: PodQuery, last_used: int | None) -> Collection[str] | None:
        """Return the uids to build a count from; None if reading the log since `last_used` is less work."""
        lag = None if last_used is None or not self._log.covers(last_used) else self._log.end - last_used
        if lag is not None and lag <= _WORTH_READING:
            return None
        candidates = self._candidates(definition)
        return candidates if lag is None or lag > len(candidates) + _WORTH_READING else None

    def _candidates(self, definition: PodQuery) -> Collection[str]:
        equalities = [
            (requirement.key, requirement.values[0])
            for selector in definition.selectors
            for requirement in selector.requirements
            if requirement.operator is Operator.IN and len(requirement.values) == 1
        ]
        namespaces = definition.namespaces
        if namespaces is None and not equalities:
            return self._pods.keys()
        if not isinstance(namespaces, frozenset):
            namespaces = frozenset(n for n in self._namespaces if namespaces is None or n in namespaces)
        if len(namespaces) == 1:
            return self._smallest(next(iter(namespaces)), equalities)
        return [uid for namespace in namespaces for uid in self._smallest(namespace, equalities)]

    def _smallest(self, namespace: str, equalities: Sequence[tuple[str, str]]) -> Collection[str]:
        return min(
            (
                self._postings.by_key.get(key, {})
                for key in ((namespace,), *((namespace, *equality) for equality in equalities))
            ),
            key=len,
        )

    def _unpost(self, pod: Pod) -> None:
        for key in _keys(pod):
            uids = self._postings.to_change(key, dict)
            del uids[pod.uid]
            if not uids:
                self._postings.remove(key)
        if (pod.namespace,) not in self._postings.by_key:
            del self._namespaces[pod.namespace]

    def _record(self, slot: Slot, pod: Pod, change: int) -> None:
        if self._counts or self._rollups or self._preparing:
            self._log.append((slot, pod, change), most=_MOST_LOGGED)
            for _ in range(pod.parts // FEW_PARTS):  # as in `Indexes.record`
                self._log.append((slot, pod, 0), most=_MOST_LOGGED)


def _keys(pod: Pod) -> Iterator[tuple[str, ...]]:
    yield (pod.namespace,)
    for key, value in pod.labels.items():
        yield (pod.namespace, key, value)


def _has_same_counts(old: Pod, new: Pod) -> bool:
    return old.labels == new.labels and old.terminating == new.terminating

"""
The pods on nodes, posted by namespace and label, and how many of them match a selector on each node.

A count for a selector is built from the smallest posting that contains all its pods.
"""

from collections.abc import Generator, Iterable, Sequence
from itertools import chain
from typing import Final, TypeVar

import attrs

from neuron_scheduler.cluster.index.change_log import ChangeLog
from neuron_scheduler.cluster.index.copy_on_write import MANY, PARTS, CopyOnWrite, SharedDict
from neuron_scheduler.cluster.index.indexes import FEW_PARTS
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.index.sums import AT_ONCE, Totals
from neuron_scheduler.cluster.tables.selecting_kinds import Namespaces
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator

_Key = TypeVar("_Key")
_MOST_LOGGED = 4096
_Label = tuple[str, str, str]
_Uids = dict[str, None] | SharedDict[str, None]
_NONE: Final = dict[str, None]()


@attrs.frozen(cache_hash=True)
class PodQuery:
    """
    Definition of a count: the pods that match a selector.

    Attributes:
        selectors: a pod counts if it matches all of them.
        namespaces: a pod counts in these only; None for all.
        terminating: whether pods that are being deleted count (affinity counts them, spreading does not).
        below: only pods of a lower priority count; None for all.
    """

    selectors: tuple[LabelSelector, ...]
    namespaces: frozenset[str] | Namespaces | None
    terminating: bool
    below: int | None = None

    def matches(self, pod: Pod) -> bool:
        if pod.terminating and not self.terminating:
            return False
        if self.below is not None and pod.priority >= self.below:
            return False
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        for selector in self.selectors:  # noqa: SIM110  # called for every pod: a generator costs twice as much
            if not selector.matches(pod.labels):
                return False
        return True


@attrs.define(eq=False, kw_only=True)
class PodTable(Totals[PodQuery, tuple[Slot, Pod, int]]):
    """
    All pods that are on a node, with their slots; the log has those that came (1) or went (-1).

    The uids are posted by namespace, and by namespace, label and value: often as many as pods, each with its own name.
    """

    _pods: SharedDict[str, tuple[Pod, Slot]] = attrs.field(factory=SharedDict)
    _by_namespace: CopyOnWrite[str, _Uids] = attrs.field(factory=CopyOnWrite)
    _by_label: CopyOnWrite[int, CopyOnWrite[_Label, _Uids]] = attrs.field(factory=CopyOnWrite)  # in parts
    _log: ChangeLog[tuple[Slot, Pod, int]] = attrs.field(factory=ChangeLog)

    def put(self, pod: Pod, slot: Slot, before: Pod | None) -> None:
        """Add a pod, or replace what it was before in the same slot."""
        self._pods[pod.uid] = (pod, slot)
        if before is not None:
            if _has_same_counts(before, pod):
                return
            self._take_out(before, slot)
        _post(self._by_namespace, pod.namespace, pod.uid)
        for name, value in pod.labels.items():
            label = (pod.namespace, name, value)
            _post(self._by_label.to_change(hash(label) % PARTS, CopyOnWrite), label, pod.uid)
        self._record(slot, pod, 1)

    def remove(self, uid: str) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._take_out(*before)

    def most_compared(self, definition: PodQuery) -> int:
        """Return how many comparisons of pods with requirements a count takes at most."""
        namespaces, each = definition.namespaces, sum(1 + len(s.requirements) for s in definition.selectors)
        is_one = isinstance(namespaces, frozenset) and len(namespaces) == 1
        return each * (self._work(definition) if is_one else len(self._pods))

    def fork(self) -> "PodTable":
        """Return an independent copy; pods, postings and counts are copied when one of the two changes them."""
        fork = PodTable(
            pods=self._pods.copy(),
            by_namespace=self._by_namespace.copy(),
            by_label=self._by_label.copy(),
            log=self._log.fork(),
        )
        fork.share(self)
        return fork

    def _count(self, definition: PodQuery) -> Generator[None, None, dict[Slot, int]]:
        pods, numbers, postings = self._pods, dict[Slot, int](), self._candidates(definition)
        if sum(map(len, postings)) > AT_ONCE:
            pods, postings = pods.copy(), [uids.copy() for uids in postings]  # as they are now
        for count, uid in enumerate(chain.from_iterable(postings)):
            if count and count % AT_ONCE == 0:
                yield
            pod, slot = pods[uid]
            if definition.matches(pod):
                numbers[slot] = numbers.get(slot, 0) + 1
        return numbers

    def _work(self, definition: PodQuery) -> int:
        return sum(map(len, self._candidates(definition)))

    def _changes(self, definition: PodQuery, logged: Iterable[tuple[Slot, Pod, int]]) -> Iterable[tuple[Slot, int]]:
        for slot, pod, change in logged:
            if change and definition.matches(pod):
                yield slot, change

    def _candidates(self, definition: PodQuery) -> Sequence[_Uids | SharedDict[str, tuple[Pod, Slot]]]:
        """Return the smallest posting of each namespace that contains all its pods."""
        equalities = [
            (requirement.key, requirement.values[0])
            for selector in definition.selectors
            for requirement in selector.requirements
            if requirement.operator is Operator.IN and len(requirement.values) == 1
        ]
        namespaces = definition.namespaces
        if namespaces is None and not equalities:
            return [self._pods]
        if isinstance(namespaces, frozenset):
            names = [name for name in namespaces if name in self._by_namespace.by_key]
        else:
            names = [name for name in self._by_namespace.by_key if namespaces is None or name in namespaces]
        return [self._smallest(name, equalities) for name in names]

    def _smallest(self, namespace: str, equalities: Sequence[tuple[str, str]]) -> _Uids:
        labels = [(namespace, *label) for label in equalities]
        parts = [self._by_label.by_key.get(hash(label) % PARTS) for label in labels]
        uids = [part.by_key.get(label, _NONE) if part else _NONE for part, label in zip(parts, labels, strict=True)]
        return min((self._by_namespace.by_key[namespace], *uids), key=len)

    def _take_out(self, pod: Pod, slot: Slot) -> None:
        self._record(slot, pod, -1)
        _unpost(self._by_namespace, pod.namespace, pod.uid)
        for name, value in pod.labels.items():
            label = (pod.namespace, name, value)
            _unpost(self._by_label.to_change(hash(label) % PARTS, CopyOnWrite), label, pod.uid)

    def _record(self, slot: Slot, pod: Pod, change: int) -> None:
        if self._totals or self._preparing:
            self._log.append((slot, pod, change), most=_MOST_LOGGED)
            for _ in range(pod.parts // FEW_PARTS):  # as in `Indexes.record`
                self._log.append((slot, pod, 0), most=_MOST_LOGGED)


def _post(postings: CopyOnWrite[_Key, _Uids], key: _Key, uid: str) -> None:
    uids = postings.to_change(key, dict)
    uids[uid] = None
    # Those of one workload's labels grow together; to divide all of them at the same pod would be one long step.
    if len(uids) > MANY and isinstance(uids, dict) and len(uids) > MANY + hash(key) % MANY:
        parts = [dict[str, None]() for _ in range(PARTS)]
        for each in uids:
            parts[hash(each) % PARTS][each] = None
        postings.by_key[key] = SharedDict(parts, len(uids))


def _unpost(postings: CopyOnWrite[_Key, _Uids], key: _Key, uid: str) -> None:
    uids = postings.to_change(key, dict)
    uids.pop(uid, None)
    if not uids:
        postings.remove(key)


def _has_same_counts(old: Pod, new: Pod) -> bool:
    return old.labels == new.labels and old.terminating == new.terminating

"""
PodDisruptionBudgets by namespace, and which of them select a pod.

Upstream compares every pod with every budget (`filterPodsWithPDBViolation`). Here a budget is posted under one equality
of its selector, in an index of its namespace that is built when a pod there is asked about: thousands of pods, of
budgets and of namespaces are ordinary.
"""

from collections.abc import Sequence
from heapq import nsmallest
from typing import Final, Self

import attrs

from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Operator

MOST_BUDGETS: Final = 200
"""Budgets of one namespace that count, in the order of their names: each pod there may be compared with each."""
_MOST_ALIKE: Final = 512


@attrs.define(eq=False)
class Selecting:
    """
    Which pods of a namespace each of its budgets selects, whatever it allows.

    Attributes:
        keys: of the budgets.
    """

    keys: list[str] = attrs.field(factory=list, init=False)
    _posted: dict[tuple[str, ...], list[DisruptionBudget]] = attrs.field(factory=dict, init=False)
    _labels: set[str] = attrs.field(factory=set, init=False)  # of the selectors
    _alike: dict[tuple[tuple[str, str], ...], tuple[str, ...]] = attrs.field(factory=dict, init=False)

    def add(self, budget: DisruptionBudget) -> None:
        self.keys.append(budget.key)
        for posting in _postings(budget):
            self._posted.setdefault(posting, []).append(budget)
        self._labels.update([each.key for each in budget.selector.requirements] if budget.selector is not None else ())

    def keys_of(self, pod: Pod) -> tuple[str, ...]:
        """Return the keys of the budgets that select a pod; for the replicas of a workload they are the same."""
        if not self._labels or not pod.labels:
            return ()
        alike = tuple([label for label in pod.labels.items() if label[0] in self._labels])
        keys = self._alike.get(alike)
        if keys is None:
            posted = (budget for posting in ((), *alike) for budget in self._posted.get(posting, ()))
            if len(self._alike) >= _MOST_ALIKE:
                self._alike.clear()
            keys = self._alike[alike] = tuple([budget.key for budget in posted if budget.selects(pod)])
        return keys


def _postings(budget: DisruptionBudget) -> Sequence[tuple[str, ...]]:
    """Return what to post a budget under: labels of which the pods it counts must have one, or nothing."""
    for requirement in budget.selector.requirements if budget.selector is not None else ():
        if requirement.operator is Operator.IN:
            return [(requirement.key, value) for value in dict.fromkeys(requirement.values)]
    return [()]


@attrs.define(eq=False)
class NamespaceBudgets:
    """The budgets of one namespace by key."""

    by_key: dict[str, DisruptionBudget] = attrs.field(factory=dict)
    _selecting: Selecting | None = None

    @property
    def selecting(self) -> Selecting:
        """Those that count: the same object until one comes or goes, or selects other pods."""
        if self._selecting is None:
            self._selecting = Selecting()
            for key in nsmallest(MOST_BUDGETS, self.by_key):
                self._selecting.add(self.by_key[key])
        return self._selecting

    def put(self, budget: DisruptionBudget) -> None:
        before = self.by_key.get(budget.key)
        if before is None or before.selector != budget.selector:
            self._selecting = None
        self.by_key[budget.key] = budget

    def remove(self, key: str) -> None:
        if self.by_key.pop(key, None) is not None:
            self._selecting = None

    def copy(self) -> Self:
        return type(self)(dict(self.by_key), self._selecting)


_NONE: Final = NamespaceBudgets()


@attrs.define(eq=False)
class Budgets:
    """PodDisruptionBudgets; they decide which of several pods is evicted, never whether a pod fits."""

    _namespaces: CopyOnWrite[str, NamespaceBudgets] = attrs.field(factory=CopyOnWrite)
    _spent: dict[str, DisruptionBudget] = attrs.field(factory=dict, init=False)  # that we have changed

    def of(self, namespace: str) -> NamespaceBudgets:
        return self._namespaces.by_key.get(namespace, _NONE)

    def put(self, budget: DisruptionBudget) -> None:
        self._namespaces.to_change(budget.namespace, NamespaceBudgets).put(budget)

    def remove(self, budget: DisruptionBudget) -> None:
        budgets = self._namespaces.to_change(budget.namespace, NamespaceBudgets)
        budgets.remove(budget.key)
        if not budgets.by_key:
            self._namespaces.remove(budget.namespace)

    def spend(self, budget: DisruptionBudget) -> None:
        """Replace a budget until the watch shows a new state: pods that it counts are being evicted."""
        self.put(budget)
        self._spent[budget.key] = budget

    def take_back(self, pod: Pod) -> None:
        """Note that a pod stays that was to be evicted."""
        for key, budget in [*self._spent.items()]:
            if self.of(budget.namespace).by_key.get(key) is not budget:
                del self._spent[key]  # the watch has shown a new state
            elif pod.namespace == budget.namespace and pod.name in budget.disrupted:
                self.spend(attrs.evolve(budget, allowed=budget.allowed + 1, disrupted=budget.disrupted - {pod.name}))

    def fork(self) -> Self:
        return type(self)(self._namespaces.copy())

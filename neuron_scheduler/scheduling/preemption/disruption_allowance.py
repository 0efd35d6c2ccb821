"""
What PodDisruptionBudgets allow, asked for many sets of pods in one search for victims.

Upstream compares every pod with every budget (`filterPodsWithPDBViolation`). Here a budget is posted under one equality
of its selector, and the budgets of a pod are kept for the search: thousands of pods and hundreds of budgets are
ordinary.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator

_MOST_ALIKE: Final = 4096


@attrs.define(eq=False)
class Selecting:
    """
    Which pods each of some budgets selects, whatever it allows.

    Attributes:
        budgets: with nothing but namespace and selector.
    """

    budgets: tuple[DisruptionBudget, ...]
    _posted: dict[tuple[str, ...], list[int]] = attrs.field(factory=dict, init=False)
    _keys: dict[str, set[str]] = attrs.field(factory=dict, init=False)  # of the selectors' labels, by namespace
    _alike: dict[tuple[Hashable, ...], tuple[int, ...]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for number, budget in enumerate(self.budgets):
            for posting in _posting_keys(budget):
                self._posted.setdefault(posting, []).append(number)
            requirements = budget.selector.requirements if budget.selector is not None else ()
            self._keys.setdefault(budget.namespace, set()).update([each.key for each in requirements])

    def numbers_of(self, pod: Pod) -> tuple[int, ...]:
        """Return the budgets that select a pod, by number; for the replicas of a workload they are the same."""
        keys = self._keys.get(pod.namespace)
        if keys is None or not pod.labels:
            return ()
        labels = [label for label in pod.labels.items() if label[0] in keys]
        alike = (pod.namespace, *labels)
        numbers = self._alike.get(alike)
        if numbers is None:
            postings = ((pod.namespace,), *((pod.namespace, *label) for label in labels))
            posted = (number for posting in postings for number in self._posted.get(posting, ()))
            if len(self._alike) >= _MOST_ALIKE:
                self._alike.clear()
            numbers = self._alike[alike] = tuple([number for number in posted if self.budgets[number].selects(pod)])
        return numbers


@memoise(maxsize=2)
def _selecting(selectors: tuple[tuple[str, LabelSelector | None], ...]) -> Selecting:
    """Return the same object for budgets that select the same."""
    return Selecting(tuple([DisruptionBudget("", namespace, "", selector) for namespace, selector in selectors]))


@attrs.define(eq=False)
class DisruptionAllowance:
    """
    What budgets allow at one moment, with the budgets of each pod that was asked about.

    Attributes:
        selecting: always the same object for budgets that select the same, whatever they allow.
        disrupted: the names of all pods whose eviction is counted already.
    """

    budgets: tuple[DisruptionBudget, ...] = attrs.field(converter=tuple[DisruptionBudget, ...])
    _counting: dict[str, tuple[int, ...]] = attrs.field(factory=dict, init=False)

    selecting: Selecting = attrs.field(init=False)
    disrupted: frozenset[str] = attrs.field(init=False)
    _ids: frozenset[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.selecting = _selecting(tuple([(budget.namespace, budget.selector) for budget in self.budgets]))
        self.disrupted = frozenset[str]().union(*[budget.disrupted for budget in self.budgets])
        self._ids = frozenset(map(id, self.budgets))

    def has(self, budget: DisruptionBudget) -> bool:
        """Return whether a budget is one of these, as it was."""
        return id(budget) in self._ids

    def violating_uids(self, pods: Iterable[Pod], left: dict[int, int] | None = None) -> frozenset[str]:
        """
        Return the uids of those pods whose end goes beyond a budget, if all of them end in this order.

        Upstream: `filterPodsWithPDBViolation`. A pod uses up one disruption of each budget that counts it. `left` is
        what pods before have left of these, by the budget's number.
        """
        if not self.budgets:
            return frozenset()
        left = {} if left is None else left
        return frozenset([pod.uid for pod in pods if not self._use_up(left, pod)])

    def violation_count(self, counts: Mapping[tuple[int, ...], int]) -> int:
        """Return how many pods violate budgets if they end one kind after the other, by the budgets that count them."""
        violations, left = 0, {number: budget.allowed for number, budget in enumerate(self.budgets)}
        for numbers, count in counts.items():
            allowed = min([left[number] for number in numbers], default=count)
            violations += count - max(0, min(count, allowed))
            for number in numbers:
                left[number] -= count
        return violations

    def uids_to_spare(self, leaving: Iterable[Pod], remaining: Iterable[Pod]) -> frozenset[str]:
        """
        Return the uids of `remaining` pods for which no disruption is left, if they end in this order after `leaving`.

        Unlike in `violating_uids`, a pod that is spared stays, so it uses up nothing.
        """
        if not self.budgets:
            return frozenset()
        left: dict[int, int] = {}
        for pod in leaving:
            self._use_up(left, pod)
        spared = set()
        for pod in remaining:
            if any(left.get(number, self.budgets[number].allowed) < 1 for number in self.counted_by(pod)):
                spared.add(pod.uid)
            else:
                self._use_up(left, pod)
        return frozenset(spared)

    def budgets_of(self, pods: Iterable[Pod]) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that select one of the pods; what the others allow does not matter to them."""
        if not self.budgets:
            return ()
        numbers = {number for pod in pods for number in self.selecting.numbers_of(pod)}
        return tuple([self.budgets[number] for number in sorted(numbers)])

    def allows(self, pod: Pod) -> bool:
        """Return whether a pod may end, if no other does, without going beyond a budget."""
        for number in self.selecting.numbers_of(pod):
            budget = self.budgets[number]
            if budget.allowed < 1 and pod.name not in budget.disrupted:
                return False
        return True

    def counted_by(self, pod: Pod) -> tuple[int, ...]:
        """Return the budgets that count a pod, by number."""
        numbers = self._counting.get(pod.uid)
        if numbers is None:
            selected_by = self.selecting.numbers_of(pod)
            numbers = tuple([number for number in selected_by if pod.name not in self.budgets[number].disrupted])
            self._counting[pod.uid] = numbers
        return numbers

    def spent_on(self, pods: Iterable[Pod]) -> Iterator[DisruptionBudget]:
        """Yield the budgets that count some of the pods, as the Eviction API would leave them."""
        names = dict[int, set[str]]()
        for pod in pods:
            for number in self.counted_by(pod):
                names.setdefault(number, set()).add(pod.name)
        for number, gone in names.items():
            budget = self.budgets[number]
            yield attrs.evolve(budget, allowed=budget.allowed - len(gone), disrupted=budget.disrupted | gone)

    def _use_up(self, left: dict[int, int], pod: Pod) -> bool:
        """Use up one disruption of each budget that counts a pod; return whether each had one left."""
        within = True
        for number in self.counted_by(pod):
            left[number] = left.get(number, self.budgets[number].allowed) - 1
            within &= left[number] >= 0
        return within


def _posting_keys(budget: DisruptionBudget) -> Sequence[tuple[str, ...]]:
    """Return the keys to post a budget under: its namespace, with a label that the pods it counts must have if any."""
    for requirement in budget.selector.requirements if budget.selector is not None else ():
        if requirement.operator is Operator.IN:
            return [(budget.namespace, requirement.key, value) for value in dict.fromkeys(requirement.values)]
    return [(budget.namespace,)]

"""
What PodDisruptionBudgets allow, asked for many sets of pods in one search for victims.

Upstream compares every pod with every budget (`filterPodsWithPDBViolation`). Here a budget is posted under one equality
of its selector, and the budgets of a pod are kept for the search: thousands of pods and hundreds of budgets are
ordinary.
"""

from collections.abc import Hashable, Iterable, Sequence

import attrs

from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator

Selecting = tuple[tuple[str, LabelSelector | None], ...]
"""What budgets select: the namespace and the selector of each."""


@memoise(maxsize=16)
def _the_same(selecting: Selecting) -> Selecting:
    """Return the same object for equal ones."""
    return selecting


@attrs.define(eq=False)
class DisruptionAllowance:
    """
    What budgets allow at one moment, with the budgets of each pod that was asked about.

    Attributes:
        selecting: always the same object for budgets that select the same, whatever they allow.
    """

    budgets: tuple[DisruptionBudget, ...] = attrs.field(converter=tuple[DisruptionBudget, ...])
    _posted: dict[tuple[str, ...], list[int]] = attrs.field(factory=dict, init=False)
    _counting: dict[str, Sequence[int]] = attrs.field(factory=dict, init=False)
    _selecting: dict[tuple[Hashable, ...], tuple[int, ...]] = attrs.field(factory=dict, init=False)

    selecting: Selecting = attrs.field(init=False)
    _ids: frozenset[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.selecting = _the_same(tuple([(budget.namespace, budget.selector) for budget in self.budgets]))
        self._ids = frozenset(map(id, self.budgets))
        for number, budget in enumerate(self.budgets):
            for key in _posting_keys(budget):
                self._posted.setdefault(key, []).append(number)

    def has(self, budget: DisruptionBudget) -> bool:
        """Return whether a budget is one of these, as it was."""
        return id(budget) in self._ids

    def violating_uids(self, pods: Iterable[Pod]) -> frozenset[str]:
        """
        Return the uids of those pods whose end goes beyond a budget, if all of them end in this order.

        Upstream: `filterPodsWithPDBViolation`. A pod uses up one disruption of each budget that counts it.
        """
        if not self.budgets:
            return frozenset()
        left: dict[int, int] = {}
        return frozenset([pod.uid for pod in pods if not self._use_up(left, pod)])

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
            if any(left.get(number, self.budgets[number].allowed) < 1 for number in self._counted_by(pod)):
                spared.add(pod.uid)
            else:
                self._use_up(left, pod)
        return frozenset(spared)

    def budgets_of(self, pods: Iterable[Pod]) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that select one of the pods; what the others allow does not matter to them."""
        if not self.budgets:
            return ()
        numbers = {number for pod in pods for number in self._selected_by(pod)}
        return tuple([self.budgets[number] for number in sorted(numbers)])

    def allows(self, pod: Pod) -> bool:
        """Return whether a pod may end, if no other does, without going beyond a budget."""
        for number in self._selected_by(pod):
            budget = self.budgets[number]
            if budget.allowed < 1 and pod.name not in budget.disrupted:
                return False
        return True

    def _use_up(self, left: dict[int, int], pod: Pod) -> bool:
        """Use up one disruption of each budget that counts a pod; return whether each had one left."""
        within = True
        for number in self._counted_by(pod):
            left[number] = left.get(number, self.budgets[number].allowed) - 1
            within &= left[number] >= 0
        return within

    def _counted_by(self, pod: Pod) -> Sequence[int]:
        numbers = self._counting.get(pod.uid)
        if numbers is None:
            selected_by = self._selected_by(pod)
            numbers = [number for number in selected_by if pod.name not in self.budgets[number].disrupted]
            self._counting[pod.uid] = numbers
        return numbers

    def _selected_by(self, pod: Pod) -> tuple[int, ...]:
        """Return the budgets that select a pod, by number; for the replicas of a workload they are the same."""
        alike = (pod.namespace, *pod.labels.items())
        numbers = self._selecting.get(alike)
        if numbers is None:
            keys = ((pod.namespace,), *((pod.namespace, *label) for label in pod.labels.items()))
            posted = (number for key in keys for number in self._posted.get(key, ()))
            numbers = self._selecting[alike] = tuple([number for number in posted if self.budgets[number].selects(pod)])
        return numbers


def _posting_keys(budget: DisruptionBudget) -> Sequence[tuple[str, ...]]:
    """Return the keys to post a budget under: its namespace, with a label that the pods it counts must have if any."""
    for requirement in budget.selector.requirements if budget.selector is not None else ():
        if requirement.operator is Operator.IN:
            return [(budget.namespace, requirement.key, value) for value in dict.fromkeys(requirement.values)]
    return [(budget.namespace,)]

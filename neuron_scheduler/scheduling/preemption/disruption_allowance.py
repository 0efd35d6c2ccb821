"""
What PodDisruptionBudgets allow, asked for many sets of pods in one search for victims.

The budgets of a namespace are taken as they are when the first of its pods is asked about, and those of a pod are kept
for the search.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import attrs

from neuron_scheduler.cluster.tables.budgets import Budgets, Selecting
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod


@attrs.define(eq=False)
class DisruptionAllowance:
    """What budgets allow, with the budgets of each pod that was asked about; all by key."""

    _all: Budgets
    _selecting: dict[str, Selecting] = attrs.field(factory=dict, init=False)  # by namespace
    _budgets: dict[str, DisruptionBudget] = attrs.field(factory=dict, init=False)  # of these namespaces
    _counting: dict[str, tuple[str, ...]] = attrs.field(factory=dict, init=False)

    def selecting(self, namespace: str) -> Selecting:
        """Return which pods the budgets of a namespace select, whatever they allow."""
        selecting = self._selecting.get(namespace)
        if selecting is None:
            budgets = self._all.of(namespace)
            selecting = self._selecting[namespace] = budgets.selecting
            self._budgets.update([(key, budgets.by_key[key]) for key in selecting.keys])
        return selecting

    def has(self, budget: DisruptionBudget) -> bool:
        """Return whether a budget, of a namespace that was asked about, is as it was."""
        return self._budgets.get(budget.key) is budget

    def violating_uids(self, pods: Iterable[Pod], left: dict[str, int] | None = None) -> frozenset[str]:
        """
        Return the uids of those pods whose end goes beyond a budget, if all of them end in this order.

        Upstream: `filterPodsWithPDBViolation`. A pod uses up one disruption of each budget that counts it. `left` is
        what pods before have left of these.
        """
        left = {} if left is None else left
        return frozenset([pod.uid for pod in pods if not self._use_up(left, pod)])

    def violation_count(self, counts: Mapping[tuple[str, ...], int]) -> int:
        """Return how many pods violate budgets if they end one kind after the other, by the budgets that count them."""
        violations, left = 0, {key: self._budgets[key].allowed for key in chain(*counts)}
        for keys, count in counts.items():
            allowed = min([left[key] for key in keys], default=count)
            violations += count - max(0, min(count, allowed))
            for key in keys:
                left[key] -= count
        return violations

    def uids_to_spare(self, leaving: Iterable[Pod], remaining: Iterable[Pod]) -> frozenset[str]:
        """
        Return the uids of `remaining` pods for which no disruption is left, if they end in this order after `leaving`.

        Unlike in `violating_uids`, a pod that is spared stays, so it uses up nothing.
        """
        left: dict[str, int] = {}
        for pod in leaving:
            self._use_up(left, pod)
        spared = set()
        for pod in remaining:
            if any(left.get(key, self._budgets[key].allowed) < 1 for key in self.counted_by(pod)):
                spared.add(pod.uid)
            else:
                self._use_up(left, pod)
        return frozenset(spared)

    def budgets_of(self, pods: Iterable[Pod]) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that select one of the pods; what the others allow does not matter to them."""
        keys = {key for pod in pods for key in self.selecting(pod.namespace).keys_of(pod)}
        return tuple([self._budgets[key] for key in sorted(keys)])

    def allows(self, pod: Pod) -> bool:
        """Return whether a pod may end, if no other does, without going beyond a budget."""
        return all(self._budgets[key].allowed >= 1 for key in self.counted_by(pod))

    def counted_by(self, pod: Pod) -> tuple[str, ...]:
        """Return the keys of the budgets that count a pod."""
        keys = self._counting.get(pod.uid)
        if keys is None:
            selected_by = self.selecting(pod.namespace).keys_of(pod)
            keys = tuple([key for key in selected_by if pod.name not in self._budgets[key].disrupted])
            self._counting[pod.uid] = keys
        return keys

    def disrupted_pods(self, keys: Iterable[str]) -> frozenset[str]:
        """Return the names of the pods whose eviction some of these budgets have counted already."""
        return frozenset[str]().union(*[self._budgets[key].disrupted for key in keys])

    def spent_on(self, pods: Iterable[Pod]) -> Iterator[DisruptionBudget]:
        """Yield the budgets that count some of the pods, as the Eviction API would leave them."""
        names = dict[str, set[str]]()
        for pod in pods:
            for key in self.counted_by(pod):
                names.setdefault(key, set()).add(pod.name)
        for key, gone in names.items():
            budget = self._budgets[key]
            yield attrs.evolve(budget, allowed=budget.allowed - len(gone), disrupted=budget.disrupted | gone)

    def _use_up(self, left: dict[str, int], pod: Pod) -> bool:
        """Use up one disruption of each budget that counts a pod; return whether each had one left."""
        within = True
        for key in self.counted_by(pod):
            left[key] = left.get(key, self._budgets[key].allowed) - 1
            within &= left[key] >= 0
        return within

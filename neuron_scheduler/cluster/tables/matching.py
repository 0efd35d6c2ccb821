"""Which pods count for a selector: the definition of a count of pods (`pods`)."""

from collections.abc import Iterable, Iterator

import attrs

from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector


@attrs.frozen(cache_hash=True)
class Matching:
    """
    Definition of a count: the pods that match a selector.

    Attributes:
        selectors: a pod counts if it matches all of them.
        namespaces: a pod counts in these only; None for all.
        terminating: whether pods that are being deleted count (affinity counts them, spreading does not).
    """

    selectors: tuple[LabelSelector, ...]
    namespaces: frozenset[str] | None
    terminating: bool

    def matches(self, pod: Pod) -> bool:
        """Return whether a pod counts."""
        if pod.terminating and not self.terminating:
            return False
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        for selector in self.selectors:  # noqa: SIM110  # called for every pod: a generator costs twice as much
            if not selector.matches(pod.labels):
                return False
        return True

    def count(self, pods: Iterable[tuple[Pod, Slot]], numbers: dict[Slot, int]) -> None:
        """Add the number of matching pods on each slot to the numbers."""
        for pod, slot in pods:
            if self.matches(pod):
                numbers[slot] = numbers.get(slot, 0) + 1

    def changes(self, log: Iterable[tuple[Slot, Pod | None, Pod | None]]) -> Iterator[tuple[Slot, int]]:
        """Yield the changes of the count, (slot, change), for logged changes of pods."""
        for slot, old, new in log:
            change = (new is not None and self.matches(new)) - (old is not None and self.matches(old))
            if change:
                yield slot, change

"""
The candidates of one search for victims, compared: the cheapest so far, or why there is none.

A candidate is a node with the pods that would leave it. Upstream: `pickOneNodeForPreemption` and the message of
`framework/preemption/preemption.go`.
"""

from collections import Counter
from typing import Final

import attrs

from neuron_scheduler.scheduling.cycle.filters import counted
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.plugins.contract import Refusal
from neuron_scheduler.scheduling.preemption.victims import Cost, Victims, none_cheaper_from

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"

FEWEST_CANDIDATES: Final = 100
PERCENT_OF_NODES: Final = 10
"""Of the nodes that may fit, so many candidates are compared, at least the fewest (upstream's defaults)."""


@attrs.frozen
class Preemption:
    """Pods of one node are evicted for a pod."""

    node_name: str
    victims: Victims


@attrs.frozen
class NoPreemption:
    """
    No pod is evicted.

    Attributes:
        text: why, as it is appended to the message about the refused pod.
        gives_up: no node can be made to fit, so the pod loses its nomination.
        plugins: the plugins that would refuse the pod even if other pods left.
    """

    text: str
    gives_up: bool = False
    plugins: frozenset[str] = frozenset()


@attrs.define(eq=False)
class Comparison:
    """
    The best candidate so far, and why other nodes are none.

    Attributes:
        helpful: number of nodes that refused for a reason that fewer pods could change.
        candidates: number of nodes that could be made to fit.
        asked: names of the nodes that were looked at one by one.
        spare: the nodes that may have cheaper victims; None until there are plenty of candidates and all of them go
            beyond the budgets.
        without_victims: number of helpful nodes without a pod of lower priority.
        reasons: by reason, how many nodes would refuse even if all pods of lower priority left.
        asked_reasons: likewise, of the nodes that were looked at one by one.
        plugins: the plugins that refused on these nodes.
    """

    helpful: int
    best: Preemption | None = None
    candidates: int = 0
    asked: set[str] = attrs.field(factory=set)
    spare: set[str] | None = None
    without_victims: int = 0
    reasons: Counter[str] = attrs.field(factory=Counter)
    asked_reasons: Counter[str] = attrs.field(factory=Counter)
    plugins: set[str] = attrs.field(factory=set)

    @property
    def limit(self) -> Cost | None:
        """What another candidate must cost less than; None as long as there is none."""
        return None if self.best is None else self.best.victims.cost

    @property
    def plenty(self) -> bool:
        """Whether as many candidates were found as have to be compared."""
        return self.candidates >= max(FEWEST_CANDIDATES, self.helpful * PERCENT_OF_NODES // 100)

    @property
    def enough(self) -> bool:
        """Whether there are plenty of candidates, and the best is within the budgets, or no other can be."""
        if not self.plenty or self.best is None:
            return False
        return not self.best.victims.violations or (self.spare is not None and self.spare <= self.asked)

    def wants(self, name: str) -> bool:
        """Return whether a node is to be looked at."""
        return name not in self.asked and (self.spare is None or name in self.spare) and not self.enough

    def decided(self, below: int) -> bool:
        """Return whether no further node can be better: on each, a pod of priority `below` or higher must leave."""
        return self.enough or (self.best is not None and none_cheaper_from(below, self.best.victims.cost))

    def add(self, name: str, result: Victims | list[Refusal] | None) -> None:
        """Add the result of a node: victims cheaper than the limit, None for no cheaper ones, or its refusals."""
        self.asked.add(name)
        if isinstance(result, list):
            self.asked_reasons += counted(result)
            self.plugins.update(refusal.plugin for refusal in result)
            return
        self.candidates += 1
        if result is not None:
            self.best = Preemption(name, result)

    def outcome(self, nodes: int) -> Preemption | NoPreemption:
        """Return the best candidate, or why there is none among so many nodes."""
        if self.best is not None:
            return self.best
        counts = self.reasons + self.asked_reasons
        counts += Counter({NOT_HELPFUL: nodes - self.helpful, NO_VICTIMS: self.without_victims})
        text = FitError(nodes, tuple(counts.items())).text
        return NoPreemption(f"preemption: {text}", gives_up=True, plugins=frozenset(self.plugins))

"""
The last decisions of the scheduling loop, for people who look at what happens now.

Noting one costs a microsecond: what the loop has made already is kept as it is, and becomes an answer when somebody
asks. It is no journal: there are `MOST` decisions, in memory.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

from neuron_scheduler.explain.answers.lists import RecentDecision
from neuron_scheduler.explain.subject import ids_text
from neuron_scheduler.explain.summary import summary_of
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError

MOST: Final = 256


@attrs.define(eq=False, kw_only=True)
class DecisionRing:
    """
    A ring of decisions.

    Attributes:
        now: seconds since the epoch.
        count: how many were noted in all.
    """

    now: Callable[[], float]
    count: int = attrs.field(default=0, init=False)
    _noted: deque[tuple[float, Pod, Decision | FitError]] = attrs.field(factory=lambda: deque(maxlen=MOST), init=False)

    def note(self, pod: Pod, decision: Decision | FitError) -> None:
        """Note a decision that has just been made."""
        self.count += 1
        self._noted.append((self.now(), pod, decision))

    def latest(self) -> list[RecentDecision]:
        """Return the decisions, the newest first."""
        return [_line(*noted) for noted in reversed(self._noted)]


def _line(at: float, pod: Pod, decision: Decision | FitError) -> RecentDecision:
    if isinstance(decision, FitError):
        return RecentDecision(at, summary_of(pod), cause=decision.cause.value, message=decision.text)
    node = f"{decision.node_name}{ids_text(decision.ids, pod)}"
    message = f"{decision.feasible} of {decision.evaluated} nodes fit; it gets {node}."
    return RecentDecision(at, summary_of(pod), decision.node_name, decision.ids, message=message)

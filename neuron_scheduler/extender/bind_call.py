"""
A Binding that kube-scheduler has asked for, from its assumption to its outcome, and those who wait for it.

Does not send anything or decide how long to wait: `bind` does.
"""

from collections.abc import Callable
from typing import Protocol

import anyio
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.controllers.extension_log import OF_KUBE_SCHEDULER, Lines
from neuron_scheduler.kube.writes.binder import Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

_OUTDATED = "the node or the pod has changed, or this replica may not bind any more; try again"


class Reporter(Protocol):
    """Reports to the pod's owner."""

    def allocated(self, pod: Pod, node_name: str, placement: Placement) -> None:
        """Report which ids the pod got."""


@attrs.define(eq=False, kw_only=True)
class BindCall:
    """
    The requester of such a commitment.

    Attributes:
        newest: returns the present state of a pod.
        ended: called with the pod's uid when there is an outcome.
        last: the pod as it was when it was decided.
        callers: how many calls wait.
        outcome: set when the Binding has one.
        problem: why the pod is not bound; empty if it is.
        reason: why the Binding was withdrawn; empty if it was not.
    """

    node_name: str
    cluster: Cluster
    newest: Callable[[Pod], Pod]
    reporter: Reporter
    errors: UnexpectedErrors
    ended: Callable[[str], None]
    last: Pod
    callers: int = 0
    outcome: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    problem: str = ""
    reason: str = ""

    @property
    def uid(self) -> str:
        """The pod's."""
        return self.last.uid

    @property
    def pod(self) -> Pod:
        """The pod's present state."""
        return self.newest(self.last)

    @property
    def waits(self) -> bool:
        """Whether the pod waits for its node: it is neither gone, nor about to be, nor known to be bound."""
        return self.cluster.is_assumed(self.uid) and not self.pod.terminating

    @property
    def lines(self) -> Lines:
        """The lines about pods of kube-scheduler's."""
        return OF_KUBE_SCHEDULER

    def bound(self, commitment: Commitment) -> None:
        """Answer that the pod is bound; kube-scheduler writes the Event of that, and we that of the devices."""
        self._end("")
        if commitment.decision.placement is not None:
            self.reporter.allocated(commitment.pod, self.node_name, commitment.decision.placement)

    def gone(self) -> None:
        """Answer that the pod does not wait for a node any more."""
        self._end(f"pod {self.last.key} does not wait for a node any more: it is gone, terminating or bound")

    def refused(self, commitment: Commitment, refusal: Refused) -> None:
        """Answer what the API server said."""
        self._end(refusal.message or f"the API server refused the Binding of {commitment.pod.key}")

    def fenced(self) -> None:
        """Answer that nothing was sent."""
        self._end(self.reason or _OUTDATED)

    def crashed(self, error: Exception) -> None:
        """Answer with the error, and give up the place of a pod that is not bound."""
        message = self.errors.report(error, task="bind verb", pod=self.last.key)
        if not self.outcome.is_set():
            self.cluster.forget(self.uid)
            self._end(message)

    def _end(self, problem: str) -> None:
        self.problem = problem
        self.ended(self.uid)
        self.outcome.set()

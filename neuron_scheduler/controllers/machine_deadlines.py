"""
Machines that were asked for and take too long: those that do not serve in time, and those on which others are.

Refuses to know when it is asked, and what follows when a request ends: that is for `machine_requests`.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from neuron_scheduler.capacity.machine_node import is_used
from neuron_scheduler.capacity.requests import Request, Requests
from neuron_scheduler.capacity.waits import FIRST_REFUSAL
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.capacity_policy import Policy
from neuron_scheduler.model.wording import span


class GiveUp(Protocol):
    """Gives a request up."""

    def __call__(self, request: Request, reason: str, *, first: float) -> None:
        """End a request in vain; its pods ask for nothing for `first` seconds, longer each time."""


@attrs.frozen(kw_only=True)
class MachineDeadlines:
    """
    Looks at the requests that have not ended.

    Attributes:
        policies: of the profiles that ask for machines, by scheduler name.
        clock: seconds that never jump.
        taken: called with a request whose machine others use, while its pods wait.
    """

    cluster: Cluster
    table: Requests
    policies: Mapping[str, Policy]
    clock: Callable[[], float]
    give_up: GiveUp
    taken: Callable[[Request], None]

    def look(self) -> None:
        """End the requests that take too long."""
        self._give_up_overdue()
        self._end_taken()

    def _give_up_overdue(self) -> None:
        """Give up the machines that have not served their pods in time."""
        now = self.clock()
        for request in self.table.overdue(now, {name: policy.give_up for name, policy in self.policies.items()}):
            policy = self.policies.get(request.owner.scheduler_name)
            bound = FIRST_REFUSAL if policy is None else policy.give_up
            came = f"node {request.node_name} has joined for it" if request.node_name else "no node has joined for it"
            self.give_up(request, f"it has not served its pods within {span(bound)}: {came}", first=bound)

    def _end_taken(self) -> None:
        """End the requests on whose machines other pods are, so that the pods that still wait are planned for again."""
        now = self.clock()
        for request in self.table.all():
            policy = self.policies.get(request.owner.scheduler_name)
            since = request.usable_since
            if policy is None or since is None or now - since < policy.wait:
                continue
            node_info = self.cluster.node(request.node_name)
            if node_info is not None and is_used(node_info, but=request.pods):
                self.taken(request)

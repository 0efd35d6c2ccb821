"""
What capacity requests are given: when machines may be asked for, and whom to tell.

Does not depend on where the values are set: `settings` has them, and `capacity_wiring` passes them on.
"""

from collections.abc import Mapping
from typing import Protocol

import attrs

from neuron_scheduler.capacity.limits import Limits
from neuron_scheduler.kube.writes.machine_order import Orders
from neuron_scheduler.model.pod import Pod


@attrs.frozen(kw_only=True)
class Policy:
    """
    When and how machines are asked for the pods of a profile; durations are seconds.

    Attributes:
        form: writes what asks.
        wait: a pod must have waited so long.
        pause: between two rounds in which machines are asked for.
        give_up: a machine must have served its pods within this time.
        image: of placeholders.
        do_not_disrupt: value of Karpenter's annotation on pods that get a machine that was asked for; empty for none.
    """

    form: Orders
    wait: float
    pause: float
    give_up: float
    limits: Limits
    image: str
    do_not_disrupt: str = ""


class Reporter(Protocol):
    """Reports to the owners of pods."""

    def capacity_asked(self, machines: Mapping[str, str]) -> None:
        """From now on end the messages of these pods with the instance type that is asked for."""

    def capacity_requested(self, pod: Pod, machine: str, shortage: str) -> None:
        """Report that an autoscaler is asked for a machine."""

    def capacity_given_up(self, pod: Pod, message: str) -> None:
        """Warn that a machine did not come, or does not serve the pod."""

    def capacity_refused(self, pod: Pod, message: str) -> None:
        """Warn that the API server does not let a machine be asked for."""

    def capacity_limited(self, pod: Pod, message: str) -> None:
        """Warn that a limit keeps a machine from being asked for."""

"""Builds what asks for machines, from the parts of the process that it shares; imported only if a profile asks."""

from collections.abc import Callable, Mapping

from neuron_scheduler.capacity.machines import MachineRequests
from neuron_scheduler.capacity.requester import CapacityRequester
from neuron_scheduler.capacity.writer import PlaceholderWriter
from neuron_scheduler.controllers.pod_attempt import PodAttempts
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.settings.profile_config import CapacityRequests


def requester_of(
    client: Client,
    attempts: PodAttempts,
    policies: Mapping[str, CapacityRequests],
    *,
    timeout: float,
    may_bind: Callable[[], bool],
) -> CapacityRequester:
    """Return what asks for machines; `timeout` is that of a write, in seconds."""
    machines = MachineRequests(
        cluster=attempts.cluster,
        queue=attempts.queue,
        scheduler_names=attempts.profiles.keys(),
        policies=policies,
        writer=PlaceholderWriter(client=client, may_bind=may_bind, timeout=timeout),
        reporter=attempts.reporter,
        metrics=attempts.metrics,
        clock=attempts.clock,
        errors=attempts.errors,
    )
    return CapacityRequester(machines=machines, profiles=attempts.profiles, may_bind=may_bind)

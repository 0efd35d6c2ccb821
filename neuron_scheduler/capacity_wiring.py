"""
Builds what asks an autoscaler for machines from the settings of the profiles.

Refuses to build what does not ask: `wiring` does.
"""

from collections.abc import Mapping

from neuron_scheduler.capacity.limits import Limits
from neuron_scheduler.controllers.capacity_policy import Policy
from neuron_scheduler.controllers.capacity_requester import CapacityRequester
from neuron_scheduler.controllers.earlier_requests import EarlierRequests
from neuron_scheduler.controllers.machine_requests import MachineRequests
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.kube import access_review
from neuron_scheduler.kube.writes.capacity_buffers import CapacityBuffers
from neuron_scheduler.kube.writes.leader_requests import LeaderRequests
from neuron_scheduler.kube.writes.machine_order import NAMESPACE
from neuron_scheduler.kube.writes.placeholders import Placeholders
from neuron_scheduler.settings.capacity_requests import CAPACITY_BUFFERS, CapacityRequests
from neuron_scheduler.settings.config import Config


def capacity_requester(
    config: Config, requests: LeaderRequests, loop: SchedulingLoop, reporter: PodReporter
) -> CapacityRequester:
    """Return what asks for machines, connected with the binding cycle; without such a profile it asks for none."""
    placeholders, buffers = Placeholders(requests=requests), CapacityBuffers(requests=requests)
    policies = {
        name: _policy(settings, buffers if settings.form == CAPACITY_BUFFERS else placeholders)
        for name, settings in _settings(config).items()
    }
    machines = MachineRequests(
        cluster=loop.cluster,
        queue=loop.queue,
        scheduler_names=loop.profiles.keys(),
        policies=policies,
        placeholders=placeholders,
        reporter=reporter,
        metrics=loop.metrics,
        clock=loop.clock,
        let_through=loop.binding_cycle.withdrawals.withdrawn,
        errors=loop.errors,
    )
    loop.binding_cycle.withdrawals.behind = machines.behind
    loop.binding_cycle.further_annotations = machines.arrivals.annotations
    return CapacityRequester(
        machines=machines,
        cluster=loop.cluster,
        queue=loop.queue,
        profiles=loop.profiles,
        policies=policies,
        earlier=EarlierRequests(
            in_use=[policy.form for policy in policies.values()],
            others=(placeholders, buffers),
            namespaces=loop.cluster.namespaces,
            clock=loop.clock,
        ),
        clock=loop.clock,
        may_ask=loop.may_bind,
        errors=loop.errors,
    )


def rights(config: Config) -> tuple[access_review.Right, ...]:
    """Return the rights without which no machine can be asked for; empty if no profile asks for any."""
    forms = {settings.form for settings in _settings(config).values()}
    return tuple(right for form in sorted(forms) for right in access_review.asking(form, NAMESPACE))


def _settings(config: Config) -> Mapping[str, CapacityRequests]:
    profiles = config.profiles if config.queue else ()
    return {
        profile.scheduler_name: profile.capacity_requests
        for profile in profiles
        if profile.capacity_requests is not None
    }


def _policy(settings: CapacityRequests, form: Placeholders | CapacityBuffers) -> Policy:
    return Policy(
        form=form,
        wait=settings.wait,
        pause=settings.pause,
        give_up=settings.give_up,
        limits=Limits(
            machines=settings.max_machines,
            devices=settings.max_devices,
            machines_per_namespace=settings.max_machines_per_namespace,
            devices_per_namespace=settings.max_devices_per_namespace,
        ),
        image=settings.image,
        do_not_disrupt=settings.do_not_disrupt,
    )

"""
All subjects in the order of the report. A new one is a module with `findings`, and a line here.
"""

from collections.abc import Callable, Iterable
from typing import Final

import attrs

from neuron_scheduler.check.subjects import (
    allocations,
    api_server,
    capacity_requests,
    device_plugin,
    installation,
    nodes,
    other_schedulers,
    pods,
    policies,
    rights,
    usage_maps,
)
from neuron_scheduler.check.subjects.finding import Finding
from neuron_scheduler.check.subjects.snapshot import Snapshot


@attrs.frozen
class Subject:
    """
    One part of the report.

    Attributes:
        name: in the JSON form, in kebab case.
        title: for a person.
        findings: what it finds; nothing if there is nothing to say.
    """

    name: str
    title: str
    findings: Callable[[Snapshot], Iterable[Finding]]


SUBJECTS: Final = (
    Subject("api-server", "API server", api_server.findings),
    Subject("rights", "Rights", rights.findings),
    Subject("nodes", "Nodes", nodes.findings),
    Subject("device-plugin", "Device plugin", device_plugin.findings),
    Subject("installation", "Installation", installation.findings),
    Subject("policies", "Admission policies", policies.findings),
    Subject("capacity-requests", "Capacity requests", capacity_requests.findings),
    Subject("other-schedulers", "Other schedulers", other_schedulers.findings),
    Subject("usage-maps", "Annotations of AWS's extension", usage_maps.findings),
    Subject("allocations", "Allocations", allocations.findings),
    Subject("pods", "Scheduler names", pods.findings),
)

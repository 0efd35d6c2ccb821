"""Orders of machines for the tests of what writes them."""

from typing import Any, Final

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.writes.leader_requests import LeaderRequests
from neuron_scheduler.kube.writes.machine_order import MachineOrder
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_DEVICE
from tests.support.builders import pod

NAME: Final = "capacity-u1-0"
GI: Final = 1 << 30


def order(**changes: Any) -> MachineOrder:
    """Return an order of a trn1.32xlarge; the changes are fields of it."""
    fields: dict[str, Any] = {
        "name": NAME,
        "scheduler_name": "my-scheduler",
        "namespace": "team-a",
        "instance_types": ("trn1.32xlarge", "trn1n.32xlarge"),
        "requests": {NEURON_DEVICE: 16, CPU: 4001, MEMORY: 8 * GI},
        "like": pod("p"),
        "pods": ("u1", "u2"),
        "image": "registry.example/pause:1",
    }
    return MachineOrder(**fields | changes)


def requests_of(client: Client, *, may_send: bool = True) -> LeaderRequests:
    """Return what sends a leader's requests, or those of a replica that may not write."""
    return LeaderRequests(client=client, may_send=lambda: may_send, timeout=4.0)

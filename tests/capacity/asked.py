"""Requests for the tests of what is written for them."""

from typing import Any, Final

from neuron_scheduler.capacity.planning.requests import MachineNeed, MachineRequest, Owner
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_DEVICE
from tests.support.builders import GI, pod

NAME: Final = "capacity-u1-0"


def asked(name: str = NAME, **changes: Any) -> MachineRequest:
    """Return a request for a trn1.32xlarge; the changes are fields of its need."""
    pods = tuple(pod(uid, uid=uid, namespace="team-a", scheduler_name="my-scheduler") for uid in ("u1", "u2"))
    fields: dict[str, Any] = {
        "instance_types": ("trn1.32xlarge", "trn1n.32xlarge"),
        "silicon": {NEURON_DEVICE: 16},
        "host": {CPU: 4001, MEMORY: 8 * GI},
        "pods": pods,
    }
    need = MachineNeed(**fields | changes)
    return MachineRequest(name=name, owner=Owner("my-scheduler", "team-a"), need=need, since=0.0, pods=frozenset())

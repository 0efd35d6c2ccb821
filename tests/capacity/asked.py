"""A need, for the tests of what is written for it."""

from typing import Any, Final

from neuron_scheduler.capacity.planning.need import LimitOwner, MachineNeed
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_DEVICE
from tests.support.builders import GI, pod

NAME: Final = "capacity-u1-0"


def asked(**changes: Any) -> MachineNeed:
    """Return the need for a trn1.32xlarge; the changes are fields of it."""
    pods = tuple(pod(uid, uid=uid, namespace="team-a", scheduler_name="my-scheduler") for uid in ("u1", "u2"))
    fields: dict[str, Any] = {
        "owner": LimitOwner("my-scheduler", "team-a"),
        "instance_type": "trn1.32xlarge",
        "silicon": {NEURON_DEVICE: 16},
        "host": {CPU: 4001, MEMORY: 8 * GI},
        "pods": pods,
        "pattern": pods[0],
    }
    return MachineNeed(**fields | changes)

"""
The admission policy on Bindings, as `manifests/base/admission_bindings.yaml` says it.

It is written again in Python, so that a change of the file cannot hide in a simulation. The Lease is the one that the
policies' own watch of this server has shown last.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sandbox.apiserver.status import StatusError
from tests.simulation.watch_cache import POLICY, WatchCache

LEASE: Final = ("kube-system", "my-scheduler")
ACCOUNT: Final = "system:serviceaccount:kube-system:neuron-scheduler"
LEADER: Final = "neuron-scheduler/leader"
ALLOCATION: Final = frozenset(
    {
        "AWS_NEURON_IDS",
        "NEURON_ALLOC_TIME",
        "NEURON_ALLOCATED",
        "NEURON_RESOURCE_TYPE",
        "NEURON_CORES",
        "NEURON_DEVS",
        "neuron-scheduler/allocation",
        LEADER,
    }
)
NOT_THE_HOLDER: Final = "this scheduler does not hold the Lease kube-system/my-scheduler"


def admit_binding(cache: WatchCache, user: str, body: bytes) -> None:
    """
    Admit a Binding.

    Raises:
        StatusError: 422 for a scheduler that does not hold the Lease; 403 for an allocation by anybody else.
    """
    lease = cache.tables[POLICY].get(*LEASE)
    if lease is None:
        return  # parameterNotFoundAction: Allow
    binding = msgspec.json.decode(body)
    annotations: Mapping[str, Any] = binding["metadata"].get("annotations") or {}
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    name = binding["metadata"].get("name", "")
    if user == ACCOUNT:
        if not holder or annotations.get(LEADER) != holder:
            raise _denied(422, "Invalid", name, NOT_THE_HOLDER)
    elif not ALLOCATION.isdisjoint(annotations):
        raise _denied(403, "Forbidden", name, "only the Neuron scheduler may give a pod an allocation with its Binding")


def _denied(code: int, reason: str, name: str, why: str) -> StatusError:
    policy = "neuron-scheduler-leader"
    by = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}'"
    message = f'pods "{name}" is forbidden: {by} denied request: {why}'
    return StatusError(code, reason, message, details={"name": name, "kind": "pods"})

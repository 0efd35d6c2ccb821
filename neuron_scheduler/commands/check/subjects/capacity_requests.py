"""
What the scheduler needs to ask the autoscaler for machines, if a profile asks; nothing is said if none does.

Without it pods are scheduled as before, and no machine is asked for. So a fault is a warning, no error.
"""

from collections.abc import Iterator
from typing import Final

from neuron_scheduler.commands.check.subjects import commands
from neuron_scheduler.commands.check.subjects.finding import Finding, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import CAPACITY
from neuron_scheduler.commands.check.subjects.snapshot import Asking, Policy, Snapshot, Unread
from neuron_scheduler.model.wording import listed

ADVICE: Final = (
    "Add components/capacity-requests to manifests/kustomization.yaml (Helm: components.capacityRequests=true)"
)


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield what is missing."""
    asking = snapshot.asking
    if asking is None:
        return
    faults = [*_parts(snapshot, asking)]
    if asking.namespace is not False:  # else nothing in it can be there
        faults += [*_rights(snapshot, asking), *_policy(snapshot)]
    yield from faults
    if not faults:
        yield ok("capacity-requests", "Machines are asked for, and all that it needs is there")


def _parts(snapshot: Snapshot, asking: Asking) -> Iterator[Finding]:
    command = commands.apply(snapshot)
    for unread in (asking.namespace, asking.priority_class):
        if isinstance(unread, Unread):
            yield unknown("capacity-requests-unknown", "Whether machines can be asked for is", unread)
    if asking.namespace is False:
        yield warning(
            "capacity-namespace-missing",
            f"A profile has capacityRequests, but there is no namespace {CAPACITY}, so no machine is asked for",
            advice=ADVICE,
            command=command,
        )
    if asking.priority_class is False:
        yield warning(
            "capacity-priority-class-missing",
            f"The PriorityClass {CAPACITY} is missing, so placeholders are refused",
            advice=ADVICE,
            command=command,
        )


def _rights(snapshot: Snapshot, asking: Asking) -> Iterator[Finding]:
    if isinstance(asking.rights, Unread):
        yield unknown("capacity-rights-unknown", "Whether the scheduler may ask for machines is", asking.rights)
        return
    missing = [access.right for access in asking.rights or () if not access.allowed]
    if missing:
        yield warning(
            "capacity-rights-missing",
            f"The ServiceAccount {snapshot.namespace}/{snapshot.account} may not {listed(missing)}",
            advice=ADVICE,
            command=commands.apply(snapshot),
            objects=missing,
        )


def _policy(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield that the policy is missing; if policies cannot be read, `policies` says so."""
    parts: tuple[tuple[Policy, ...] | Unread, ...] = (snapshot.policies, snapshot.policy_bindings)
    names = [{policy.object.name for policy in part} for part in parts if not isinstance(part, Unread)]
    if any(CAPACITY not in found for found in names):
        yield warning(
            "capacity-policy-missing",
            f"The policy {CAPACITY} or its binding is missing: whoever may create pods in that namespace can buy"
            " machines",
            advice=ADVICE,
            command=commands.apply(snapshot),
        )

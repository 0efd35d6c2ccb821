"""
Another scheduler that serves our scheduler names, and AWS's extension.

Two schedulers that hold different Leases, or none, give one device to two pods. AWS's second scheduler has the Lease of
ours, so the two never schedule at the same time. The one that started first keeps the other waiting.
"""

from collections.abc import Iterator

from neuron_scheduler.commands.check.subjects import commands
from neuron_scheduler.commands.check.subjects.finding import Finding, error, ok, unchecked, warning
from neuron_scheduler.commands.check.subjects.known import ALLOCATIONS, EXTENDER, username
from neuron_scheduler.commands.check.subjects.policies import writers_of
from neuron_scheduler.commands.check.subjects.snapshot import SeenWorkload, Snapshot, Unread
from neuron_scheduler.model.wording import list_of


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    found: list[Finding] = []
    for deployment in snapshot.foreign:
        found += (_of_extension if deployment.name == EXTENDER else _of_scheduler)(snapshot, deployment)
    yield from found
    if not (found or isinstance(snapshot.deployments, Unread)):
        yield ok("no-other-scheduler", f"No other Deployment serves {list_of(snapshot.scheduler_names)}")


def _of_scheduler(snapshot: Snapshot, deployment: SeenWorkload) -> Iterator[Finding]:
    serves, ours, key = deployment.serves, snapshot.scheduler_names, f"Deployment {deployment.key}"
    if isinstance(serves, Unread) or (serves is None and deployment.name in ours):
        because = f": {serves}" if isinstance(serves, Unread) else ""
        yield unchecked("scheduler-unknown", f"Which scheduler names {key} serves is not known{because}")
    elif serves is not None and set(ours).intersection(serves):
        make, too, before = (error, " too", "") if snapshot.ours else (warning, "", " before you install")
        yield make(
            "same-scheduler-name",
            f"{key} serves {list_of(sorted(set(ours).intersection(serves)))}{too}",
            advice=f"Stop it{before}; its running pods stay as they are (docs/migrating.md has all steps)",
            command=commands.removal(deployment),
        )


def _of_extension(snapshot: Snapshot, deployment: SeenWorkload) -> Iterator[Finding]:
    user, writers = username(f"{deployment.namespace}/{deployment.account}"), writers_of(snapshot)
    if writers is None:
        yield warning(
            "extension-runs",
            f"AWS's scheduler extension runs as Deployment {deployment.key}",
            advice="Remove it before you install, or keep it for other pods (docs/migrating.md)",
            command=commands.removal(deployment),
        )
    elif user not in writers:
        yield error(
            "extension-may-not-write",
            f"AWS's extension runs as Deployment {deployment.key}, and the policy {ALLOCATIONS} refuses its"
            " annotations: its pods are not scheduled",
            advice=f"Remove it, or add {user!r} to {commands.WRITERS}",
            command=commands.removal(deployment),
        )

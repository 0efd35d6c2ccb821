"""
Another scheduler that serves our scheduler names, AWS's extension, and rights that AWS's scheduler has left.

Two schedulers that hold different Leases, or none, give one device to two pods. AWS's second scheduler has the Lease of
ours, so the two never schedule at the same time, but the one that started first keeps the other waiting.
"""

from collections.abc import Iterator

from neuron_scheduler.commands.check.subjects import commands
from neuron_scheduler.commands.check.subjects.finding import Finding, Severity, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import (
    ALLOCATIONS,
    AWS_ACCOUNTS,
    EXTENDER,
    EXTENDER_LABEL,
    OLDER_NAME,
    OUR_LABEL,
    OUR_NAME,
    has,
    username,
)
from neuron_scheduler.commands.check.subjects.policies import writers_of
from neuron_scheduler.commands.check.subjects.snapshot import (
    Lease,
    SeenWorkload,
    Snapshot,
    Unread,
)
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import counted, listed

_ROLES = ("system:auth-delegator",)
"""Roles of others that our manifests bind (components/secure-metrics)."""


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the other schedulers, then leftovers of theirs."""
    found = [*_schedulers(snapshot), *_holder(snapshot), *_extension(snapshot), *_roles(snapshot)]
    yield from found
    if isinstance(snapshot.deployments, Unread):
        yield unknown("schedulers-unknown", "Other schedulers are", snapshot.deployments)
    elif not found:
        yield ok("no-other-scheduler", f"No other Deployment serves {listed(snapshot.scheduler_names)}")


def _schedulers(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the Deployments that serve one of our names, and those of which that is unknown."""
    names = set(snapshot.scheduler_names)
    for deployment in snapshot.foreign:
        if not deployment.replicas or _is_extension(deployment):
            continue
        serves = deployment.serves
        key = f"Deployment {deployment.object.key}"
        if isinstance(serves, Unread) or (serves is None and deployment.object.name in names):
            because = f": {serves}" if isinstance(serves, Unread) else ""
            yield Finding(
                "scheduler-unknown", Severity.UNCHECKED, f"Which scheduler names {key} serves is not known{because}"
            )
        elif serves is not None and names & set(serves):
            message = f"{key} serves {listed(sorted(names & set(serves)))}" + (" too" if snapshot.ours else "")
            make = error if snapshot.ours else warning
            yield make(
                "same-scheduler-name",
                message,
                advice="Stop it"
                + ("" if snapshot.ours else " before you install")
                + "; its running pods stay as they are (docs/migrating.md has all steps)",
                command=commands.removal(deployment.object),
            )
    working = [d.object.key for d in snapshot.ours if d.replicas and d.object.namespace == snapshot.namespace]
    if len(working) > 1:
        yield error(
            "served-twice",
            f"{counted(len(working), 'Deployment')} of ours have the Lease {snapshot.namespace}/{snapshot.lease_name},"
            f" so only one of them works: {listed(working)}",
            advice="Keep one: `run --extender-bind-address` serves both roads",
        )


def _holder(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield who holds our Lease while we are not installed; afterwards `installation` says it."""
    lease = snapshot.lease
    if isinstance(lease, Lease) and lease.holder and not lease.expired and not snapshot.installed:
        yield warning(
            "lease-held-before",
            f"Lease {snapshot.namespace}/{snapshot.lease_name} is held by {lease.holder}, another scheduler",
            advice="Stop it before you install; ours waits until the Lease is free",
        )


def _extension(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield AWS's extension: it may not write allocations unless the policy lets it."""
    extensions = [deployment for deployment in snapshot.foreign if _is_extension(deployment) and deployment.replicas]
    writers = writers_of(snapshot)
    for deployment in extensions:
        user = username(f"{deployment.object.namespace}/{deployment.account}")
        if writers is not None and user not in writers:
            yield error(
                "extension-may-not-write",
                f"AWS's extension runs as Deployment {deployment.object.key}, and the policy {ALLOCATIONS} refuses its"
                " annotations: its pods are not scheduled",
                advice=f"Remove it, or add {user!r} to {commands.WRITERS}",
                command=commands.removal(deployment.object),
            )
        elif writers is None:
            yield warning(
                "extension-runs",
                f"AWS's scheduler extension runs as Deployment {deployment.object.key}",
                advice="Remove it before you install, or keep it for other pods (docs/migrating.md)",
                command=commands.removal(deployment.object),
            )
        else:
            yield note(
                "extension-beside", f"AWS's extension runs beside as Deployment {deployment.object.key}, and may write"
            )
    pods = sorted(seen.pod.key for seen in snapshot.system_pods if _is_extension_pod(seen.pod))
    if pods and not extensions:
        yield warning("extension-pods", f"{counted(len(pods), 'pod')} of AWS's scheduler extension run", objects=pods)


def _is_extension(deployment: SeenWorkload) -> bool:
    return deployment.object.name == EXTENDER or has(deployment.labels, EXTENDER_LABEL)


def _is_extension_pod(pod: Pod) -> bool:
    return has(pod.labels, EXTENDER_LABEL) and not has(pod.labels, OUR_LABEL)


def _roles(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield ClusterRoleBindings that give rights to accounts of AWS's removed scheduler, or too many to ours."""
    if isinstance(snapshot.role_bindings, Unread):
        yield unknown("role-bindings-unknown", "Leftover rights are", snapshot.role_bindings)
        return
    if isinstance(snapshot.deployments, Unread):
        return
    running = {f"{d.object.namespace}/{d.account}" for d in snapshot.foreign}
    left = [
        binding
        for binding in snapshot.role_bindings
        if not has(binding.object.labels, OUR_LABEL)
        and any(key.rpartition("/")[2] in AWS_ACCOUNTS and key not in running for key in binding.accounts)
    ]
    if left:
        accounts = sorted({key for binding in left for key in binding.accounts if key not in running})
        yield warning(
            "leftover-role-bindings",
            f"{counted(len(left), 'ClusterRoleBinding of AWS still gives', 'ClusterRoleBindings of AWS still give')}"
            f" rights to {listed(accounts)}, which no Deployment uses",
            advice="Whoever may create a pod with that account has them",
            command="kubectl delete clusterrolebinding " + " ".join(binding.object.name for binding in left),
            objects=[f"{binding.object.name} -> {binding.role}" for binding in left],
        )
    account = f"{snapshot.namespace}/{snapshot.account}"
    more = [
        binding
        for binding in snapshot.role_bindings
        if account in binding.accounts and not binding.role.startswith(OUR_NAME) and binding.role not in _ROLES
    ]
    if more and snapshot.account != OLDER_NAME:
        yield warning(
            "too-many-rights",
            f"The ServiceAccount {account} has rights that it does not need",
            advice="Remove the bindings that are not in manifests/base/rbac.yaml",
            objects=[f"{binding.object.name} -> {binding.role}" for binding in more],
        )

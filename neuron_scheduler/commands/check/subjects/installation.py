"""
Our own objects: Deployments, the Lease, rights, and what asking for machines needs.

Without what asking for machines needs, pods are scheduled as before, and no machine is asked for. So a fault there is a
warning, no error.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from neuron_scheduler.commands.check.subjects import commands
from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unchecked, unknown, warning
from neuron_scheduler.commands.check.subjects.known import (
    ACCOUNT,
    LEADER,
    LEASE,
    NAMESPACE,
    OUR_LABEL,
    STALE_FENCE,
    USERNAME,
)
from neuron_scheduler.commands.check.subjects.snapshot import Lease, SeenWorkload, Snapshot, Unread
from neuron_scheduler.model.wording import count_text, list_of

LOGS: Final = "kubectl logs --namespace {} deployment/{} --all-pods"
PODS: Final = f"kubectl describe pods --namespace {{}} --selector {OUR_LABEL}"


def of_installation(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.deployments, Unread):
        yield unknown(
            "installation-unknown", "Deployments, ours and those of other schedulers, are", snapshot.deployments
        )
    elif not snapshot.ours:
        others = list_of([deployment.key for deployment in snapshot.in_the_way])
        ways = "First write your image into manifests/kustomization.yaml: the README says how, and how with Helm"
        waiting = () if any(deployment.replicas for deployment in snapshot.in_the_way) else snapshot.pending
        make = warning if waiting else note
        yield make(
            "not-installed",
            f"neuron-scheduler is not installed{_waiting_text(waiting)}",
            objects=waiting,
            advice=f"First remove {others}, which has our name: docs/migrating.md has all steps" if others else ways,
            command="" if others else commands.INSTALL,
        )
    for deployment in snapshot.ours:
        yield from _state(snapshot, deployment)
    yield from _of_several(snapshot)
    if snapshot.ours:
        yield from _lease(snapshot)
        yield from _fence(snapshot)


def _waiting_text(keys: Sequence[str]) -> str:
    return f", and {count_text(len(keys), 'pod waits', 'pods wait')} for it" if keys else ""


def _of_several(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield that several Deployments compete for the Lease; one of them may serve no pod of the other's."""
    running = [deployment.key for deployment in snapshot.ours if deployment.replicas]
    if len(running) > 1:
        yield error(
            "several-deployments",
            f"{len(running)} Deployments of neuron-scheduler take one Lease from each other: {list_of(running)}",
            advice="While one holds it, pods that only another serves stay Pending without an Event. Delete all but the"
            " one of manifests/kustomization.yaml or of the Helm release",
            objects=running,
        )


def _fence(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield that Bindings are refused by mistake; nobody but a pod that was refused can tell."""
    said = [(pod.key, pod.refused_because) for pod in snapshot.pods if not pod.node_name]
    # What our own refusals name, such as claims of volumes, may have any text.
    refused = [key for key, text in said if STALE_FENCE in text and "nodes are available" not in text]
    if refused:
        namespace, deployment = snapshot.ours[0].namespace, snapshot.ours[0].name
        yield error(
            "fence-stale",
            f"The API server refuses every Binding, because its policy {LEADER} {STALE_FENCE} {NAMESPACE}/{LEASE}",
            advice="Restart kube-apiserver. If you cannot, as on EKS, lift the fence and run one replica until the"
            " control plane has been renewed (docs/runbook.md, stale fence)",
            command=f"{commands.KEEPER} && kubectl scale --namespace {namespace} --replicas=1 deployment/{deployment}"
            f" && kubectl delete validatingadmissionpolicybinding {LEADER}",
            objects=sorted(refused),
        )


def _state(snapshot: Snapshot, deployment: SeenWorkload) -> Iterator[Finding]:
    namespace, key = deployment.namespace, f"Deployment {deployment.key}"
    why = "The pods' Events say why; if the containers have started, kubectl logs does"
    if not deployment.replicas:
        alone = not any(each.replicas for each in snapshot.ours)
        waiting = snapshot.pending if alone else ()
        make = error if waiting else warning
        yield make(
            "scaled-to-zero",
            f"{key} has no replicas{_waiting_text(waiting)}",
            objects=waiting,
            advice="" if alone else "Another one runs: delete this one, never scale it up",
            command=f"kubectl scale --namespace {namespace} deployment/{deployment.name} --replicas=2" if alone else "",
        )
    elif not deployment.ready:
        message = f"{key}: none of {count_text(deployment.replicas, 'pod')} is ready"
        yield error("not-ready", message, advice=why, command=PODS.format(namespace))
    elif deployment.ready < deployment.replicas:
        message = f"{key}: {deployment.ready} of {deployment.replicas} pods are ready"
        yield warning("partly-ready", message, advice=why, command=PODS.format(namespace))
    elif deployment.behind:
        message = (
            f"{key}: its rollout has not finished; {count_text(deployment.behind, 'pod')} of the old revision left"
        )
        yield warning("rollout-unfinished", message, advice=f"If it stays so: {why}", command=PODS.format(namespace))
    else:
        yield ok("deployment", f"{key}: {deployment.ready} of {deployment.replicas} pods are ready")
    if namespace != NAMESPACE:
        yield error(
            "another-namespace",
            f"{key} is not in the namespace {NAMESPACE}, for which the policies, rights and the Lease are",
            advice="Remove `namespace:` from manifests/kustomization.yaml, apply it again, and delete what is in"
            f" {namespace}",
            command=f"{commands.apply(snapshot)} && {commands.removal_elsewhere(deployment)}",
        )


def _lease(snapshot: Snapshot) -> Iterator[Finding]:
    lease, key = snapshot.lease, f"Lease {NAMESPACE}/{LEASE}"
    if isinstance(lease, Unread):
        yield unknown("lease-unknown", f"Whether a replica holds the {key} is", lease)
        return
    ready = [d for d in snapshot.ours if d.ready and d.namespace == NAMESPACE]
    electing = [d for d in ready if "false" not in d.values_of("--leader-elect")]
    if not electing:
        return
    reason = _not_held(lease)
    if lease is None or reason:
        yield error(
            "lease-not-held",
            f"{key} {reason}, although the scheduler's pods are ready",
            advice="Nothing is scheduled; the log says why",
            command=LOGS.format(NAMESPACE, electing[0].name),
        )
    elif any(lease.pod_name.startswith(f"{d.name}-") for d in ready):
        yield ok("lease", f"{key} is held by {lease.pod_name}")
    else:
        yield error(
            "lease-held-by-another",
            f"{key} is held by {lease.holder}, which is no pod of ours",
            advice="The scheduler waits for it; stop the other scheduler, whose pods then need our scheduler name, or"
            " the `neuron-scheduler run` that somebody started by hand",
            command=f"kubectl get lease --namespace {NAMESPACE} {LEASE} --output yaml",
        )


def _not_held(lease: Lease | None) -> str:
    """Return why nobody holds the Lease; empty if somebody does."""
    if lease is None:
        return "does not exist"
    if not lease.holder:
        return "is held by nobody"
    if lease.is_expired:
        return f"was last renewed {lease.age:.0f} s ago, by {lease.holder}"
    return ""


def of_rights(snapshot: Snapshot) -> Iterator[Finding]:
    yield from _of_the_reader(snapshot)
    yield from _of_the_account(snapshot)


def _of_the_reader(snapshot: Snapshot) -> Iterator[Finding]:
    unread = snapshot.unread
    forbidden = [one.request for one in unread if one.forbidden]
    if forbidden:
        yield unchecked(
            "reader-lacks-rights",
            f"You lack {count_text(len(forbidden), 'right')} that the check uses: {', '.join(forbidden)}",
            advice="Let an administrator run it; what depends on these rights is marked below",
            objects=forbidden,
        )
    for one in unread:
        if not one.forbidden:
            yield unchecked("request-failed", f"Could not {one}", advice="Run the check again")
    if snapshot.malformed:
        yield unchecked(
            "unreadable-objects",
            f"{count_text(len(snapshot.malformed), 'object')} cannot be read: {'; '.join(snapshot.malformed[:3])}",
            objects=snapshot.malformed,
        )
    elif not unread:
        yield ok("reader", "You may read all that is checked")


def _of_the_account(snapshot: Snapshot) -> Iterator[Finding]:
    rights = snapshot.rights
    if isinstance(rights, Unread):
        yield unknown(
            "account-rights-unknown",
            f"Whether the ServiceAccount {ACCOUNT} has its rights is",
            rights,
            command=f"kubectl auth can-i --list --as {USERNAME}",
        )
        return
    lacking = [right for right, allowed in rights.items() if not allowed]
    optional = [right for right in lacking if "podgroups" in right]
    missing = [right for right in lacking if right not in optional]
    of_claims = f". {commands.ADD_CLAIMS}" if any(right.endswith(".resource.k8s.io") for right in missing) else ""
    if optional:
        yield warning(
            "pod-groups-unread",
            f"The ServiceAccount {ACCOUNT} may not watch PodGroups: of their groups only what pods say counts",
            objects=optional,
            command=commands.apply(snapshot),
        )
    if missing:
        yield error(
            "account-lacks-rights",
            f"The ServiceAccount {ACCOUNT} lacks {len(missing)} of {count_text(len(rights), 'right')}",
            objects=missing,
            advice=f"The scheduler does not start without them{of_claims}",
            command=commands.apply(snapshot),
        )
    elif rights and not optional:
        yield ok("account-rights", f"The ServiceAccount {ACCOUNT} has all {len(rights)} rights that it needs")
    elif not rights:
        yield note(
            "account-not-installed", f"The ServiceAccount {ACCOUNT} is not installed, so its rights are not asked for"
        )


def of_asking(snapshot: Snapshot) -> Iterator[Finding]:
    lacking = snapshot.lacking
    if isinstance(lacking, Unread):
        yield unknown("capacity-requests-unknown", "Whether machines can be asked for is", lacking)
    elif lacking:
        yield warning(
            "capacity-requests-incomplete",
            "A profile has capacityRequests, but not all that they need is there",
            advice="Add components/capacity-requests to manifests/kustomization.yaml (Helm:"
            " components.capacityRequests=true)",
            command=commands.apply(snapshot),
            objects=lacking,
        )
    elif lacking is not None:
        yield ok("capacity-requests", "Machines are asked for, and all that it needs is there")

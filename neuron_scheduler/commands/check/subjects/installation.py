"""
Our own objects: Deployments, the Lease, rights, owners, what asking for machines needs, and what older versions left.

Without what asking for machines needs, pods are scheduled as before, and no machine is asked for. So a fault there is a
warning, no error.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from neuron_scheduler.commands.check.subjects import commands
from neuron_scheduler.commands.check.subjects.finding import Finding, Severity, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import (
    AWS_RELEASE,
    CAPACITY,
    KEEPER,
    OLDER_NAME,
    OUR_LABEL,
    OUR_NAME,
    has,
)
from neuron_scheduler.commands.check.subjects.snapshot import (
    Asking,
    Lease,
    Object,
    Policy,
    RoleBinding,
    SeenWorkload,
    Snapshot,
    Unread,
)
from neuron_scheduler.model.wording import counted, listed

LOGS = "kubectl logs --namespace {} deployment/{} --all-pods"
USUAL_NAMESPACE = "kube-system"
PODS = f"kubectl describe pods --namespace {{}} --selector {'='.join(OUR_LABEL)}"


def of_installation(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the state of the Deployments and the Lease, then what is wrong with the objects around them."""
    if isinstance(snapshot.deployments, Unread):
        yield unknown("installation-unknown", "Deployments are", snapshot.deployments)
    elif not snapshot.ours:
        yield note(
            "not-installed",
            "neuron-scheduler is not installed",
            advice="The README also has the ways with Helm and with the default scheduler",
            command=commands.INSTALL,
        )
    if snapshot.accounts == () and snapshot.namespace != USUAL_NAMESPACE:  # each namespace has the account `default`
        yield warning(
            "namespace-missing",
            f"The namespace {snapshot.namespace} does not exist, or it has no ServiceAccounts",
            command=f"neuron-scheduler check --namespace {USUAL_NAMESPACE}",
        )
    for deployment in snapshot.ours:
        yield from _state(snapshot, deployment)
    if snapshot.installed:
        yield from _lease(snapshot)
    yield from _owners(snapshot)
    yield from _of_older_versions(snapshot)


def _state(snapshot: Snapshot, deployment: SeenWorkload) -> Iterator[Finding]:
    place, key = deployment.object, f"Deployment {deployment.object.key}"
    why = "The pods' Events say why; if the containers have started, kubectl logs does"
    pods = PODS.format(place.namespace)
    if not deployment.replicas:
        yield warning(
            "scaled-to-zero",
            f"{key} has no replicas",
            command=f"kubectl scale --namespace {place.namespace} deployment/{place.name} --replicas=2",
        )
    elif not deployment.ready:
        message = f"{key}: none of {counted(deployment.replicas, 'pod')} is ready"
        yield error("not-ready", message, advice=why, command=pods)
    elif deployment.ready < deployment.replicas:
        message = f"{key}: {deployment.ready} of {deployment.replicas} pods are ready"
        yield warning("partly-ready", message, advice=why, command=pods)
    else:
        yield ok("deployment", f"{key}: {deployment.ready} of {deployment.replicas} pods are ready")
    for image in {container.image for container in deployment.containers if OUR_NAME in container.image}:
        tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
        if tag and tag != snapshot.program_version:
            yield note(
                "another-version",
                f"{key} runs {image}; this check is of version {snapshot.program_version}",
                advice="Its findings about policies and rights are for its own version",
            )
    if place.namespace != snapshot.namespace:
        yield warning(
            "another-namespace",
            f"{key} is not in the namespace {snapshot.namespace}",
            advice="Check that namespace too",
            command=f"neuron-scheduler check --namespace {place.namespace}",
        )


def _lease(snapshot: Snapshot) -> Iterator[Finding]:
    lease, key = snapshot.lease, f"Lease {snapshot.namespace}/{snapshot.lease_name}"
    if isinstance(lease, Unread):
        yield unknown("lease-unknown", f"Whether a replica holds the {key} is", lease)
        return
    ready = [d for d in snapshot.ours if d.ready and d.object.namespace == snapshot.namespace]
    electing = [d for d in ready if "false" not in d.values_of("--leader-elect")]
    if not electing:
        return
    place = electing[0].object
    reason = _not_held(lease)
    if lease is None or reason:
        yield error(
            "lease-not-held",
            f"{key} {reason}, although the scheduler's pods are ready",
            advice="Nothing is scheduled; the log says why",
            command=LOGS.format(place.namespace, place.name),
        )
    elif any(lease.pod_name.startswith(f"{d.object.name}-") for d in ready):
        yield ok("lease", f"{key} is held by {lease.pod_name}")
    else:
        yield error(
            "lease-held-by-another",
            f"{key} is held by {lease.holder}, which is no pod of ours",
            advice="The scheduler waits for it; stop the other scheduler, whose pods then need our scheduler name",
            command=f"kubectl get lease --namespace {snapshot.namespace} {snapshot.lease_name} --output yaml",
        )


def _not_held(lease: Lease | None) -> str:
    """Return why nobody holds the Lease; empty if somebody does."""
    if lease is None:
        return "does not exist"
    if not lease.holder:
        return "is held by nobody"
    if lease.expired:
        return f"was last renewed {lease.age:.0f} s ago, by {lease.holder}"
    return ""


def _objects(snapshot: Snapshot) -> Iterator[Object]:
    """Yield every object that was read and has one of our names or our label."""
    yield from chain(snapshot.accounts, *snapshot.others)
    for bearer in chain[RoleBinding | Policy](snapshot.role_bindings, snapshot.policies, snapshot.policy_bindings):
        yield bearer.object


def _is_ours(seen: Object) -> bool:
    return seen.name == OUR_NAME or seen.name.startswith(f"{OUR_NAME}-")


def _owners(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield objects of ours that a Helm release owns which is not the one of the rest."""
    by_release: dict[str, list[Object]] = defaultdict(list)
    ours = [*filter(_is_ours, _objects(snapshot)), *(deployment.object for deployment in snapshot.ours)]
    for seen in ours:
        if "lease-watch" not in seen.name:  # stays when a release is removed
            by_release[seen.release].append(seen)
    stolen = by_release.pop(AWS_RELEASE, None)
    if stolen:
        yield error(
            "owned-by-aws-release",
            f"{counted(len(stolen), 'object')} of ours {'belongs' if len(stolen) == 1 else 'belong'} to AWS's Helm"
            f" release {AWS_RELEASE}, whose next upgrade may delete or replace them",
            advice="Switch the scheduler off in that release as in docs/migrating.md, then install ours again",
            command=commands.switch_off(AWS_RELEASE, stolen[0].release_namespace),
            objects=sorted(f"{seen.kind} {seen.key}" for seen in stolen),
        )
    if len(by_release) > 1:
        owners = [f"release {release}" if release else "no release" for release in sorted(by_release)]
        few = min(by_release.values(), key=len)
        yield warning(
            "mixed-owners",
            f"Our objects have several owners: {listed(owners)}",
            advice="Install with Helm or with kubectl, not with both: each removes or keeps what the other expects",
            objects=sorted(f"{seen.kind} {seen.key}" for seen in few),
        )


def _of_older_versions(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield our objects under the names of older versions; old policies refuse the Bindings of the new account."""
    older = [
        seen
        for seen in _objects(snapshot)
        if has(seen.labels, OUR_LABEL) and (seen.name == OLDER_NAME or seen.name.startswith(f"{OLDER_NAME}-"))
    ]
    if snapshot.is_older:
        yield warning(
            "older-version",
            f"An older version is installed, whose ServiceAccount is {snapshot.namespace}/{OLDER_NAME}",
            advice="Follow docs/upgrading.md",
        )
        return
    refusing = [
        seen
        for seen in older
        if seen.kind.startswith("ValidatingAdmissionPolicy") and not seen.name.endswith("-lease-watch")
    ]
    if refusing:
        yield error(
            "older-policies",
            "Policies of an older version are left, which refuse the Bindings of the ServiceAccount"
            f" {snapshot.namespace}/{OUR_NAME}",
            advice="Follow docs/upgrading.md",
            command=_deletion(refusing),
            objects=[f"{seen.kind} {seen.key}" for seen in refusing],
        )
    rest = [seen for seen in older if seen not in refusing and (_is_kept(snapshot) or "-lease-watch" not in seen.name)]
    if rest:
        yield warning(
            "older-objects",
            f"{counted(len(rest), 'object')} of an older version {'is' if len(rest) == 1 else 'are'} left under"
            " AWS's names, and AWS's Helm release may delete or use them",
            advice="Follow docs/upgrading.md, in its order",
            command=_deletion(rest),
            objects=[f"{seen.kind} {seen.key}" for seen in rest],
        )


def _is_kept(snapshot: Snapshot) -> bool:
    """Return whether the new keeper of the watch of Leases is there, so that the older one may be deleted."""
    lists = (snapshot.policies, snapshot.policy_bindings)
    return all(any(policy.object.name == KEEPER for policy in each) for each in lists)


def _deletion(objects: list[Object]) -> str:
    """Return the command that deletes these objects."""
    spaces = {seen.namespace for seen in objects if seen.namespace}
    within = f" --namespace {min(spaces)}" if spaces else ""
    return f"kubectl delete{within} " + " ".join(f"{seen.kind.lower()}/{seen.name}" for seen in objects)


def of_rights(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield what the reader lacks, then what the ServiceAccount lacks."""
    yield from _of_the_reader(snapshot)
    yield from _of_the_account(snapshot)


def _of_the_reader(snapshot: Snapshot) -> Iterator[Finding]:
    unread = snapshot.unread
    forbidden = [one.request for one in unread if one.forbidden]
    if forbidden:
        yield Finding(
            "reader-lacks-rights",
            Severity.UNCHECKED,
            f"You lack {counted(len(forbidden), 'right')} that the check uses: {_by_verb(forbidden)}",
            "Let an administrator run it; what depends on these rights is marked below",
            objects=tuple(forbidden),
        )
    for one in unread:
        if not one.forbidden:
            yield Finding("request-failed", Severity.UNCHECKED, f"Could not {one}", "Run the check again")
    if snapshot.malformed:
        yield Finding(
            "unreadable-objects",
            Severity.UNCHECKED,
            f"{counted(len(snapshot.malformed), 'object')} cannot be read: {'; '.join(snapshot.malformed[:3])}",
            objects=snapshot.malformed,
        )
    elif not unread:
        yield ok("reader", "You may read all that is checked")


def _of_the_account(snapshot: Snapshot) -> Iterator[Finding]:
    account = f"{snapshot.namespace}/{snapshot.account}"
    rights = snapshot.rights
    if isinstance(rights, Unread):
        yield unknown(
            "account-rights-unknown",
            f"Whether the ServiceAccount {account} has its rights is",
            rights,
            command=f"kubectl auth can-i --list --as {snapshot.username}",
        )
        return
    if rights is None:
        yield note("rights-not-reviewed", "The API server reviews no rights (authorization.k8s.io is not served)")
        return
    missing = [access.right for access in rights if not access.allowed]
    if missing:
        yield error(
            "account-lacks-rights",
            f"The ServiceAccount {account} lacks {len(missing)} of {counted(len(rights), 'right')}: {_short(missing)}",
            objects=missing,
            advice="The scheduler does not start without them",
            command=commands.apply(snapshot),
        )
    elif rights:
        yield ok("account-rights", f"The ServiceAccount {account} has all {len(rights)} rights that it needs")
    elif snapshot.ours:
        yield error(
            "account-missing",
            f"The ServiceAccount {account} does not exist, so the scheduler's pods cannot be created",
            command=commands.apply(snapshot),
        )
    else:
        yield note(
            "account-not-installed", f"The ServiceAccount {account} is not installed, so its rights are not asked for"
        )


def _by_verb(requests: Iterable[str]) -> str:
    """Return requests with the resources of one verb together: `list nodes, pods; in namespace a: list roles`."""
    resources: dict[str, list[str]] = {}
    for request in requests:
        verb, _, rest = request.partition(" ")
        resource, _, namespace = rest.partition(" in namespace ")
        start = f"in namespace {namespace}: {verb}" if namespace else verb
        resources.setdefault(start, []).append(resource)
    return "; ".join(f"{start} {', '.join(sorted(each))}" for start, each in resources.items())


def _short(rights: Iterable[str]) -> str:
    """Return the rights with the verbs of one resource together: `list and watch pods, create pods/binding`."""
    verbs: dict[str, list[str]] = {}
    for right in rights:
        verb, _, resource = right.partition(" ")
        verbs.setdefault(resource, []).append(verb)
    return "; ".join(f"{listed(list(dict.fromkeys(each)))} {resource}" for resource, each in verbs.items())


COMPONENT: Final = (
    "Add components/capacity-requests to manifests/kustomization.yaml (Helm: components.capacityRequests=true)"
)


def of_asking(snapshot: Snapshot) -> Iterator[Finding]:
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
            advice=COMPONENT,
            command=command,
        )
    if asking.priority_class is False:
        yield warning(
            "capacity-priority-class-missing",
            f"The PriorityClass {CAPACITY} is missing, so placeholders are refused",
            advice=COMPONENT,
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
            advice=COMPONENT,
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
            advice=COMPONENT,
            command=commands.apply(snapshot),
        )

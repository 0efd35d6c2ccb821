"""What the person who runs `check` may not read, and what our ServiceAccount may not do."""

from collections.abc import Iterable, Iterator

from neuron_scheduler.commands.check.subjects import commands
from neuron_scheduler.commands.check.subjects.finding import Finding, Severity, error, note, ok, unknown
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread
from neuron_scheduler.model.wording import counted, listed


def findings(snapshot: Snapshot) -> Iterator[Finding]:
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

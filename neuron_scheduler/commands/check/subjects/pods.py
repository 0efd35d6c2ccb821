"""The scheduler names of pods that ask for Neuron: none, mistyped, or of a scheduler that does not know devices."""

import difflib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import EXTENDER, OLDER_NAME
from neuron_scheduler.commands.check.subjects.snapshot import DEFAULT_SCHEDULER, SeenPod, Snapshot, Unread
from neuron_scheduler.model.wording import counted, listed

_ALIKE: Final = 0.85  # of difflib's ratio: one letter of a dozen differs


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the pods of each scheduler name that is not ours."""
    if isinstance(snapshot.pods, Unread):
        yield unknown("pods-unknown", "Pods are", snapshot.pods)
        return
    ours = snapshot.scheduler_names
    unreadable = sorted(seen.pod.key for seen in snapshot.pods if not (seen.readable or seen.pod.node_name))
    if unreadable:
        yield warning(
            "unreadable-pods",
            f"{counted(len(unreadable), 'waiting pod')} cannot be read, so no node is looked for",
            objects=unreadable,
        )
    by_name: dict[str, list[SeenPod]] = defaultdict(list)
    for seen in snapshot.pods:
        if seen.readable:
            by_name[seen.pod.scheduler_name].append(seen)
    right = sum(len(by_name.pop(name, ())) for name in ours)
    for name, pods in sorted(by_name.items()):
        yield _of_another(snapshot, name, pods)
    if right:
        yield ok("scheduler-names", f"{counted(right, 'pod')} with Neuron: the scheduler is {listed(ours)}")
    elif not by_name:
        yield note("no-neuron-pods", f"No pod asks for Neuron; those that will need schedulerName: {ours[0]}")


def _of_another(snapshot: Snapshot, name: str, pods: Sequence[SeenPod]) -> Finding:
    ours = snapshot.scheduler_names
    keys = sorted(seen.pod.key for seen in pods)
    waiting = sum(not seen.pod.node_name for seen in pods)
    who = counted(len(pods), "pod with Neuron has", "pods with Neuron have")
    advice = f"Write schedulerName: {ours[0]} into their templates"
    if name == DEFAULT_SCHEDULER:
        if _extended_by_aws(snapshot):
            return note("default-scheduler", f"{who} no schedulerName; AWS's extension extends the default scheduler")
        return warning(
            "no-scheduler-name",
            f"{who} no schedulerName, and the default scheduler gives no device ids",
            advice=f"{advice}; a pod with several devices fails there",
            objects=keys,
        )
    known = _served_by_others(snapshot)
    if name in known:
        return note(
            "another-scheduler-name", f"{who} the schedulerName {name}, which another scheduler serves", objects=keys
        )
    meant = difflib.get_close_matches(name.lower(), ours, n=1, cutoff=_ALIKE)
    if meant:
        return error(
            "mistyped-scheduler-name",
            f"{who} the schedulerName {name}; {meant[0]} is probably meant ({waiting} waiting)",
            advice=f"Write schedulerName: {meant[0]} into their templates",
            objects=keys,
        )
    return warning(
        "unknown-scheduler-name",
        f"{who} the schedulerName {name}, and no Deployment is known to serve it ({waiting} waiting)",
        advice=advice,
        objects=keys,
    )


def _extended_by_aws(snapshot: Snapshot) -> bool:
    """Return whether AWS's extension runs without its second scheduler, so that it is the default one's."""
    names = {deployment.object.name for deployment in snapshot.foreign if deployment.replicas}
    return EXTENDER in names and OLDER_NAME not in names


def _served_by_others(snapshot: Snapshot) -> Collection[str]:
    return {name for d in snapshot.foreign if isinstance(d.serves, tuple) for name in d.serves}

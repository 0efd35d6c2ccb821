"""
The pods that ask for Neuron: whose scheduler they name, what they hold, and what AWS's extension notes of that.

Ids are unknown, or two pods claim them, as the scheduler itself reads them; decision 2 says what it does about that.
The extension believes its annotations on nodes, which after a restart may be wrong (AWS's troubleshooting page), so
that pods stay pending or get devices in use. `neuron-scheduler usage-maps` prints the right ones.
"""

import difflib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import EXTENDER, OLDER_NAME
from neuron_scheduler.commands.check.subjects.snapshot import DEFAULT_SCHEDULER, SeenPod, Snapshot, Unread
from neuron_scheduler.model.annotations import USAGE_MAPS
from neuron_scheduler.model.node import AnnotatedNode
from neuron_scheduler.model.wording import counted, listed
from neuron_scheduler.neuron.annotations import usage_maps
from neuron_scheduler.neuron.core_mask import CoreMask

_ALIKE: Final = 0.85  # of difflib's ratio: one letter of a dozen differs


def of_names(snapshot: Snapshot) -> Iterator[Finding]:
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


RESTART = (
    "Until they end, their nodes get no pods with several devices or cores; set schedulerName in their templates and"
    " spec.nodeName in none, then restart them"
)


def of_allocations(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the unknown holders, and the pods that share a core."""
    for unread in (snapshot.nodes, snapshot.pods):
        if isinstance(unread, Unread):
            yield unknown("allocations-unknown", "Allocations are", unread)
            return
    unclear: list[str] = []
    shared: list[str] = []
    holders = 0
    for node_info in snapshot.cluster.view.rows():
        for uid, pod_info in node_info.pod_infos.items():
            where = f"{pod_info.pod.key} on {node_info.node.name}"
            rivals = node_info.conflicts(uid) if node_info.neuron_usage.double_booked else ()
            holders += 1
            if pod_info.cores is None:
                unclear.append(f"{where}: {pod_info.problem}")
            shared.extend(f"{where}, and {rival.key}" for rival in rivals if pod_info.pod.key < rival.key)
    if shared:
        yield error(
            "allocations-overlap",
            f"{counted(len(shared), 'pair')} of pods on one node claim the same cores",
            advice="Delete one pod of each pair; its controller creates it again",
            objects=sorted(shared),
        )
    if unclear:
        yield warning(
            "allocations-unreadable",
            f"The devices of {counted(len(unclear), 'bound pod')} are unknown",
            advice=RESTART,
            objects=sorted(unclear),
        )
    if not (shared or unclear):
        yield (
            ok("allocations", f"{counted(holders, 'bound pod')} with Neuron: ids are readable and do not overlap")
            if holders
            else note("no-allocations", "No pod with Neuron runs")
        )


REMOVE = f"kubectl annotate node --all {' '.join(f'{key}-' for key in USAGE_MAPS)}"
WRITE = "neuron-scheduler usage-maps"


def of_maps(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the nodes that have such annotations, and how these contradict the pods."""
    if isinstance(snapshot.nodes, Unread):
        return  # `nodes` says so
    having = sorted((seen for seen in snapshot.nodes if seen.usage_maps), key=lambda seen: seen.node.name)
    if not having:
        return
    wrong = [] if isinstance(snapshot.pods, Unread) else [text for seen in having for text in _wrong(snapshot, seen)]
    nodes = counted(len(having), "node")
    if not any(d.object.name == EXTENDER and d.replicas for d in snapshot.foreign):
        yield note(
            "usage-maps-left",
            f"{counted(len(having), 'node has', 'nodes have')} annotations of AWS's extension, which this scheduler"
            " does not read" + ("; some contradict the pods" if wrong else ""),
            advice="Remove them; before you go back to the extension, write them again (docs/migrating.md)",
            command=REMOVE,
            objects=wrong or [seen.node.name for seen in having],
        )
    elif wrong:
        yield warning(
            "usage-maps-stale",
            "AWS's extension believes annotations of nodes that contradict the pods there",
            advice="Stop the extension, run the commands that this one prints, and start it again",
            command=WRITE,
            objects=wrong,
        )
    else:
        yield note("usage-maps", f"AWS's extension keeps its annotations on {nodes}; they match the pods")


def _wrong(snapshot: Snapshot, seen: AnnotatedNode) -> Iterator[str]:
    """Yield how the annotations of a node differ from what its pods hold; nothing while that is unknown."""
    node_info = snapshot.cluster.node(seen.node.name)
    if node_info is None or node_info.machine is None or node_info.neuron_usage.unknown_holders:
        return
    held: CoreMask = node_info.machine.all_cores & ~node_info.neuron_usage.free
    for key, text in usage_maps(node_info.machine, held).items():
        kept = seen.usage_maps.get(key)
        if kept is not None and kept != text:
            yield f"{seen.node.name}: {key} has {_ids(kept)}, the pods hold {_ids(text)}"


def _ids(usage_map: str) -> str:
    """Return the ids that a map says are used, as far as it can be read."""
    words = usage_map.split(",")
    if set(words) - {"true", "false"}:
        return repr(usage_map[:40])
    return ",".join(str(number) for number, word in enumerate(words) if word == "true") or "none"

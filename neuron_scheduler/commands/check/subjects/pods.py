"""
The pods that ask for Neuron: whose scheduler they name, and what they hold.

Ids are unknown, or two pods claim them, as the scheduler itself reads them; decision 2 says what it does about that.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import AWS_SCHEDULER, EXTENDER
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread, has_neuron_request
from neuron_scheduler.model.pod import DEFAULT_SCHEDULER, PINS, Pod
from neuron_scheduler.model.wording import count_text, list_of

RESTART: Final = (
    "Until they end, their nodes get no pods with several devices or cores; set schedulerName in their templates and"
    " spec.nodeName in none, then restart them"
)


def of_names(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.pods, Unread):
        yield unknown("pods-unknown", "Pods are", snapshot.pods)
        return
    ours = snapshot.scheduler_names
    by_name: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        by_name[pod.scheduler_name].append(pod)
    right = sum(len(by_name.pop(name, ())) for name in ours)
    for name, pods in sorted(by_name.items()):
        yield _of_another(snapshot, name, pods)
    if right:
        yield ok("scheduler-names", f"{count_text(right, 'pod')} with Neuron: the scheduler is {list_of(ours)}")
    elif not by_name:
        yield note("no-neuron-pods", f"No pod asks for Neuron; those that will need schedulerName: {ours[0]}")


def _of_another(snapshot: Snapshot, name: str, pods: Sequence[Pod]) -> Finding:
    keys = sorted(pod.key for pod in pods)
    who = count_text(len(pods), "pod with Neuron has", "pods with Neuron have")
    advice = f"Write schedulerName: {snapshot.scheduler_names[0]} into their templates"
    if name in _served_by_others(snapshot):
        return note(
            "another-scheduler-name", f"{who} the schedulerName {name}, which another scheduler serves", objects=keys
        )
    if name == DEFAULT_SCHEDULER:
        return warning(
            "no-scheduler-name",
            f"{who} no schedulerName, and the default scheduler gives no device ids",
            advice=f"{advice}; a pod with several devices fails there",
            objects=keys,
        )
    waiting = sum(not pod.node_name for pod in pods)
    return warning(
        "unknown-scheduler-name",
        f"{who} the schedulerName {name}, and no Deployment is known to serve it ({waiting} Pending)",
        advice=advice,
        objects=keys,
    )


def _served_by_others(snapshot: Snapshot) -> set[str]:
    """Return the names of other schedulers that give ids; the default one does if AWS's extension is alone with it."""
    running = {deployment.name for deployment in snapshot.foreign}
    extended = {DEFAULT_SCHEDULER} if EXTENDER in running and AWS_SCHEDULER not in running else set()
    served = {name for d in snapshot.foreign if isinstance(d.serves, tuple) for name in d.serves}
    return served - {DEFAULT_SCHEDULER} | extended


def of_allocations(snapshot: Snapshot) -> Iterator[Finding]:
    for unread in (snapshot.nodes, snapshot.pods):
        if isinstance(unread, Unread):
            yield unknown("allocations-unknown", "Allocations are", unread)
            return
    unclear: list[str] = []
    shared: list[str] = []
    holders = 0
    for node_info in snapshot.cluster.view.rows():
        for uid, pod_info in node_info.pod_infos.items():
            if not (pod_info.unreadable or has_neuron_request(pod_info.pod) or pod_info.pod.devices):
                continue
            where = f"{pod_info.pod.key} on {node_info.node.name}"
            rivals = node_info.conflicts(uid) if node_info.neuron_usage.double_booked else ()
            holders += 1
            if pod_info.cores is None:
                unclear.append(f"{where}: {pod_info.problem}")
            shared.extend(f"{where}, and {rival.key}" for rival in rivals if pod_info.pod.key < rival.key)
    if shared:
        yield error(
            "allocations-overlap",
            f"{count_text(len(shared), 'pair')} of pods on one node claim the same cores",
            advice="Delete one pod of each pair; its controller creates it again",
            objects=sorted(shared),
        )
    if unclear:
        yield warning(
            "allocations-unreadable",
            f"The devices of {count_text(len(unclear), 'bound pod')} are unknown",
            advice=RESTART,
            objects=sorted(unclear),
        )
    if snapshot.pinned:
        yield warning(
            "allocations-pinned",
            f"{count_text(len(snapshot.pinned), 'pod chooses', 'pods choose')} cores or devices, whatever is allocated",
            advice=f"Remove {' and '.join(PINS)} from the env of their templates: what the device plugin sets counts",
            objects=sorted(snapshot.pinned),
        )
    if not (shared or unclear):
        yield ok("allocations", f"{count_text(holders, 'bound pod')} with Neuron: ids are readable and do not overlap")

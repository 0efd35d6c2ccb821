"""
Pods whose devices or cores are unknown, or that another pod claims too, as the scheduler itself reads them.

Decision 2 says what the scheduler does about them.
"""

from collections.abc import Iterator

from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread
from neuron_scheduler.model.wording import counted

ADVICE = (
    "Until they end, their nodes get no pods with several devices or cores; set schedulerName in their templates and"
    " spec.nodeName in none, then restart them"
)


def findings(snapshot: Snapshot) -> Iterator[Finding]:
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
            advice=ADVICE,
            objects=sorted(unclear),
        )
    if not (shared or unclear):
        yield (
            ok("allocations", f"{counted(holders, 'bound pod')} with Neuron: ids are readable and do not overlap")
            if holders
            else note("no-allocations", "No pod with Neuron runs")
        )

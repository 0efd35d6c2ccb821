"""
What every filter says of one node, also those that come after the first that refuses it.

The decision stops at the first filter that refuses a node; who asks about one node wants all of them, or finds the next
reason only after the first is gone. Does not look at other nodes.
"""

from collections.abc import Iterable, Iterator

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers.explanation import FilterVerdict, NodeHolder
from neuron_scheduler.explain.arithmetic import sentence_of
from neuron_scheduler.explain.subject import ids_in
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.waiting_cause import cause_of
from neuron_scheduler.scheduling.plugins.contract import Refusal


def all_refusals(cluster: Cluster, slot: Slot, pod: Pod, profile: Profile) -> list[Refusal]:
    """Return why a node refuses a pod, with the nominated pods or without them, by every filter; empty if it passes."""
    node_info = cluster.view.row(slot)
    refusals = _of_every_filter(cluster, slot, pod, profile)
    with_nominated = node_info.with_nominated(pod.priority)
    if with_nominated is not node_info:
        with cluster.row_replaced(slot, with_nominated):
            refusals = [*_of_every_filter(cluster, slot, pod, profile), *refusals]
    return refusals


def _of_every_filter(cluster: Cluster, slot: Slot, pod: Pod, profile: Profile) -> list[Refusal]:
    nodes = 1 << slot
    steps = profile.plan(pod).filters
    return [refusal for step in steps for refusal in step.refuse(cluster.view, pod, nodes) if refusal.nodes & nodes]


def verdicts(
    cluster: Cluster, slot: Slot, pod: Pod, profile: Profile, refusals: Iterable[Refusal]
) -> Iterator[FilterVerdict]:
    """Yield what each plugin of the profile says of a node with these refusals, in kube-scheduler's order."""
    by_plugin: dict[str, list[Refusal]] = {name: [] for name in profile.plugins}
    for refusal in refusals:
        by_plugin.setdefault(refusal.plugin, []).append(refusal)
    node_info = cluster.view.row(slot).with_nominated(pod.priority)
    for name, of_plugin in by_plugin.items():
        if not of_plugin:
            yield FilterVerdict(name, passes=True)
            continue
        reasons = tuple(dict.fromkeys(refusal.reason for refusal in of_plugin))
        text = sentence_of(of_plugin[0].plugin, cluster.view, pod)(slot, node_info, reasons)
        yield FilterVerdict(name, passes=False, reasons=reasons, arithmetic=text, cause=cause_of(pod, of_plugin))


def holders(node_info: NodeInfo) -> tuple[NodeHolder, ...]:
    """Return the pods that hold Neuron on a node, and those for which it is kept; by their ids, unknown ones last."""
    held = [
        _holder(node_info, pod_info.pod, pod_info.cores)
        for pod_info in node_info.pod_infos.values()
        if pod_info.cores is None or pod_info.cores
    ]
    held += [
        _holder(node_info, nomination.pod, nomination.cores, kept=True)
        for nomination in node_info.nominations
        if nomination.cores
    ]
    return tuple(sorted(held, key=lambda holder: (holder.unknown, holder.ids, holder.namespace, holder.name)))


def _holder(node_info: NodeInfo, pod: Pod, cores: CoreMask | None, *, kept: bool = False) -> NodeHolder:
    return NodeHolder(
        namespace=pod.namespace,
        name=pod.name,
        asks=asked(pod.neuron),
        priority=pod.priority,
        unit="" if pod.neuron is None else pod.neuron.unit,
        ids=ids_in(node_info.machine, cores, pod),
        kept=kept,
        unknown=cores is None,
    )

"""
The decision: which node a pod gets, and which part of its silicon, or why none.

    candidates = every live node
    for each filter:      candidates less those it refuses      (the refused are kept, by reason)
    for each preference:  candidates = its best non-empty subset
    node = lowest slot of the candidates                        (the oldest node)

A pure function of cluster, pod and profile: same input, same answer, on any replica. Not fitting is a value,
`FitError`.
"""

from collections import Counter
from collections.abc import Sequence

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.nodeset import NodeSet, lowest_slot, slots_of
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_DEVICE, NEURON_DEVICE_ALIAS
from neuron_scheduler.neuron.topology import Placement, place
from neuron_scheduler.scheduling.framework import PodRefusal, Refusal
from neuron_scheduler.scheduling.outlook import new_node_could_help
from neuron_scheduler.scheduling.plugins.node_resources_fit import insufficient
from neuron_scheduler.scheduling.profile import Profile

NO_NODES = "no nodes available to schedule pods"
ALIAS_HINT = f"{NEURON_DEVICE_ALIAS} is an old name; ask for {NEURON_DEVICE}."


@attrs.frozen
class Decision:
    """
    The node a pod gets.

    Attributes:
        placement: its ids there; None for a pod without Neuron.
        evaluated: how many nodes were looked at: all of them, always.
        feasible: how many would have done.
    """

    node_name: str
    placement: Placement | None
    evaluated: int
    feasible: int


@attrs.frozen
class FitError:
    """
    Why no node can take a pod now.

    Attributes:
        nodes: how many nodes there are.
        reasons: count by reason; a node with two reasons counts under both.
        plugins: names of the plugins that refused: only what concerns them can change the answer.
        pod_reason: set if the pod itself was refused, whatever the nodes.
        hint: what the pod's owner could do about it; empty if nothing is known.
        hopeless: no new node could help; the condition's reason is then not `Unschedulable`, or autoscalers would
            buy nodes in a loop.
    """

    nodes: int
    reasons: tuple[tuple[str, int], ...] = ()
    plugins: frozenset[str] = frozenset()
    pod_reason: str = ""
    hint: str = ""
    hopeless: bool = False

    @property
    def text(self) -> str:
        """The message in kube-scheduler's form (`FitError.Error` in `pkg/scheduler/framework/types.go`)."""
        if not self.nodes and not self.pod_reason:
            return NO_NODES
        reasons = self.pod_reason or ", ".join(sorted(f"{count} {reason}" for reason, count in self.reasons))
        hint = f" {self.hint}" if self.hint else ""
        return f"0/{self.nodes} nodes are available: {reasons}.{hint}"


def schedule_pod(cluster: Cluster, pod: Pod, profile: Profile) -> Decision | FitError:
    """Return the best node for a pod and its placement there, or why there is none."""
    for pre_filter in profile.pre_filters:
        pod_refusal = pre_filter(cluster, pod)
        if pod_refusal is not None:
            return _refused_pod(cluster, pod_refusal)
    candidates, refusals = _filtered(cluster, pod, profile)
    if not candidates:
        return _no_fit(cluster, pod, refusals)
    feasible = candidates.bit_count()
    for prefer in profile.preferences:
        if not candidates & (candidates - 1):
            break  # one node left: nothing to prefer
        candidates = prefer(cluster, pod, candidates)
    state = cluster.row(lowest_slot(candidates))
    placement = None
    if pod.neuron is not None and state.machine is not None:
        placement = place(state.machine, state.free_cores, pod.neuron)
    return Decision(state.node.name, placement, evaluated=cluster.node_count, feasible=feasible)


def explain(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[tuple[str, ...], dict[str, str]]:
    """
    Return the names of the nodes that pass every filter, and the first reason of each that does not.

    The one place that goes through nodes, for log lines that name them all; no decision calls it.
    """
    candidates, refusals = _filtered(cluster, pod, profile)
    reasons: dict[str, str] = {}
    for refusal in refusals:
        for slot in slots_of(refusal.nodes):
            reasons.setdefault(cluster.row(slot).node.name, refusal.reason)
    return tuple(cluster.row(slot).node.name for slot in slots_of(candidates)), reasons


def _filtered(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[NodeSet, list[Refusal]]:
    candidates = cluster.live
    refusals: list[Refusal] = []
    for filter_nodes in profile.filters:
        for refusal in filter_nodes(cluster, pod, candidates):
            if refusal.nodes:
                refusals.append(refusal)
                candidates &= ~refusal.nodes
        if not candidates:
            break
    return candidates, refusals


def _refused_pod(cluster: Cluster, refusal: PodRefusal) -> FitError:
    return FitError(
        nodes=cluster.node_count,
        plugins=frozenset((refusal.plugin,)),
        pod_reason=refusal.reason,
        hopeless=refusal.hopeless,
    )


def _no_fit(cluster: Cluster, pod: Pod, refusals: Sequence[Refusal]) -> FitError:
    counts: Counter[str] = Counter()
    for refusal in refusals:
        counts[refusal.reason] += refusal.nodes.bit_count()
    return FitError(
        nodes=cluster.node_count,
        reasons=tuple(sorted(counts.items())),
        plugins=frozenset(refusal.plugin for refusal in refusals),
        hint=ALIAS_HINT if insufficient(NEURON_DEVICE_ALIAS) in counts else "",
        hopeless=not new_node_could_help(pod),
    )

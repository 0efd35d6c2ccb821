"""
Changes that would let a refused pod in, of every kind; those of nodes, UNCORDON and NEW_NODE, are here.

The kinds are asked one after the other, in the order in which their changes are shown. Each offers one change at most,
which was tried with the filters: a small one, but perhaps not the smallest. Kinds are not combined: where no single
change suffices, a note says so.

UNCORDON: the cordon of one node is lifted, and that node then takes the pod. No object tells whether the node is fit
for pods.

NEW_NODE: a fresh node of some type joins, and takes the pod. It is shaped like the cluster's nodes of its type, or else
by the catalog (`cluster.fresh_node`). The type with the fewest devices is offered, out of the cluster's types; if none
of these would do, out of the catalog's. The sentence names the others. It is only for a pod that asks for Neuron:
nothing is known of other types. Whether Karpenter and Cluster Autoscaler see that they should add a node depends on the
reason in the pod's condition alone (`scheduling.cycle.neuron_shortage`).
"""

from collections.abc import Generator, Iterator
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode
from neuron_scheduler.explain.answers import ChangeKind, SuggestedChange
from neuron_scheduler.explain.changes import pod_spec
from neuron_scheduler.explain.changes.departure import find_departure
from neuron_scheduler.explain.changes.group import fitting_new_nodes
from neuron_scheduler.explain.changes.refused_pod import Answer, Kind, RefusedPod, SearchStep, kubectl
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Toleration
from neuron_scheduler.model.wording import few_names
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.scheduling.cycle.index_warmup import asks_much
from neuron_scheduler.scheduling.cycle.neuron_shortage import amount
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.plugins import node_unschedulable
from neuron_scheduler.scheduling.plugins.cause import Cause

_CORDON: Final = node_unschedulable.CORDON.key
_IN_PIECES: Final = (
    " They count devices and not free blocks: where enough devices are free in pieces, they may add no node."
)
_IF: Final = (
    ", if its cpu, memory, labels and taints suit the pod. The cluster has no such node, so these were not checked."
)
NONE_ALONE: Final = (
    "No single change of the kinds that were tried lets the pod in. Its volumes, host ports, topology spread and rules"
    " about other pods were left as they are."
)
ASKS_MUCH: Final = "What would let the pod in was not tried: it compares itself with other pods in too many ways."
NONE_HELPS: Final = "No change of the cluster lets the pod in: the reason is the pod itself."


def find_uncordon(refused: RefusedPod) -> Iterator[SearchStep]:
    pod = refused.pod
    tolerant = attrs.evolve(pod, tolerations=(*pod.tolerations, Toleration(_CORDON, exists=True)))
    decision = yield from refused.decision(tolerant)
    node_info = None if decision is None else refused.cluster.node(decision.node_name)
    if node_info is None or not refused.fits_with(attrs.evolve(node_info, node=without_cordon(node_info.node))):
        return
    name = node_info.node.name
    yield SuggestedChange(
        ChangeKind.UNCORDON,
        f"Lift the cordon of {name}: it then takes the pod.",
        command=kubectl("uncordon", name, names=(name,)),
        node_name=name,
        instance_type=node_info.node.instance_type,
    )


def without_cordon(node: Node) -> Node:
    taints = tuple(taint for taint in node.taints if taint.key != _CORDON)
    return attrs.evolve(node, unschedulable=False, taints=taints)


def find_new_node(refused: RefusedPod) -> Iterator[SearchStep]:
    if refused.pod.neuron is None:
        return
    fitting = yield from fitting_new_nodes(refused.cluster, refused.pod, refused.profile)
    if fitting:
        yield _new_node(refused, fitting[0], [other.node.instance_type for other in fitting[1:]])


def _new_node(refused: RefusedPod, fresh: FreshNode, others: list[str]) -> SuggestedChange:
    node, machine = fresh.node, machine_of(fresh.node)
    devices = "" if machine is None else f" ({amount(machine.size(Unit.DEVICE), Unit.DEVICE)})"
    zone = f" in zone {fresh.zone}" if fresh.zone else ""
    seen = not (refused.error.new_node_cannot_help or refused.pod.nominated_node_name)
    sentences = [
        f"Add a node of type {node.instance_type}{devices}{zone}: it would take the pod{'.' if fresh.like else _IF}",
        f"{few_names(others)} would do, too." if others else "",
        "Karpenter and Cluster Autoscaler see from the pod's condition that a node is needed."
        if seen
        else "Karpenter and Cluster Autoscaler do not see from the pod's status that a node is needed.",
    ]
    in_pieces = _IN_PIECES if seen and refused.error.cause is Cause.FRAGMENTATION else ""
    return SuggestedChange(
        ChangeKind.NEW_NODE,
        " ".join(filter(None, sentences)) + in_pieces,
        instance_type=node.instance_type,
        autoscalers=seen,
    )


KINDS: Final[tuple[Kind, ...]] = (
    pod_spec.find_count,
    pod_spec.find_requests,
    find_departure,
    find_uncordon,
    pod_spec.find_toleration,
    pod_spec.find_selector,
    pod_spec.find_instance_type,
    pod_spec.find_pairs,
    find_new_node,
)
"""In the order of `ChangeKind`."""


def changes(cluster: Cluster, pod: Pod, profile: Profile, *, refused: FitError) -> Generator[None, None, Answer]:
    """
    Return changes after which the pod fits, none while it has gates; yields whenever other tasks may run.

    `cluster` is a fork that nobody changes, in which the pod has no nomination.
    """
    if pod.gates:
        return (), ()
    if pod.refusal:
        return (), (NONE_HELPS,)
    if asks_much(pod):
        return (), (ASKS_MUCH,)
    refused_pod = RefusedPod(cluster, pod, profile, refused)
    found: list[SuggestedChange] = []
    notes: dict[str, None] = {}
    for kind in KINDS:
        for item in kind(refused_pod):
            if isinstance(item, SuggestedChange):
                found.append(item)
            elif item is not None:
                notes[item] = None
            yield
    if not found:
        notes = {NONE_ALONE: None, **notes}
    return tuple(found), tuple(notes)

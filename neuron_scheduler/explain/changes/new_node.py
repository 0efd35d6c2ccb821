"""
NEW_NODE: a fresh node of some type joins, and takes the pod.

It is shaped like the nodes of its type that the cluster has, or else by the catalog (`cluster.fresh_node`). Smallest:
the type with the fewest devices, out of the types that the cluster has; only if none of these would do, out of the
catalog's. The sentence names the others of the same group. Only for a pod that asks for Neuron: nothing is known of
other types. Whether Karpenter and Cluster Autoscaler see that they should add a node depends on the reason in the pod's
condition alone (`scheduling.cycle.neuron_shortage`).
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final

import attrs

from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, known_types
from neuron_scheduler.explain.answers.explanation import Change, ChangeKind
from neuron_scheduler.explain.changes.instance_type import depends_on_type
from neuron_scheduler.explain.changes.question import Found, Question, any_of
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.scheduling.cycle.neuron_shortage import amount
from neuron_scheduler.scheduling.cycle.what_if import has_room, takes
from neuron_scheduler.scheduling.plugins.cause import Cause

_IN_PIECES: Final = (
    " They count devices and not free blocks: where enough devices are free in pieces, they may add no node."
)

_IF: Final = (
    ", if its cpu, memory, labels and taints suit the pod. The cluster has no such node, so these were not checked."
)


def find(question: Question) -> Iterator[Found]:
    """Yield the smallest type of which a new node would take the pod; types of the cluster come first."""
    view = question.cluster.view
    request = question.pod.neuron
    if request is None:
        return
    yield from view.prepared(lambda view: (view.labelled(INSTANCE_TYPE_LABEL), view.labelled(ZONE_LABEL)))
    names = known_types(view)
    yield None
    fitting = yield from _fitting(question, request, names, existing=True)
    if not fitting:
        fitting = yield from _fitting(question, request, names, existing=False)
    for found in fitting:
        fresh = _taking(question, found.node.instance_type)  # the cluster may have changed
        if fresh is not None and bool(fresh.like) is bool(found.like):
            others = [other.node.instance_type for other in fitting if other is not found]
            yield _change(question, fresh, others)
            return
        yield None


def _taking(question: Question, name: str) -> FreshNode | None:
    """Return a shape of a new node of a type that takes the pod now."""
    shapes = _shapes(question, name)
    return next((fresh for fresh in shapes if takes(question.cluster, fresh, question.pod, question.profile)), None)


def _fitting(
    question: Question, request: NeuronRequest, names: Sequence[str], *, existing: bool
) -> Generator[None, None, list[FreshNode]]:
    """Return the types of which a new node takes the pod, the smallest first: those of the cluster, or the others."""
    fitting: list[FreshNode] = []
    hopeless: set[str] = set()
    for name in names:
        for fresh in _shapes(question, name):
            if bool(fresh.like) is not existing or fresh.zone in hopeless or not has_room(fresh, request):
                continue
            if takes(question.cluster, fresh, question.pod, question.profile):
                fitting.append(fresh)
                break
            if not existing and not depends_on_type(question.pod):
                hopeless.add(fresh.zone)  # the catalog's types differ in their devices only
        yield None
    return sorted(fitting, key=_size)


def _shapes(question: Question, name: str) -> tuple[FreshNode, ...]:
    """Return the shapes of a new node of a type; also one in the zone that the pod selects, if no other is there."""
    shapes = fresh_nodes(question.cluster.view, name)
    zone = question.pod.constraints.node_selector.get(ZONE_LABEL)
    if not shapes or not zone or any(fresh.zone == zone for fresh in shapes):
        return shapes
    node = shapes[0].node
    return (*shapes, attrs.evolve(shapes[0], node=attrs.evolve(node, labels={**node.labels, ZONE_LABEL: zone})))


def _size(fresh: FreshNode) -> tuple[int, str]:
    machine = machine_of(fresh.node)
    return 0 if machine is None else machine.devices, fresh.node.instance_type


def _change(question: Question, fresh: FreshNode, others: list[str]) -> Change:
    node, machine = fresh.node, machine_of(fresh.node)
    devices = "" if machine is None else f" ({amount(machine.size(Unit.DEVICE), Unit.DEVICE)})"
    zone = f" in zone {fresh.zone}" if fresh.zone else ""
    waits_for_victims = question.cluster.nomination(question.pod.uid) is not None
    seen = not (question.refused.new_node_cannot_help or question.pod.gates or waits_for_victims)
    sentences = [
        f"Add a node of type {node.instance_type}{devices}{zone}: it would take the pod{'.' if fresh.like else _IF}",
        f"{any_of(others)} would do, too." if others else "",
        "Karpenter and Cluster Autoscaler see from the pod's condition that a node is needed."
        if seen
        else "Karpenter and Cluster Autoscaler do not see from the pod's status that a node is needed.",
    ]
    in_pieces = _IN_PIECES if seen and question.refused.cause is Cause.FRAGMENTATION else ""
    return Change(
        ChangeKind.NEW_NODE,
        " ".join(filter(None, sentences)) + in_pieces,
        instance_type=node.instance_type,
        autoscalers=seen,
    )

"""
Nodes -> `model.Node`, and how they are listed and watched.

A node of which only the name can be read is a node that takes no new pods (`Node.refusal`).
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from neuron_scheduler.kube.objects import node_wire as wire
from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.byte_bounded_memo import byte_bounded_memo
from neuron_scheduler.kube.objects.interning import amounts, interned, labels, shared
from neuron_scheduler.kube.objects.selectors import taint
from neuron_scheduler.model.node import NEURON_HEALTH, Image, Node
from neuron_scheduler.model.resources import NEURON_NAMES


def _read(node: wire.Node) -> Node:
    meta, spec, status = node.metadata, node.spec or wire.NodeSpec(), node.status or wire.NodeStatus()
    created = meta.creation_timestamp
    neuron = {name: amount for name, amount in (status.capacity or {}).items() if name in NEURON_NAMES}
    return Node(
        uid=meta.uid,
        name=interned(meta.name),
        created=0.0 if created is None else created.timestamp(),
        labels=labels(meta.labels),
        taints=tuple(taint((t.key, t.value or "", t.effect)) for t in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        allocatable=shared(tuple(amounts(status.allocatable).items())),
        capacity=shared(tuple(amounts(neuron).items())),
        declared_features=tuple(map(interned, status.declared_features or ())),
        images=_images(status.images or ()),
        neuron_unhealthy=any(c.type == NEURON_HEALTH and c.status == "True" for c in status.conditions or ()),
    )


def _images(images: Iterable[wire.Image]) -> tuple[Image, ...]:
    return _same_images(tuple(dict.fromkeys(_image((tuple(i.names or ()), i.size_bytes or 0)) for i in images)))


@byte_bounded_memo(most=16 << 20)
def _image(names_and_size: tuple[tuple[str, ...], int]) -> Image:
    """Return one shared object for images with the same names and size: nodes have thousands in common."""
    names, size = names_and_size
    return Image(names, max(0, size))


@byte_bounded_memo(most=16 << 20, longest=256 << 10)
def _same_images(images: tuple[Image, ...]) -> tuple[Image, ...]:
    """Return the one object for this list: nodes of a fleet that run the same are alike."""
    return images


def _stand_in(malformed: Malformed) -> Node | Malformed:
    """Return the node that takes no new pods (`Node.refusal`), if its name can be read."""
    if not malformed.key:
        return malformed
    return Node(uid=malformed.uid, name=interned(malformed.key), refusal=f"node cannot be read: {malformed.reason}")


NODES: Final[Resource[Node]] = Resource(
    path="/api/v1/nodes",
    kind="Node",
    shape=wire.Node,
    read=_read,
    order=attrgetter("created", "name", "uid"),
    stand_in=_stand_in,
)

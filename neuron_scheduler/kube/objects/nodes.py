"""
Nodes -> `model.Node`, and how they are listed and watched.

A node of which only the name can be read takes no new pods (`Node.refusal`).
"""

from operator import attrgetter
from typing import Final

import msgspec

from neuron_scheduler.kube.objects.base import (
    Malformed,
    Resource,
    amounts,
    byte_bounded_memo,
    intern,
    labels,
    shared_amounts,
)
from neuron_scheduler.kube.objects.json_scanner import decode_at_once
from neuron_scheduler.kube.objects.selectors import taint
from neuron_scheduler.kube.objects.wire import Condition, ObjectMeta, Quantities, TaintFields, Wire
from neuron_scheduler.model.annotations import USAGE_MAPS
from neuron_scheduler.model.node import ACCELERATED_HARDWARE, NEURON_HEALTH, AnnotatedNode, Image, Node
from neuron_scheduler.model.resources import NEURON_NAMES, Resources
from neuron_scheduler.model.selectors import NO_LABELS


class _NodeSpec(Wire):
    unschedulable: bool | None = None
    taints: list[TaintFields] | None = None


class _Image(Wire):
    names: list[str] | None = None
    size_bytes: int | None = None


_IMAGES: Final = msgspec.json.Decoder(list[_Image] | None)
_QUANTITIES: Final = msgspec.json.Decoder(Quantities | None)


class _NodeStatus(Wire):
    allocatable: msgspec.Raw = msgspec.Raw(b"null")
    capacity: msgspec.Raw = msgspec.Raw(b"null")
    conditions: list[Condition] | None = None
    images: msgspec.Raw = msgspec.Raw(b"null")
    declared_features: list[str] | None = None


class _Node(Wire):
    metadata: ObjectMeta
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


def _read(node: _Node) -> Node:
    meta, spec, status = node.metadata, node.spec or _NodeSpec(), node.status or _NodeStatus()
    created = meta.creation_timestamp
    return Node(
        uid=meta.uid,
        name=intern(meta.name),
        created=0.0 if created is None else created.timestamp(),
        labels=labels(meta.labels),
        taints=tuple(taint((t.key, t.value or "", t.effect)) for t in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        allocatable=_amounts((bytes(status.allocatable), False)),
        capacity=_amounts((bytes(status.capacity), True)),
        declared_features=tuple(map(intern, status.declared_features or ())),
        images=_images(bytes(status.images)),
        neuron_fault=next((c.type for c in status.conditions or () if _is_fault(c)), ""),
    )


def _is_fault(condition: Condition) -> bool:
    if condition.type == ACCELERATED_HARDWARE:
        return condition.status == "False" and (condition.reason or "").startswith("Neuron")
    return condition.type == NEURON_HEALTH and condition.status == "True"


@byte_bounded_memo()
def _amounts(encoded_and_which: tuple[bytes, bool]) -> Resources:
    """Return all amounts, or (True) those of Neuron, read once for all nodes that have the same ones."""
    encoded, only_neuron = encoded_and_which
    quantities = decode_at_once(encoded, _QUANTITIES) or {}
    if only_neuron:
        quantities = {name: amount for name, amount in quantities.items() if name in NEURON_NAMES}
    return shared_amounts(tuple(amounts(quantities).items()))


@byte_bounded_memo(most=16 << 20, longest=256 << 10)
def _images(encoded: bytes) -> tuple[Image, ...]:
    """Return the images of a list, read once for all nodes that have pulled the same ones."""
    images = decode_at_once(encoded, _IMAGES) or ()
    return tuple(dict.fromkeys(_image((tuple(i.names or ()), i.size_bytes or 0)) for i in images))


@byte_bounded_memo(most=16 << 20)
def _image(names_and_size: tuple[tuple[str, ...], int]) -> Image:
    """Return one shared object for images with the same names and size: nodes have thousands in common."""
    names, size = names_and_size
    return Image(names, max(0, size))


def _stand_in(malformed: Malformed) -> Node | Malformed:
    """Return the node that takes no new pods (`Node.refusal`), if its name can be read."""
    if not malformed.key:
        return malformed
    return Node(uid=malformed.uid, name=intern(malformed.key), refusal=f"node cannot be read: {malformed.reason}")


NODES: Final[Resource[Node]] = Resource(
    path="/api/v1/nodes",
    kind="Node",
    shape=_Node,
    read=_read,
    sort_key=attrgetter("created", "name", "uid"),
    stand_in=_stand_in,
)


def _read_annotated(node: _Node) -> AnnotatedNode:
    annotations = node.metadata.annotations or NO_LABELS
    usage_maps = {key: annotations[key] for key in USAGE_MAPS if key in annotations}
    return AnnotatedNode(_read(node), usage_maps or NO_LABELS)


ANNOTATED_NODES: Final[Resource[AnnotatedNode]] = Resource(
    path=NODES.path, kind=NODES.kind, shape=NODES.shape, read=_read_annotated, sort_key=attrgetter("name")
)
"""For those who look at a cluster; one that cannot be read is malformed."""

"""
Nodes as bytes -> `model.Node`.

A node of which only the name can be read is a node that takes no new pods (`Node.refusal`).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from neuron_scheduler.kube import node_wire as wire
from neuron_scheduler.kube.codec import Decoded, Encoded, Malformed, amounts, identity_of, interned, labels, shared
from neuron_scheduler.kube.constraints import effect
from neuron_scheduler.kube.wire import ObjectMeta
from neuron_scheduler.model.node import NEURON_HEALTH, Image, Node
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.model.selectors import Taint

_NODE: Final = msgspec.json.Decoder(wire.Node)


def decode_node(encoded: Encoded) -> Decoded[Node]:
    """Return the node; one of which only the name can be read takes no new pods (`Node.refusal`). Never raises."""
    try:
        found = _NODE.decode(encoded)
        meta = found.metadata
        value = _node(meta, found.spec or wire.NodeSpec(), found.status or wire.NodeStatus())
        return Decoded(meta.name, meta.uid, meta.resource_version, value)
    except (msgspec.MsgspecError, ValueError) as error:
        known = identity_of(encoded)
        if not known.name:
            return Decoded("", "", known.resource_version, Malformed("Node", "", str(error)))
        unread = Node(uid=known.uid, name=interned(known.name), refusal=f"node cannot be read: {error}")
        return Decoded(known.name, known.uid, known.resource_version, unread)


def _node(meta: ObjectMeta, spec: wire.NodeSpec, status: wire.NodeStatus) -> Node:
    created = meta.creation_timestamp
    neuron = {name: amount for name, amount in (status.capacity or {}).items() if name in NEURON_NAMES}
    return Node(
        uid=meta.uid,
        name=interned(meta.name),
        created=0.0 if created is None else created.timestamp(),
        labels=labels(meta.labels),
        taints=tuple(_taint(taint.key, taint.value or "", taint.effect) for taint in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        allocatable=shared(tuple(amounts(status.allocatable).items())),
        capacity=shared(tuple(amounts(neuron).items())),
        declared_features=tuple(map(interned, status.declared_features or ())),
        images=_images(status.images or ()),
        neuron_unhealthy=any(c.type == NEURON_HEALTH and c.status == "True" for c in status.conditions or ()),
    )


def _images(found: Iterable[wire.Image]) -> tuple[Image, ...]:
    return _same_images(tuple(dict.fromkeys(_image(tuple(i.names or ()), i.size_bytes or 0) for i in found)))


@lru_cache(maxsize=1 << 15)
def _image(names: tuple[str, ...], size: int) -> Image:
    """Return the one object for this image: nodes have thousands in common."""
    return Image(names, max(0, size))


@lru_cache(maxsize=1 << 10)
def _same_images(found: tuple[Image, ...]) -> tuple[Image, ...]:
    """Return the one object for this list: nodes of a fleet that run the same are alike."""
    return found


@lru_cache(maxsize=1 << 12)
def _taint(key: str, value: str, name: str) -> Taint:
    found = effect(name)
    if found is None:
        raise ValueError(f"taint {key} has the unknown effect {name!r}")
    return Taint(key=key, effect=found, value=value)

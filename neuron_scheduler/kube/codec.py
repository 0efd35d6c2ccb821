"""
What every API object is read into, one at a time, and what those of all kinds have in common.

What cannot be read becomes a `Malformed` value with as much of its identity as can be read, so that it is counted,
logged once, and held against its node. Nothing unreadable ever becomes something free. Knows neither sockets nor what
the values are used for; `pod_codec`, `node_codec` and `storage_codec` read one kind each.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Generic, TypeVar

import attrs
import msgspec

from neuron_scheduler.kube import wire
from neuron_scheduler.model.pod import NO_LABELS
from neuron_scheduler.model.quantity import milli, whole
from neuron_scheduler.model.resources import CPU, NOTHING, Resources

T = TypeVar("T")
Encoded = bytes | msgspec.Raw

_IDENTIFIED: Final = msgspec.json.Decoder(wire.Identified)

interned = lru_cache(maxsize=1 << 16)(str)
"""Return the one object for this text; bounded, unlike `sys.intern` on some releases."""


@attrs.frozen
class Malformed:
    """
    An object that cannot be read.

    Attributes:
        kind: `Pod` or `Node`.
        key: `namespace/name` or `name`; empty if not even that can be read.
        node_name: where a pod is bound, if that can be read; it is an unknown holder there.
        reason: in words, with the path of the field.
    """

    kind: str
    key: str
    reason: str
    uid: str = ""
    node_name: str = ""


@attrs.frozen
class Decoded(Generic[T]):
    """
    One object of a list or watch.

    Attributes:
        key: `namespace/name` or `name`.
        value: None if the object counts as gone: a pod whose phase is terminal.
    """

    key: str
    uid: str
    resource_version: str
    value: T | Malformed | None


def identity_of(encoded: Encoded) -> wire.Identity:
    """Return what can be read of an object's identity, which may be nothing."""
    try:
        return _IDENTIFIED.decode(encoded).metadata
    except msgspec.MsgspecError:
        return wire.Identity()


def amounts(quantities: Mapping[str, str | int] | None) -> Resources:
    """
    Return amounts by resource name without zeros.

    Raises:
        ValueError: an amount is no quantity, or negative.
    """
    if not quantities:
        return NOTHING
    found = {}
    for name, quantity in quantities.items():
        amount = milli(str(quantity)) if name == CPU else whole(str(quantity))
        if amount < 0:
            raise ValueError(f"{name} is negative: {quantity}")
        if amount:
            found[interned(name)] = amount
    return found


def labels(found: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return labels whose keys and values are shared with all others."""
    return {interned(key): interned(value) for key, value in found.items()} if found else NO_LABELS


@lru_cache(maxsize=1 << 14)
def shared(found: tuple[tuple[str, int], ...]) -> Resources:
    """Return the one mapping of these amounts."""
    return dict(found)

"""
Decode API objects one at a time, and what objects of all kinds have in common.

An object that cannot be read becomes a `Malformed` value with as much of its identity as can be read, so that it is
counted, logged once, and its node treated with care. Nothing unreadable ever counts as free. Only `Codec` can fail to
read an object, and it does not raise; `pod_codec`, `node_codec`, `storage_codec` and others say what a kind means.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import attrs
import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.json_scanner import ScanError, Steps, finish, strings, without
from neuron_scheduler.kube.objects.remembered import remembered
from neuron_scheduler.model.pod import NO_LABELS
from neuron_scheduler.model.quantity import milli, whole
from neuron_scheduler.model.resources import CPU, NOTHING, Resources

T = TypeVar("T")
Encoded = bytes | msgspec.Raw

LONGEST_REASON: Final = 300

interned = remembered(most=16 << 20, longest=512)(str)
"""Return the one object for this text; bounded, unlike `sys.intern` on some releases."""


@attrs.frozen
class Malformed:
    """
    An object that cannot be read.

    Attributes:
        kind: such as `Pod`.
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


def _set_aside(found: Malformed) -> Malformed:
    """Return the report itself: most kinds have no value for an object that cannot be read."""
    return found


@attrs.define(eq=False)
class Codec(Generic[T]):
    """
    Reads objects of one kind. Nothing that the bytes hold makes it raise: any exception makes the object malformed.

    Attributes:
        kind: such as `Pod`.
        shape: what the bytes are decoded into.
        read: returns our value for what was decoded; it may raise.
        unread: returns what represents an object that cannot be read.
    """

    kind: str
    shape: type[Any]
    read: Callable[[Any], Decoded[T]]
    unread: Callable[[Malformed], T | Malformed] = _set_aside
    _object: "msgspec.json.Decoder[Any]" = attrs.field(init=False)
    _change: "msgspec.json.Decoder[Any]" = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._object = msgspec.json.Decoder(self.shape)
        self._change = msgspec.json.Decoder(wire.Change[self.shape])  # type: ignore[name-defined]  # a type at run time

    def change(self, line: bytes) -> tuple[str, Decoded[T]] | None:
        """Return the type and object of a watch line; None if it must be read in steps (`watch_line`)."""
        try:
            found = self._change.decode(line)
            return found.type, self.read(found.object)
        except Exception:  # noqa: BLE001 - RecursionError, UnicodeDecodeError, OverflowError, or an error of ours
            return None

    def glance(self, encoded: Encoded) -> Decoded[T] | None:
        """Return the object; None if it must be read in steps (`salvage`)."""
        try:
            return self.read(self._object.decode(encoded))
        except Exception:  # noqa: BLE001 - as above
            return None

    def decode(self, encoded: Encoded) -> Decoded[T]:
        """Return the object, or `Malformed`, without a pause, however long that takes."""
        return self.glance(encoded) or finish(self.salvage(encoded))

    def salvage(self, encoded: Encoded) -> Steps[Decoded[T]]:
        """
        Return, in steps, an object that `glance` could not read.

        `managedFields` alone may nest as deep as a user likes; without them most objects can be read.
        """
        text = bytes(encoded)
        with contextlib.suppress(ScanError):  # the decoder says it in better words
            text = yield from without(text, b'"metadata"', b'"managedFields"')
        try:
            return self.read(self._object.decode(text))
        except Exception as error:  # noqa: BLE001 - as above
            return (yield from self.set_aside(text, error))

    def set_aside(self, text: bytes, error: Exception) -> Steps[Decoded[T]]:
        """Return the malformed object, whose text may be cut off, with as much of its identity as can be read."""
        known = yield from strings(text, b'"metadata"', b'"spec"')
        name, namespace = known.get(b'"name"', ""), known.get(b'"namespace"', "")
        key = key_of(namespace, name) if name else ""
        uid, version = known.get(b'"uid"', ""), known.get(b'"resourceVersion"', "")
        found = Malformed(self.kind, key, _reason(error), uid, interned(known.get(b'"nodeName"', "")))
        return Decoded(key, uid, version, self.unread(found))


def key_of(namespace: str, name: str) -> str:
    """Return `namespace/name`, or `name` of an object without a namespace."""
    return f"{namespace}/{name}" if namespace else name


def _reason(error: Exception) -> str:
    """Return why an object cannot be read; for an unexpected error with its type."""
    said = str(error) if isinstance(error, ValueError | RecursionError) else f"{type(error).__name__}: {error}"
    return said[:LONGEST_REASON]


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


@remembered()
def shared(found: tuple[tuple[str, int], ...]) -> Resources:
    """Return the one mapping of these amounts."""
    return dict(found)

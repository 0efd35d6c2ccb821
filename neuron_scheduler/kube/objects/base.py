"""
Decode API objects of any kind, one at a time, and say where the objects of a kind are listed and watched.

An object that cannot be read becomes a `Malformed` value with as much of its identity as can be read, so that it is
counted, logged once, and never counts as free. Only `Decoder` handles objects that cannot be read, and it does not
raise. A kind's own module gives it the fields on the wire and a function from these to a value of `model`, which may
raise. Refuses to know any kind.
"""

import contextlib
from collections.abc import Callable, Mapping
from operator import eq
from typing import Any, Final, Generic, TypeVar

import attrs
import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.interning import interned
from neuron_scheduler.kube.objects.json_scanner import ScanError, Steps, finish, strings, without

T = TypeVar("T")
Encoded = bytes | msgspec.Raw

LONGEST_REASON: Final = 300


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
        damaged: the object is malformed because its text is no JSON or no UTF-8, which no API server sends.
    """

    key: str
    uid: str
    resource_version: str
    value: T | Malformed | None
    damaged: bool = False


def _unchanged(malformed: Malformed) -> Malformed:
    """Return the report itself: most kinds have no value for an object that cannot be read."""
    return malformed


@attrs.define(eq=False, kw_only=True)
class Decoder(Generic[T]):
    """
    Reads objects of one kind. Nothing in the bytes makes it raise: any exception makes the object malformed.

    Attributes:
        kind: such as `Pod`.
        shape: the struct that the bytes are decoded into; it has `metadata`.
        read: returns our value for what was decoded, None if the object counts as gone; it may raise.
        stand_in: returns the value of an object that cannot be read.
    """

    kind: str
    shape: type[Any]
    read: Callable[[Any], T | None]
    stand_in: Callable[[Malformed], T | Malformed] = _unchanged
    _object: "msgspec.json.Decoder[Any]" = attrs.field(init=False)
    _change: "msgspec.json.Decoder[Any]" = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._object = msgspec.json.Decoder(self.shape)
        self._change = msgspec.json.Decoder(wire.Change[self.shape])  # type: ignore[name-defined]  # a type at run time

    def decode_change(self, line: bytes) -> tuple[str, Decoded[T]] | None:
        """Return the type and object of a watch line; None if it must be read in steps (`decode_line_in_steps`)."""
        try:
            if not line.isascii():
                line.decode()  # msgspec accepts any byte in the name of an unknown field: a damaged name is one
            change = self._change.decode(line)
            return change.type, self._decoded(change.object)
        except Exception:  # noqa: BLE001 - RecursionError, UnicodeDecodeError, OverflowError, or an error of ours
            return None

    def try_decode(self, encoded: Encoded) -> Decoded[T] | None:
        """Return the object; None if it must be read in steps (`decode_in_steps`)."""
        try:
            text = bytes(encoded)
            if not text.isascii():
                text.decode()  # as above
            return self._decoded(self._object.decode(text))
        except Exception:  # noqa: BLE001 - as above
            return None

    def decode(self, encoded: Encoded) -> Decoded[T]:
        """Return the object, or `Malformed`, without a pause, however long that takes."""
        return self.try_decode(encoded) or finish(self.decode_in_steps(encoded))

    def decode_in_steps(self, encoded: Encoded) -> Steps[Decoded[T]]:
        """Return, in steps, an object that `try_decode` could not read."""
        text = bytes(encoded)
        with contextlib.suppress(ScanError):  # the decoder gives a better reason
            text = yield from without_managed_fields(text)
        try:
            text.decode()  # `managedFields` are gone: they alone may have other bytes, because a user may write them
            return self._decoded(self._object.decode(text))
        except Exception as error:  # noqa: BLE001 - as above
            malformed = yield from self.malformed(text, error)
            return attrs.evolve(malformed, damaged=_is_no_json(error))

    def malformed(self, text: bytes, error: Exception) -> Steps[Decoded[T]]:
        """Return the malformed object, whose text may be cut off, with as much of its identity as can be read."""
        known = yield from strings(text, b'"metadata"', b'"spec"')
        name, namespace = known.get(b'"name"', ""), known.get(b'"namespace"', "")
        key = key_of(namespace, name) if name else ""
        uid, version = known.get(b'"uid"', ""), known.get(b'"resourceVersion"', "")
        malformed = Malformed(self.kind, key, _reason(error), uid, interned(known.get(b'"nodeName"', "")))
        return Decoded(key, uid, version, self.stand_in(malformed))

    def _decoded(self, struct: Any) -> Decoded[T]:
        meta = struct.metadata
        if not meta.name:
            raise ValueError("Object has an empty `name` - at `$.metadata`")
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name  # as `key_of`; a call less a watch line
        return Decoded(key, meta.uid, meta.resource_version, self.read(struct))


@attrs.define(eq=False, kw_only=True)
class Resource(Decoder[T]):
    """
    A kind that is listed and watched.

    Attributes:
        path: of list and watch, over all namespaces.
        order: key by which the objects of a list are handed over, so that every replica and restart sees one order.
        same: whether two states of an object differ in nothing that a handler has to know.
        params: of list and watch alike.
    """

    path: str
    order: Callable[[T], Any]
    same: Callable[[T, T], bool] = eq
    params: Mapping[str, str] = attrs.field(factory=dict)

    def position(self, decoded: Decoded[T]) -> tuple[int, Any]:
        """Return the key by which decoded objects are sorted: those without a value of `model` come last."""
        value = decoded.value
        return (1, ()) if value is None or isinstance(value, Malformed) else (0, self.order(value))

    @property
    def name(self) -> str:
        """Its plural, such as `pods`."""
        return self.path.rpartition("/")[2]

    @property
    def group(self) -> str:
        """Its API group, such as `apps`; empty for the core group."""
        return self.path.split("/")[2] if self.path.startswith("/apis/") else ""


def without_managed_fields(text: bytes) -> Steps[bytes]:
    """
    Return the text of an object with null in place of its `managedFields`.

    They alone may nest as deep as a user likes; without them most objects can be read.

    Raises:
        ScanError: the text is no object.
    """
    return without(text, b'"metadata"', b'"managedFields"')


def key_of(namespace: str, name: str) -> str:
    """Return `namespace/name`, or `name` of an object without a namespace."""
    return f"{namespace}/{name}" if namespace else name


def _is_no_json(error: Exception) -> bool:
    """Return whether the decoder has failed because the text is no JSON, or no UTF-8."""
    return isinstance(error, UnicodeDecodeError) or (
        isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError)
    )


def _reason(error: Exception) -> str:
    """Return why an object cannot be read; for an unexpected error with its type."""
    reason = str(error) if isinstance(error, ValueError | RecursionError) else f"{type(error).__name__}: {error}"
    return reason[:LONGEST_REASON]

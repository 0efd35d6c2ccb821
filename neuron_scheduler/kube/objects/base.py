"""
Decode API objects of any kind, one at a time, and say where the objects of a kind are listed and watched.

An object that cannot be read becomes a `Malformed` value: it is counted, logged once, and never counts as free. Only
`Resource` handles such objects; a kind's own function may raise.

Pods of one workload and nodes of one type differ in little, so names, labels, amounts and results of pure functions are
kept once. A memo is bounded in bytes, because one entry of a hostile object may be a megabyte (`lru_cache` counts
entries).
"""

import contextlib
from collections.abc import Callable, Hashable, Mapping
from operator import eq
from typing import Any, Final, Generic, TypeVar

import attrs
import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.json_scanner import decode_at_once
from neuron_scheduler.model.quantity import milli, whole
from neuron_scheduler.model.resources import CPU, NOTHING, Resources
from neuron_scheduler.model.selectors import NO_LABELS
from neuron_scheduler.telemetry.line_formats import printable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST: Final = 4 << 20
LONGEST: Final = 16 << 10
OBJECT: Final = 64  # bytes of any object, about

T = TypeVar("T")
Encoded = bytes | msgspec.Raw

LONGEST_REASON: Final = 300
LONGEST_NAME: Final = 253
"""Characters of the longest name (`DNS1123SubdomainMaxLength` in `apimachinery/pkg/util/validation`)."""

_IDENTITY: Final = msgspec.json.Decoder(wire.PartialObject)
_PLACED: Final = msgspec.json.Decoder(wire.PlacedSpec)


def byte_bounded_memo(*, most: int = MOST, longest: int = LONGEST) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """Return the decorator for a pure function of one argument; `most` bytes of arguments are kept, about."""
    return lambda function: _Results(function, most, longest).__getitem__


class _Results(dict[K, V]):
    """Results by argument; when there are too many, all are dropped."""

    __slots__ = ("_bytes", "_function", "_longest", "_most")

    def __init__(self, function: Callable[[K], V], most: int, longest: int) -> None:
        self._function = function
        self._most = most
        self._longest = longest
        self._bytes = 0

    def __missing__(self, key: K) -> V:
        value = self._function(key)
        weight = weight_of(key, self._longest)
        if weight <= self._longest:
            if self._bytes + weight > self._most:
                self.clear()
                self._bytes = 0
            self[key] = value
            self._bytes += weight
        return value


def weight_of(value: Any, most: int) -> int:
    """Return about how many bytes a value of strings, tuples, sets and attrs classes takes; it stops beyond `most`."""
    total, waiting = 0, [value]
    while waiting and total <= most:
        part = waiting.pop()
        total += OBJECT
        if isinstance(part, str | bytes):
            total += len(part)
        elif isinstance(part, tuple | frozenset):
            total += 8 * len(part)
            if total <= most:
                waiting.extend(part)
        elif attrs.has(type(part)):
            waiting.extend(getattr(part, field.name) for field in attrs.fields(type(part)))
    return total


@byte_bounded_memo(most=16 << 20)
def share(value: K) -> K:
    """Return the one object for this value, whatever its type is."""
    return value


intern = byte_bounded_memo(most=16 << 20, longest=512)(str)
"""Return the one object for this text; bounded, unlike `sys.intern` on some releases."""


def labels(mapping: Mapping[str, str] | None) -> Mapping[str, str]:
    return {intern(key): intern(value) for key, value in mapping.items()} if mapping else NO_LABELS


def amounts(quantities: Mapping[str, str | int | float] | None) -> Resources:
    """Return amounts by resource name without zeros; ValueError for what is no quantity, or negative."""
    if not quantities:
        return NOTHING
    resources = {}
    for name, quantity in quantities.items():
        amount = milli(str(quantity)) if name == CPU else whole(str(quantity))
        if amount < 0:
            raise ValueError(f"{name} is negative: {quantity}")
        if amount:
            resources[intern(name)] = amount
    return resources


@byte_bounded_memo()
def shared_amounts(pairs: tuple[tuple[str, int], ...]) -> Resources:
    return dict(pairs)


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


@attrs.define(eq=False, kw_only=True)
class Resource(Generic[T]):
    """
    A kind that is listed and watched. Nothing in the bytes of an object raises: any exception makes it malformed.

    Attributes:
        path: of list and watch, over all namespaces.
        shape: the struct that the bytes are decoded into; it has `metadata`.
        read: returns our value for what was decoded, None if the object counts as gone; it may raise.
        sort_key: sort key of a list's objects, so that every replica and restart sees one order.
        stand_in: returns the value of an object that cannot be read; most kinds have none, and keep the report itself.
        is_same: whether two states of an object differ in nothing that a handler has to know.
    """

    path: str
    kind: str
    shape: type[Any]
    read: Callable[[Any], T | None]
    sort_key: Callable[[T], Any]
    stand_in: Callable[[Malformed], T | Malformed] = lambda malformed: malformed
    is_same: Callable[[T, T], bool] = eq
    params: Mapping[str, str] = attrs.field(factory=dict)
    _object: "msgspec.json.Decoder[Any]" = attrs.field(init=False)
    _change: "msgspec.json.Decoder[Any]" = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._object = msgspec.json.Decoder(self.shape)
        self._change = msgspec.json.Decoder(wire.WatchChange[self.shape])  # type: ignore[name-defined]  # a type at run time

    def decode_change(self, line: bytes) -> tuple[str, Decoded[T]] | None:
        """Return the type and object of a watch line; None if only `informer.read_line` can read it."""
        try:
            change = self._change.decode(line)
            return change.type, self._read_struct(change.object)
        except Exception:  # noqa: BLE001 - RecursionError, OverflowError, or an error of ours
            return None

    def decode(self, encoded: Encoded) -> Decoded[T]:
        """Return the object, or `Malformed`; without a name if not even that can be read."""
        try:
            return self._read_struct(decode_at_once(encoded, self._object))
        except Exception as error:  # noqa: BLE001 - as above
            return self._read_malformed(encoded, error)

    def _read_malformed(self, encoded: Encoded, error: Exception) -> Decoded[T]:
        known, node_name = wire.PartialObject(wire.Identity()), ""
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # a file written by hand
            known = decode_at_once(encoded, _IDENTITY)
            node_name = decode_at_once(known.spec, _PLACED).node_name or ""
        meta = known.metadata
        key = key_of(meta.namespace, meta.name) if meta.name else ""
        malformed = Malformed(self.kind, key, _reason(error), meta.uid, intern(node_name))
        return Decoded(key, meta.uid, meta.resource_version, self.stand_in(malformed))

    def _read_struct(self, struct: Any) -> Decoded[T]:
        meta = struct.metadata
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name  # as `key_of`; a call less a watch line
        return Decoded(key, meta.uid, meta.resource_version, self.read(struct))

    def position(self, decoded: Decoded[T]) -> tuple[int, Any]:
        """Return the key by which decoded objects are sorted: those without a value of `model` come last."""
        value = decoded.value
        return (1, ()) if value is None or isinstance(value, Malformed) else (0, self.sort_key(value))

    @property
    def name(self) -> str:
        """Its plural, such as `pods`."""
        return self.path.rpartition("/")[2]

    @property
    def group(self) -> str:
        """Its API group, such as `apps`; empty for the core group."""
        return self.path.split("/")[2] if self.path.startswith("/apis/") else ""


def key_of(namespace: str, name: str) -> str:
    """Return `namespace/name`, or `name` of an object without a namespace."""
    return f"{namespace}/{name}" if namespace else name


def reference(name: str) -> str:
    """
    Return the name by which one object refers to another; what cannot be a name is made short and printable.

    The API server does not check every reference: `claimName` of a pod's volume may be a megabyte of control
    characters. Others read it in messages, Events and log lines.
    """
    return printable(name) if len(name) <= LONGEST_NAME else f"{printable(name[:LONGEST_NAME])}..."


def _reason(error: Exception) -> str:
    """Return why an object cannot be read; for an unexpected error with its type."""
    reason = str(error) if isinstance(error, ValueError | RecursionError) else f"{type(error).__name__}: {error}"
    return reason[:LONGEST_REASON]

"""
The few bodies that kubectl and Helm send only as protobuf: those of create namespace, drain, releases and the like.

A reader for these kinds only, by the field numbers of Kubernetes' `generated.proto` files. Any other kind is refused,
so no body is read in part.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

_MAGIC: Final = b"k8s\x00"
_Reader: TypeAlias = Callable[[bytes], Any]
_Schema: TypeAlias = Mapping[int, tuple[str, _Reader]]


class UnknownKindError(ValueError):
    """The body is of a kind, or in a form, that is not read here."""


def decode(raw: bytes) -> dict[str, Any]:
    """
    Return the object in a protobuf body, as its JSON would be.

    Raises:
        UnknownKindError: it is none of the kinds below, or not such a body at all.
    """
    if not raw.startswith(_MAGIC):
        raise UnknownKindError("not Kubernetes protobuf")
    try:
        envelope = dict(_fields(raw[len(_MAGIC) :]))
        type_meta = {number: _text(value) for number, value in _fields(envelope[1])}
        schema = _KINDS.get(type_meta[2])
        if schema is None:
            raise UnknownKindError(type_meta[2])
        body: dict[str, Any] = _message(schema)(envelope.get(2, b""))
    except (KeyError, IndexError, UnicodeDecodeError) as error:
        raise UnknownKindError("malformed protobuf") from error
    return {"apiVersion": type_meta[1], "kind": type_meta[2]} | body


def _fields(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each field; a varint's content is its bytes."""
    place = 0
    while place < len(raw):
        tag, place = _varint(raw, place)
        start = place
        match tag & 7:
            case 0:
                _, place = _varint(raw, place)
            case 2:
                length, start = _varint(raw, place)
                place = start + length
            case other:
                raise UnknownKindError(f"wire type {other}")
        yield tag >> 3, raw[start:place]


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _text(raw: bytes) -> str:
    return raw.decode()


def _integer(raw: bytes) -> int:
    value, _ = _varint(raw, 0)
    return value - (1 << 64) if value >= 1 << 63 else value


def _entry(raw: bytes) -> dict[str, str]:
    texts = {number: _text(value) for number, value in _fields(raw)}
    return {texts.get(1, ""): texts.get(2, "")}


def _bytes_entry(raw: bytes) -> dict[str, str]:
    contents = dict(_fields(raw))
    return {_text(contents.get(1, b"")): base64.b64encode(contents.get(2, b"")).decode()}


def _message(schema: _Schema) -> _Reader:
    """Return a reader of messages: maps are united, empty texts are left out."""

    def read(raw: bytes) -> dict[str, Any]:
        message: dict[str, Any] = {}
        for number, content in _fields(raw):
            name, reader = schema.get(number, ("", _text))
            if not name:
                continue
            value = reader(content)
            if reader in {_entry, _bytes_entry}:
                message.setdefault(name, {}).update(value)
            elif value != "":
                message[name] = value
        return message

    return read


_METADATA: Final = _message(
    {
        1: ("name", _text),
        2: ("generateName", _text),
        3: ("namespace", _text),
        5: ("uid", _text),
        6: ("resourceVersion", _text),
        11: ("labels", _entry),
        12: ("annotations", _entry),
    }
)
_PRECONDITIONS: Final = _message({1: ("uid", _text), 2: ("resourceVersion", _text)})
_DELETE_OPTIONS: Final[_Schema] = {
    1: ("gracePeriodSeconds", _integer),
    2: ("preconditions", _PRECONDITIONS),
    4: ("propagationPolicy", _text),
}
_KINDS: Final[Mapping[str, _Schema]] = {
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", _entry)},
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _message(_DELETE_OPTIONS))},
    "Namespace": {1: ("metadata", _METADATA)},
    "Secret": {1: ("metadata", _METADATA), 2: ("data", _bytes_entry), 3: ("type", _text)},
    "ServiceAccount": {1: ("metadata", _METADATA)},
}

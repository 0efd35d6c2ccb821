"""
An answer as JSON for a client: in steps, compressed if the client allows it, and only if the client does not have it.

A large fleet is megabytes; encoding it in one step would hold the scheduling loop up. The ETag says which answer it is:
a client that has it already gets 304 without a body. Does not keep an answer.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.answer_json import in_json, to_json
from neuron_scheduler.endpoints.exchange import Reply, Request
from neuron_scheduler.questions.lane import Turn

JSON: Final = "application/json"
PIECE: Final = 64 << 10
"""Bytes of JSON that are compressed in one step."""
PIECES_A_STEP: Final = 16
_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 1  # a sixteenth of the size in a tenth of the time that encoding takes
_ACCEPTS_GZIP: Final = re.compile(r"(?:^|,)\s*gzip\s*(?:;\s*q=(?:1|0\.[0-9]*[1-9])[0-9]*\s*)?(?:,|$)", re.ASCII)
_FIELDS: Final = {"Cache-Control": "no-store", "Vary": "Accept-Encoding, Authorization"}


def pieces_of(answer: attrs.AttrsInstance) -> Iterator[bytes]:
    """Yield the JSON of an answer in small pieces: an item of a tuple is one."""
    separator = b"{"
    for field in attrs.fields(type(answer)):
        value = getattr(answer, field.name)
        yield separator + msgspec.json.encode(in_json(field.name)) + b":"
        separator = b","
        if isinstance(value, Iterable) and not isinstance(value, str):
            yield from _items(value)
        else:
            yield msgspec.json.encode(_value(value))
    yield b"}"


def _items(values: Iterable[Any]) -> Iterator[bytes]:
    separator = b"["
    for value in values:
        yield separator + msgspec.json.encode(_value(value))
        separator = b","
    yield b"[]" if separator == b"[" else b"]"


def _value(value: Any) -> Any:
    return to_json(value) if attrs.has(type(value)) else value


def packed(pieces: Iterable[bytes], *, gzip: bool) -> Iterator[tuple[bytes, ...] | None]:
    """Yield None whenever other tasks may run, and at the end the pieces, larger ones, compressed if asked for."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP) if gzip else None
    packed_pieces: list[bytes] = []
    buffered: list[bytes] = []
    size = 0
    for count, piece in enumerate(pieces):
        buffered.append(piece)
        size += len(piece)
        if count % PIECES_A_STEP == 0:
            yield None
        if size >= PIECE:
            packed_pieces.append(_whole(buffered, compressor))
            buffered, size = [], 0
            yield None
    packed_pieces.append(_whole(buffered, compressor))
    if compressor is not None:
        packed_pieces.append(compressor.flush())
    yield tuple(filter(None, packed_pieces))


def _whole(pieces: list[bytes], compressor: Any) -> bytes:
    text = b"".join(pieces)
    return text if compressor is None else compressor.compress(text)


def accepts_gzip(request: Request) -> bool:
    """Return whether a client takes compressed answers."""
    return _ACCEPTS_GZIP.search(request.fields.get("accept-encoding", "").lower()) is not None


def tag(*parts: object) -> str:
    """Return the ETag of an answer that these parts identify."""
    return tag_of(repr(parts).encode())


def tag_of(*pieces: bytes) -> str:
    """Return the ETag of an answer that consists of these pieces."""
    digest = hashlib.blake2b(digest_size=12)
    for piece in pieces:
        digest.update(piece)
    return f'W/"{digest.hexdigest()}"'


def has_it(request: Request, etag: str) -> bool:
    """Return whether the client has the answer with this ETag."""
    known = request.fields.get("if-none-match", "")
    return etag in (part.strip() for part in known.split(","))


def unchanged(etag: str) -> Reply:
    """Return the answer to a client that has it."""
    return Reply(304, b"", JSON, _FIELDS | {"ETag": etag})


async def replied(request: Request, answer: attrs.AttrsInstance, turn: Turn) -> Reply:
    """Return an answer, or that the client has it."""
    gzip = accepts_gzip(request)
    pieces = await turn.last(packed(pieces_of(answer), gzip=gzip))
    etag = tag_of(*pieces)
    return unchanged(etag) if has_it(request, etag) else answered(pieces, etag=etag, gzip=gzip)


def answered(pieces: tuple[bytes, ...], *, etag: str = "", gzip: bool = False) -> Reply:
    """Return the answer that consists of these pieces."""
    fields = _FIELDS | ({"ETag": etag} if etag else {}) | ({"Content-Encoding": "gzip"} if gzip else {})
    return Reply(200, b"", JSON, fields, pieces)

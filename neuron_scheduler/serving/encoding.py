"""
An answer as JSON for a client: in steps, compressed if the client allows it, and only if the client does not have it.

A large fleet is megabytes; encoding it in one step would hold the scheduling loop up. The ETag says which answer it is:
a client that has it already gets 304 without a body.
"""

import hashlib
import re
import zlib
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from typing import Any, Final

import attrs
import msgspec
from aiohttp import web

from neuron_scheduler.explain.answers import in_json, to_json
from neuron_scheduler.serving.lane import Turn

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


def packed(pieces: Iterable[bytes], *, gzip: bool) -> Generator[None, None, tuple[bytes, ...]]:
    """Return larger pieces, compressed if asked for; yields whenever other tasks may run."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP) if gzip else None
    packed_pieces: list[bytes] = []
    buffered: list[bytes] = []
    size = 0
    for count, piece in enumerate(pieces):
        buffered.append(piece)
        size += len(piece)
        if count % PIECES_A_STEP == 0:
            yield
        if size >= PIECE:
            packed_pieces.append(_whole(buffered, compressor))
            buffered, size = [], 0
            yield
    packed_pieces.append(_whole(buffered, compressor))
    if compressor is not None:
        packed_pieces.append(compressor.flush())
    return tuple(filter(None, packed_pieces))


def _whole(pieces: list[bytes], compressor: Any) -> bytes:
    text = b"".join(pieces)
    return text if compressor is None else compressor.compress(text)


def accepts_gzip(request: web.BaseRequest) -> bool:
    """Return whether a client takes compressed answers."""
    return _ACCEPTS_GZIP.search(request.headers.get("Accept-Encoding", "").lower()) is not None


def tag(*parts: object) -> str:
    """Return the ETag of an answer that these parts identify."""
    return tag_of(repr(parts).encode())


def tag_of(*pieces: bytes) -> str:
    """Return the ETag of an answer that consists of these pieces."""
    digest = hashlib.blake2b(digest_size=12)
    for piece in pieces:
        digest.update(piece)
    return f'W/"{digest.hexdigest()}"'


def has_it(request: web.BaseRequest, etag: str) -> bool:
    """Return whether the client has the answer with this ETag."""
    known = request.headers.get("If-None-Match", "")
    return etag in (part.strip() for part in known.split(","))


def unchanged(etag: str) -> web.Response:
    """Return the answer to a client that has it."""
    return web.Response(status=304, headers={**_FIELDS, "ETag": etag})


async def replied(request: web.BaseRequest, answer: attrs.AttrsInstance, turn: Turn) -> web.Response:
    """Return an answer, or that the client has it."""
    gzip = accepts_gzip(request)
    pieces = await turn.run(packed(pieces_of(answer), gzip=gzip))
    etag = tag_of(*pieces)
    return unchanged(etag) if has_it(request, etag) else answered(pieces, etag=etag, gzip=gzip)


def answered(pieces: tuple[bytes, ...], *, etag: str, gzip: bool) -> web.Response:
    """Return the answer that consists of these pieces: a large one is encrypted and sent a piece at a time."""
    fields = {**_FIELDS, "Content-Type": JSON, "Content-Length": str(sum(map(len, pieces))), "ETag": etag}
    if gzip:
        fields["Content-Encoding"] = "gzip"
    return web.Response(body=_each(pieces), headers=fields)


async def _each(pieces: tuple[bytes, ...]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece

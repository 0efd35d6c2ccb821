"""
Read one answer of HTTP/1.1 from the pieces in which it arrives: bytes in, an `Answer` or a ValueError out.

An answer is accepted only if every byte of it is understood: if a proxy reads the same bytes in another way, the end of
one answer could be taken for the beginning of the next. `tests/kube/http/test_answer_fuzz.py` compares this with h11.
Refuses connections and their time limits (`http1`), and the meaning of a status (`client`).
"""

import re
from collections.abc import Generator, Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec

from neuron_scheduler.kube.http.pools import require_at_most

T = TypeVar("T")

MOST_HEAD: Final = 64 << 10  # bytes of a status line and headers
MOST_INTERIM: Final = 16  # answers with a status below 200 before the one that counts
MOST_CHUNK_LINE: Final = 1 << 10  # bytes before a chunk: its length and extensions

_TEXT: Final = rb"[\t -~\x80-\xff]*"
_HEAD: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: %b)?(?:\r\n[-!#$%%&'*+.^_`|~0-9A-Za-z]+:%b)*\r\n\r\n" % (_TEXT, _TEXT)
)
_FIELD: Final = re.compile(rb"\n([^:]+):([^\r]*)")
_FRAMING: Final = re.compile(rb"\n(?i:(content-length|content-encoding|transfer-encoding|connection)):([^\r]*)")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;%b)?[ \t]*" % _TEXT)
_SWITCHING: Final = 101
_WITHOUT_BODY: Final = (204, 304)

Pieces: TypeAlias = Generator[None, bytes, T]


class Answer(msgspec.Struct, frozen=True):
    """
    A whole answer.

    Attributes:
        head: the status line and the headers.
        reusable: whether the connection may carry another request.
    """

    status: int
    head: bytes
    body: bytes
    reusable: bool

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by name in lower case; of a repeated one the last."""
        return {
            name.lower().decode("latin-1"): value.strip().decode("latin-1") for name, value in _FIELD.findall(self.head)
        }


def reading(most_bytes: int) -> Pieces[Answer]:
    """
    Read one answer from the pieces that are sent in; return it when its last byte is there.

    Every byte is examined a few times at most, whatever the size of the pieces.

    Args:
        most_bytes: limit for the body, with the lengths and line ends around its chunks.

    Raises:
        ValueError: the bytes are no answer, or its end cannot be known (`TooLongError`: it is too long).
    """
    received = bytearray()
    for _ in range(MOST_INTERIM + 1):
        head = yield from _head(received)
        status, framing = int(head[2]), _framing(head)
        if status >= 200:
            break
        if status == _SWITCHING or framing.in_chunks or framing.length is not None:
            raise ValueError(f"an interim answer that changes the connection: {head[0][:60]!r}")
    else:
        raise ValueError(f"more than {MOST_INTERIM} interim answers")
    if status in _WITHOUT_BODY:
        body = b""
    elif framing.in_chunks:
        body = yield from _in_chunks(received, most_bytes)
    elif framing.length is not None:
        body = yield from _of_length(framing.length, received, most_bytes)
    else:
        raise ValueError(f"an answer with status {status} and without a length, which may be incomplete")
    return Answer(status, head[0], body, not framing.closes and not received)


def _head(received: bytearray) -> Pieces[re.Match[bytes]]:
    searched = 0
    while (end := received.find(b"\r\n\r\n", searched)) < 0 and len(received) <= MOST_HEAD:
        searched = max(0, len(received) - 3)
        received += yield
    if not 0 <= end <= MOST_HEAD:
        raise ValueError("the headers of the answer have no end")
    head = _HEAD.fullmatch(bytes(received[: end + 4]))
    if head is None:
        raise ValueError(f"not an answer of HTTP/1.1: {bytes(received[:60])!r}")
    del received[: end + 4]
    return head


class _Framing(msgspec.Struct, frozen=True):
    """What the headers say about the length of an answer, in bytes or in chunks, and whether the connection ends."""

    length: int | None = None
    in_chunks: bool = False
    closes: bool = False


def _framing(head: re.Match[bytes]) -> _Framing:
    length, in_chunks, closes = None, False, head[1] == b"0"
    for name, field in _FRAMING.findall(head[0]):
        value = field.strip().lower()
        match name.lower():
            case b"connection":
                closes = closes or b"close" in map(bytes.strip, value.split(b","))
            case b"content-encoding" if value == b"identity":
                pass
            case b"content-length" if length is None and _LENGTH.fullmatch(value):
                length = int(value)
            case b"transfer-encoding" if value == b"chunked" and head[1] == b"1" and not in_chunks:
                in_chunks = True
            case _:
                raise ValueError(f"an answer whose {name.decode()} is not supported: {value[:60]!r}")
    if in_chunks and length is not None:
        raise ValueError("an answer with both chunks and a length")
    return _Framing(length, in_chunks, closes)


def _of_length(length: int, received: bytearray, most: int) -> Pieces[bytes]:
    require_at_most(most, length)
    while len(received) < length:
        received += yield
    body = bytes(received[:length])
    del received[:length]
    return body


def _in_chunks(received: bytearray, most: int) -> Pieces[bytes]:
    body, taken = bytearray(), 0
    while True:
        while (end := received.find(b"\r\n", 0, MOST_CHUNK_LINE)) < 0 and len(received) < MOST_CHUNK_LINE:
            received += yield
        size = _CHUNK.fullmatch(received, 0, end) if end > 0 else None
        if size is None:
            raise ValueError("a chunk of the answer has no length")
        start = end + 2
        stop = start + int(size[1], 16)
        taken += stop
        require_at_most(most, taken)
        while len(received) < stop + 2:
            received += yield
        if received[stop : stop + 2] != b"\r\n":
            raise ValueError("a chunk of the answer is longer than it says, or trailers follow the last one")
        if start == stop:
            del received[: stop + 2]
            return bytes(body)
        body += received[start:stop]
        del received[: stop + 2]

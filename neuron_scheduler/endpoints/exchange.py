"""
One request and its answer as bytes: the part of HTTP/1.1 that probes and scrapers use.

A connection carries one request. Its body is read only if a page asks for it, up to the page's limit, and only by its
length. This excludes attacks on persistent connections: pipelines, chunks, two lengths. Refuses a request that it
cannot read in full.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, Protocol
from urllib.parse import parse_qs

import attrs

PLAIN_TEXT: Final = "text/plain; charset=utf-8"
NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})
METHODS: Final = ("GET", "HEAD")

_LENGTH: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_HEAD: Final = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.[01]\r\n((?:[!-9;-~]+:[^\r\n]*\r\n)*)\r\n")


class Connection(Protocol):
    """
    Where a request comes from.

    Attributes:
        peer: the client's IP address.
        encrypted: the connection uses TLS.
    """

    @property
    def peer(self) -> str: ...  # noqa: D102 - see above
    @property
    def encrypted(self) -> bool: ...  # noqa: D102

    async def read(self, count: int) -> bytes:
        """Return so many bytes after the head; fewer if the client ends before."""

    def gone(self) -> bool:
        """Return whether the client has ended the connection, as far as is known; the first call begins to look."""


@attrs.frozen
class Unconnected:
    """What a request has that came over no connection."""

    peer: str = ""
    encrypted: bool = False
    body: bytes = b""

    async def read(self, count: int) -> bytes:
        """Return the body, up to its length."""
        return self.body[:count]

    def gone(self) -> bool:
        """Return False."""
        return False


@attrs.frozen
class Request:
    """
    What a client asks for.

    Attributes:
        path: without the query, as it was sent.
        fields: the headers by name in lower case; of a repeated one the first.
        content: the body, where it has been read.
        connection: where it comes from.
    """

    method: str
    path: str
    query: str = ""
    fields: Mapping[str, str] = NO_FIELDS
    content: bytes = b""
    connection: Connection = attrs.field(default=Unconnected(), eq=False, repr=False)

    @property
    def confidential(self) -> bool:
        """Whether nobody on the way can read it: over TLS, or from this host itself, as `kubectl port-forward` is."""
        return self.connection.encrypted or _is_loopback(self.connection.peer)

    async def body(self, most: int) -> "bytes | Reply":
        """Return the body, or the refusal of a request that has none, or one of more than `most` bytes."""
        length = self.fields.get("content-length", "")
        if "transfer-encoding" in self.fields or not _LENGTH.fullmatch(length):
            return text(411, "send the body with its Content-Length\n")
        if int(length) > most:
            return text(413, f"the body has {int(length)} bytes; {most} are the most\n")
        body = await self.connection.read(int(length))
        return body if len(body) == int(length) else text(400, "the body is shorter than its Content-Length\n")

    def asks_for(self, parameter: str) -> bool:
        """Return whether the query has this parameter, with or without a value."""
        return parameter in parse_qs(self.query, keep_blank_values=True)


def read_request(head: bytes) -> Request | None:
    """Return the request in a head (including its empty line); None if the head is invalid."""
    match = _HEAD.fullmatch(head)
    if match is None:
        return None
    path, _, query = match[2].decode("ascii").partition("?")
    fields: dict[str, str] = {}
    for line in match[3].decode("latin-1").split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        fields.setdefault(name.lower(), value.strip(" \t"))
    return Request(match[1].decode("ascii"), path, query, fields)


@attrs.frozen
class Reply:
    """
    An answer.

    Attributes:
        fields: headers beside those that every answer has; printable, without line ends.
        more: what follows the body, in pieces: a large answer is made, encrypted and sent a piece at a time.
    """

    status: int
    body: bytes
    content_type: str = PLAIN_TEXT
    fields: Mapping[str, str] = NO_FIELDS
    more: Sequence[bytes] = ()

    def encode(self, *, with_body: bool = True) -> bytes:
        """Return the bytes to send first, before `more`; without the body they answer a HEAD."""
        fields = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body) + sum(map(len, self.more))),
            "X-Content-Type-Options": "nosniff",
            **self.fields,
            "Connection": "close",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{lines}\r\n".encode("latin-1")
        return head + self.body if with_body else head


Answer = Callable[[Request], Awaitable[Reply]]


@attrs.frozen
class Page:
    """
    What answers the requests for one path.

    Attributes:
        methods: those that it has; a request with another one gets 405.
    """

    answer: Answer
    methods: tuple[str, ...] = METHODS


def text(status: int, sentence: str, fields: Mapping[str, str] = NO_FIELDS) -> Reply:
    """Return an answer of plain text."""
    return Reply(status, sentence.encode(), fields=fields)


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback

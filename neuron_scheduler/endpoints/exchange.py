"""
One request and its answer as bytes: the part of HTTP/1.1 that probes and scrapers use.

A connection carries one request, whose body is not read. This excludes attacks on persistent connections: pipelines,
chunks, two lengths. Refuses a request that it cannot read in full.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qs

import attrs

PLAIN_TEXT: Final = "text/plain; charset=utf-8"
NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})
METHODS: Final = ("GET", "HEAD")

_HEAD: Final = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.[01]\r\n((?:[!-9;-~]+:[^\r\n]*\r\n)*)\r\n")


@attrs.frozen
class Request:
    """
    What a client asks for.

    Attributes:
        path: without the query, as it was sent.
        fields: the headers by name in lower case; of a repeated one the first.
    """

    method: str
    path: str
    query: str = ""
    fields: Mapping[str, str] = NO_FIELDS

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
    """

    status: int
    body: bytes
    content_type: str = PLAIN_TEXT
    fields: Mapping[str, str] = NO_FIELDS

    def encode(self, *, with_body: bool = True) -> bytes:
        """Return the bytes to send; without the body they answer a HEAD."""
        fields = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
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

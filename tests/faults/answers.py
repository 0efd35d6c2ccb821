"""
What a client gets to see of an answer: itself, another one in its place, or its bytes in part, spoilt or never.

Refuses to know whether the API server has acted: that is for `proxy`.
"""

import enum
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import aiohttp
import anyio
import attrs
from aiohttp import web

PAGE: Final = "<html><body><h1>a page of a proxy</h1></body></html>"
REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@attrs.frozen
class Whole:
    """A whole answer of the API server."""

    status: int
    body: bytes
    content_type: str = "application/json"
    retry_after: str | None = None

    def response(self) -> web.Response:
        """Return it as the proxy sends it."""
        headers = {} if self.retry_after is None else {"Retry-After": self.retry_after}
        return web.Response(status=self.status, body=self.body, headers={"Content-Type": self.content_type} | headers)

    def raw(self) -> bytes:
        """Return its bytes on the wire."""
        head = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\nContent-Type: {self.content_type}\r\n"
        return f"{head}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body


def status_object(status: int, **fields: Any) -> dict[str, Any]:
    """Return the API server's Status with this code."""
    outcome = {"status": "Success" if status < 300 else "Failure", "code": status}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **outcome, **fields}


# What a spoilt answer would have been if the request never reached the API server.
UNTRUE: Final = Whole(201, json.dumps(status_object(201)).encode())


@attrs.frozen
class Unchanged:
    """The API server's own answer."""


@attrs.frozen
class Refusal:
    """A Status of the API server; `seconds` is its Retry-After."""

    status: int
    message: str = "refused"
    seconds: int | None = None

    def whole(self) -> Whole:
        """Return it as an answer."""
        body = status_object(self.status, reason=REASONS[self.status], message=self.message)
        return Whole(
            self.status, json.dumps(body).encode(), retry_after=None if self.seconds is None else str(self.seconds)
        )


@attrs.frozen
class Page:
    """A page of HTML with any status, as a proxy, a load balancer or a captive portal answers."""

    status: int

    def whole(self) -> Whole:
        return Whole(self.status, PAGE.encode(), "text/html")


class End(enum.Enum):
    """How a connection goes on after the bytes that were sent."""

    RESET = enum.auto()
    CLOSED = enum.auto()
    SILENT = enum.auto()


@attrs.frozen
class Spoilt:
    """The bytes of the answer, changed, and then the end of the connection, or silence until the client ends it."""

    change: Callable[[bytes], bytes]
    end: End = End.CLOSED

    async def send(self, request: web.Request, raw: bytes) -> None:
        """Write to the connection itself; it is of no use afterwards."""
        transport = request.transport
        if transport is None:
            return  # the client has gone
        transport.write(self.change(raw))
        if self.end is End.SILENT:
            while not transport.is_closing():  # noqa: ASYNC110 - aiohttp has no event for the client's end
                await anyio.sleep(0.05)
        transport.abort() if self.end is End.RESET else transport.close()


Lines: TypeAlias = AsyncIterator[bytes]


@attrs.frozen
class Stream:
    """
    A watch in pieces that a function makes of the API server's lines, and then its end.

    Attributes:
        change: gets the lines of the API server's watch, and yields what the client gets.
    """

    change: Callable[[Lines], Lines]
    end: End = End.CLOSED

    async def send(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Send the pieces as they come."""
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
        with suppress(aiohttp.ClientConnectionError):
            await response.prepare(request)
            async for piece in self.change(aiter(answer.content)):
                await response.write(piece)
            transport = request.transport
            while self.end is End.SILENT and transport is not None and not transport.is_closing():  # noqa: ASYNC110
                await anyio.sleep(0.05)
            if self.end is End.RESET and transport is not None:
                transport.abort()
        return response


Answer: TypeAlias = Unchanged | Refusal | Page | Spoilt | Stream

UNCHANGED: Final = Unchanged()
CUT: Final = Spoilt(lambda _: b"", End.RESET)
SILENCE: Final = Spoilt(lambda _: b"", End.SILENT)


async def _first(lines: Lines, count: int) -> Lines:
    """Yield so many lines, or all if the API server ends its watch before."""
    while count and (line := await anext(lines, b"")):
        count -= 1
        yield line


def after_lines(count: int, *more: bytes, end: End = End.CLOSED) -> Stream:
    """Return a watch that passes on so many lines, or as many as there are, and then these bytes, and ends."""

    async def change(lines: Lines) -> Lines:
        async for line in _first(lines, count):
            yield line
        for sent in more:
            yield sent

    return Stream(change, end)


def cut_in_line(number: int, *, end: End = End.CLOSED) -> Stream:
    """Return a watch that ends in the middle of a line, the first being 1; or before, if it has fewer lines."""

    async def change(lines: Lines) -> Lines:
        async for line in _first(lines, number - 1):
            yield line
        async for line in _first(lines, 1):
            yield line[: len(line) // 2]

    return Stream(change, end)

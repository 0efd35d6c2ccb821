"""
What answers the requests for one path, and what all pages have in common: texts, refusals, and parameters.

A parameter that is not known, or that is there twice, is refused: what is misspelt is not ignored.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl

import attrs
import msgspec
from aiohttp import web

from neuron_scheduler.telemetry.errors import NeuronSchedulerError

PLAIN_TEXT: Final = "text/plain; charset=utf-8"
NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})
METHODS: Final = ("GET", "HEAD")
_MOST: Final = 64  # parameters of a query
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@attrs.frozen(eq=False)
class Page:
    """
    What answers the requests for one path.

    Attributes:
        answer: may raise RefusedError.
        methods: those that it has; a request with another one gets 405.
    """

    answer: Answer
    methods: tuple[str, ...] = METHODS

    async def answered(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer."""
        if request.method not in self.methods:
            return text(405, "405 method not allowed\n", {"Allow": ", ".join(self.methods)})
        return await self.answer(request)


def text(status: int, sentence: str, fields: Mapping[str, str] = NO_FIELDS) -> web.Response:
    """Return an answer of plain text."""
    return web.Response(status=status, body=sentence.encode(), headers={"Content-Type": PLAIN_TEXT, **fields})


class RefusedError(NeuronSchedulerError):
    """
    A request is not answered; the text says what to do about it.

    The answer's body is a `Status`, as an API server's is.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status

    def response(self) -> web.Response:
        """Return the answer to the client; one that may soon try again is told so."""
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status |= {"message": str(self), "reason": _REASONS[self.status]}
        body = msgspec.json.encode({**status, "code": self.status})
        fields = {"Retry-After": "1"} if self.status in (429, 503) else NO_FIELDS
        return web.Response(status=self.status, body=body, headers={"Content-Type": "application/json", **fields})


def parameters(query: str, known: Collection[str]) -> dict[str, str]:
    """
    Return the values of a query by name, strictly.

    Raises:
        RefusedError: a name is unknown or repeated, or there are too many.
    """
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=_MOST, errors="strict"
        )
    except ValueError as error:
        raise RefusedError(400, f"the query cannot be read: {error}") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise RefusedError(400, f"there is no parameter {name!r}; there {_are(known)}")
        if name in values:
            raise RefusedError(400, f"the parameter {name!r} is there twice")
        values[name] = value
    return values


def number(values: Mapping[str, str], name: str, *, most: int) -> int:
    """
    Return a parameter as a count from 0 to `most`; 0 if it is not there.

    Raises:
        RefusedError: it is something else.
    """
    text = values.get(name, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
        raise RefusedError(400, f"{name}={text[:20]} is no number from 0 to {most}")
    return int(text)


def _are(known: Collection[str]) -> str:
    return f"are {', '.join(sorted(known))}" if len(known) > 1 else f"is {next(iter(known), 'none here')}"

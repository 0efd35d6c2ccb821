"""
What answers the requests for one path, and what all pages have in common: texts, refusals, and parameters.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from importlib.resources import files
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
PATH: Final = "/page"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_FIELDS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # after an upgrade no browser mixes the files of two versions
}

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@attrs.frozen(eq=False)
class WebPage:
    """
    What answers the requests for one path.

    Attributes:
        answer: may raise RefusedError.
        methods: those that it has; a request with another one gets 405.
    """

    answer: Answer
    methods: tuple[str, ...] = METHODS

    async def answer_to(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in self.methods:
            return text(405, "405 method not allowed\n", {"Allow": ", ".join(self.methods)})
        return await self.answer(request)


def text(status: int, sentence: str, fields: Mapping[str, str] = NO_FIELDS) -> web.Response:
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
        status |= {"message": str(self), "reason": HTTPStatus(self.status).phrase.replace(" ", "")}
        body = msgspec.json.encode({**status, "code": self.status})
        fields = {"Retry-After": "1"} if self.status in (429, 503) else NO_FIELDS
        return web.Response(status=self.status, body=body, headers={"Content-Type": "application/json", **fields})


def parameters(query: str) -> dict[str, str]:
    """Return the values of a query by name; RefusedError if a name is repeated, or if there are too many."""
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=_MOST, errors="strict"
        )
    except ValueError as error:
        raise RefusedError(400, f"the query cannot be read: {error}") from None
    values = dict(pairs)
    if len(values) < len(pairs):
        raise RefusedError(400, "a parameter is there twice")
    return values


def fixed_page(status: int, body: bytes, fields: Mapping[str, str]) -> WebPage:
    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=fields)

    return WebPage(answer)


def page_files() -> dict[str, WebPage]:
    """
    Return what answers the requests for `/page` and what it needs, by path; `files/` has what a browser gets.

    The files are the same for everybody and hold nothing of the cluster: a browser that has them asks `/v1/...` for the
    answers, which are judged there. The policy allows no script, style or connection but our own, and no text that
    becomes HTML.
    """
    served = {f"{PATH}/": fixed_page(308, b"", {"Location": "../page"})}
    for file in files(__package__).joinpath("files").iterdir():
        path = PATH if file.name == "page.html" else f"{PATH}/{file.name}"
        content_type = _TYPES[file.name.rpartition(".")[2]]
        served[path] = fixed_page(200, file.read_bytes(), {**_FIELDS, "Content-Type": content_type})
    return served

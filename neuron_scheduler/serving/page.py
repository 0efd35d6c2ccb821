"""
The page's files, as the process serves them: `/page` and what it needs, all from this package.

The files are the same for everybody and hold nothing of the cluster: a browser that has them asks `/v1/...` for the
answers, which are judged there. The policy allows no script, style or connection but our own, and no text that becomes
HTML. What is in `files/` is what a browser gets.
"""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from aiohttp import web

from neuron_scheduler.serving.pages import Answer, Page

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
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": _POLICY,
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",  # after an upgrade no browser mixes the files of two versions
    }
)


def page_files() -> dict[str, Page]:
    """Return what answers the requests for the page and its files, by path."""
    served = {f"{PATH}/": Page(_answer(308, b"", {"Location": "../page"}))}
    for file in files(__package__).joinpath("files").iterdir():
        fields = {**_FIELDS, "Content-Type": _TYPES[file.name.rpartition(".")[2]]}
        served[PATH if file.name == "page.html" else f"{PATH}/{file.name}"] = Page(
            _answer(200, file.read_bytes(), fields)
        )
    return served


def _answer(status: int, body: bytes, fields: Mapping[str, str]) -> Answer:
    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=fields)

    return answer

"""The page's files are served with a strict policy, and hold nothing that would need a looser one."""

import re

import attrs
import pytest
from aiohttp import web

from neuron_scheduler.explain.answers import Explanation, LeavingPod, NodeGroup, SuggestedChange, Waiting, WaitingEntry
from neuron_scheduler.serving.pages import page_files
from tests.support.web_requests import answer, body_of, request

HTML = "/page"
FILES = sorted(path for path in page_files() if path != f"{HTML}/")


async def get(path: str) -> web.Response:
    return await answer(page_files()[path], request(path))


@pytest.mark.parametrize("path", FILES)
async def test_headers(path: str) -> None:
    """No other origin can be asked, no frame can show it, and each file has its type."""
    reply = await get(path)
    policy = dict(part.strip().partition(" ")[::2] for part in reply.headers["Content-Security-Policy"].split(";"))
    assert {name: value for name, value in policy.items() if value not in {"'none'", "'self'"}} == {
        "require-trusted-types-for": "'script'"
    }
    assert policy["default-src"] == policy["frame-ancestors"] == policy["trusted-types"] == "'none'"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.status == 200
    types = {"": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert reply.content_type == types[path.rpartition("/")[2].partition(".")[2]]


async def test_the_html_has_no_script_and_no_style() -> None:
    """Both are files; and every address is relative, so that the page works behind the prefix of a proxy."""
    html = (await body_of(await get(HTML))).decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", html)
    addresses = re.findall(r'(?:href|src)="([^"]*)"', html)
    assert {address for address in addresses if not address.startswith("#")} == {
        path.removeprefix("/") for path in FILES if path.endswith(("page.css", "main.js", "icon.svg"))
    }


@pytest.mark.parametrize("path", FILES)
async def test_no_other_server_is_named(path: str) -> None:
    """No file names an address but the namespace of SVG, and none makes markup of text."""
    text = (await body_of(await get(path))).decode()
    assert set(re.findall(r"https?://[^\"'\s]*", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|localStorage", text)


async def test_with_a_slash_at_the_end() -> None:
    """It leads to the page, also behind a prefix."""
    reply = await get("/page/")
    assert (reply.status, reply.headers["Location"]) == (308, "../page")


WHY = (Waiting, WaitingEntry, Explanation, NodeGroup, SuggestedChange, LeavingPod)
NOT_SHOWN = {
    *("Explanation.node_name", "Explanation.ids", "Explanation.decider"),
    *("NodeGroup.plugin",),
    *("SuggestedChange.kind", "SuggestedChange.node_name", "SuggestedChange.detail", "SuggestedChange.autoscalers"),
}
"""Their answers have a sentence that says the same, or they are for programs."""


async def test_each_field_of_an_explanation_is_shown() -> None:
    """The script of the waiting pods reads each field, but for those that other fields say in words."""
    script = "".join([(await body_of(await get(f"{HTML}/{name}.js"))).decode() for name in ("waiting", "rows")])
    unread = {
        f"{answer.__name__}.{field.name}"
        for answer in WHY
        for field in attrs.fields(answer)
        if not re.search(rf"\.{re.sub('_(.)', lambda found: found[1].upper(), field.name)}\b", script)
    }
    assert sorted(unread) == sorted(NOT_SHOWN)

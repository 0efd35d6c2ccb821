"""Lists in pages with a budget of bytes, over a real socket."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
from aiohttp import web
from hypothesis import given, strategies as st

from neuron_scheduler.errors import ApiError, ApiTimeoutError, UnreachableError
from neuron_scheduler.kube.http.stream import LONGEST
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.pager import PAGE, PAGE_BYTES, PAGE_SILENCE, Page, Pager
from neuron_scheduler.model.pod import Pod
from tests.support.scripted_server import Answer, answer, listing, refuse, scripted
from tests.support.wire_objects import pod


class Paging:
    """A server that lists its pods in the pages that are requested."""

    def __init__(self, pods: list[str]) -> None:
        self.pods = pods
        self.limits: list[int] = []

    async def page(self, request: web.Request) -> web.StreamResponse:
        """Answer with as many pods as are requested."""
        limit, start = int(request.query["limit"]), int(request.query.get("continue", 0))
        self.limits.append(limit)
        token = str(start + limit) if start + limit < len(self.pods) else ""
        metadata = json.dumps({"resourceVersion": "10", "continue": token})
        items = ",".join(self.pods[start : start + limit])
        return web.Response(text=f'{{"kind":"PodList","metadata":{metadata},"items":[{items}]}}')


async def listed(*script: Answer) -> list[Page[Pod]]:
    """Return all pages."""
    async with scripted(*script) as (_, client):
        return [page async for page in Pager(client, PODS).pages()]


def large(name: str, megabytes: float) -> str:
    """Return a pod of so many megabytes on the wire: each byte of an environment variable is escaped as six."""
    text = json.dumps(pod(name, spec={"containers": [{"name": "c", "env": [{"name": "E", "value": "HERE"}]}]}))
    return text.replace("HERE", "\\u003c" * int(megabytes * (1 << 20) / 6))


async def test_pages_are_as_large_as_their_objects_allow() -> None:
    """The size of a page determines the next limit, up and down."""
    paging = Paging(
        [*(large(f"a{number}", 1) for number in range(12)), *(json.dumps(pod(f"b{n}")) for n in range(800))]
    )
    pages = await listed(*[paging.page] * 20)

    assert sum(len(page.objects) for page in pages) == 812
    assert paging.limits[0] == PAGE
    assert all(isinstance(decoded.value, Pod) for page in pages for decoded in page.objects)


async def test_a_page_that_is_too_large_is_requested_with_a_smaller_limit() -> None:
    """It is not read to its end, and nothing is lost."""
    paging = Paging([large(f"a{number}", 6) for number in range(9)])
    pages = await listed(*[paging.page] * 20)

    assert [decoded.key for page in pages for decoded in page.objects] == [f"default/a{number}" for number in range(9)]
    assert paging.limits[:3] == [PAGE, PAGE // 8, PAGE // 64]
    assert set(paging.limits[4:]) == {1}
    assert PAGE_BYTES // (6 << 20) == 1


async def test_an_object_larger_than_any_may_be_is_malformed() -> None:
    """Its name is known, and the list continues after it."""
    paging = Paging([json.dumps(pod("a")), large("b", LONGEST / (1 << 20)), json.dumps(pod("c"))])
    objects = [decoded for page in await listed(*[paging.page] * 20) for decoded in page.objects]

    assert [decoded.key for decoded in objects] == ["default/a", "default/b", "default/c"]
    assert [isinstance(decoded.value, Malformed) for decoded in objects] == [False, True, False]


async def test_a_page_with_an_object_that_cannot_be_skipped() -> None:
    """It affects no other, and it can be read if only its managedFields are too deep."""
    deep = '{"a":' * 3000 + "{}" + "}" * 3000
    managed = json.dumps(pod("a", metadata={"managedFields": "HERE"})).replace('"HERE"', deep)
    broken = json.dumps(pod("b", spec={"nodeName": "n1", "containers": "HERE"})).replace('"HERE"', deep)
    paging = Paging([json.dumps(pod("0")), managed, broken, json.dumps(pod("c")).replace("5", "\\u0035")])
    (page,) = await listed(paging.page)

    assert [decoded.key for decoded in page.objects] == ["default/0", "default/a", "default/b", "default/c"]
    assert [isinstance(decoded.value, Pod) for decoded in page.objects] == [True, True, False, True]
    unread = page.objects[2].value
    assert isinstance(unread, Malformed)
    assert unread.node_name == "n1"
    assert (page.version, page.token) == ("10", "")


async def test_a_list_with_an_object_that_was_damaged_on_its_way_is_requested_again() -> None:
    """The next one may have it whole; after several, the object is kept as malformed, and the list has an end."""
    whole = [json.dumps(pod("a")), json.dumps(pod("b"))]
    damaged = [whole[0], whole[1].replace('"b"', '"b", "labels": {"x": tru}', 1)]
    good, bad = Paging(whole).page, Paging(damaged).page
    async with scripted(bad, good, bad, bad, bad, bad, bad) as (_, client):
        pager = Pager(client, PODS, gives_up=3)
        for complete in (False, True, False, False, False):
            if complete:
                (page,) = [page async for page in pager.pages()]
                assert not any(isinstance(read.value, Malformed) for read in page.objects)
            else:
                with pytest.raises(UnreachableError, match="default/b"):
                    _ = [page async for page in pager.pages()]
        for _again in range(2):
            (page,) = [page async for page in pager.pages()]
            assert [isinstance(read.value, Malformed) for read in page.objects] == [False, True]


@pytest.mark.parametrize(
    "damaged",
    [
        '{"kind":"PodList","metadata":{"resourceVersion":"10","contin\x01ue":"5"},"items":[%s]}',
        '{"kind":"PodList","metadata":{"resourceVersion":"10","continue":"\x01"},"items":[%s]}',
        '{"kind":"PodList","metadata":{"resourceVersion":"10","continue":tru},"items":[%s]}',
    ],
)
async def test_a_list_whose_token_was_damaged_has_not_ended(damaged: str) -> None:
    """The objects of its other pages would count as deleted, and what they hold as free."""
    with pytest.raises(UnreachableError, match="no list"):
        await listed(answer(damaged % json.dumps(pod("a"))))


@pytest.mark.parametrize("name", [b"continue", b"resourceVersion", b"metadata", b"items"])
async def test_a_list_with_a_name_that_is_no_text_has_not_ended(name: bytes) -> None:
    """The decoder would read it as if the field were absent."""
    whole = json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "10", "continue": "5"}, "items": [pod("a")]})

    async def damaged(_request: web.Request) -> web.StreamResponse:
        body = whole.encode().replace(b'"' + name + b'"', b'"' + name[:-1] + b'\xff"', 1)
        return web.Response(body=body)

    with pytest.raises(UnreachableError, match="no list"):
        await listed(damaged)


async def test_an_object_without_a_name_makes_the_list_unusable() -> None:
    """Another one would count as deleted."""
    nameless = json.dumps(pod("a")).replace('"name": "a"', '"nXme": "a"', 1)
    assert "nXme" in nameless
    with pytest.raises(UnreachableError, match="not even its name"):
        await listed(answer(f'{{"kind":"PodList","metadata":{{"resourceVersion":"10"}},"items":[{nameless}]}}'))


@attrs.define(eq=False)
class Silent:
    """A client on whose first connections nothing comes; it remembers the limits."""

    times: int
    limits: list[int] = attrs.field(factory=list)
    silences: list[float] = attrs.field(factory=list)

    @asynccontextmanager
    async def stream(self, _path: str, *, params: Mapping[str, str], read_timeout: float) -> AsyncIterator[Any]:
        """Open an answer, or none."""
        self.limits.append(int(params["limit"]))
        self.silences.append(read_timeout)
        if len(self.limits) <= self.times:
            raise ApiTimeoutError("nothing came")
        yield self

    async def whole(self, _most: int) -> bytes:
        """Return a list of nothing."""
        return b'{"kind":"PodList","metadata":{"resourceVersion":"10"},"items":[]}'


async def test_a_page_that_does_not_come_is_requested_again_at_once_and_smaller() -> None:
    """A dead connection costs ten seconds, and so does a server that is too slow for a large page."""
    client = Silent(2)
    pages = [page async for page in Pager(client, PODS).pages()]

    assert [page.version for page in pages] == ["10"]
    assert client.limits == [PAGE, PAGE // 8, PAGE // 64]
    assert set(client.silences) == {PAGE_SILENCE}


async def test_pages_that_never_come_are_given_up() -> None:
    """The informer counts a failure when even one object does not come."""
    client = Silent(100)
    with pytest.raises(ApiTimeoutError):
        _ = [page async for page in Pager(client, PODS).pages()]
    assert client.limits == [PAGE, PAGE // 8, PAGE // 64, 1]
    with pytest.raises(ApiTimeoutError):
        await Pager(client, PODS).version()


FOREIGN: dict[str, Any] = {
    "text": "<html>",
    "nothing": "",
    "a Status": {"kind": "Status", "metadata": {}, "status": "Success"},
    "an object": {"kind": "Pod", "metadata": {"name": "p", "resourceVersion": "5"}},
    "a list without a version": {"metadata": {}, "items": []},
    "a number": "3",
    "items that are no array": {"metadata": {"resourceVersion": "10"}, "items": {}},
    "no objects but a map": {"metadata": {"resourceVersion": "10"}, "items": {"a": {"metadata": {"name": "a"}}}},
    "a list of another kind": {"kind": "NodeList", "metadata": {"resourceVersion": "10"}, "items": []},
    "a kind that is none": {"kind": 5, "metadata": {"resourceVersion": "10"}, "items": []},
    "half a list": '{"metadata": {"resourceVersion": "10"}, "items": [{"metadata": {"name": "a"}}, {"meta',
}


@pytest.mark.parametrize("sentence", FOREIGN)
async def test_an_answer_that_is_no_list_is_no_empty_list(sentence: str) -> None:
    """A proxy answers with 200 too; an empty list would free everything."""
    with pytest.raises(UnreachableError, match="is no list"):
        await listed(answer(FOREIGN[sentence]))


@given(st.binary() | st.binary().map(lambda noise: b'{"metadata":{"resourceVersion":"1"},"items":[{"a":' + noise))
async def test_any_body(body: bytes) -> None:
    """Only our own errors are raised."""

    class Nobody:
        def stream(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

    try:
        page = await Pager(Nobody(), PODS)._page(body)
    except UnreachableError:
        return
    assert page.version


@pytest.mark.parametrize(
    "script",
    [
        [listing(pod("a"), token="t"), listing(pod("b"), token="t")],
        [listing(pod("a"), token="t"), listing(pod("b"), token="u"), listing(pod("c"), token="t")],
        [listing(token="t")],
    ],
    ids=["one token", "a ring of tokens", "no objects"],
)
async def test_a_list_without_an_end(script: list[Answer]) -> None:
    """A list that cannot end is given up: it would take all memory without a message."""
    with pytest.raises(UnreachableError, match="has no end"):
        await listed(*script)


async def test_a_429_does_not_lose_the_pages_before() -> None:
    """The same page is requested again."""
    busy = refuse(429, headers={"Retry-After": "0"})
    pages = await listed(listing(pod("a"), token="t"), busy, listing(pod("b")))

    assert [decoded.key for page in pages for decoded in page.objects] == ["default/a", "default/b"]
    with pytest.raises(ApiError, match="403"):
        await listed(refuse(403))


async def test_the_current_version() -> None:
    """One object is enough to read it."""
    async with scripted(listing(pod("a"), version="77", token="t")) as (server, client):
        assert await Pager(client, PODS).version() == "77"

    assert server.seen[0].query["limit"] == "1"

"""Lists in pages of so many bytes, over a real socket."""

import json
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, strategies as st

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.http.stream import LONGEST
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.pager import PAGE, PAGE_BYTES, Page, Pager
from neuron_scheduler.model.pod import Pod
from tests.support.scripted_server import Answer, answer, listing, refuse, scripted
from tests.support.wire_objects import pod


class Shop:
    """A server that pages through pods as it is asked to."""

    def __init__(self, pods: list[str]) -> None:
        self.pods = pods
        self.limits: list[int] = []

    async def page(self, request: web.Request) -> web.StreamResponse:
        """Answer with as many pods as are asked for."""
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
    """A pod whose text is so long on the wire: each byte of an environment variable is escaped as six."""
    found = json.dumps(pod(name, spec={"containers": [{"name": "c", "env": [{"name": "E", "value": "HERE"}]}]}))
    return found.replace("HERE", "\\u003c" * int(megabytes * (1 << 20) / 6))


async def test_pages_are_as_large_as_their_objects_allow() -> None:
    """From what a page had the next limit follows, up and down."""
    shop = Shop([*(large(f"a{number}", 1) for number in range(12)), *(json.dumps(pod(f"b{n}")) for n in range(800))])
    pages = await listed(*[shop.page] * 20)

    assert sum(len(page.objects) for page in pages) == 812
    assert shop.limits[0] == PAGE
    assert all(isinstance(found.value, Pod) for page in pages for found in page.objects)


async def test_a_page_that_is_too_large_is_asked_for_with_a_smaller_limit() -> None:
    """It is not read to its end, and nothing is lost."""
    shop = Shop([large(f"a{number}", 6) for number in range(9)])
    pages = await listed(*[shop.page] * 20)

    assert [found.key for page in pages for found in page.objects] == [f"default/a{number}" for number in range(9)]
    assert shop.limits[:3] == [PAGE, PAGE // 8, PAGE // 64]
    assert set(shop.limits[4:]) == {1}
    assert PAGE_BYTES // (6 << 20) == 1


async def test_an_object_larger_than_any_may_be_is_set_aside() -> None:
    """Its name is known, and the list goes on behind it."""
    shop = Shop([json.dumps(pod("a")), large("b", LONGEST / (1 << 20)), json.dumps(pod("c"))])
    found = [one for page in await listed(*[shop.page] * 20) for one in page.objects]

    assert [one.key for one in found] == ["default/a", "default/b", "default/c"]
    assert [isinstance(one.value, Malformed) for one in found] == [False, True, False]


async def test_a_page_with_an_object_that_cannot_be_skipped() -> None:
    """It costs only itself, and if managedFields is the fault, not even that."""
    deep = '{"a":' * 3000 + "{}" + "}" * 3000
    managed = json.dumps(pod("a", metadata={"managedFields": "HERE"})).replace('"HERE"', deep)
    broken = json.dumps(pod("b", spec={"nodeName": "n1", "containers": "HERE"})).replace('"HERE"', deep)
    shop = Shop([json.dumps(pod("0")), managed, broken, json.dumps(pod("c")).replace("5", "\\u0035")])
    (page,) = await listed(shop.page)

    assert [found.key for found in page.objects] == ["default/0", "default/a", "default/b", "default/c"]
    assert [isinstance(found.value, Pod) for found in page.objects] == [True, True, False, True]
    unread = page.objects[2].value
    assert isinstance(unread, Malformed)
    assert unread.node_name == "n1"
    assert (page.version, page.token) == ("10", "")


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
async def test_what_is_no_list_is_not_taken_for_an_empty_one(sentence: str) -> None:
    """A proxy answers with 200 as well; an empty list would free everything."""
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
async def test_pages_that_lead_nowhere(script: list[Answer]) -> None:
    """A list that cannot end is given up: it would take all memory, and nothing would be said."""
    with pytest.raises(UnreachableError, match="has no end"):
        await listed(*script)


async def test_patience_does_not_cost_the_pages_before() -> None:
    """A server under load is asked for the same page again."""
    busy = refuse(429, headers={"Retry-After": "0"})
    pages = await listed(listing(pod("a"), token="t"), busy, listing(pod("b")))

    assert [found.key for page in pages for found in page.objects] == ["default/a", "default/b"]
    with pytest.raises(ApiError, match="403"):
        await listed(refuse(403))


async def test_the_version_of_now() -> None:
    """One object is enough to learn it."""
    async with scripted(listing(pod("a"), version="77", token="t")) as (server, client):
        assert await Pager(client, PODS).version() == "77"

    assert server.seen[0].query["limit"] == "1"

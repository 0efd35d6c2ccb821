"""List and watch over a real socket, with everything that can go wrong."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest import mock

import anyio
import anyio.lowlevel
import attrs
import pytest
from aiohttp import web

from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.http.pools import READ_BUFFER
from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch import informer as informer_module
from neuron_scheduler.kube.watch.informer import (
    LARGEST_PAGE,
    LONGEST_PAUSE,
    MOST_SILENT,
    PAGE,
    PAGE_BYTES,
    PAGE_SILENCE,
    SHORT_WATCH,
    STALE,
    WATCH_SECONDS,
    WATCH_SLACK,
    Informer,
    pages,
    read_line,
)
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.errors import ApiError, ApiTimeoutError, UnreachableError
from tests.support.informers import informer_of
from tests.support.patience import PATIENCE
from tests.support.scripted_server import (
    Answer,
    Scripted,
    answer,
    bookmark,
    error_event,
    event,
    listing,
    refuse,
    reset,
    scripted,
    watching,
)
from tests.support.wire_objects import pod


@attrs.define(eq=False)
class Log:
    """A handler that records its calls."""

    lines: list[str] = attrs.field(factory=list)
    informer: Informer[Pod] | None = None

    def on_added(self, new: Pod | Node) -> None:
        self.lines.append(f"+{new.name}")

    def on_updated(self, old: Pod | Node, new: Pod | Node) -> None:
        """Record it."""
        assert old.uid == new.uid
        self.lines.append(f"~{new.name}")

    def on_deleted(self, old: Pod | Node) -> None:
        """Record it, with the version in which it has happened."""
        self.lines.append(f"-{old.name}" + (f" at {self.informer.version}" if self.informer else ""))

    def on_malformed(self, malformed: Malformed) -> None:
        self.lines.append(f"?{malformed.key}")

    def on_malformed_gone(self, malformed: Malformed) -> None:
        self.lines.append(f"!{malformed.key}")

    @contextmanager
    def listing(self) -> Iterator[None]:
        """Record when the handing over of a list begins and ends."""
        self.lines.append("(")
        yield
        self.lines.append(")")


@asynccontextmanager
async def running(informer: Informer[Any]) -> AsyncIterator[None]:
    """Run an informer as long as the block lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informer.run)
        with anyio.fail_after(PATIENCE):
            yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def informed(*script: Answer, **options: Any) -> AsyncIterator[tuple[Scripted, Log, Informer[Pod]]]:
    """Run an informer of pods against the script until the script has ended."""
    log = Log()
    async with scripted(*script) as (server, client):
        informer = informer_of(client, log, random=lambda: 0.5, **options)
        async with running(informer):
            await server.ended.wait()
            yield server, log, informer


async def cycles(number: int, *script: Answer, **options: Any) -> tuple[list[float], Informer[Pod]]:
    """Return how many seconds an informer would wait after each of so many lists and watches, and the informer."""
    async with scripted(*script) as (_, client):
        informer = informer_of(client, Log(), **options)
        return [await informer._cycle() for _ in range(number)], informer


def at(version: str, name: str, *, created: str = "2026-11-21T08:00:00Z", **changes: Any) -> dict[str, Any]:
    """Return a pod of that name, version and age."""
    return pod(name, metadata={"resourceVersion": version, "creationTimestamp": created}, **changes)


def hours() -> Any:
    """Return a clock for which each look takes hours."""
    times = iter(range(0, 10_000_000, 10_000))
    return lambda: next(times)


# -- lists and watches --


async def test_list_and_watch() -> None:
    """The list is followed by a watch from its version, with bookmarks and a time limit drawn at random."""
    changes = watching(
        event("ADDED", at("11", "b")),
        event("MODIFIED", at("12", "b", spec={"nodeName": "n"})),
        event("MODIFIED", at("13", "b", spec={"nodeName": "n"})),
        event("DELETED", at("14", "a")),
        bookmark("20"),
    )
    async with informed(listing(at("9", "a")), changes) as (server, log, informer):
        assert log.lines == ["+a", "+b", "~b", "-a"]
        assert informer.synced.is_set()
        assert (informer.lists, informer.watches, informer.events) == (1, 1, 4)

    first, watch, again = server.seen[:3]
    only = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    assert {**only, "limit": "500"} == first.query
    assert {
        **only,
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "10",
        "timeoutSeconds": "17",
    } == watch.query
    assert again.query["resourceVersion"] == "20"


async def test_the_end_of_an_informer() -> None:
    """All objects are deleted, readable or not."""
    bad = at("1", "bad", spec={"containers": 3})
    async with informed(listing(at("9", "a"), bad), watching(event("ADDED", at("11", "b")))) as (_, log, informer):
        informer.life.cancel()
        while len(informer):
            await anyio.lowlevel.checkpoint()
        assert sorted(log.lines[3:]) == ["!default/bad", "-a", "-b"]


async def test_the_version_of_a_change() -> None:
    """A pod that ends arrives as deleted; the handler can read the version, of an event or of a list."""
    gone = watching(event("DELETED", at("14", "a")), bookmark("15"), error_event(410))
    script = (listing(at("9", "a"), at("9", "b"), version="10"), gone, listing(version="20"))
    log = Log()
    async with scripted(*script) as (server, client):
        log.informer = informer_of(client, log)
        async with running(log.informer):
            await server.ended.wait()
    assert log.lines == ["+a", "+b", "-a at 14", "-b at 20"]


async def test_pages_in_the_order_of_creation() -> None:
    """All pages are read, and handed over oldest first, whatever their order."""
    young, old = at("1", "a"), at("2", "b", created="2020-01-01T00:00:00Z")
    async with informed(listing(young, token="next"), listing(old)) as (server, log, _):
        assert log.lines == ["+b", "+a"]

    assert [request.query.get("continue", "") for request in server.seen[:2]] == ["", "next"]


async def test_a_second_list_keeps_what_is_known() -> None:
    """Were all objects held twice until the list is handed over, a large cluster's would be too many."""
    script = (listing(at("1", "a"), at("2", "b")), watching(error_event(410)), listing(at("1", "a"), at("3", "b")))
    async with scripted(*script) as (server, client):
        informer = informer_of(client, Log())
        replace, listed = informer._replace, list[Pod | Malformed | None]()

        async def note(pages: list[list[Decoded[Pod]]]) -> None:
            listed.extend(decoded.value for page in pages for decoded in page)
            await replace(pages)

        with mock.patch.object(Informer, "_replace", side_effect=note):
            async with running(informer):
                await server.ended.wait()
    first, second = listed[:2], listed[2:]
    assert [old is new for old, new in zip(first, second, strict=True)] == [False, True]  # the youngest first


async def test_an_expired_continue_token() -> None:
    """The rest of the list is lost, so the list starts again."""
    async with informed(listing(at("1", "a"), token="t"), refuse(410, "Expired"), listing(at("1", "b"))) as running:
        server, log, _ = running
        assert log.lines == ["+b"]

    assert [request.query.get("continue") for request in server.seen[:3]] == [None, "t", None]


async def test_malformed_objects_are_skipped() -> None:
    """One bad object affects no other, in a list and in a watch."""
    bad = at("1", "bad", spec={"containers": 3})
    changes = watching(
        event("MODIFIED", at("11", "a", spec={"containers": 3})),
        event("ADDED", at("12", "b")),
        event("DELETED", at("13", "a", spec={"containers": 3})),
        event("MODIFIED", at("14", "bad")),
    )
    async with informed(listing(bad, at("1", "a")), changes) as (_, log, _informer):
        assert log.lines == ["+a", "?default/bad", "?default/a", "+b", "-a", "!default/a", "+bad", "!default/bad"]


# -- what ends a watch, and when there is a list --

DEAD_ENDS: dict[str, Answer] = {
    "410 by status": refuse(410, "Expired"),
    "410 by event": watching(error_event(410)),
    "a server that lags behind": refuse(504, "Timeout", "Too large resource version: 10, current: 5"),
    "500": watching(error_event(500, "etcdserver: internal error")),
    "403": watching(error_event(403)),
    "no JSON": watching(b"<html>bad gateway</html>\n"),
    "an object without a name": watching(event("DELETED", {"metadata": 3})),
}


@pytest.mark.parametrize("sentence", DEAD_ENDS)
async def test_a_dead_end_is_listed_again(sentence: str) -> None:
    """The next watch from the same version would end as this one; what was missed is found by comparison."""
    failed: list[str] = []
    script = listing(at("1", "a"), at("1", "b")), DEAD_ENDS[sentence], listing(at("2", "b"), at("3", "c"))
    async with informed(*script, on_failure=failed.append) as (server, log, informer):
        assert log.lines == ["+a", "+b", "+c", "-a"]
        assert informer.lists == 2

    assert "watch" not in server.seen[2].query
    assert failed[0] == "pods"


UNHARMED: dict[str, Answer] = {
    "closed at once": watching(),
    "reset": reset,
    "aborted in the stream": watching(bookmark("10"), then="abort"),
    "a truncated line": watching(event("ADDED", at("11", "x"))[:-20]),
    "502 in text": answer("bad\ngateway", status=502),
    "429": refuse(429, "TooManyRequests"),
    "500": refuse(500),
    "an ERROR event that asks us to wait": watching(error_event(429, "later")),
    "a blank line": watching(b"\n"),
    "unauthorised once": refuse(401),
}


@pytest.mark.parametrize("sentence", UNHARMED)
async def test_a_broken_watch_continues_from_the_last_version(sentence: str) -> None:
    """No event is invented, none is lost, and nothing is listed again."""
    async with informed(listing(at("1", "a")), UNHARMED[sentence], watching(event("ADDED", at("12", "b")))) as running:
        server, log, informer = running
        assert log.lines == ["+a", "+b"]
        assert informer.lists == 1

    assert server.seen[2].query["resourceVersion"] == "10"


TROUBLE: dict[str, Answer] = {
    "a truncated line": watching(event("ADDED", at("11", "x"))[:-20]),
    "a line without end": watching(b'{"type": "ADDED", "object": "' + b"x" * (2 * READ_BUFFER) + b'"}\n'),
    "cut": watching(then="abort"),
    "closed at once": watching(),
    "500": refuse(500),
    "403": refuse(403),
}


@pytest.mark.parametrize("sentence", TROUBLE)
async def test_a_repeated_failure_is_listed_again(sentence: str) -> None:
    """A version is given up after three failed watches in a row."""
    script = [listing(at("1", "a")), *[TROUBLE[sentence]] * 3, listing(at("1", "a"), at("2", "b"))]
    async with informed(*script) as (server, log, informer):
        assert log.lines == ["+a", "+b"]
        assert informer.lists == 2

    assert [request.query.get("resourceVersion") for request in server.seen[:5]] == [None, "10", "10", "10", None]


async def test_silence_is_not_trusted_for_ever() -> None:
    """A proxy that forwards nothing and closes in time looks like a quiet resource, except for the bookmarks."""
    quiet = [watching()] * MOST_SILENT
    async with informed(listing(), *quiet, listing(at("1", "a")), clock=hours()) as (_, log, informer):
        assert log.lines == ["+a"]
        assert informer.lists == 2


# -- pauses, and what is said about failures --


async def test_the_pauses_keep_the_promise() -> None:
    """
    A pod is bound within 30 s after the last fault, whether that was a silent watch, a refusal or a dead connection.

    A replica that starts lists everything, and only then waits for the end of a Lease whose holder has died.
    """
    assert WATCH_SECONDS + WATCH_SECONDS // 3 + WATCH_SLACK + 2 * Backoff(lambda: 0.0).first < 30
    assert max(LONGEST_PAUSE, PAGE_SILENCE) + Config().leader_elect_lease_duration < 30


async def test_dead_ends_are_no_storm_of_lists() -> None:
    """If the watch fails after every list, lists become rare, although each of them is progress."""
    script = [step for _ in range(6) for step in (listing(), watching(error_event(500)))]
    waits, _ = await cycles(6, *script, backoff=Backoff(lambda: 0.0))

    assert waits[-4:] == [3.2, 6.4, 12.8, 25.6]


async def test_lists_that_fail_after_a_dead_end_are_no_progress() -> None:
    """A version that was given up is no progress: failures are counted, pauses grow, and the view becomes stale."""
    now, waits = 0.0, []
    async with scripted(listing(at("1", "a")), watching(error_event(410)), *[reset] * 6) as (_, client):
        backoff = Backoff(lambda: 0.0, first=1.0, most=30.0)
        informer = informer_of(client, Log(), backoff=backoff, clock=lambda: now)
        for _ in range(7):
            now += STALE
            waits.append(await informer._cycle())

    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert informer.is_stale


async def test_retry_after_is_honoured() -> None:
    """The server's Retry-After overrides a shorter backoff."""
    waits, _ = await cycles(1, listing(), refuse(429, headers={"Retry-After": "7"}))
    assert waits == [7.0]


async def test_pauses_grow_until_there_is_progress() -> None:
    """A server that closes at once does not get a thousand requests a second."""
    closed = [listing(), *[watching()] * 2, watching(bookmark("11"))]
    waits, _ = await cycles(3, *closed, backoff=Backoff(lambda: 0.0, first=1.0, most=30.0))
    assert waits == [1.0, 2.0, 1.0]


async def test_a_view_that_failed_for_minutes_is_stale() -> None:
    """A replica is then not ready; one list that succeeds makes it ready again."""
    now = 0.0
    script = listing(), watching(error_event(500)), refuse(500), listing(), watching(bookmark("11"))
    async with scripted(*script) as (_, client):
        informer = informer_of(client, Log(), clock=lambda: now)
        assert not informer.is_stale
        for _ in range(2):
            await informer._cycle()
        now = STALE
        assert not informer.is_stale
        now += 1
        assert informer.is_stale
        await informer._cycle()
        assert not informer.is_stale


FAILURES: dict[str, tuple[Answer, str, bool]] = {
    "not served": (answer("404 page not found\n", status=404), "the API server does not serve it; remove what", True),
    "no right": (
        refuse(403, "Forbidden", "for nobody else to read"),
        "the right to list or watch it is missing;",
        True,
    ),
    "no identity": (refuse(401, "Unauthorized"), "the API server does not accept our credentials (401);", True),
    "an error": (refuse(500, message="for nobody else to read"), "the answer was 500; see the log", False),
    "a page": (answer("<html/>"), "no usable answer came; see the log", False),
}


@pytest.mark.parametrize("sentence", FAILURES)
async def test_a_list_that_fails_says_why(sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    """What is wrong and what to do is in our own words, and in the log if it is known; a success ends it."""
    failing, words, known = FAILURES[sentence]
    async with scripted(failing, failing, failing, listing(at("1", "a")), watching(bookmark("12"))) as (_, client):
        informer = informer_of(client, Log())
        assert informer.description == "/api/v1/pods"
        for _ in range(3):
            await informer._cycle()
            assert informer.description.startswith(f"/api/v1/pods ({words}")
            assert "for nobody else" not in informer.description
        assert not informer.synced.is_set()
        (*_, last) = (vars(record)["pairs"] for record in caplog.records if record.message == "Watch failed")
        assert (last["resource"], last["failures"]) == ("/api/v1/pods", 3)
        assert last.get("hint", "").startswith(words) == known
        await informer._cycle()
        assert informer.synced.is_set()
        assert informer.description == "/api/v1/pods"


async def test_a_flood_lets_others_run() -> None:
    """Other tasks run while thousands of events are handled."""
    turns = 0
    lines = [event("ADDED", at("11", f"p{number}")) for number in range(3000)]
    log = Log()
    async with scripted(listing(), watching(b"".join(lines))) as (server, client), running(informer_of(client, log)):
        while not server.ended.is_set():
            turns += 0 < len(log.lines) < 3000
            await anyio.lowlevel.checkpoint()

    assert len(log.lines) == 3000
    assert turns >= 20


# -- lines of a watch --


async def test_a_deep_object_in_a_line() -> None:
    """It is read without its depths, wherever the type is in the line."""
    deep = '{"f:a": ' * 20_000 + "{}" + "}" * 20_000
    text = json.dumps(pod("p", metadata={"managedFields": "HERE"})).replace('"HERE"', deep)
    for line in (f'{{"type": "ADDED", "object": {text}}}\n', f'{{"object": {text}, "type": "ADDED"}}\n'):
        assert PODS.decode_change(line.encode()) is None
        assert await read_line(PODS, line.encode()) == ("ADDED", PODS.decode(json.dumps(pod("p")).encode()))


# -- pages of a list --


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


async def listed(*script: Answer) -> list[Sequence[Decoded[Pod]]]:
    async with scripted(*script) as (_, client):
        return [objects async for objects, _ in pages(client, PODS)]


def large(name: str, megabytes: float) -> str:
    """Return a pod of so many megabytes on the wire: each byte of an environment variable is escaped as six."""
    text = json.dumps(pod(name, spec={"containers": [{"name": "c", "env": [{"name": "E", "value": "HERE"}]}]}))
    return text.replace("HERE", "\\u003c" * int(megabytes * (1 << 20) / 6))


async def test_pages_are_as_large_as_their_objects_allow() -> None:
    """The size of a page determines the next limit, up and down."""
    paging = Paging(
        [*(large(f"a{number}", 1) for number in range(12)), *(json.dumps(pod(f"b{n}")) for n in range(3_000))]
    )
    pages = await listed(*[paging.page] * 20)

    assert sum(map(len, pages)) == 3_012
    assert paging.limits[0] == PAGE
    assert min(paging.limits) < PAGE < max(paging.limits) == LARGEST_PAGE
    assert all(isinstance(decoded.value, Pod) for page in pages for decoded in page)


async def test_a_page_that_is_too_large_is_requested_with_a_smaller_limit() -> None:
    """It is not read to its end, and nothing is lost."""
    paging = Paging([large(f"a{number}", 6) for number in range(9)])
    pages = await listed(*[paging.page] * 20)

    assert [decoded.key for page in pages for decoded in page] == [f"default/a{number}" for number in range(9)]
    assert paging.limits[:3] == [PAGE, PAGE // 8, PAGE // 64]
    assert set(paging.limits[4:]) == {1}
    assert PAGE_BYTES // (6 << 20) == 1


async def test_objects_of_any_depth() -> None:
    """They affect no other, and can be read if only what we do not read is too deep."""
    deep = '{"a":' * 20_000 + "{}" + "}" * 20_000
    managed = json.dumps(pod("a", metadata={"managedFields": "HERE"})).replace('"HERE"', deep)
    broken = json.dumps(pod("b", spec={"nodeName": "n1", "containers": "HERE"})).replace('"HERE"', deep)
    half = json.dumps(pod("h", metadata={"managedFields": "\ud800"}))
    paging = Paging([json.dumps(pod("0")), managed, broken, half, json.dumps(pod("c")).replace("5", "\\u0035")])
    async with scripted(paging.page) as (_, client):
        ((page, version),) = [each async for each in pages(client, PODS)]

    assert [decoded.key for decoded in page] == [f"default/{name}" for name in "0abhc"]
    assert [isinstance(decoded.value, Pod) for decoded in page] == [True, True, False, True, True]
    unread = page[2].value
    assert isinstance(unread, Malformed)
    assert unread.node_name == "n1"
    assert version == "10"


@attrs.define(eq=False)
class Silent:
    """A client on whose first connections nothing comes; it remembers the limits."""

    times: int
    limits: list[int] = attrs.field(factory=list)

    @asynccontextmanager
    async def stream(self, _path: str, *, params: Mapping[str, str], read_timeout: float) -> AsyncIterator[Any]:
        """Open an answer, or none."""
        assert read_timeout == PAGE_SILENCE
        self.limits.append(int(params["limit"]))
        if len(self.limits) <= self.times:
            raise ApiTimeoutError("nothing came")
        yield self

    async def whole(self, _most: int) -> bytes:
        return b'{"kind":"PodList","metadata":{"resourceVersion":"10"},"items":null}'


async def test_a_page_that_does_not_come_is_requested_again_at_once_and_smaller() -> None:
    """
    A dead connection costs ten seconds, and so does a server that is too slow for a large page.

    When even one object does not come, the informer counts a failure.
    """
    client: Any = Silent(2)
    assert [version async for _, version in pages(client, PODS)] == ["10"]
    assert client.limits == [PAGE, PAGE // 8, PAGE // 64]
    client = Silent(100)
    with pytest.raises(ApiTimeoutError):
        _ = [page async for page in pages(client, PODS)]
    assert client.limits == [PAGE, PAGE // 8, PAGE // 64, 1]


FOREIGN: dict[str, Any] = {
    "a page": "<html>",
    "an object": {"kind": "Pod", "metadata": {"name": "p", "resourceVersion": "5"}},
    "half a list": '{"metadata": {"resourceVersion": "10"}, "items": [{"metadata": {"name": "a"}}, {"meta',
}


@pytest.mark.parametrize("sentence", FOREIGN)
async def test_an_answer_that_is_no_list_is_no_empty_list(sentence: str) -> None:
    """An empty list would free everything."""
    with pytest.raises(UnreachableError, match="is no list"):
        await listed(answer(FOREIGN[sentence]))


async def test_a_429_does_not_lose_the_pages_before() -> None:
    """The same page is requested again."""
    busy = refuse(429, headers={"Retry-After": "0"})
    found = await listed(listing(pod("a"), token="t"), busy, listing(pod("b")))

    assert [decoded.key for page in found for decoded in page] == ["default/a", "default/b"]
    with pytest.raises(ApiError, match="403"):
        await listed(refuse(403))


async def test_few_objects_are_listed_again_after_a_takeover() -> None:
    """One consistent list, which began after the call, is handled before it returns, as a unit; its pages count."""
    log, script = Log(), (listing(at("1", "a"), token="t"), listing(), watching(then="silent"), listing(at("2", "b")))
    async with scripted(*script) as (_, client):
        informer = informer_of(client, log, listing=log.listing)
        async with running(informer):
            while not informer.watches:
                await anyio.lowlevel.checkpoint()
            assert informer.pages == 2
            await informer.catch_up()
            assert log.lines == ["(", "+a", ")", "(", "+b", "-a", ")"]
            assert informer.pages == 1


@pytest.mark.parametrize("shown", [bookmark("7"), event("ADDED", at("8", "b"))], ids=["a bookmark", "an event"])
async def test_a_takeover_waits_until_the_watch_has_shown_the_version_of_now(
    monkeypatch: pytest.MonkeyPatch, shown: bytes
) -> None:
    """Nothing is listed; a short watch has its bookmark soon, and a long one follows."""
    monkeypatch.setattr(informer_module, "MANY", 1)
    monkeypatch.setattr(informer_module, "LISTED", 1 / PATIENCE)
    log, soon = Log(), anyio.Event()

    async def short_watch(request: web.Request) -> web.StreamResponse:
        """Show an older version first."""
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(bookmark("6"))
        await soon.wait()
        await response.write(shown)
        await anyio.sleep_forever()
        return response

    script = (listing(at("1", "a"), version="5"), watching(then="silent"), listing(at("1", "a"), version="7"))
    async with scripted(*script, short_watch, watching(then="silent")) as (server, client):
        informer = informer_of(client, log)
        async with running(informer), anyio.create_task_group() as tasks:
            while not informer.watches:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(informer.catch_up)
            while informer.version != "6":  # noqa: ASYNC110 - the informer's state
                await anyio.sleep(0.01)
            assert informer.watches == 2
            soon.set()
            while informer.watches < 3:  # noqa: ASYNC110 - the informer's state
                await anyio.sleep(0.01)
        asked = [(seen.query.get("limit"), seen.query.get("timeoutSeconds", "")) for seen in server.seen]
        assert informer.lists == 1
        assert (asked[2], asked[3]) == (("1", ""), (None, str(SHORT_WATCH)))
        assert int(asked[4][1]) >= WATCH_SECONDS


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(listing(version="9"), id="the watch does not show it"),
        pytest.param(listing(version="4"), id="versions have begun anew"),
        pytest.param(listing(version="none"), id="no number"),
        pytest.param(refuse(500), id="an error"),
        pytest.param(answer("no list"), id="no list"),
    ],
)
async def test_a_takeover_lists_if_the_watch_does_not_show_it_in_time(
    monkeypatch: pytest.MonkeyPatch, now: Answer
) -> None:
    """So nothing that was committed before is missed."""
    monkeypatch.setattr(informer_module, "MANY", 1)
    monkeypatch.setattr(informer_module, "LISTED", 20)
    monkeypatch.setattr(informer_module, "HEALTHY", 0.0)
    log = Log()

    async def follow(request: web.Request) -> web.StreamResponse:
        """Answer each later watch with an older bookmark, each list with another pod."""
        step = watching(bookmark("8"), then="silent") if "watch" in request.query else listing(at("10", "b"))
        return await (now if request.query.get("limit") == "1" else step)(request)

    async with scripted(listing(at("1", "a"), version="5"), watching(then="silent"), *[follow] * 10) as (_, client):
        informer = informer_of(client, log)
        async with running(informer):
            while not informer.watches:
                await anyio.lowlevel.checkpoint()
            await informer.catch_up()
            assert (log.lines, informer.lists) == (["+a", "+b", "-a"], 2)


async def test_other_tasks_run_while_very_many_deletions_are_handed_over() -> None:
    """After a watch that lost them, as when it begins anew after 410."""
    pods, seen = [at("1", f"p{number}") for number in range(100)], set[int]()
    script = (listing(*pods), watching(error_event(410)), listing(version="20"), watching(then="silent"))
    async with scripted(*script) as (_, client):
        informer = informer_of(client, Log())
        async with running(informer):
            while informer.lists < 2:
                if informer.lists:
                    seen.add(len(informer))
                await anyio.lowlevel.checkpoint()
    assert {25, 50, 75} < seen

"""List and watch over a real socket, with everything that can go wrong on the way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
from aiohttp import web

from neuron_scheduler.kube.http.backoff import Backoff
from neuron_scheduler.kube.http.pools import CONNECT_TIMEOUT
from neuron_scheduler.kube.http.stream import LONGEST
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.informer import MOST_SILENT, STALE, WATCH_SECONDS, WATCH_SLACK, Informer
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
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
from tests.support.wire_objects import node, pod


@attrs.define(eq=False)
class Told:
    """A handler that writes down what it is told."""

    lines: list[str] = attrs.field(factory=list)
    informer: Informer[Pod] | None = None

    def added(self, new: Pod | Node) -> None:
        """Write it down."""
        self.lines.append(f"+{new.name}")

    def updated(self, old: Pod | Node, new: Pod | Node) -> None:
        """Write it down."""
        assert old.uid == new.uid
        self.lines.append(f"~{new.name}")

    def deleted(self, old: Pod | Node) -> None:
        """Write it down."""
        self.lines.append(f"-{old.name}{self._version()}")

    def malformed(self, found: Malformed) -> None:
        """Write it down."""
        self.lines.append(f"?{found.key}")

    def mended(self, found: Malformed) -> None:
        """Write it down."""
        self.lines.append(f"!{found.key}")

    def _version(self) -> str:
        return "" if self.informer is None else f" at {self.informer.version}"


@asynccontextmanager
async def informed(*script: Answer, **options: Any) -> AsyncIterator[tuple[Scripted, Told, Informer[Pod]]]:
    """Run an informer of pods against the script until the script has ended."""
    told = Told()
    async with scripted(*script) as (server, client):
        backoff = Backoff(lambda: 0.0, first=0.001, most=0.002)
        informer = Informer(client=client, resource=PODS, handler=told, random=lambda: 0.5, backoff=backoff, **options)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(10):
                await server.ended.wait()
            yield server, told, informer
            tasks.cancel_scope.cancel()


def at(version: str, name: str, *, created: str = "2026-11-21T08:00:00Z", **changes: Any) -> dict[str, Any]:
    """A pod of that name, version and age."""
    return pod(name, metadata={"resourceVersion": version, "creationTimestamp": created}, **changes)


async def test_list_and_watch() -> None:
    """The list is followed by a watch from its version, with bookmarks and a time limit drawn at random."""
    changes = watching(
        event("ADDED", at("11", "b")),
        event("MODIFIED", at("12", "b", spec={"nodeName": "n"})),
        event("MODIFIED", at("13", "b", spec={"nodeName": "n"})),
        event("DELETED", at("14", "a")),
        bookmark("20"),
    )
    async with informed(listing(at("9", "a")), changes) as (server, told, informer):
        assert told.lines == ["+a", "+b", "~b", "-a"]
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
        "timeoutSeconds": "35",
    } == watch.query
    assert again.query["resourceVersion"] == "20"


async def test_the_version_of_what_is_handed_over() -> None:
    """A pod that ends arrives as deleted; the handler can tell at which version, be it an event's or a list's."""
    told = Told()
    gone = watching(event("DELETED", at("14", "a")), bookmark("15"), error_event(410))
    script = (listing(at("9", "a"), at("9", "b"), version="10"), gone, listing(version="20"), watching())
    async with scripted(*script) as (server, client):
        told.informer = Informer(client=client, resource=PODS, handler=told, backoff=Backoff(lambda: 0.0, most=0.002))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told.informer.run)
            with anyio.fail_after(10):
                await server.ended.wait()
            tasks.cancel_scope.cancel()
    assert told.lines == ["+a", "+b", "-a at 14", "-b at 20"]


async def test_pages_in_the_order_of_creation() -> None:
    """All pages are read, and handed over oldest first whatever their order."""
    young, old = at("1", "a"), at("2", "b", created="2020-01-01T00:00:00Z")
    pages = listing(young, token="next"), listing(old)
    async with informed(*pages) as (server, told, _):
        assert told.lines == ["+b", "+a"]

    assert [seen.query.get("continue", "") for seen in server.seen[:2]] == ["", "next"]


async def test_an_expired_continue_token() -> None:
    """The rest of the list is lost, so it is begun again."""
    async with informed(listing(at("1", "a"), token="t"), refuse(410, "Expired"), listing(at("1", "b"))) as found:
        server, told, _ = found
        assert told.lines == ["+b"]

    assert [seen.query.get("continue") for seen in server.seen[:3]] == [None, "t", None]


async def test_one_big_page() -> None:
    """A server that ignores the limit is read all the same."""
    async with informed(listing(*(at("1", f"p{number:04}") for number in range(1500)))) as (_, told, informer):
        assert 1500 == len(told.lines) == len(informer)


@pytest.mark.parametrize("how", [refuse(410, "Expired"), watching(error_event(410))], ids=["status", "event"])
async def test_an_expired_version_is_listed_anew(how: Answer) -> None:
    """By status or by ERROR event; what was missed is found by comparing."""
    async with informed(listing(at("1", "a"), at("1", "b")), how, listing(at("2", "b"), at("3", "c"))) as found:
        server, told, informer = found
        assert told.lines == ["+a", "+b", "+c", "-a"]
        assert informer.lists == 2

    assert "watch" not in server.seen[2].query


UNHARMED: dict[str, Answer] = {
    "closed at once": watching(),
    "reset": reset,
    "aborted in the stream": watching(bookmark("10"), then="abort"),
    "a truncated line": watching(event("ADDED", at("11", "x"))[:-20]),
    "502 in text": answer("bad\ngateway", status=502),
    "429": refuse(429, "TooManyRequests"),
    "500": refuse(500),
    "an ERROR event that asks for patience": watching(error_event(429, "later")),
    "a blank line": watching(b"\n"),
    "unauthorised for a moment": refuse(401),
}


@pytest.mark.parametrize("sentence", UNHARMED)
async def test_a_broken_watch_goes_on_from_the_last_version(sentence: str) -> None:
    """No event is made up, none is lost, and nothing is listed again."""
    async with informed(listing(at("1", "a")), UNHARMED[sentence], watching(event("ADDED", at("12", "b")))) as found:
        server, told, informer = found
        assert told.lines == ["+a", "+b"]
        assert informer.lists == 1

    assert server.seen[2].query["resourceVersion"] == "10"


DEAD_ENDS: dict[str, bytes] = {
    "500": error_event(500, "etcdserver: internal error"),
    "403": error_event(403),
    "an error that is no Status": event("ERROR", [1]),
    "no JSON": b"<html>bad gateway</html>\n",
    "JSON that is no event": b"[1, 2]\n",
    "an unknown type": event("SIGHTED", {}),
    "invalid UTF-8": b'{"type": "ADDED", "object": {"metadata": \xff}}\n',
    "a nameless line without end": b'{"type": "ADDED", "object": "' + b"x" * (LONGEST + 1) + b'"}\n',
    "half a line in the middle": event("ADDED", pod("x"))[:-30] + b"\n",
}


@pytest.mark.parametrize("sentence", DEAD_ENDS)
async def test_a_line_that_leads_nowhere_is_listed_anew(sentence: str) -> None:
    """It would come again from the same version; what it was about is found by comparing."""
    failed: list[str] = []
    script = listing(at("1", "a")), watching(DEAD_ENDS[sentence]), listing(at("1", "a"), at("2", "b"))
    async with informed(*script, on_failure=failed.append) as (server, told, informer):
        assert told.lines == ["+a", "+b"]
        assert informer.lists == 2

    assert "watch" not in server.seen[2].query
    assert failed[0] == "pods"


TROUBLE: dict[str, Answer] = {
    "a truncated line": watching(event("ADDED", at("11", "x"))[:-20]),
    "cut": watching(then="abort"),
    "closed at once": watching(),
    "500": refuse(500),
    "403": refuse(403),
    "an event from before, and then half a line": watching(
        event("MODIFIED", at("10", "a")), event("ADDED", at("11", "x"))[:-20]
    ),
}


@pytest.mark.parametrize("sentence", TROUBLE)
async def test_trouble_that_stays_is_listed_anew(sentence: str) -> None:
    """A version from which three watches in a row came to nothing is given up."""
    script = [listing(at("1", "a")), *[TROUBLE[sentence]] * 3, listing(at("1", "a"), at("2", "b"))]
    async with informed(*script) as (server, told, informer):
        assert told.lines == ["+a", "+b"]
        assert informer.lists == 2

    assert [seen.query.get("resourceVersion") for seen in server.seen[:5]] == [None, "10", "10", "10", None]


async def test_dead_ends_are_no_storm_of_lists() -> None:
    """A watch that is bad after every list makes the lists rare, although each of them is progress."""
    waits: list[float] = []

    @attrs.define(eq=False)
    class Counting(Backoff):
        """Remembers its waits, and waits for nothing."""

        def next(self, *, at_least: float | None = None) -> float:
            """Remember."""
            waits.append(super().next(at_least=at_least))
            return 0.0

    script = [step for _ in range(6) for step in (listing(), watching(error_event(500)))]
    backoff = Counting(lambda: 0.0)
    async with scripted(*script) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=Told(), backoff=backoff)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(10):
                await server.ended.wait()
            tasks.cancel_scope.cancel()

    assert {1.6, 3.2, 6.4, 12.8} <= set(waits)


async def test_a_version_from_the_future_is_listed_anew() -> None:
    """The server answers it with silence; what its version is now tells."""
    times = iter([10_000.0 * step for step in range(100)])
    script = listing(at("0", "x")), watching(), listing(version="5"), listing(at("1", "a"), version="5")
    async with informed(*script, clock=lambda: next(times)) as (server, told, _informer):
        assert told.lines == ["+x", "+a", "-x"]

    assert server.seen[2].query["limit"] == "1"


async def test_silence_where_nothing_happens_is_not_listed_anew() -> None:
    """A server has no bookmark to send for a resource that did not change since it was listed."""
    times = iter([10_000.0 * step for step in range(100)])
    script = listing(at("1", "a")), watching(), listing(at("1", "a"), version="11"), watching()
    async with informed(*script, clock=lambda: next(times)) as (server, _told, informer):
        assert informer.lists == 1

    assert server.seen[3].query["resourceVersion"] == "10"


async def test_a_silent_watch_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing depends on the server to close a watch: a proxy may have forgotten it, and keep the connection."""
    monkeypatch.setattr("neuron_scheduler.kube.watch.informer.WATCH_SECONDS", 0)
    monkeypatch.setattr("neuron_scheduler.kube.watch.informer.WATCH_SLACK", 0.05)
    silent = watching(event("ADDED", at("11", "b")), then="silent")
    script = listing(), silent, watching(then="silent"), listing(at("11", "b"), at("12", "c"))
    async with informed(*script) as (server, told, informer):
        assert told.lines == ["+b", "+c"]
        assert informer.lists == 2

    assert [seen.query.get("resourceVersion") for seen in server.seen[:4]] == [None, "10", "11", None]


async def test_silence_is_not_trusted_for_ever() -> None:
    """A proxy that passes nothing on and closes in time looks like a quiet resource, but for the bookmarks."""
    times = iter([10_000.0 * step for step in range(200)])
    quiet = [step for _ in range(MOST_SILENT) for step in (watching(), listing(version="11"))]
    async with informed(listing(), *quiet, listing(at("1", "a")), clock=lambda: next(times)) as (_, told, informer):
        assert told.lines == ["+a"]
        assert informer.lists == 2


def test_a_silent_watch_is_given_up_within_a_minute() -> None:
    """The longest watch, the slack, the wait before the next and the time to connect."""
    longest = WATCH_SECONDS + WATCH_SECONDS // 3 + WATCH_SLACK
    assert longest + 2 * Backoff(lambda: 0.0).first + CONNECT_TIMEOUT < 60


async def test_what_failed_for_minutes_is_stale() -> None:
    """A replica says that it is not ready; a list that succeeds is enough to be ready again."""
    now = 0.0
    failing = [watching(error_event(500)), refuse(500), refuse(500), refuse(500)]
    reached = anyio.Event()

    async def pause(request: web.Request) -> web.StreamResponse:
        reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with scripted(listing(), *failing, pause) as (_, client):
        backoff = Backoff(lambda: 0.0, first=0.001, most=0.002)
        informer = Informer(client=client, resource=PODS, handler=Told(), backoff=backoff, clock=lambda: now)
        assert not informer.stale
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(10):
                await reached.wait()
            now = STALE
            assert not informer.stale
            now += 1
            assert informer.stale
            tasks.cancel_scope.cancel()


async def test_lists_that_fail_after_a_dead_end_are_no_progress() -> None:
    """The version that was given up is none that moved on: failures are counted, pauses grow, and the view is stale."""
    now, waits = 0.0, []
    failing = [reset] * 6
    async with scripted(listing(at("1", "a")), watching(error_event(410)), *failing) as (_, client):
        backoff = Backoff(lambda: 0.0, first=1.0, most=30.0)
        informer = Informer(client=client, resource=PODS, handler=Told(), backoff=backoff, clock=lambda: now)
        for _ in range(1 + len(failing)):
            now += STALE
            waits.append(await informer._cycle())

    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert informer._failures == 1 + len(failing)
    assert informer.stale


async def test_a_too_large_version_is_listed_anew() -> None:
    """After a restore of etcd the server says so."""
    error = refuse(504, "Timeout", "Too large resource version: 10, current: 5")
    async with informed(listing(), error, listing(at("1", "a"))) as (_, told, _informer):
        assert told.lines == ["+a"]


async def test_retry_after_is_honoured() -> None:
    """The server's wish outweighs our own backoff."""
    waits: list[float] = []

    class Counting(Backoff):
        """Remembers what was asked for, and waits for nothing."""

        def next(self, *, at_least: float | None = None) -> float:
            """Remember."""
            waits.append(at_least or 0.0)
            return 0.0

    busy = refuse(429, headers={"Retry-After": "7"})
    told = Told()
    async with scripted(listing(), busy) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=told, backoff=Counting(lambda: 0.0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(10):
                await server.ended.wait()
            tasks.cancel_scope.cancel()

    assert waits[0] == 7.0


async def test_backoff_grows_until_there_is_progress() -> None:
    """A server that hangs up at once is not asked a thousand times a second."""
    backoff = Backoff(lambda: 0.0, first=0.001, most=0.5)
    told = Told()
    async with scripted(listing(), watching(), watching(), watching(), watching(bookmark("11"))) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=told, backoff=backoff)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(10):
                while len(server.seen) < 4:
                    await anyio.lowlevel.checkpoint()
                assert backoff.next() >= 0.004
                await server.ended.wait()
            tasks.cancel_scope.cancel()


async def test_malformed_objects_are_set_aside() -> None:
    """One bad object costs only itself, in a list and in a watch."""
    bad = at("1", "bad", spec={"containers": 3})
    changes = watching(
        event("MODIFIED", at("11", "a", spec={"containers": 3})),
        event("ADDED", at("12", "b")),
        event("DELETED", at("13", "a", spec={"containers": 3})),
        event("MODIFIED", at("14", "bad")),
    )
    async with informed(listing(bad, at("1", "a")), changes) as (_, told, _informer):
        assert told.lines == ["+a", "?default/bad", "?default/a", "+b", "-a", "!default/a", "+bad", "!default/bad"]


async def test_a_deletion_of_something_unreadable_is_listed_anew() -> None:
    """If nobody can say what is gone, comparing finds out."""
    gone = watching(event("DELETED", {"metadata": 3}))
    async with informed(listing(at("1", "a"), at("1", "b")), gone, listing(at("1", "b"))) as (_, told, _informer):
        assert told.lines == ["+a", "+b", "-a"]


async def test_a_list_that_is_no_list() -> None:
    """Garbage in place of a list is tried again, and nothing is taken for empty."""
    async with informed(listing(at("1", "a")), refuse(410), answer("<html>"), listing(at("1", "a"))) as found:
        _, told, informer = found
        assert told.lines == ["+a"]
        assert informer.lists == 2


async def test_nodes_too() -> None:
    """The same machinery serves another resource."""
    told = Told()
    async with scripted(listing(node("n2"), node("n1"))) as (server, client):
        informer = Informer(client=client, resource=NODES, handler=told)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(10):
                await informer.synced.wait()
            tasks.cancel_scope.cancel()

    assert told.lines == ["+n1", "+n2"]
    assert server.seen[0].path == "/api/v1/nodes"


async def test_resync_lists_anew() -> None:
    """After a takeover one consistent list, begun after the call, is handled before it returns."""
    told = Told()
    script = listing(at("1", "a")), watching(then="silent"), listing(at("2", "b")), watching(then="silent")
    async with scripted(*script) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=told)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(10):
                await informer.synced.wait()
                while not informer.watches:
                    await anyio.lowlevel.checkpoint()
                await informer.resync()
                assert told.lines == ["+a", "+b", "-a"]
            tasks.cancel_scope.cancel()

    assert "resourceVersion" not in server.seen[2].query


async def test_a_flood_lets_others_run() -> None:
    """The event loop breathes while thousands of events are handled."""
    turns = 0
    lines = [event("ADDED", at("1", f"p{number}")) for number in range(3000)]
    told = Told()
    async with scripted(listing(), watching(b"".join(lines))) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=told)

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 0 < len(told.lines) < 3000
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            tasks.start_soon(count)
            with anyio.fail_after(30):
                await server.ended.wait()
            tasks.cancel_scope.cancel()

    assert len(told.lines) == 3000
    assert turns >= 20

"""List and watch over a real socket, with everything that can go wrong."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
from aiohttp import web

from neuron_scheduler.kube.http.backoff import Backoff
from neuron_scheduler.kube.http.stream import LONGEST
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.informer import MOST_SILENT, STALE, WATCH_SECONDS, WATCH_SLACK, Informer
from neuron_scheduler.kube.watch.pager import PAGE_SILENCE
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.settings.config import Config
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
from tests.support.wire_objects import node, pod


@attrs.define(eq=False)
class Log:
    """A handler that records its calls."""

    lines: list[str] = attrs.field(factory=list)
    informer: Informer[Pod] | None = None

    def added(self, new: Pod | Node) -> None:
        """Record it."""
        self.lines.append(f"+{new.name}")

    def updated(self, old: Pod | Node, new: Pod | Node) -> None:
        """Record it."""
        assert old.uid == new.uid
        self.lines.append(f"~{new.name}")

    def deleted(self, old: Pod | Node) -> None:
        """Record it."""
        self.lines.append(f"-{old.name}{self._version()}")

    def malformed(self, malformed: Malformed) -> None:
        """Record it."""
        self.lines.append(f"?{malformed.key}")

    def no_longer_malformed(self, malformed: Malformed) -> None:
        """Record it."""
        self.lines.append(f"!{malformed.key}")

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Record when the handing over of a list begins and ends."""
        self.lines.append("(")
        yield
        self.lines.append(")")

    def _version(self) -> str:
        return "" if self.informer is None else f" at {self.informer.version}"


@asynccontextmanager
async def informed(*script: Answer, **options: Any) -> AsyncIterator[tuple[Scripted, Log, Informer[Pod]]]:
    """Run an informer of pods against the script until the script has ended."""
    log = Log()
    async with scripted(*script) as (server, client):
        backoff = Backoff(lambda: 0.0, first=0.001, most=0.002)
        informer = Informer(client=client, resource=PODS, handler=log, random=lambda: 0.5, backoff=backoff, **options)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(PATIENCE):
                await server.ended.wait()
            yield server, log, informer
            tasks.cancel_scope.cancel()


def at(version: str, name: str, *, created: str = "2026-11-21T08:00:00Z", **changes: Any) -> dict[str, Any]:
    """Return a pod of that name, version and age."""
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


async def test_the_version_of_a_change() -> None:
    """A pod that ends arrives as deleted; the handler can read the version, of an event or of a list."""
    log = Log()
    gone = watching(event("DELETED", at("14", "a")), bookmark("15"), error_event(410))
    script = (listing(at("9", "a"), at("9", "b"), version="10"), gone, listing(version="20"), watching())
    async with scripted(*script) as (server, client):
        log.informer = Informer(client=client, resource=PODS, handler=log, backoff=Backoff(lambda: 0.0, most=0.002))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.informer.run)
            with anyio.fail_after(PATIENCE):
                await server.ended.wait()
            tasks.cancel_scope.cancel()
    assert log.lines == ["+a", "+b", "-a at 14", "-b at 20"]


async def test_pages_in_the_order_of_creation() -> None:
    """All pages are read, and handed over oldest first, whatever their order."""
    young, old = at("1", "a"), at("2", "b", created="2020-01-01T00:00:00Z")
    pages = listing(young, token="next"), listing(old)
    async with informed(*pages) as (server, log, _):
        assert log.lines == ["+b", "+a"]

    assert [request.query.get("continue", "") for request in server.seen[:2]] == ["", "next"]


async def test_an_expired_continue_token() -> None:
    """The rest of the list is lost, so the list starts again."""
    async with informed(listing(at("1", "a"), token="t"), refuse(410, "Expired"), listing(at("1", "b"))) as running:
        server, log, _ = running
        assert log.lines == ["+b"]

    assert [request.query.get("continue") for request in server.seen[:3]] == [None, "t", None]


async def test_one_big_page() -> None:
    """The answer of a server that ignores the limit is read too."""
    async with informed(listing(*(at("1", f"p{number:04}") for number in range(1500)))) as (_, log, informer):
        assert 1500 == len(log.lines) == len(informer)


@pytest.mark.parametrize("expiry", [refuse(410, "Expired"), watching(error_event(410))], ids=["status", "event"])
async def test_an_expired_version_is_listed_again(expiry: Answer) -> None:
    """By status or by ERROR event; missed changes are found by comparison."""
    async with informed(listing(at("1", "a"), at("1", "b")), expiry, listing(at("2", "b"), at("3", "c"))) as running:
        server, log, informer = running
        assert log.lines == ["+a", "+b", "+c", "-a"]
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
async def test_a_dead_end_is_listed_again(sentence: str) -> None:
    """The line would come again from the same version; its change is found by comparison."""
    failed: list[str] = []
    script = listing(at("1", "a")), watching(DEAD_ENDS[sentence]), listing(at("1", "a"), at("2", "b"))
    async with informed(*script, on_failure=failed.append) as (server, log, informer):
        assert log.lines == ["+a", "+b"]
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
async def test_a_repeated_failure_is_listed_again(sentence: str) -> None:
    """A version is given up after three failed watches in a row."""
    script = [listing(at("1", "a")), *[TROUBLE[sentence]] * 3, listing(at("1", "a"), at("2", "b"))]
    async with informed(*script) as (server, log, informer):
        assert log.lines == ["+a", "+b"]
        assert informer.lists == 2

    assert [request.query.get("resourceVersion") for request in server.seen[:5]] == [None, "10", "10", "10", None]


DAMAGED = event("ADDED", pod("x", metadata={"labels": {"x": "HERE"}})).replace(b'"HERE"', b"tru")


@pytest.mark.parametrize("line", [error_event(500), DAMAGED], ids=["500", "damaged on its way"])
async def test_dead_ends_are_no_storm_of_lists(line: bytes) -> None:
    """If the watch fails after every list, lists become rare, although each of them is progress."""
    waits: list[float] = []

    @attrs.define(eq=False)
    class Counting(Backoff):
        """Records its waits, and does not wait."""

        def next(self, *, at_least: float | None = None) -> float:
            """Record it."""
            waits.append(super().next(at_least=at_least))
            return 0.0

    script = [step for _ in range(6) for step in (listing(), watching(line))]
    backoff = Counting(lambda: 0.0)
    async with scripted(*script) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=Log(), backoff=backoff)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(PATIENCE):
                await server.ended.wait()
            tasks.cancel_scope.cancel()

    assert {1.6, 3.2, 6.4, 12.8} <= set(waits)


DAMAGE: dict[str, bytes] = {
    "no json": DAMAGED,
    "an earlier version": event("ADDED", at("9", "x")),
    "a bookmark of an earlier version": bookmark("9"),
    "no version": event("ADDED", at("", "x")),
    "no number": bookmark("12x"),
    "no uid": event("ADDED", at("12", "x")).replace(b'"uid-x"', b'""'),
    "a field of a damaged name": event("ADDED", at("12", "x")).replace(b'"uid"', b'"ui\xff"'),
    "two objects": event("ADDED", at("12", "x"))[:-1] + event("ADDED", at("13", "y")),
}


@pytest.mark.parametrize("sentence", DAMAGE)
async def test_what_was_damaged_on_its_way_is_listed_again(sentence: str) -> None:
    """Nothing of the line is believed, and the watch is not opened again at its version, or before it."""
    script = [
        listing(at("1", "a")),
        watching(event("ADDED", at("11", "b")), DAMAGE[sentence], event("ADDED", at("14", "z"))),
        listing(at("1", "a"), at("12", "c"), version="15"),
        watching(event("ADDED", at("16", "d"))),
    ]
    async with informed(*script) as (server, log, _informer):
        assert log.lines == ["+a", "+b", "+c", "-b", "+d"]

    assert [request.query.get("resourceVersion") for request in server.seen[:4]] == [None, "10", None, "15"]


async def test_a_version_from_the_future_is_listed_again() -> None:
    """The server answers it with silence; its current version shows why."""
    times = iter([10_000.0 * step for step in range(100)])
    script = listing(at("0", "x")), watching(), listing(version="5"), listing(at("1", "a"), version="5")
    async with informed(*script, clock=lambda: next(times)) as (server, log, _informer):
        assert log.lines == ["+x", "+a", "-x"]

    assert server.seen[2].query["limit"] == "1"


@pytest.mark.parametrize("version", ["²", "9" * 5_000], ids=["no digit", "no number"])
async def test_a_version_that_is_no_number(version: str) -> None:
    """A proxy has damaged it: it cannot be compared, and the watch goes on."""
    times = iter([10_000.0 * step for step in range(100)])
    script = listing(at("1", "a")), watching(), listing(version=version), watching(event("ADDED", at("11", "b")))
    async with informed(*script, clock=lambda: next(times)) as (_server, log, _informer):
        assert log.lines == ["+a", "+b"]


async def test_silence_where_nothing_happens_is_not_listed_again() -> None:
    """A server sends no bookmark for a resource that did not change since it was listed."""
    times = iter([10_000.0 * step for step in range(100)])
    script = listing(at("1", "a")), watching(), listing(at("1", "a"), version="11"), watching()
    async with informed(*script, clock=lambda: next(times)) as (server, _log, informer):
        assert informer.lists == 1

    assert server.seen[3].query["resourceVersion"] == "10"


async def test_a_silent_watch_is_given_up() -> None:
    """We do not depend on the server to close a watch: a proxy may have dropped it and kept the connection."""
    watches: list[anyio.CancelScope] = []

    def time_limit(seconds: float) -> anyio.CancelScope:
        assert seconds == 17 + WATCH_SLACK
        watches.append(anyio.CancelScope())
        return watches[-1]

    log = Log()
    silent = watching(event("ADDED", at("11", "b")), then="silent")
    script = listing(), silent, watching(then="silent"), listing(at("11", "b"), at("12", "c"))
    async with scripted(*script) as (server, client):
        backoff = Backoff(lambda: 0.0, first=0.001, most=0.002)
        informer = Informer(
            client=client, resource=PODS, handler=log, time_limit=time_limit, random=lambda: 0.5, backoff=backoff
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(PATIENCE):
                while not log.lines:
                    await anyio.lowlevel.checkpoint()
                watches[0].deadline = anyio.current_time()
                while informer.watches < 2:
                    await anyio.lowlevel.checkpoint()
                watches[1].deadline = anyio.current_time()
                await server.ended.wait()
            tasks.cancel_scope.cancel()

    assert log.lines == ["+b", "+c"]
    assert informer.lists == 2
    assert [request.query.get("resourceVersion") for request in server.seen[:4]] == [None, "10", "11", None]


async def test_silence_is_not_trusted_for_ever() -> None:
    """A proxy that forwards nothing and closes in time looks like a quiet resource, except for the bookmarks."""
    times = iter([10_000.0 * step for step in range(200)])
    quiet = [step for _ in range(MOST_SILENT) for step in (watching(), listing(version="11"))]
    async with informed(listing(), *quiet, listing(at("1", "a")), clock=lambda: next(times)) as (_, log, informer):
        assert log.lines == ["+a"]
        assert informer.lists == 2


def test_a_silent_watch_is_given_up_within_half_a_minute() -> None:
    """The longest watch, the slack and the wait before the next."""
    longest = WATCH_SECONDS + WATCH_SECONDS // 3 + WATCH_SLACK
    assert longest + 2 * Backoff(lambda: 0.0).first < 30


async def test_a_start_after_long_failures_keeps_the_promise() -> None:
    """
    A replica that starts lists everything, and then waits for the end of a Lease whose holder has died.

    A pod is bound within 30 s after the last fault, whether that fault was a refusal or a dead connection.
    """
    async with scripted() as (_, client):
        backoff = Informer(client=client, resource=PODS, handler=Log()).backoff
        longest = max(backoff.next() for _ in range(100))
        assert max(longest, PAGE_SILENCE) + Config().leader_elect_lease_duration < 30


async def test_a_view_that_failed_for_minutes_is_stale() -> None:
    """A replica is then not ready; one list that succeeds makes it ready again."""
    now = 0.0
    failing = [watching(error_event(500)), refuse(500), refuse(500), refuse(500)]
    reached = anyio.Event()

    async def pause(request: web.Request) -> web.StreamResponse:
        reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with scripted(listing(), *failing, pause) as (_, client):
        backoff = Backoff(lambda: 0.0, first=0.001, most=0.002)
        informer = Informer(client=client, resource=PODS, handler=Log(), backoff=backoff, clock=lambda: now)
        assert not informer.stale
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(PATIENCE):
                await reached.wait()
            now = STALE
            assert not informer.stale
            now += 1
            assert informer.stale
            tasks.cancel_scope.cancel()


FAILURES: dict[str, tuple[Answer, str, bool]] = {
    "not served": (answer("404 page not found\n", status=404), "the API server does not serve it; remove what", True),
    "no right": (
        refuse(403, "Forbidden", "for nobody else to read"),
        "the right to list or watch it is missing;",
        True,
    ),
    "no identity": (refuse(401, "Unauthorized"), "the API server does not accept our credentials (401);", True),
    "an error": (refuse(500, message="for nobody else to read"), "the API server answered 500; see the log", False),
    "a proxy's 401": (answer("<html/>", status=401), "the answer 401 may be a proxy's; see the log", False),
    "a proxy's 403": (answer("<html/>", status=403), "the answer 403 may be a proxy's; see the log", False),
    "a proxy's 404": (answer("<html/>", status=404), "the answer 404 may be a proxy's; see the log", False),
    "a proxy's 502": (answer("bad gateway", status=502), "the answer 502 may be a proxy's; see the log", False),
    "a page": (answer("<html/>"), "no usable answer came; see the log", False),
}


@pytest.mark.parametrize("sentence", FAILURES)
async def test_a_list_that_fails_says_why(sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    """What is wrong and what to do is in our own words, and in the log if it is known; a success ends it."""
    failing, words, known = FAILURES[sentence]
    async with scripted(failing, failing, failing, listing(at("1", "a")), watching()) as (_, client):
        backoff = Backoff(lambda: 0.0, first=0.001, most=0.002)
        informer = Informer(client=client, resource=PODS, handler=Log(), backoff=backoff)
        assert informer.described == "/api/v1/pods"
        for _ in range(3):
            await informer._cycle()
            assert informer.described.startswith(f"/api/v1/pods ({words}")
            assert "for nobody else" not in informer.described
        assert not informer.synced.is_set()
        (*_, last) = (vars(record)["pairs"] for record in caplog.records if record.message == "Watch failed")
        assert (last["resource"], last["failures"]) == ("/api/v1/pods", 3)
        assert last.get("hint", "").startswith(words) == known
        await informer._cycle()
        assert informer.synced.is_set()


async def test_a_success_ends_what_was_wrong() -> None:
    """A list that is handled is a success, whatever becomes of the watch after it."""
    async with scripted(refuse(403), listing(at("1", "a")), watching(bookmark("12"))) as (_, client):
        informer = Informer(client=client, resource=PODS, handler=Log())
        await informer._cycle()
        assert informer.problem
        await informer._cycle()
        assert informer.described == "/api/v1/pods"


async def test_lists_that_fail_after_a_dead_end_are_no_progress() -> None:
    """A version that was given up is no progress: failures are counted, pauses grow, and the view becomes stale."""
    now, waits = 0.0, []
    failing = [reset] * 6
    async with scripted(listing(at("1", "a")), watching(error_event(410)), *failing) as (_, client):
        backoff = Backoff(lambda: 0.0, first=1.0, most=30.0)
        informer = Informer(client=client, resource=PODS, handler=Log(), backoff=backoff, clock=lambda: now)
        for _ in range(1 + len(failing)):
            now += STALE
            waits.append(await informer._cycle())

    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert informer._failures == 1 + len(failing)
    assert informer.stale


async def test_a_too_large_version_is_listed_again() -> None:
    """The server answers so after a restore of etcd."""
    error = refuse(504, "Timeout", "Too large resource version: 10, current: 5")
    async with informed(listing(), error, listing(at("1", "a"))) as (_, log, _informer):
        assert log.lines == ["+a"]


async def test_retry_after_is_honoured() -> None:
    """The server's Retry-After overrides a shorter backoff."""
    waits: list[float] = []

    class Counting(Backoff):
        """Records the server's requests, and does not wait."""

        def next(self, *, at_least: float | None = None) -> float:
            """Record it."""
            waits.append(at_least or 0.0)
            return 0.0

    busy = refuse(429, headers={"Retry-After": "7"})
    log = Log()
    async with scripted(listing(), busy) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=log, backoff=Counting(lambda: 0.0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(PATIENCE):
                await server.ended.wait()
            tasks.cancel_scope.cancel()

    assert waits[0] == 7.0


async def test_backoff_grows_until_there_is_progress() -> None:
    """A server that closes at once does not get a thousand requests a second."""
    backoff = Backoff(lambda: 0.0, first=0.001, most=0.5)
    log = Log()
    async with scripted(listing(), watching(), watching(), watching(), watching(bookmark("11"))) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=log, backoff=backoff)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(PATIENCE):
                while len(server.seen) < 4:
                    await anyio.lowlevel.checkpoint()
                assert backoff.next() >= 0.004
                await server.ended.wait()
            tasks.cancel_scope.cancel()


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


async def test_a_deletion_of_something_unreadable_is_listed_again() -> None:
    """A comparison finds the object that is gone."""
    gone = watching(event("DELETED", {"metadata": 3}))
    async with informed(listing(at("1", "a"), at("1", "b")), gone, listing(at("1", "b"))) as (_, log, _informer):
        assert log.lines == ["+a", "+b", "-a"]


async def test_a_list_that_is_no_list() -> None:
    """An answer that is no list is requested again, and does not count as an empty list."""
    async with informed(listing(at("1", "a")), refuse(410), answer("<html>"), listing(at("1", "a"))) as running:
        _, log, informer = running
        assert log.lines == ["+a"]
        assert informer.lists == 2


async def test_nodes_too() -> None:
    """An informer of another resource."""
    log = Log()
    async with scripted(listing(node("n2"), node("n1"))) as (server, client):
        informer = Informer(client=client, resource=NODES, handler=log)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(PATIENCE):
                await informer.synced.wait()
            tasks.cancel_scope.cancel()

    assert log.lines == ["+n1", "+n2"]
    assert server.seen[0].path == "/api/v1/nodes"


async def test_resync_lists_again() -> None:
    """After a takeover one consistent list, which began after the call, is handled before it returns, as a unit."""
    log = Log()
    script = listing(at("1", "a")), watching(then="silent"), listing(at("2", "b")), watching(then="silent")
    async with scripted(*script) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=log, replacing=log.replacing)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with anyio.fail_after(PATIENCE):
                await informer.synced.wait()
                while not informer.watches:
                    await anyio.lowlevel.checkpoint()
                await informer.resync()
                assert log.lines == ["(", "+a", ")", "(", "+b", "-a", ")"]
            tasks.cancel_scope.cancel()

    assert "resourceVersion" not in server.seen[2].query


async def test_a_flood_lets_others_run() -> None:
    """Other tasks run while thousands of events are handled."""
    turns = 0
    lines = [event("ADDED", at("11", f"p{number}")) for number in range(3000)]
    log = Log()
    async with scripted(listing(), watching(b"".join(lines))) as (server, client):
        informer = Informer(client=client, resource=PODS, handler=log)

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 0 < len(log.lines) < 3000
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            tasks.start_soon(count)
            with anyio.fail_after(PATIENCE):
                await server.ended.wait()
            tasks.cancel_scope.cancel()

    assert len(log.lines) == 3000
    assert turns >= 20

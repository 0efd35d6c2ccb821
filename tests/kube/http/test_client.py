"""One request is sent, and one answer or one of our errors is returned."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
import trustme

from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.credentials import Fixed
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.http.status import LONGEST_PAUSE, api_error
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry.errors import ApiError, ApiTimeoutError, FencedError, UnreachableError
from tests.support.patience import PATIENCE
from tests.support.scripted_server import Answer, answer, hang, refuse, reset, scripted, watching

WAYS = pytest.mark.parametrize("way", [{}, {"proxied": True}], ids=["directly", "through a proxy"])
Way = dict[str, Any]


@WAYS
async def test_a_request_arrives_as_it_was_meant(way: Way) -> None:
    """Method, path, query, body, content type, user agent and token are sent; status and body come back."""
    async with scripted(answer("made", status=201), credentials=Fixed("Bearer secret"), **way) as (
        server,
        client,
    ):
        response = await client.request("POST", "/api/v1/x", params={"a": "b c"}, body=b"{}", content_type="text/x")

    assert (response.status, response.body) == (201, b"made")
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.query, seen.body) == ("POST", "/api/v1/x", {"a": "b c"}, b"{}")
    assert seen.headers["Authorization"] == "Bearer secret"
    assert seen.headers["Content-Type"] == "text/x"
    assert seen.headers["Accept"] == "application/json"
    assert seen.headers["User-Agent"].startswith("neuron-scheduler/")


@WAYS
async def test_a_refusal_is_an_api_error(way: Way) -> None:
    """The status is always checked, and the fields of the Status are read."""
    headers = {"Retry-After": "7"}
    async with scripted(refuse(409, "Conflict", "already bound", kind="pods/binding", headers=headers), **way) as (
        _,
        client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.request("POST", "/x", body=b"{}")

    error = caught.value
    assert (
        error.status,
        error.reason,
        error.message,
        error.kind,
        error.retry_after,
    ) == (409, "Conflict", "already bound", "pods/binding", 7.0)
    assert str(error) == "409 Conflict: already bound"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("3", 3.0),
        ("9" * 5_000, LONGEST_PAUSE),
        ("\xb2", None),
        ("-1", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None),
        (None, None),
    ],
)
def test_retry_after(text: str | None, want: float | None) -> None:
    """Seconds are read, up to a limit; other values are ignored."""
    assert want == api_error(429, {} if text is None else {"retry-after": text}, b"{}").retry_after


@pytest.mark.parametrize(("seconds", "want"), [(3, 3.0), (10**30, LONGEST_PAUSE), (-5, 0.0), (0, None)])
def test_a_status_may_ask_to_wait(seconds: int, want: float | None) -> None:
    """`details.retryAfterSeconds` has the same limit."""
    assert want == api_error(429, {}, b'{"details": {"retryAfterSeconds": %d}}' % seconds).retry_after


@WAYS
async def test_a_redirect_is_not_followed(way: Way) -> None:
    """A redirect is not followed, so that no token reaches another host."""
    async with scripted(answer(status=302, headers={"Location": "/elsewhere"}), **way) as (server, client):
        with pytest.raises(ApiError, match="302"):
            await client.request("GET", "/x")

    assert len(server.seen) == 1


@WAYS
async def test_a_reset_is_unreachable(way: Way) -> None:
    """A broken connection is an error; the client does not repeat a write."""
    async with scripted(reset, **way) as (server, client):
        with pytest.raises(UnreachableError):
            await client.request("POST", "/x", body=b"{}")

    assert len(server.seen) == 1


async def test_nobody_there_is_unreachable(free_tcp_port: int) -> None:
    """A refused connection says where it was going."""
    async with Client(connection=Connection(f"http://127.0.0.1:{free_tcp_port}", "a test")) as client:
        with pytest.raises(UnreachableError, match=str(free_tcp_port)):
            await client.request("GET", "/x")


@WAYS
async def test_requests_are_counted_and_timed(way: Way) -> None:
    """Each request is counted by code and method, also one without an answer; all but streams are timed."""
    counted: list[tuple[str, str]] = []
    took: list[str] = []

    def count(code: str, method: str, seconds: float | None) -> None:
        counted.append((code, method))
        if seconds is not None:
            assert seconds >= 0
            took.append(method)

    script = answer(), refuse(404), reset, answer()
    async with scripted(*script, on_request=count, **way) as (_, client):
        await client.request("GET", "/x")
        with pytest.raises(ApiError):
            await client.request("PUT", "/x", body=b"")
        with pytest.raises(UnreachableError):
            await client.request("POST", "/x", body=b"")
        async with client.stream("/x", params={}, read_timeout=PATIENCE):
            pass

    assert counted == [("200", "GET"), ("404", "PUT"), ("<error>", "POST"), ("200", "GET")]
    assert took == ["GET", "PUT", "POST"]


async def test_writes_are_limited_reads_and_the_lease_are_not() -> None:
    """The client-side limit delays writes only."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with scripted(*[answer()] * 4, qps=0.001, burst=1, sleep=sleep) as (_, client):
        await client.request("POST", "/x", body=b"")
        await client.request("GET", "/x")
        await client.request("PUT", "/lease", body=b"", pool=Pool.LEASE)
        assert waits == []
        await client.request("PATCH", "/x", body=b"")

    assert len(waits) == 1
    assert 900 < waits[0] <= 1000


@attrs.define(eq=False)
class Renewed:
    """Credentials with these tokens in turn."""

    tokens: list[str]

    async def authorization(self) -> str:
        return f"Bearer {self.tokens[0]}"

    async def renew(self, _rejected: str | None, /) -> str:
        """Go on to the next token."""
        self.tokens.pop(0)
        return await self.authorization()


@WAYS
async def test_a_second_401_is_an_error(way: Way) -> None:
    """Credentials that are really wrong do not loop."""
    async with scripted(refuse(401), refuse(401), credentials=Renewed(["old", "new", "newer"]), **way) as (
        server,
        client,
    ):
        with pytest.raises(ApiError, match="401"):
            await client.request("GET", "/x")

    assert len(server.seen) == 2


@WAYS
async def test_a_write_is_not_repeated_after_a_401_of_a_proxy(way: Way) -> None:
    """It may have been carried out, so its caller is told; the next request has the new token."""
    page = answer("<html>sign in</html>", status=401)
    async with scripted(page, answer("ok"), credentials=Renewed(["old", "new"]), **way) as (server, client):
        with pytest.raises(ApiError, match="401") as raised:
            await client.request("POST", "/x", body=b"{}")
        assert not raised.value.is_status
        assert (await client.request("POST", "/x", body=b"{}")).body == b"ok"

    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]


@WAYS
@pytest.mark.parametrize(("method", "refused"), [("GET", answer("<html/>", status=401)), ("POST", refuse(401))])
async def test_what_is_repeated_after_a_401(way: Way, method: str, refused: Answer) -> None:
    """A read in any case, and a write that the API server itself has refused."""
    async with scripted(refused, answer("ok"), credentials=Renewed(["old", "new"]), **way) as (server, client):
        assert (await client.request(method, "/x", body=None if method == "GET" else b"{}")).body == b"ok"

    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]


@WAYS
async def test_a_fence_holds_a_bind_back(way: Way) -> None:
    """Permission is asked for when the connection is open; without it nothing is sent, and the pool stays usable."""
    asked: list[Callable[[], bool]] = []

    def no() -> bool:
        asked.append(no)
        return False

    async with scripted(answer(status=201), answer(status=201), **way) as (server, client):
        await client.request("POST", "/bind", body=b"{}", pool=Pool.BIND, permit=lambda: True)
        with pytest.raises(FencedError):
            await client.request("POST", "/bind", body=b"{}", pool=Pool.BIND, permit=no)
        await client.request("POST", "/bind", body=b"{}", pool=Pool.BIND, permit=lambda: True)

    assert len(asked) == 1
    assert len(server.seen) == 2


@WAYS
async def test_each_concurrent_bind_has_a_connection(way: Way) -> None:
    """The pool has as many connections as there may be first tries, and some for other writes."""
    binds = 90
    options: dict[str, Any] = {"bind_concurrency": binds, **way}
    async with scripted(*[hang] * binds, **options) as (server, client), anyio.create_task_group() as tasks:
        for _ in range(binds):
            tasks.start_soon(partial(client.request, "POST", "/bind", body=b"{}", pool=Pool.BIND))
        with anyio.fail_after(PATIENCE):
            while len(server.seen) < binds:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def test_an_abandoned_bind_is_cut_off_with_a_reset_also_under_tls() -> None:
    """The connection is reset without TLS's closing handshake, which would keep the request alive at the server."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ended: list[BaseException | None] = []
    arrived, lost = anyio.Event(), anyio.Event()

    class Silent(asyncio.Protocol):
        """Reads and never answers."""

        def data_received(self, _data: bytes) -> None:
            arrived.set()

        def connection_lost(self, exc: BaseException | None) -> None:
            if arrived.is_set():
                ended.append(exc)
                lost.set()

    server = await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    with authority.cert_pem.tempfile() as ca_file:
        tls = Tls(clock=lambda: 0.0, ca_file=ca_file)
        connection = Connection(f"https://127.0.0.1:{port}", "a test", tls=tls)
        async with Client(connection=connection) as client:
            limit = 0.2
            while not arrived.is_set():  # on a machine that stalls, the time may be over before the request arrives
                with pytest.raises(ApiTimeoutError):
                    await client.request("POST", "/bind", body=b"{}", pool=Pool.BIND, timeout=limit)
                limit *= 2
            with anyio.fail_after(PATIENCE):
                await lost.wait()
    server.close()

    assert isinstance(ended[0], ConnectionResetError)


async def test_a_silent_stream_times_out() -> None:
    """A half-open connection is noticed."""
    limit, first = 0.05, b""
    async with scripted(*[watching(b"1\n", then="silent")] * 9) as (_, client):
        while not first:  # on a machine that stalls, the time may be over before the line arrives
            with contextlib.suppress(ApiTimeoutError):
                async with client.stream("/x", params={}, read_timeout=limit) as lines:
                    first = await lines.next()
                    raise AssertionError(await lines.next())
            limit *= 2
    assert first == b"1\n"


async def test_headers_of_a_connection_are_sent_with_every_request() -> None:
    """Reads, writes and watches send the impersonation headers; a repeated header is sent twice."""
    headers = (("Impersonate-User", "J\xfcrgen"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    async with (
        scripted(answer(), answer(), watching()) as (server, _),
        Client(connection=Connection(server.url, "a test", headers=headers)) as client,
    ):
        await client.request("GET", "/x")
        await client.request("POST", "/x", body=b"")
        async with client.stream("/x", params={}, read_timeout=PATIENCE):
            pass

    for seen in server.seen:
        assert seen.headers["Impersonate-User"] == "J\xfcrgen"
        assert seen.headers.getall("Impersonate-Group") == ["a", "b"]


async def test_a_server_below_a_path() -> None:
    """The server's URL may have a path, as in management planes that serve many clusters."""
    async with scripted(answer(), answer()) as (server, _):
        connection = Connection(f"{server.url}/k8s/clusters/c-1", "a test")
        async with Client(connection=connection) as client:
            await client.request("POST", "/x", body=b"")
            await client.request("GET", "/x")

    assert [seen.path for seen in server.seen] == ["/k8s/clusters/c-1/x"] * 2


async def test_a_line_of_twelve_mebibytes_is_read() -> None:
    """An object of 1.5 MiB has 9 MiB if each byte is escaped; a last line may have been cut off."""
    line = b"x" * (12 << 20) + b"\n"
    async with (
        scripted(watching(line, b"next\n", b"half")) as (_, client),
        client.stream("/x", params={}, read_timeout=PATIENCE) as stream,
    ):
        assert line == await stream.next()
        assert await stream.next() == b"next\n"
        assert await stream.next() == b"half"
        assert await stream.next() == b""

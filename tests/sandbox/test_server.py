"""What the sandbox adds to an API server: a kubelet, and a view from inside."""

import ssl
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest
import trustme

from sandbox import fleet
from sandbox.apiserver.resources import PODS
from sandbox.apiserver.store import Store
from sandbox.server import ApiServer
from tests.support.patience import PATIENCE
from tests.support.sandbox_api import Api, connect, pod


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """A server without kubelet."""
    async with ApiServer(kubelet=False).serving() as serving:
        yield serving


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[Api]:
    """A client of it."""
    async with connect(server.url) as connected:
        yield connected


async def test_history_can_be_expired(server: ApiServer, api: Api) -> None:
    """A client that comes back with an older version gets an error; one that is watching continues."""
    listed = await api.got("pods", limit="1")
    version = listed["metadata"]["resourceVersion"]
    await api.pod("a")
    await api.pod("b")
    first = await api.got("pods", limit="1")
    async with api.watch("pods", resourceVersion=str(server.store.version)) as watch:
        await api.pod("bb")
        assert await watch.take(1) == [("ADDED", "bb")]
        server.store.expire()
        await api.pod("c")
        assert await watch.take(1) == [("ADDED", "c")]
    async with api.watch("pods", resourceVersion=version) as watch:
        event = await watch.next()
        assert event is not None
        assert event["object"]["code"] == 410
    token = {"limit": "1", "continue": first["metadata"]["continue"]}
    reply = await api.call("GET", "pods", query=token)
    assert (reply.status, reply.body["reason"]) == (410, "Expired")


async def test_history_is_bounded() -> None:
    """A table drops its oldest changes when its log is full."""
    async with ApiServer(kubelet=False, store=Store(history=5)).serving() as server, connect(server.url) as api:
        version = (await api.got("pods"))["metadata"]["resourceVersion"]
        for number in range(11):
            server.create(pod(f"p{number}"))
        async with api.watch("/api/v1/pods", resourceVersion=version) as watch:
            event = await watch.next()
            assert event is not None
            assert event["object"]["reason"] == "Expired"


async def test_the_kubelet_runs_bound_pods_and_ends_deleted_ones() -> None:
    """Pending, Running, Failed, gone; a pod on a node that does not exist stays as it is until the node exists."""
    async with ApiServer(termination_limit=0).serving() as server:
        server.create(fleet.node("n1", "inf2.48xlarge"))
        server.create(pod("a", nodeName="n1"))
        server.create(pod("lost", nodeName="n2"))
        seen: list[tuple[str, str, str]] = []
        with anyio.fail_after(PATIENCE):
            async for change in server.store.follow("pods", 1000):
                name, phase = change.object["metadata"]["name"], change.object["status"]["phase"]
                seen.append((name, change.type, phase))
                if (name, change.type, phase) == ("a", "MODIFIED", "Running") and len(seen) == 3:
                    server.registry.delete(PODS, "default", "a", {})
                    server.create(fleet.node("n2", "inf2.xlarge"))
                if ("a", "DELETED", "Failed") in seen and ("lost", "MODIFIED", "Running") in seen:
                    break
    assert ("lost", "MODIFIED", "Running") in seen


async def test_it_speaks_tls() -> None:
    """With an SSL context, the URL is https and a client that trusts the authority is served."""
    authority = trustme.CA()
    serving, trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    authority.configure_trust(trusted)
    async with ApiServer(ssl_context=serving).serving() as server:
        assert server.url.startswith("https://")
        async with connect(server.url, ssl_context=trusted) as api:
            assert (await api.got("pods"))["items"] == []


async def test_a_known_token(api: Api) -> None:
    """The holder of a token that the sandbox was given has a name."""
    server = ApiServer(kubelet=False, tokens={"the-token": "anna"})
    async with server.serving(), connect(server.url) as client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "the-token"}}
        reply = await client.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert reply.body["status"]["authenticated"]
    assert reply.body["status"]["user"]["username"] == "anna"

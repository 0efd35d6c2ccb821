"""Who may ask, and whose pods' names a reader sees: the API server decides, its answers are kept for a few seconds."""

import json
from typing import cast

import pytest
from aiohttp import web

from neuron_scheduler.kube.reviews import UserReviews
from neuron_scheduler.serving.access import CACHE_SECONDS, MOST_TOKENS, Access, Reader
from neuron_scheduler.serving.names import Names
from neuron_scheduler.serving.pages import RefusedError
from neuron_scheduler.telemetry.errors import ApiError, NeuronSchedulerError, UnreachableError
from tests.support.reviews import FakeReviews
from tests.support.web_requests import request


@pytest.fixture
def server() -> FakeReviews:
    """An API server that was asked nothing."""
    return FakeReviews()


@pytest.fixture
def access(server: FakeReviews) -> Access:
    """What judges requests, those for /v1/open without a token."""
    return Access(reviews=cast(UserReviews, server), clock=server.clock, public=("/v1/open",))


def asked(token: str = "", path: str = "/v1/fleet", peer: str = "127.0.0.1", *, tls: bool = False) -> web.BaseRequest:
    return request(path, {"Authorization": f"Bearer {token}"} if token else {}, peer=peer, encrypted=tls)


async def refusal(access: Access, of: web.BaseRequest) -> tuple[int, str]:
    """Return status and sentence of a refusal."""
    with pytest.raises(RefusedError) as caught:
        await access.reader(of)
    return caught.value.status, str(caught.value)


async def outcome(access: Access, token: str) -> int:
    """Return the status of a request, 200 for a reader who may ask."""
    try:
        await access.reader(asked(token))
    except RefusedError as error:
        return error.status
    return 200


async def test_who_is_refused(access: Access, server: FakeReviews) -> None:
    """Each refusal says what to do; without a token the API server is not asked."""
    status, sentence = await refusal(access, asked())
    assert (status, "kubectl create token" in sentence, server.asked) == (401, True, [])
    for garbage in ("garbage", "g\xf6\xf6d"):
        status, sentence = await refusal(access, asked(garbage))
        assert (status, "does not accept this token" in sentence) == (401, True)
    status, sentence = await refusal(access, asked("joe"))
    assert (status, 'User "joe" cannot get path "/v1/fleet"' in sentence) == (403, True)
    assert "ClusterRole neuron-scheduler-reader" in sentence
    assert (await refusal(access, asked("joe", "/metrics")))[1].endswith('cannot get path "/metrics"')


def test_a_refusal_is_a_status() -> None:
    """As an API server's is."""
    body = RefusedError(403, "no").response().body
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    assert isinstance(body, bytes)
    assert json.loads(body) == status | {"message": "no", "reason": "Forbidden", "code": 403}


async def test_a_token_that_others_can_read(access: Access, server: FakeReviews) -> None:
    """A token from elsewhere without TLS is refused before anything is done with it; over TLS it is accepted."""
    for path in ("/v1/fleet", "/v1/open"):
        status, sentence = await refusal(access, asked("jane", path, "10.0.0.9"))
        assert (status, "kubectl port-forward" in sentence, server.asked) == (403, True, [])
    for peer in ("::1", "::ffff:127.0.0.1"):
        assert isinstance(await access.reader(asked("jane", peer=peer)), Reader)
    assert isinstance(await access.reader(asked("jane", peer="10.0.0.9", tls=True)), Reader)


async def test_names(access: Access, server: FakeReviews) -> None:
    """An administrator sees all names; others those of the namespace that they ask about, if they may get its pods."""
    jane = await access.reader(asked("jane"))
    shown = [(await access.names(jane, namespace)).shown for namespace in ("a", "b", "", "c" * 254)]
    assert shown == ["a", "", "", ""]
    before = len(server.asked)
    assert await access.names(await access.reader(asked("admin")), "b") == Names(None)
    assert server.asked[before:] == ["whose admin", "admin /v1/fleet", "admin pods of all"]


async def test_a_public_path(access: Access, server: FakeReviews) -> None:
    """Nobody needs a token there, and sees no name then; a user needs no right to the path."""
    nobody = await access.reader(asked(path="/v1/open"))
    assert await access.names(nobody, "a") == Names("")
    assert ("a" in Names(""), server.asked) == (False, [])
    joe = await access.reader(asked("joe", "/v1/open"))
    assert await access.names(joe, "a") == Names("a")
    assert (await refusal(access, asked("garbage", "/v1/open")))[0] == 401


async def test_answers_are_kept_for_a_while(access: Access, server: FakeReviews) -> None:
    """Refusals too; then the API server is asked again. What one user may is not what another one may."""

    async def ask() -> int:
        statuses = [await outcome(access, token) for token in ("jane", "joe", "garbage")]
        for namespace in ("a", "b"):
            await access.names(await access.reader(asked("jane")), namespace)
        assert statuses == [200, 403, 401]
        return len(server.asked)

    first = await ask()
    assert await ask() == first
    server.now += CACHE_SECONDS
    assert await ask() == 2 * first


async def test_guesses_are_limited(access: Access, server: FakeReviews) -> None:
    """Unknown tokens do not flood the API server, and do not keep out those that were accepted before."""
    assert await outcome(access, "jane") == 200
    server.now += CACHE_SECONDS
    seen = [await outcome(access, f"guess{i}") for i in range(100)]
    assert seen == [401] * 10 + [503] * 90
    assert await outcome(access, "jane") == 200
    server.now += 1
    assert [await outcome(access, f"more{i}") for i in range(100)].count(401) == 5


async def test_tokens_are_forgotten_and_never_kept(access: Access, server: FakeReviews) -> None:
    """The memory is bounded, and has no tokens."""
    for i in range(2 * MOST_TOKENS):
        server.now += 0.3
        await outcome(access, f"guess{i}")
    assert len(access._readers._values) == MOST_TOKENS
    assert "guess" not in repr(access._readers._values)


@pytest.mark.parametrize("failure", [UnreachableError("gone"), ApiError(500), ApiError(403), ApiError(429)], ids=repr)
async def test_without_the_api_server(access: Access, server: FakeReviews, failure: NeuronSchedulerError) -> None:
    """Nobody gets in but who is known already, and nothing is remembered."""
    assert await outcome(access, "jane") == 200
    server.failure = failure
    assert [await outcome(access, token) for token in ("admin", "jane")] == [503, 200]
    server.now += CACHE_SECONDS
    assert await outcome(access, "jane") == 503
    server.failure = None
    assert [await outcome(access, token) for token in ("admin", "jane", "joe")] == [200, 200, 403]


async def test_reviews_are_limited(access: Access, server: FakeReviews) -> None:
    """A reader that asks about many namespaces does not flood the API server; what is known needs no review."""
    jane = await access.reader(asked("jane"))
    for i in range(198):  # and the rights to the path, and to all pods
        assert await access.names(jane, f"c{i}") == Names("")
    with pytest.raises(RefusedError, match="too many questions about rights"):
        await access.names(jane, "another")
    assert len(server.asked) == 1 + 200
    assert await access.names(jane, "c0") == Names("")
    assert await outcome(access, "admin") == 429
    server.now += 1.0
    assert await outcome(access, "admin") == 200

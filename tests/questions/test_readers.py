"""Who may ask, and whose pods' names a reader sees: the API server decides, its answers are kept for a few seconds."""

import json

import pytest

from neuron_scheduler.endpoints.access import CACHE_SECONDS
from neuron_scheduler.endpoints.exchange import Reply, Request, Unconnected
from neuron_scheduler.errors import ApiError, NeuronSchedulerError, UnreachableError
from neuron_scheduler.questions.readers import MOST_NAMESPACES, MOST_TOKENS, Names, Reader, Readers, TooManyReviewsError
from tests.support.reviews import FakeReviews

HERE = Unconnected("127.0.0.1")


@pytest.fixture
def server() -> FakeReviews:
    """An API server that was asked nothing."""
    return FakeReviews()


@pytest.fixture
def readers(server: FakeReviews) -> Readers:
    """What judges requests for /v1/fleet, and /v1/open without a token."""
    return Readers(reviews=server, clock=server.clock, public=("/v1/open",))


def request(token: str = "", path: str = "/v1/fleet", connection: Unconnected = HERE) -> Request:
    """Return a request with a bearer token."""
    fields = {"authorization": f"Bearer {token}"} if token else {}
    return Request("GET", path, fields=fields, connection=connection)


async def reader_of(readers: Readers, token: str, path: str = "/v1/fleet") -> Reader:
    """Return a reader who may ask."""
    reader = await readers.reader(request(token, path))
    assert isinstance(reader, Reader)
    return reader


async def refusal(readers: Readers, asked: Request) -> tuple[int, str]:
    """Return status and sentence of a refusal."""
    reply = await readers.reader(asked)
    assert isinstance(reply, Reply)
    status = json.loads(reply.body)
    assert (status["kind"], status["code"]) == ("Status", reply.status)
    return reply.status, status["message"]


async def test_who_is_refused(readers: Readers, server: FakeReviews) -> None:
    """Each refusal says what to do; without a token the API server is not asked."""
    status, sentence = await refusal(readers, request())
    assert (status, "kubectl create token" in sentence, server.asked) == (401, True, [])
    status, sentence = await refusal(readers, request("garbage"))
    assert (status, "does not accept this token" in sentence) == (401, True)
    status, sentence = await refusal(readers, request("joe"))
    assert status == 403
    assert 'User "joe" cannot get path "/v1/fleet"' in sentence
    assert "ClusterRole neuron-scheduler-reader" in sentence


async def test_a_token_that_others_can_read(readers: Readers, server: FakeReviews) -> None:
    """A token from elsewhere without TLS is refused before anything is done with it; over TLS it is accepted."""
    for path in ("/v1/fleet", "/v1/open"):
        status, sentence = await refusal(readers, request("jane", path, Unconnected("10.0.0.9")))
        assert (status, "kubectl port-forward" in sentence, server.asked) == (403, True, [])
    assert isinstance(await readers.reader(request("jane", connection=Unconnected("10.0.0.9", encrypted=True))), Reader)


async def test_names(readers: Readers, server: FakeReviews) -> None:
    """A reader sees the names of pods that the reader may get, an administrator all."""
    jane = await reader_of(readers, "jane")
    assert await jane.names({"a", "b", ""}) == Names(frozenset({"a"}), hidden=1)
    assert [await jane.may_get_pod("b", name) for name in ("one", "two")] == [True, False]
    before = len(server.asked)
    assert await (await reader_of(readers, "admin")).names({"a", "b", "c"}) == Names(None)
    assert server.asked[before:] == ["whose admin", "admin /v1/fleet", "admin /"]


async def test_a_public_path(readers: Readers) -> None:
    """Nobody needs a token there, and sees no name then; a user needs no right to the path."""
    nobody = await readers.reader(request(path="/v1/open"))
    assert isinstance(nobody, Reader)
    assert await nobody.names({"a"}) == Names(frozenset())
    assert "a" not in Names(frozenset())
    assert not await nobody.may_get_pod("a", "p")
    joe = await reader_of(readers, "joe", "/v1/open")
    assert await joe.names({"a", "b"}) == Names(frozenset({"a"}), hidden=1)
    assert (await refusal(readers, request("garbage", "/v1/open")))[0] == 401


async def test_answers_are_kept_for_a_while(readers: Readers, server: FakeReviews) -> None:
    """Refusals too; then the API server is asked again."""
    for token in ("jane", "joe", "garbage"):
        await readers.reader(request(token))
    await (await reader_of(readers, "jane")).names({"a", "b"})
    asked = len(server.asked)
    for token in ("jane", "joe", "garbage"):
        await readers.reader(request(token))
    await (await reader_of(readers, "jane")).names({"a", "b"})
    assert len(server.asked) == asked
    server.now += CACHE_SECONDS
    await (await reader_of(readers, "jane")).names({"a", "b"})
    assert len(server.asked) == asked + 5


async def test_rights_are_those_of_the_token(readers: Readers) -> None:
    """What one user may is not what another one may."""
    assert await (await reader_of(readers, "admin")).may_get_pod("c", "p")
    assert not await (await reader_of(readers, "jane")).may_get_pod("c", "p")


async def test_many_namespaces(readers: Readers, server: FakeReviews) -> None:
    """One question asks about so many; names of the others are left out, and the next question goes on."""
    jane = await reader_of(readers, "jane")
    many = {f"n{i:03}" for i in range(MOST_NAMESPACES + 10)}
    assert await jane.names(many) == Names(frozenset(), hidden=MOST_NAMESPACES, unasked=10)
    assert len(server.asked) == 3 + MOST_NAMESPACES
    assert await jane.names(many) == Names(frozenset(), hidden=MOST_NAMESPACES + 10)


async def test_guesses_are_limited(readers: Readers, server: FakeReviews) -> None:
    """Unknown tokens do not flood the API server, and do not keep known ones out; the memory is bounded."""
    await reader_of(readers, "jane")
    seen = [(await refusal(readers, request(f"guess{i}")))[0] for i in range(100)]
    assert (seen[:9], {*seen[9:]}) == ([401] * 9, {503})
    await reader_of(readers, "jane")
    for i in range(2 * MOST_TOKENS):
        server.now += 0.3
        await readers.reader(request(f"guess{i}"))
    assert len(readers._users._values) == MOST_TOKENS


@pytest.mark.parametrize("failure", [UnreachableError("gone"), ApiError(500)], ids=repr)
async def test_without_the_api_server(readers: Readers, server: FakeReviews, failure: NeuronSchedulerError) -> None:
    """Nobody gets in, and nothing is remembered."""
    server.failure = failure
    assert (await refusal(readers, request("jane")))[0] == 503
    server.failure = None
    await reader_of(readers, "jane")


async def test_reviews_are_limited(readers: Readers, server: FakeReviews) -> None:
    """A reader that asks for many pods does not flood the API server; what is known needs no review."""
    jane = await reader_of(readers, "jane")
    assert not await jane.may_get_pod("c" * 254, "p")
    assert not await jane.may_get_pod("c", "p" * 254)
    for i in range(199):  # and the right to the path
        assert not await jane.may_get_pod("c", f"p{i}")
    with pytest.raises(TooManyReviewsError):
        await jane.may_get_pod("c", "another")
    assert len(server.asked) == 2 + 199
    assert not await jane.may_get_pod("c", "p0")
    assert (await refusal(readers, request("admin")))[0] == 429
    server.now += 1.0
    await reader_of(readers, "admin")

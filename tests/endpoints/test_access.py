"""The API server decides who may read /metrics; its answer is cached, and without an answer the request is refused."""

import json
from collections.abc import Mapping
from types import MappingProxyType

import attrs
import pytest

from neuron_scheduler.endpoints.access import CACHE_SECONDS, MOST_CACHED, QUESTIONS_AT_ONCE, Access
from neuron_scheduler.errors import ApiError, NeuronSchedulerError, UnreachableError
from neuron_scheduler.kube.user_review import User

JANE, JOE = User(username="jane"), User(username="joe")
TOKENS: Mapping[str, User] = MappingProxyType({"good": JANE, "poor": JOE})


@attrs.define(eq=False)
class FakeReviews:
    """An API server that knows two users, one of whom may read the metrics; also the clock."""

    now: float = 100.0
    asked: list[str] = attrs.field(factory=list)
    failure: NeuronSchedulerError | None = None

    async def user_of(self, token: str) -> User | None:
        """Return the user that a token belongs to."""
        self.asked.append(token)
        if self.failure is not None:
            raise self.failure
        return TOKENS.get(token)

    async def may_get(self, user: User, path: str) -> bool:
        """Allow one user one path."""
        return (user, path) == (JANE, "/metrics")

    def clock(self) -> float:
        """Return the time."""
        return self.now


@attrs.frozen
class Gate:
    """The access to /metrics, and the API server behind it."""

    server: FakeReviews
    access: Access

    async def status(self, authorization: str) -> int:
        """Return the status of a request with this header, 200 if it is accepted."""
        refusal = await self.access.refusal(authorization)
        return 200 if refusal is None else refusal.status


@pytest.fixture
def gate() -> Gate:
    """An access that has seen no request."""
    server = FakeReviews()
    return Gate(server, Access(reviews=server, path="/metrics", clock=server.clock))


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer good", 200),
        ("bearer   good ", 200),
        ("Bearer poor", 403),
        ("Bearer garbage", 401),
        ("Bearer g\xf6\xf6d", 401),
    ],
)
async def test_tokens(gate: Gate, authorization: str, status: int) -> None:
    """A token with the right to get the path is accepted; one without it gets 403, an unknown one 401."""
    assert await gate.status(authorization) == status
    assert await gate.status(authorization) == status
    assert len(gate.server.asked) == 1, "the answer is remembered"


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Basic good", "good"])
async def test_no_token(gate: Gate, authorization: str) -> None:
    """Without a bearer token the API server is not asked."""
    assert await gate.status(authorization) == 401
    assert gate.server.asked == []


async def test_the_answers_are_kube_schedulers(gate: Gate) -> None:
    """Refusals are a `Status`."""
    refused = [await gate.access.refusal(f"Bearer {token}") for token in ("garbage", "poor")]
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    assert [reply and json.loads(reply.body) for reply in refused] == [
        status | {"message": "Unauthorized", "reason": "Unauthorized", "code": 401},
        status
        | {
            "message": 'forbidden: User "joe" cannot get path "/metrics"',
            "reason": "Forbidden",
            "code": 403,
        },
    ]


async def test_rights_are_asked_for_again(gate: Gate) -> None:
    """An answer of the API server is used for a few seconds."""
    await gate.status("Bearer good")
    gate.server.now += CACHE_SECONDS
    await gate.status("Bearer good")
    assert gate.server.asked == ["good", "good"]


@pytest.mark.parametrize("failure", [UnreachableError("away"), ApiError(500), ApiError(403), ApiError(429)], ids=repr)
async def test_nobody_gets_in_when_nobody_can_be_asked(gate: Gate, failure: NeuronSchedulerError) -> None:
    """A failure is 503 and is not cached; cached answers stay valid."""
    await gate.status("Bearer good")
    gate.server.failure = failure
    assert await gate.status("Bearer poor") == 503
    assert await gate.status("Bearer good") == 200
    gate.server.now += CACHE_SECONDS
    assert await gate.status("Bearer good") == 503
    gate.server.failure = None
    assert [await gate.status(f"Bearer {token}") for token in ("good", "poor")] == [200, 403]


async def test_guesses_are_limited(gate: Gate) -> None:
    """Many unknown tokens neither flood the API server nor lock out a scraper whose token is accepted."""
    await gate.status("Bearer good")
    gate.server.now += CACHE_SECONDS
    guesses = [await gate.status(f"Bearer guess {n}") for n in range(100)]
    assert guesses == [401] * QUESTIONS_AT_ONCE + [503] * (100 - QUESTIONS_AT_ONCE)
    assert await gate.status("Bearer good") == 200
    gate.server.now += 1
    assert [await gate.status(f"Bearer more {n}") for n in range(100)].count(401) == 5


async def test_tokens_are_forgotten_and_never_kept(gate: Gate) -> None:
    """The cache is bounded, and has no tokens."""
    for n in range(MOST_CACHED + 50):
        gate.server.now += 1
        await gate.status(f"Bearer guess {n}")
    assert len(gate.access._verdicts) == MOST_CACHED
    assert "guess" not in repr(gate.access._verdicts)

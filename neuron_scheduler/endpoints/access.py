"""
Who may read /metrics: the holder of a bearer token that the API server accepts, with the right to GET that path.

The answers are kube-scheduler's, except that a request without a token gets 401 without a question to the API server.
The API server's answers, including refusals, are cached for a few seconds, so that clients cannot make us flood it. The
cache has digests, not tokens. If the API server cannot be asked, the request is refused.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
import msgspec

from neuron_scheduler.endpoints.exchange import NO_FIELDS, Reply
from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.http.rate_limit import TokenBucket
from neuron_scheduler.kube.user_review import User
from neuron_scheduler.telemetry import logs

CACHE_SECONDS: Final = 10.0  # kube-scheduler's --authentication-token-webhook-cache-ttl and its like
MOST_CACHED: Final = 256
QUESTIONS_PER_SECOND: Final = 5.0  # about tokens that have not been accepted yet
QUESTIONS_AT_ONCE: Final = 10

log = logs.logger(__name__)


class Reviews(Protocol):
    """What is asked of the API server."""

    async def user_of(self, token: str) -> User | None:
        """Return the user that a token belongs to."""

    async def may_get(self, user: User, path: str) -> bool:
        """Return whether a user may GET a path."""


@attrs.frozen
class _Verdict:
    """The result for a token, and until when it is valid; `refusal` is None for an accepted token."""

    refusal: Reply | None
    until: float


@attrs.define(eq=False, kw_only=True)
class Access:
    """
    Judges the requests for one path.

    Attributes:
        clock: seconds, monotonic.
    """

    reviews: Reviews
    path: str
    clock: Callable[[], float]
    _verdicts: dict[bytes, _Verdict] = attrs.field(factory=dict, init=False)
    _questions: TokenBucket = attrs.field(init=False)
    _failing: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._questions = TokenBucket(self.clock, QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE)

    async def refusal(self, authorization: str) -> Reply | None:
        """Return the refusal of a request with this `Authorization`, None if it may read the path."""
        token = bearer_token(authorization)
        if not token:
            return UNAUTHORIZED
        digest = hashlib.sha256(token.encode()).digest()
        known = self._verdicts.get(digest)
        if known is not None and self.clock() < known.until:
            return known.refusal
        # A client that tries many tokens does not delay scrapers, whose tokens have been accepted before.
        was_good = known is not None and known.refusal is None
        if not was_good and not self._questions.take_now():
            return status_reply(
                503, "ServiceUnavailable", "too many unknown tokens; try again later", {"Retry-After": "1"}
            )
        return await self._ask(digest, token)

    async def _ask(self, digest: bytes, token: str) -> Reply | None:
        try:
            refusal = await self._judged(token)
        except (ApiError, UnreachableError) as error:
            if not self._failing:
                log.warning("Cannot ask the API server who may read a path", path=self.path, exc=error)
            self._failing = True
            return status_reply(503, "ServiceUnavailable", "the API server cannot be asked who may read this")
        self._failing = False
        self._verdicts.pop(digest, None)
        self._verdicts[digest] = _Verdict(refusal, self.clock() + CACHE_SECONDS)
        if len(self._verdicts) > MOST_CACHED:
            del self._verdicts[next(iter(self._verdicts))]
        return refusal

    async def _judged(self, token: str) -> Reply | None:
        user = await self.reviews.user_of(token)
        if user is None:
            return UNAUTHORIZED
        if await self.reviews.may_get(user, self.path):
            return None
        sentence = f'forbidden: User "{user.username}" cannot get path "{self.path}"'
        return status_reply(403, "Forbidden", sentence)


def bearer_token(authorization: str) -> str:
    """Return the token in an `Authorization` header; empty if there is none."""
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def status_reply(code: int, reason: str, message: str, fields: Mapping[str, str] = NO_FIELDS) -> Reply:
    """Return an answer whose body is a `Status`, as an API server's is."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body = msgspec.json.encode({**status, "message": message, "reason": reason, "code": code})
    return Reply(code, body, "application/json", fields)


UNAUTHORIZED: Final = status_reply(401, "Unauthorized", "Unauthorized")

"""
Who asks, and what that reader may see, by the API server's TokenReview and SubjectAccessReviews.

A reader needs the right to get the path, which may also be /metrics. The answers are kube-scheduler's, but a request
without a token gets 401 without a question to the API server. The names of pods are shown where the reader may get the
pods themselves, so no tenant learns another's names. Answers of the API server, refusals too, are kept for a few
seconds, by a digest of the token. Unknown tokens are limited, so that guesses do not flood the API server. So are
reviews of rights: they share its patience with our Bindings.
"""

import hashlib
import ipaddress
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

import attrs
from aiohttp import web

from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.reviews import User, UserReviews
from neuron_scheduler.serving.names import Names
from neuron_scheduler.serving.pages import RefusedError
from neuron_scheduler.serving.timed_cache import TimedCache
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError

CACHE_SECONDS: Final = 10.0  # kube-scheduler's --authentication-token-webhook-cache-ttl and its like
MOST_TOKENS: Final = 256
_UNKNOWN_TOKENS_PER_SECOND: Final = 5.0
_UNKNOWN_TOKENS_AT_ONCE: Final = 10
_REVIEWS_PER_SECOND: Final = 50.0
_REVIEWS_AT_ONCE: Final = 200
_LONGEST_NAME: Final = 253
"""Characters of a name in Kubernetes; there is no right to a longer one."""

_PRINTS_ONE: Final = "kubectl create token prints a token of a ServiceAccount"
_SAFE: Final = "without TLS a token is accepted from this host only, as through kubectl port-forward"
HOW: Final = f"send the header Authorization: Bearer TOKEN; {_PRINTS_ONE}; {_SAFE}"
_REMEDY: Final = "; an administrator can bind the ClusterRole neuron-scheduler-reader"

log = logs.logger(__name__)
T = TypeVar("T")


@attrs.define(eq=False)
class Reader:
    """
    Who asks.

    Attributes:
        user: None for a reader without a token, or with one that the API server does not accept.
        rights: what the API server has said: whether the reader may get a `path`, or the `pods` of a namespace.
    """

    user: User | None = None
    rights: dict[tuple[str, str], bool] = attrs.field(factory=dict, init=False)


@attrs.define(eq=False, kw_only=True)
class Access:
    """
    Judges requests.

    Each method raises RefusedError if the API server has no answer, or was asked too much lately.

    Attributes:
        clock: seconds, monotonic.
        public: paths that are answered without a token, and then about no namespace and without any name of a pod.
    """

    reviews: UserReviews
    clock: Callable[[], float]
    public: Collection[str] = ()
    _readers: TimedCache[bytes, Reader] = attrs.field(init=False)
    _unknown: TokenBucket = attrs.field(init=False)
    _reviewed: TokenBucket = attrs.field(init=False)
    _failing: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._readers = TimedCache(clock=self.clock, seconds=CACHE_SECONDS, most=MOST_TOKENS)
        self._unknown = TokenBucket(self.clock, _UNKNOWN_TOKENS_PER_SECOND, _UNKNOWN_TOKENS_AT_ONCE)
        self._reviewed = TokenBucket(self.clock, _REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE)

    async def reader(self, request: web.BaseRequest) -> Reader:
        """Return who asks; RefusedError if the request must not be answered."""
        token = bearer_token(request.headers.get("Authorization", ""))
        public = request.path in self.public
        if not token:
            if public and "namespace" not in request.query:  # so there is one answer, which is kept for all of them
                return Reader()
            raise RefusedError(401, HOW)
        if not is_confidential(request):
            raise RefusedError(403, f"others can read this connection; {_SAFE}")
        reader = await self._reader_with(token)
        if reader.user is None:
            raise RefusedError(401, f"the API server does not accept this token; {_PRINTS_ONE}")
        if not public and not await self._may_get(reader, "path", request.path):
            sentence = f'forbidden: User "{reader.user.username}" cannot get path "{request.path}"'
            raise RefusedError(403, f"{sentence}{_REMEDY if request.path.startswith('/v1/') else ''}")
        return reader

    async def names(self, reader: Reader, namespace: str) -> Names:
        """Return whose names a reader sees who asks about a namespace, or without one about the whole cluster."""
        if await self._may_get(reader, "pods", ""):
            return Names(None)
        seen = namespace != "" and await self._may_get(reader, "pods", namespace)
        return Names(namespace if seen else "")

    async def _reader_with(self, token: str) -> Reader:
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._readers.get(digest)
        if known is not None:
            return known
        # A client that tries many tokens does not delay readers whose tokens have been accepted before.
        before = self._readers.get(digest, old=True)
        if (before is None or before.user is None) and not self._unknown.take_now():
            raise RefusedError(503, "too many unknown tokens; try again later")
        return self._readers.put(digest, Reader(await self._ask(self.reviews.user_of(token))))

    async def _may_get(self, reader: Reader, kind: str, of: str) -> bool:
        """Return whether a reader may get a `path`, or the `pods` of a namespace; an empty one stands for all."""
        known = reader.rights.get((kind, of))
        if known is not None:
            return known
        if reader.user is None or len(of) > _LONGEST_NAME:
            return False
        if not self._reviewed.take_now():
            raise RefusedError(429, "too many questions about rights; try again")
        review = self.reviews.may_get if kind == "path" else self.reviews.may_get_pods
        reader.rights[kind, of] = allowed = await self._ask(review(reader.user, of))
        return allowed

    async def _ask(self, review: Awaitable[T]) -> T:
        try:
            answer = await review
        except (ApiError, UnreachableError) as error:
            if not self._failing:
                log.warning("Cannot ask the API server what a reader may see", exc=error)
            self._failing = True
            raise RefusedError(503, "the API server cannot be asked what you may see") from error
        self._failing = False
        return answer


def bearer_token(authorization: str) -> str:
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def is_confidential(request: web.BaseRequest) -> bool:
    """Return whether nobody on the way can read it: over TLS, or from this host, as `kubectl port-forward` is."""
    if request.secure:
        return True
    try:
        address = ipaddress.ip_address(request.remote or "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback

"""
Who asks, and what that reader may see, by the API server's TokenReview and SubjectAccessReviews.

A reader needs the right to get the path, which may also be /metrics; the answers are kube-scheduler's, except that a
request without a token gets 401 without a question to the API server. The names of pods are shown where the reader may
get the pods themselves, so no tenant learns another's names. Answers of the API server, refusals too, are kept for a
few seconds, by a digest of the token. Tokens that are not known yet are limited, so that guesses do not flood the API
server, and so are reviews of rights: they share its patience with our Bindings. A token that somebody on the way could
read is refused.
"""

import hashlib
import ipaddress
from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, TypeVar

import attrs
from aiohttp import web

from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.reviews import User, UserReviews
from neuron_scheduler.serving.pages import RefusedError
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError

CACHE_SECONDS: Final = 10.0  # kube-scheduler's --authentication-token-webhook-cache-ttl and its like
MOST_TOKENS: Final = 256
MOST_RIGHTS: Final = 4096
MOST_NAMESPACES: Final = 64
"""Namespaces about which one question may ask the API server; names of further ones are left out."""
_UNKNOWN_TOKENS_PER_SECOND: Final = 5.0
_UNKNOWN_TOKENS_AT_ONCE: Final = 10
_REVIEWS_PER_SECOND: Final = 50.0
_REVIEWS_AT_ONCE: Final = 200
_LONGEST_NAME: Final = 253
"""Characters of a name in Kubernetes; there is no right to a longer one."""

HOW: Final = (
    "send the header Authorization: Bearer TOKEN; kubectl create token prints a token of a ServiceAccount. Without TLS"
    " a token is accepted from this host only, as through kubectl port-forward"
)
_REMEDY: Final = "; an administrator can bind the ClusterRole neuron-scheduler-reader"

log = logs.logger(__name__)
K = TypeVar("K")
V = TypeVar("V")


@attrs.define(eq=False)
class _Memory(Generic[K, V]):
    """Values that are good for `CACHE_SECONDS`; at most so many are remembered."""

    clock: Callable[[], float]
    most: int
    _values: dict[K, tuple[float, V]] = attrs.field(factory=dict, init=False)

    def get(self, key: K, *, old: bool = False) -> tuple[V] | None:
        """Return the value in a tuple, an older one only if `old`; None if there is none."""
        known = self._values.get(key)
        return None if known is None or (self.clock() >= known[0] and not old) else (known[1],)

    def put(self, key: K, value: V) -> V:
        """Remember a value, and return it."""
        self._values.pop(key, None)
        self._values[key] = self.clock() + CACHE_SECONDS, value
        if len(self._values) > self.most:
            del self._values[next(iter(self._values))]
        return value


@attrs.frozen
class Names:
    """
    Whose pods' names a reader may see; a namespace that nobody asked about is hidden.

    Attributes:
        shown: namespaces whose names are shown; None for all.
        hidden: how many of the namespaces that the answer is about are hidden.
        unasked: how many more are hidden, because the API server was not asked about so many.
    """

    shown: frozenset[str] | None
    hidden: int = 0
    unasked: int = 0

    def __contains__(self, namespace: object) -> bool:
        return self.shown is None or namespace in self.shown


@attrs.define(eq=False, kw_only=True)
class Access:
    """
    Judges requests.

    Attributes:
        clock: seconds, monotonic.
        public: paths that are answered without a token, and then without any name of a pod.
    """

    reviews: UserReviews
    clock: Callable[[], float]
    public: Collection[str] = ()
    _users: _Memory[bytes, User | None] = attrs.field(init=False)
    _rights: _Memory[tuple[bytes, str, str, str], bool] = attrs.field(init=False)
    _unknown: TokenBucket = attrs.field(init=False)
    _reviewed: TokenBucket = attrs.field(init=False)
    _failing: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._users = _Memory(self.clock, MOST_TOKENS)
        self._rights = _Memory(self.clock, MOST_RIGHTS)
        self._unknown = TokenBucket(self.clock, _UNKNOWN_TOKENS_PER_SECOND, _UNKNOWN_TOKENS_AT_ONCE)
        self._reviewed = TokenBucket(self.clock, _REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE)

    async def reader(self, request: web.BaseRequest) -> "Reader":
        """
        Return who asks.

        Raises:
            RefusedError: the request must not be answered.
        """
        token = bearer_token(request.headers.get("Authorization", ""))
        public = request.path in self.public
        if not token:
            if public:
                return Reader(None, b"", self)
            raise RefusedError(401, HOW)
        if not confidential(request):
            raise RefusedError(403, f"a token is not accepted over a connection that others can read: {HOW}")
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        user = await self._user(digest, token)
        if user is None:
            raise RefusedError(401, f"the API server does not accept this token; {HOW}")
        reader = Reader(user, digest, self)
        if not public and not await self.has_right(reader, "path", request.path):
            sentence = f'forbidden: User "{user.username}" cannot get path "{request.path}"'
            raise RefusedError(403, f"{sentence}{_REMEDY if request.path.startswith('/v1/') else ''}")
        return reader

    async def _user(self, digest: bytes, token: str) -> User | None:
        known = self._users.get(digest)
        if known is not None:
            return known[0]
        # A client that tries many tokens does not delay readers whose tokens have been accepted before.
        if not any(self._users.get(digest, old=True) or ()) and not self._unknown.take_now():
            raise RefusedError(503, "too many unknown tokens; try again later")
        try:
            user = await self.reviews.user_of(token)
        except (ApiError, UnreachableError) as error:
            raise self._unavailable(error) from error
        self._failing = False
        return self._users.put(digest, user)

    async def has_right(self, reader: "Reader", kind: str, of: str, name: str = "") -> bool:
        """
        Return whether a user has a right; `kind` is `path` or `pods`.

        Raises:
            RefusedError: the API server was asked too much lately, or has no answer.
        """
        if reader.user is None or max(len(of), len(name)) > _LONGEST_NAME:
            return False
        key = (reader.digest, kind, of, name)
        known = self._rights.get(key)
        if known is not None:
            return known[0]
        if not self._reviewed.take_now():
            raise RefusedError(429, "too many questions about rights; try again")
        reviews, user = self.reviews, reader.user
        try:
            answer = reviews.may_get(user, of) if kind == "path" else reviews.may_get_pods(user, of, name)
            return self._rights.put(key, await answer)
        except (ApiError, UnreachableError) as error:
            raise self._unavailable(error) from error

    def is_known(self, reader: "Reader", namespace: str) -> bool:
        """Return whether the API server need not be asked about the pods of a namespace."""
        return self._rights.get((reader.digest, "pods", namespace, "")) is not None

    def _unavailable(self, error: Exception) -> RefusedError:
        """Return the refusal if the API server could not be asked; the log says why, once until it answers."""
        if not self._failing:
            log.warning("Cannot ask the API server what a reader may see", exc=error)
        self._failing = True
        return RefusedError(503, "the API server cannot be asked what you may see")


@attrs.frozen(eq=False)
class Reader:
    """
    Who asks.

    Each method raises RefusedError if the API server has no answer, or was asked too much lately.

    Attributes:
        user: None for a reader without a token.
    """

    user: User | None
    digest: bytes
    _access: Access

    async def may_get_pod(self, namespace: str, name: str) -> bool:
        """Return whether the reader may get a pod, or without a name all pods of the namespace."""
        return await self._access.has_right(self, "pods", namespace, name)

    async def names(self, namespaces: Iterable[str]) -> Names:
        """Return in which of these namespaces the reader may see names."""
        if self.user is None:
            return Names(frozenset())
        if await self._access.has_right(self, "pods", ""):
            return Names(None)
        shown: set[str] = set()
        asked = hidden = unasked = 0
        for namespace in sorted(set(namespaces) - {""}):
            asked += not self._access.is_known(self, namespace)
            if asked > MOST_NAMESPACES:
                unasked += 1
            elif await self._access.has_right(self, "pods", namespace):
                shown.add(namespace)
            else:
                hidden += 1
        return Names(frozenset(shown), hidden, unasked)


def bearer_token(authorization: str) -> str:
    """Return the token in an `Authorization` header; empty if there is none."""
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def confidential(request: web.BaseRequest) -> bool:
    """Return whether nobody on the way can read it: over TLS, or from this host, as `kubectl port-forward` is."""
    if request.secure:
        return True
    try:
        address = ipaddress.ip_address(request.remote or "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback

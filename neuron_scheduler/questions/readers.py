"""
Who asks, and what that reader may see, by the API server's TokenReview and SubjectAccessReviews.

A reader needs the right to get the path. The names of pods are shown where the reader may get the pods themselves, so
no tenant learns another's names. Answers of the API server, refusals too, are kept for a few seconds, by a digest of
the token. Tokens that are not known yet are limited, so that guesses do not flood the API server, and so are reviews of
rights: they share its patience with our Bindings. Refuses tokens that somebody on the way could read.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, Protocol, TypeVar

import attrs

from neuron_scheduler.endpoints.access import CACHE_SECONDS, bearer_token, status_reply
from neuron_scheduler.endpoints.exchange import Reply, Request
from neuron_scheduler.errors import ApiError, NeuronSchedulerError, UnreachableError
from neuron_scheduler.kube.http.rate_limit import TokenBucket
from neuron_scheduler.kube.user_review import User
from neuron_scheduler.questions.refusals import busy
from neuron_scheduler.telemetry import logs

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

log = logs.logger(__name__)
K = TypeVar("K")
V = TypeVar("V")


class TooManyReviewsError(NeuronSchedulerError):
    """The API server is not asked about more rights at present."""


class Reviews(Protocol):
    """What is asked of the API server."""

    async def user_of(self, token: str) -> User | None:
        """Return the user that a token belongs to."""

    async def may_get(self, user: User, path: str) -> bool:
        """Return whether a user may GET a path."""

    async def may_get_pods(self, user: User, namespace: str, name: str = "") -> bool:
        """Return whether a user may get a pod, all pods of a namespace, or without a namespace all pods."""


@attrs.define(eq=False)
class _Memory(Generic[K, V]):
    """Values that are remembered for `CACHE_SECONDS`, at most so many."""

    clock: Callable[[], float]
    most: int
    _values: dict[K, tuple[float, V]] = attrs.field(factory=dict, init=False)

    def get(self, key: K) -> tuple[V] | None:
        """Return the value in a tuple; None if there is none."""
        until, value = self._values.get(key, (0.0, None))
        return None if value is None or self.clock() >= until else (value,)

    def put(self, key: K, value: V) -> V:
        """Remember a value, and return it."""
        self._values.pop(key, None)
        self._values[key] = self.clock() + CACHE_SECONDS, value
        if len(self._values) > self.most:
            del self._values[next(iter(self._values))]
        return value


@attrs.frozen
class _Nobody:
    """A token that the API server does not accept."""


_NOBODY: Final = _Nobody()


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
class Readers:
    """
    Judges requests.

    Attributes:
        clock: seconds, monotonic.
        public: paths that are answered without a token, and then without any name of a pod.
    """

    reviews: Reviews
    clock: Callable[[], float]
    public: Collection[str] = ()
    _users: _Memory[bytes, User | _Nobody] = attrs.field(init=False)
    _rights: _Memory[tuple[bytes, str, str, str], bool] = attrs.field(init=False)
    _unknown: TokenBucket = attrs.field(init=False)
    _reviewed: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._users = _Memory(self.clock, MOST_TOKENS)
        self._rights = _Memory(self.clock, MOST_RIGHTS)
        self._unknown = TokenBucket(self.clock, _UNKNOWN_TOKENS_PER_SECOND, _UNKNOWN_TOKENS_AT_ONCE)
        self._reviewed = TokenBucket(self.clock, _REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE)

    async def reader(self, request: Request) -> "Reader | Reply":
        """Return who asks, or the refusal of a request that must not be answered."""
        token = bearer_token(request.fields.get("authorization", ""))
        public = request.path in self.public
        if not token:
            return Reader(None, b"", self) if public else status_reply(401, "Unauthorized", HOW)
        if not request.confidential:
            sentence = "a token is not accepted over a connection that others can read"
            return status_reply(403, "Forbidden", f"{sentence}: {HOW}")
        digest = hashlib.sha256(token.encode()).digest()
        try:
            return await self._judged(digest, token, request.path, public=public)
        except TooManyReviewsError as error:
            return busy(str(error), 429)
        except (ApiError, UnreachableError) as error:
            return unavailable(error)

    async def _judged(self, digest: bytes, token: str, path: str, *, public: bool) -> "Reader | Reply":
        known = self._users.get(digest)
        if known is None:
            if not self._unknown.take_now():
                return busy("too many unknown tokens; try again later")
            known = (self._users.put(digest, await self.reviews.user_of(token) or _NOBODY),)
        (user,) = known
        if isinstance(user, _Nobody):
            return status_reply(401, "Unauthorized", f"the API server does not accept this token; {HOW}")
        reader = Reader(user, digest, self)
        if public or await reader.may_get_path(path):
            return reader
        sentence = f'User "{user.username}" cannot get path "{path}"'
        remedy = "an administrator can bind the ClusterRole neuron-scheduler-reader"
        return status_reply(403, "Forbidden", f"forbidden: {sentence}; {remedy}")

    async def has_right(self, reader: "Reader", kind: str, of: str, name: str = "") -> bool:
        """
        Return whether a user has a right; `kind` is `path` or `pods`.

        Raises:
            TooManyReviewsError: the API server was asked too much lately.
        """
        if reader.user is None or max(len(of), len(name)) > _LONGEST_NAME:
            return False
        key = (reader.digest, kind, of, name)
        known = self._rights.get(key)
        if known is not None:
            return known[0]
        if not self._reviewed.take_now():
            raise TooManyReviewsError("too many questions about rights; try again")
        reviews, user = self.reviews, reader.user
        answer = reviews.may_get(user, of) if kind == "path" else reviews.may_get_pods(user, of, name)
        return self._rights.put(key, await answer)

    def is_known(self, reader: "Reader", namespace: str) -> bool:
        """Return whether the API server need not be asked about the pods of a namespace."""
        return self._rights.get((reader.digest, "pods", namespace, "")) is not None


@attrs.frozen(eq=False)
class Reader:
    """
    Who asks.

    Each method raises ApiError or UnreachableError if the API server has no answer, and TooManyReviewsError if it was
    asked too much lately.

    Attributes:
        user: None for a reader without a token.
    """

    user: User | None
    digest: bytes
    _readers: Readers

    async def may_get_path(self, path: str) -> bool:
        """Return whether the reader may get a path."""
        return await self._readers.has_right(self, "path", path)

    async def may_get_pod(self, namespace: str, name: str) -> bool:
        """Return whether the reader may get a pod."""
        return await self._readers.has_right(self, "pods", namespace, name)

    async def names(self, namespaces: Iterable[str]) -> Names:
        """Return in which of these namespaces the reader may see names."""
        if self.user is None:
            return Names(frozenset())
        if await self._readers.has_right(self, "pods", ""):
            return Names(None)
        shown: set[str] = set()
        asked = hidden = unasked = 0
        for namespace in sorted(set(namespaces) - {""}):
            asked += not self._readers.is_known(self, namespace)
            if asked > MOST_NAMESPACES:
                unasked += 1
            elif await self._readers.has_right(self, "pods", namespace):
                shown.add(namespace)
            else:
                hidden += 1
        return Names(frozenset(shown), hidden, unasked)


def unavailable(error: Exception) -> Reply:
    """Return the answer if the API server could not be asked; the log says why."""
    log.warning("Cannot ask the API server what a reader may see", exc=error)
    return busy("the API server cannot be asked what you may see")

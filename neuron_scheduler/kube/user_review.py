"""
Ask the API server whose token it is, and what that user may do: TokenReview and SubjectAccessReview.

Does not remember an answer or decide what follows from it: that is for `endpoints.access`. What this process
itself may do is for `access_review`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import attrs
import msgspec

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.status import confirms
from neuron_scheduler.kube.objects import wire

TIMEOUT: Final = 3.0  # seconds for each request; a client of /metrics waits for two

T = TypeVar("T")

_TOKENS: Final = "authentication.k8s.io/v1"
_ACCESS: Final = "authorization.k8s.io/v1"


class User(wire.Wire):
    """A user as the API server describes it; passed on unchanged."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(wire.Wire):
    authenticated: bool = False
    user: User = msgspec.field(default_factory=User)


class _TokenReview(wire.Wire):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(wire.Wire):
    allowed: bool = False
    denied: bool = False


class _AccessReview(wire.Wire):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


_TOKEN_REVIEW: Final = msgspec.json.Decoder(_TokenReview)
_ACCESS_REVIEW: Final = msgspec.json.Decoder(_AccessReview)


@attrs.frozen
class UserReviews:
    """These requests; each raises ApiError or UnreachableError if there is no answer."""

    client: Client

    async def user_of(self, token: str) -> User | None:
        """Return the user of a bearer token; None if the API server does not accept it."""
        status = (await self._post(_TOKENS, "TokenReview", {"token": token}, _TOKEN_REVIEW)).status
        return status.user if status.authenticated and status.user.username else None

    async def may_get(self, user: User, path: str) -> bool:
        """Return whether a user may GET a path that is not a resource, such as `/metrics`."""
        return await self._is_allowed(_subject(user) | {"nonResourceAttributes": {"path": path, "verb": "get"}})

    async def may_get_pods(self, user: User, namespace: str, name: str = "") -> bool:
        """Return whether a user may get a pod, all pods of a namespace, or without a namespace all pods."""
        attributes = {"verb": "get", "resource": "pods", "namespace": namespace, "name": name}
        return await self._is_allowed(_subject(user) | {"resourceAttributes": attributes})

    async def may(self, username: str, groups: Sequence[str], attributes: Mapping[str, str]) -> bool:
        """Return whether a user of these groups has a right, by its `resourceAttributes`."""
        return await self._is_allowed({"user": username, "groups": [*groups], "resourceAttributes": attributes})

    async def _is_allowed(self, spec: object) -> bool:
        status = (await self._post(_ACCESS, "SubjectAccessReview", spec, _ACCESS_REVIEW)).status
        return status.allowed and not status.denied

    async def _post(self, group: str, kind: str, spec: object, decoder: msgspec.json.Decoder[T]) -> T:
        body = msgspec.json.encode({"apiVersion": group, "kind": kind, "spec": spec})
        path = f"/apis/{group}/{kind.lower()}s"
        try:
            answer = await self.client.request("POST", path, body=body, timeout=TIMEOUT)
        except ApiError as error:
            if error.refused or error.status not in (401, 403):
                raise
            raise UnreachableError(f"POST {path}: {error.status}, and not from an API server") from error
        if not confirms(answer.body, kind):
            raise UnreachableError(f"the answer to POST {path} is not from an API server")
        try:
            return decoder.decode(answer.body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UnreachableError(f"the answer to POST {path} cannot be read: {error}") from error


def _subject(user: User) -> dict[str, object]:
    """Return the part of a review that says whose rights it is about."""
    return {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}

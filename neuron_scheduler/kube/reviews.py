"""
What this process may do, who its readers are and what they may do, by the API server's own answers.

A missing right of this process would show only when it is first needed, perhaps hours after the start. So the API
server is asked first, with SelfSubjectAccessReviews; `manifests/base/rbac.yaml` is tested against the list. What
follows from the answers about readers, and for how long they count, is for `serving.access`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.status import UNKNOWN_USER
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, UnreachableError

_TOKENS: Final = "authentication.k8s.io/v1"
_ACCESS: Final = "authorization.k8s.io/v1"
_PAUSE: Final = 2.0
_TRIES: Final = 3
_TIMEOUT: Final = 10.0  # an answer takes milliseconds; what takes longer is a connection that is dead
TIMEOUT: Final = 3.0  # seconds for each request about a reader; a client of /metrics waits for two

log = logs.logger(__name__)

_CAPACITY: Final = "neuron-scheduler-capacity"


@attrs.frozen
class Right:
    """A verb on a resource; `namespace` and `name` are empty where the right is for all of them."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        resource, _, subresource = self.resource.partition("/")
        return {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }

    def __str__(self) -> str:
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}{place}"


_SINGLE_OBJECTS: Final = (
    *(Right(verb, "pods") for verb in ("get", "delete")),
    *(Right("patch", volumes) for volumes in ("persistentvolumes", "persistentvolumeclaims")),
    Right("create", "pods/binding"),
    Right("patch", "pods/status"),
    Right("create", "events", "events.k8s.io"),
)

REVIEWING: Final = (
    Right("create", "tokenreviews", "authentication.k8s.io"),
    Right("create", "subjectaccessreviews", "authorization.k8s.io"),
)
"""
What --authorize-metrics and --answer-questions need: manifests/components/secure-metrics and questions bind
`system:auth-delegator`, which has it.
"""


ASKING: Final = (
    *(Right(verb, "pods", "", _CAPACITY) for verb in ("create", "delete")),
    Right("patch", "pods/status", "", _CAPACITY),
)
"""What asking an autoscaler for machines needs: manifests/components/capacity-requests grants it."""


CLAIMING: Final = (
    Right("get", "resourceclaims", "resource.k8s.io"),
    *(
        Right(verb, f"resourceclaims{sub}", "resource.k8s.io")
        for sub in ("", "/status", "/binding")
        for verb in ("update", "patch")
    ),
)
"""What --claims needs beside the watches: manifests/components/claims grants it."""


def rights_to_watch(watched: Iterable[Resource[Any]]) -> tuple[Right, ...]:
    return tuple(Right(verb, resource.name, resource.group) for resource in watched for verb in ("list", "watch"))


def rights_to_schedule(watched: Iterable[Resource[Any]]) -> tuple[Right, ...]:
    """Return the rights that scheduling needs: to list and watch these resources, to write, and to read back."""
    return (*rights_to_watch(watched), *_SINGLE_OBJECTS)


def rights_to_lead(namespace: str, name: str) -> tuple[Right, ...]:
    group = "coordination.k8s.io"
    return (
        Right("create", "leases", group, namespace),
        *(Right(verb, "leases", group, namespace, name) for verb in ("get", "update", "watch")),
    )


class User(wire.Wire):
    """A user as the API server describes it; passed on unchanged."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Status(wire.Wire):
    """What a TokenReview answers, `authenticated` and `user`, and what an access review does."""

    authenticated: bool = False
    user: User = msgspec.field(default_factory=User)
    allowed: bool = False
    denied: bool = False


class _Review(wire.Wire):
    status: _Status = msgspec.field(default_factory=_Status)


_REVIEW: Final = msgspec.json.Decoder(_Review)


async def require(client: Client, rights: tuple[Right, ...]) -> None:
    """
    Return once the API server has granted this process all the rights; wait while it cannot be reached.

    Raises:
        ConfigurationError: some are missing, or the server does not know who we are.
    """
    for _ in range(_TRIES):
        lacking = await missing_rights(client, rights)
        if not lacking:
            return
        await anyio.sleep(_PAUSE)  # for a moment after its start an API server knows no rights
    if all(right in map(str, REVIEWING) for right in lacking):
        advice = (
            "apply manifests/components/questions (for --answer-questions) or manifests/components/secure-metrics"
            " (for --authorize-metrics)"
        )
    elif all(right.endswith(".resource.k8s.io") for right in lacking):
        advice = "apply manifests/components/claims (for --claims)"
    else:
        advice = "apply manifests/base/rbac.yaml or the chart, and run under its ServiceAccount"
    raise ConfigurationError(f"the API server does not allow this process to {', '.join(lacking)}; {advice}")


async def missing_rights(client: Client, rights: tuple[Right, ...]) -> list[str]:
    """Return which of the rights this process lacks; wait while the server cannot be reached."""
    return [str(right) for right in rights if not await _is_allowed(client, right)]


async def _is_allowed(client: Client, right: Right) -> bool:
    spec = {"resourceAttributes": right.attributes}
    while True:
        try:
            return (await _review(client, _ACCESS, "SelfSubjectAccessReview", spec, within=_TIMEOUT)).allowed
        except ApiError as error:
            if error.is_unauthorized:
                raise ConfigurationError(UNKNOWN_USER) from error
            if error.status < 500 and error.status != 429:
                log.warning("Permissions cannot be checked; continuing without the check", exc=error)
                return True
            log.warning("API server is not ready; trying again", exc=error)
        except UnreachableError as error:
            log.warning("API server cannot be reached; trying again", exc=error)
        await anyio.sleep(_PAUSE)


@attrs.frozen
class UserReviews:
    """Asks about readers; each request raises ApiError or UnreachableError if there is no answer."""

    client: Client

    async def user_of(self, token: str) -> User | None:
        """Return the user of a bearer token; None if the API server does not accept it."""
        status = await _review(self.client, _TOKENS, "TokenReview", {"token": token}, within=TIMEOUT)
        return status.user if status.authenticated and status.user.username else None

    async def may_get(self, user: User, path: str) -> bool:
        return await self._is_allowed(_subject(user) | {"nonResourceAttributes": {"path": path, "verb": "get"}})

    async def may_get_pods(self, user: User, namespace: str) -> bool:
        """Return whether a user may get the pods of a namespace; an empty one stands for all."""
        attributes = {"verb": "get", "resource": "pods", "namespace": namespace}
        return await self._is_allowed(_subject(user) | {"resourceAttributes": attributes})

    async def may(self, username: str, groups: Sequence[str], attributes: Mapping[str, str]) -> bool:
        """Return whether a user of these groups has a right, by its `resourceAttributes`."""
        return await self._is_allowed({"user": username, "groups": [*groups], "resourceAttributes": attributes})

    async def _is_allowed(self, spec: object) -> bool:
        status = await _review(self.client, _ACCESS, "SubjectAccessReview", spec, within=TIMEOUT)
        return status.allowed and not status.denied


async def _review(client: Client, group: str, kind: str, spec: object, *, within: float) -> _Status:
    """Return the status of a review; an error is ApiError or UnreachableError."""
    body = msgspec.json.encode({"apiVersion": group, "kind": kind, "spec": spec})
    answer = await client.request("POST", f"/apis/{group}/{kind.lower()}s", body=body, timeout=within)
    try:
        return _REVIEW.decode(answer.body).status
    except (ValueError, RecursionError) as error:
        raise UnreachableError(f"the answer cannot be read: {error}") from error


def _subject(user: User) -> dict[str, object]:
    return {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}

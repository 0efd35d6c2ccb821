"""
The rights that this process needs, and whether it has them; `manifests/base/rbac.yaml` is tested against the list.

A missing right would show only when it is first needed, for a Binding perhaps hours after the start. So the API server
is asked once, before anything else, with SelfSubjectAccessReviews, which every authenticated user may create. Refuses
to judge other users: that is for `user_review`.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

import anyio
import attrs
import msgspec

from neuron_scheduler.errors import ApiError, ConfigurationError, UnreachableError
from neuron_scheduler.kube.http.client import Response
from neuron_scheduler.kube.http.status import UNKNOWN_USER, confirms
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.telemetry import logs

_KIND: Final = "SelfSubjectAccessReview"
_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PAUSE: Final = 2.0
_TRIES: Final = 3
_TIMEOUT: Final = 10.0  # an answer takes milliseconds; what takes longer is a connection that is dead

log = logs.logger(__name__)


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
        """The `resourceAttributes` of a review that asks for this right."""
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
    *(
        Right(verb, volumes)
        for volumes in ("persistentvolumes", "persistentvolumeclaims")
        for verb in ("get", "update")
    ),
    Right("create", "pods/binding"),
    Right("patch", "pods/status"),
    *(Right(verb, "events", "events.k8s.io") for verb in ("create", "patch")),
)

REVIEWING: Final = (
    Right("create", "tokenreviews", "authentication.k8s.io"),
    Right("create", "subjectaccessreviews", "authorization.k8s.io"),
)
"""
What --authorize-metrics and --answer-questions need: manifests/components/secure-metrics and questions bind
`system:auth-delegator`, which has it.
"""


def scheduling(watched: Iterable[Resource[Any]]) -> tuple[Right, ...]:
    """Return the rights that scheduling needs: to list and watch these resources, to write, and to read back."""
    return (
        *(Right(verb, resource.name, resource.group) for resource in watched for verb in ("list", "watch")),
        *_SINGLE_OBJECTS,
    )


def leading(namespace: str, name: str) -> tuple[Right, ...]:
    """Return the rights that holding a Lease needs."""
    group = "coordination.k8s.io"
    return (
        Right("create", "leases", group, namespace),
        *(Right(verb, "leases", group, namespace, name) for verb in ("get", "update", "watch")),
    )


def asking(form: str, namespace: str) -> tuple[Right, ...]:
    """
    Return the rights that asking for machines needs, which manifests/components/capacity-requests grants.

    Args:
        form: `Placeholders` or `CapacityBuffers`.
        namespace: of what asks.
    """
    if form == "Placeholders":
        return (
            *(Right(verb, "pods", "", namespace) for verb in ("create", "delete")),
            Right("patch", "pods/status", "", namespace),
        )
    return (
        *(Right(verb, "podtemplates", "", namespace) for verb in ("create", "delete", "get", "list")),
        *(Right(verb, "capacitybuffers", "autoscaling.x-k8s.io", namespace) for verb in ("create", "delete", "get")),
    )


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Api(Protocol):
    """The requests of the client that are used."""

    async def request(self, method: str, path: str, *, body: bytes | None = ..., timeout: float = ...) -> Response:  # noqa: ASYNC109 - as in the client
        """Send one request."""


async def require(client: Api, rights: tuple[Right, ...]) -> None:
    """
    Return once the API server has answered that this process has all the rights; wait for a server that cannot be
    reached.

    Raises:
        ConfigurationError: some are missing, or the server does not know who we are.
    """
    for _ in range(_TRIES):
        lacking = await missing(client, rights)
        if not lacking:
            return
        await anyio.sleep(_PAUSE)  # for a moment after its start an API server knows no rights
    if all(right in map(str, REVIEWING) for right in lacking):
        advice = (
            "apply manifests/components/questions (for --answer-questions) or manifests/components/secure-metrics"
            " (for --authorize-metrics)"
        )
    else:
        advice = "apply manifests/base/rbac.yaml or the chart, and run under its ServiceAccount"
    raise ConfigurationError(f"the API server does not allow this process to {', '.join(lacking)}; {advice}")


async def missing(client: Api, rights: tuple[Right, ...]) -> list[str]:
    """Return which of the rights this process does not have; wait for a server that cannot be reached."""
    return [str(right) for right in rights if not await _allowed(client, right)]


async def _allowed(client: Api, right: Right) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": _KIND,
        "spec": {"resourceAttributes": right.attributes},
    }
    body = msgspec.json.encode(review)
    while True:
        try:
            answer = await client.request("POST", _PATH, body=body, timeout=_TIMEOUT)
            if confirms(answer.body, _KIND):
                return msgspec.json.decode(answer.body, type=_Review).status.allowed
            log.warning("The answer is not from an API server; trying again", right=str(right))
        except ApiError as error:
            if error.unauthorized:
                raise ConfigurationError(UNKNOWN_USER) from error
            if error.status < 500 and error.status != 429:
                log.warning("Permissions cannot be checked; continuing without the check", exc=error)
                return True
            log.warning("API server is not ready; trying again", exc=error)
        except UnreachableError as error:
            log.warning("API server cannot be reached; trying again", exc=error)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            log.warning("The answer is not from an API server; trying again", exc=error)
        await anyio.sleep(_PAUSE)

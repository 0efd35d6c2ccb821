"""
Reads a cluster once into a `Snapshot`: a LIST in pages for each kind, and reviews of our ServiceAccount's rights.

A request that is refused or fails becomes `Unread`, and the rest is still read. A kind that the API server does not
serve has no objects. It writes nothing: a review creates no object. What asking the autoscaler for machines needs is
read only where a profile asks: what is not used needs no right of the person who checks.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import attrs
import msgspec

from neuron_scheduler import __version__
from neuron_scheduler.capture.live import objects
from neuron_scheduler.commands.check import kinds
from neuron_scheduler.commands.check.subjects import known
from neuron_scheduler.commands.check.subjects.snapshot import (
    Access,
    Asking,
    Lease,
    Object,
    SeenPod,
    SeenWorkload,
    Snapshot,
    Unread,
)
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.status import UNKNOWN_USER
from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selecting_kinds import BUDGETS, NAMESPACES, WORKLOADS
from neuron_scheduler.kube.objects.storage import STORAGE
from neuron_scheduler.kube.reviews import ASKING, REVIEWING, Right, UserReviews, leading, scheduling
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, UnreachableError

WITHIN: Final = 10.0  # seconds for a small request
AT_ONCE: Final = 8  # reviews
REVIEW: Final = "create subjectaccessreviews.authorization.k8s.io"
WATCHED: Final[tuple[Resource[Any], ...]] = (NODES, BUDGETS, NAMESPACES, *WORKLOADS, *STORAGE, PODS)
"""What the scheduler watches, and so needs rights for."""
T = TypeVar("T")
K = TypeVar("K")


@attrs.frozen(kw_only=True)
class Reader:
    """
    Reads one cluster.

    Attributes:
        source: where the address of the API server comes from.
        namespace: where the scheduler is, or will be, installed.
        names: scheduler names that the user has given; empty for those of the installation.
        now: seconds since the epoch, for the age of the Lease.
    """

    client: Client
    server: str
    source: str
    namespace: str = "kube-system"
    names: tuple[str, ...] = ()
    lease_name: str = "my-scheduler"
    now: Callable[[], float] = time.time
    _malformed: list[str] = attrs.field(factory=list, init=False)

    async def read(self) -> Snapshot:
        """
        Return what could be read.

        Raises:
            UnreachableError: there is no API server at that address.
            ConfigurationError: it does not know who we are.
        """
        version = await self._version()
        listed = {name: partial(self._list, resource) for name, resource in kinds.lists(self.namespace).items()}
        reads: dict[str, Callable[[], Awaitable[Any]]] = {
            **listed,
            "not_served": self._not_served,
            "slices": self._slices,
            "deployments": self._deployments,
            "lease": partial(attempt, "get leases.coordination.k8s.io", self._lease, None),
            "others": self._others,
        }
        found: dict[str, Any] = {}

        async def keep(name: str, read: Callable[[], Awaitable[Any]]) -> None:
            found[name] = await read()

        async with anyio.create_task_group() as tasks:
            for name, read in reads.items():
                tasks.start_soon(keep, name, read)
        pods: tuple[SeenPod, ...] | Unread = found.pop("pods")
        read_so_far = Snapshot(
            server=self.server,
            source=self.source,
            version=version,
            namespace=self.namespace,
            lease_name=self.lease_name,
            given_names=self.names,
            program_version=__version__,
            malformed=tuple(sorted(self._malformed)),
            pods=pods if isinstance(pods, Unread) else tuple(filter(kinds.asks, pods)),
            system_pods=pods if isinstance(pods, Unread) else tuple(filter(kinds.is_of_system, pods)),
            **found,
        )
        return attrs.evolve(
            read_so_far,
            rights=await review_rights(self.client, read_so_far),
            asking=await read_asking(self.client, read_so_far),
        )

    # One request

    async def _version(self) -> str | Unread:
        """Return the server's version; this is the first request, so a failure means that there is no server."""
        try:
            answer = await self.client.request("GET", "/version", timeout=WITHIN)
            return str(msgspec.json.decode(answer.body, type=_Version).git_version)
        except ApiError as error:
            if error.unauthorized:
                raise ConfigurationError(UNKNOWN_USER) from error
            if not error.is_status and error.status in (401, 403):
                raise UnreachableError(f"the answer to GET /version is not from an API server: {error}") from error
            return Unread("get /version", error.forbidden, str(error))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UnreachableError(f"the answer to GET /version is not from an API server: {error}") from error

    async def _not_served(self) -> tuple[str, ...] | Unread:
        """Return which of the kinds that the scheduler watches the API server does not serve, by their paths."""
        missing: list[str] = []
        for prefix in dict.fromkeys(resource.path.rpartition("/")[0] for resource in WATCHED):
            served: frozenset[str] | Unread = await attempt(f"get {prefix}", partial(self._served, prefix), frozenset())
            if isinstance(served, Unread):
                return served
            watched = (resource for resource in WATCHED if resource.path.rpartition("/")[0] == prefix)
            missing += [resource.path for resource in watched if resource.name not in served]
        return tuple(missing)

    async def _served(self, prefix: str) -> frozenset[str]:
        """Return the plurals of the kinds below a path, such as /apis/apps/v1."""
        answer = await self.client.request("GET", prefix, timeout=WITHIN)
        return frozenset(each.name for each in msgspec.json.decode(answer.body, type=_Discovered).resources)

    async def _lease(self) -> Lease:
        leases = LeaseClient(client=self.client, namespace=self.namespace, name=self.lease_name)
        record = await leases.get(within=WITHIN)
        age = None if record.renewed is None else self.now() - record.renewed.timestamp()
        return Lease(record.holder, record.duration, age)

    # Lists

    async def _list(self, resource: Resource[T]) -> tuple[T, ...] | Unread:
        """Return the objects of a kind; those that cannot be read are kept apart."""

        async def every() -> tuple[T, ...]:
            found: list[T] = []
            async for decoded in objects(self.client, resource):
                value = decoded.value
                if isinstance(value, Malformed):
                    self._malformed.append(f"{value.kind} {value.key}: {value.reason}")
                elif value is not None:
                    found.append(value)
            return tuple(found)

        name = f"{resource.name}.{resource.group}" if resource.group else resource.name
        place = f" in namespace {self.namespace}" if "/namespaces/" in resource.path else ""
        return await attempt(f"list {name}{place}", every, ())

    async def _others(self) -> tuple[tuple[Object, ...] | Unread, ...]:
        return tuple([await self._list(resource) for resource in kinds.others(self.namespace)])

    async def _slices(self) -> frozenset[str] | Unread:
        """Return the nodes with ResourceSlices of AWS's driver, in the newest version that is served."""
        for version in kinds.DRA_VERSIONS:
            found = await self._list(kinds.slices(version))
            if found:
                return found if isinstance(found, Unread) else frozenset(found)
        return frozenset()

    async def _deployments(self) -> tuple[SeenWorkload, ...] | Unread:
        """Return the Deployments of schedulers, with what their ConfigMaps say."""
        found: tuple[SeenWorkload, ...] | Unread = await self._list(kinds.lists(self.namespace)["deployments"])
        return found if isinstance(found, Unread) else tuple([await self._configured(each) for each in found])

    async def _configured(self, workload: SeenWorkload) -> SeenWorkload:
        flagged = workload.flagged_names
        if workload.mode == "extender":
            return kinds.configured(workload, ())
        if not (workload.mode or kinds.is_named(workload, "kube-scheduler")):
            return attrs.evolve(workload, serves=flagged or None)  # its ConfigMaps are no matter
        contents = await self._contents(workload)
        if isinstance(contents, Unread):
            return attrs.evolve(workload, serves=flagged or contents)
        return kinds.configured(workload, contents)

    async def _contents(self, workload: SeenWorkload) -> list[dict[str, str]] | Unread:
        """Return the files in the ConfigMaps that a Deployment mounts."""
        contents = []
        namespace = workload.object.namespace
        for name in workload.config_maps:
            read = partial(self._data, f"/api/v1/namespaces/{namespace}/configmaps/{name}")
            data: dict[str, str] | Unread = await attempt(f"get configmaps in namespace {namespace}", read, {})
            if isinstance(data, Unread):
                return data
            contents.append(data)
        return contents

    async def _data(self, path: str) -> dict[str, str]:
        answer = await self.client.request("GET", path, timeout=WITHIN)
        return msgspec.json.decode(answer.body, type=_ConfigMap).data or {}


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _ServedKind(msgspec.Struct):
    name: str


class _Discovered(msgspec.Struct):
    resources: list[_ServedKind]


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


async def attempt(request: str, work: Callable[[], Awaitable[T]], absent: K) -> "T | K | Unread":
    """
    Return the result; `absent` if there is no such object or kind, Unread if it was refused or has failed.

    Raises:
        ConfigurationError: the API server does not know who we are.
    """
    try:
        return await work()
    except ApiError as error:
        if error.unauthorized:
            raise ConfigurationError(UNKNOWN_USER) from error
        if error.status == 404:
            return absent
        if error.forbidden:
            return Unread(request)
        return Unread(request, forbidden=False, reason=str(error))
    except (UnreachableError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Unread(request, forbidden=False, reason=str(error))


async def review_rights(client: Client, read: Snapshot) -> tuple[Access, ...] | Unread | None:
    """Return what our ServiceAccount may do; nothing if it does not exist, None if the server reviews no rights."""
    rights = (*scheduling(WATCHED), *leading(read.namespace, read.lease_name))
    flags = ("--authorize-metrics", "--answer-questions")
    if any(deployment.values_of(flag) for deployment in read.ours for flag in flags):
        rights += REVIEWING
    return await reviewed(client, read, rights)


async def reviewed(client: Client, read: Snapshot, rights: Sequence[Right]) -> tuple[Access, ...] | Unread | None:
    """Return which of these rights our ServiceAccount has; nothing, or None, as in `review_rights`."""
    if not isinstance(read.accounts, Unread) and read.account not in {found.name for found in read.accounts}:
        return ()
    reviews, limiter = UserReviews(client), anyio.CapacityLimiter(AT_ONCE)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{read.namespace}", "system:authenticated")
    answers: dict[Right, bool | Unread | None] = {}

    async def review(right: Right) -> None:
        async with limiter:
            answers[right] = await attempt(REVIEW, partial(reviews.may, read.username, groups, right.attributes), None)

    await review(rights[0])
    if isinstance(answers[rights[0]], bool):  # if the first is refused, so are all
        async with anyio.create_task_group() as tasks:
            for right in rights[1:]:
                tasks.start_soon(review, right)
    failed = [answer for answer in answers.values() if not isinstance(answer, bool)]
    return failed[0] if failed else tuple(Access(str(right), answers[right] is True) for right in rights)


async def read_asking(client: Client, read: Snapshot) -> Asking | None:
    """Return what asking for machines needs, as far as it is there; None if no Deployment of ours asks for any."""
    if not any(deployment.asks for deployment in read.ours):
        return None

    async def is_there(request: str, path: str) -> bool | Unread:
        answer: object = await attempt(f"get {request}", partial(client.request, "GET", path, timeout=WITHIN), None)
        return answer if isinstance(answer, Unread) else answer is not None

    classes = "priorityclasses.scheduling.k8s.io"
    return Asking(
        namespace=await is_there("namespaces", f"/api/v1/namespaces/{known.CAPACITY}"),
        priority_class=await is_there(classes, f"/apis/scheduling.k8s.io/v1/priorityclasses/{known.CAPACITY}"),
        rights=await reviewed(client, read, ASKING),
    )

"""
Reads a cluster once into a `Snapshot`: a LIST in pages for each kind, and reviews of our ServiceAccount's rights.

A request that is refused or fails becomes `Unread`, and the rest is still read. A kind that the API server does not
serve has no objects. Nodes, pods and groups are collected as for the other commands (`capture`). What asking the
autoscaler for machines needs is read only where a profile asks: what is not used needs no right of the person who
checks.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import attrs
import msgspec

from neuron_scheduler import __version__
from neuron_scheduler.capture.collection import OPTIONAL_KINDS, Collection
from neuron_scheduler.capture.live import list_all
from neuron_scheduler.commands.check import kinds
from neuron_scheduler.commands.check.subjects import known
from neuron_scheduler.commands.check.subjects.snapshot import Lease, SeenWorkload, Snapshot, Unread, has_neuron_request
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.status import UNKNOWN_USER
from neuron_scheduler.kube.objects.base import Decoded, Malformed, Resource
from neuron_scheduler.kube.objects.devices import CLAIM_KINDS, SLICES
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.reviews import (
    ASKING,
    CLAIMING,
    REVIEWING,
    Right,
    UserReviews,
    rights_to_lead,
    rights_to_schedule,
    rights_to_watch,
)
from neuron_scheduler.kube.watch.discovery import served_kinds
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.model.devices import NEURON_DRIVER
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import PodGroupObject
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, UnreachableError

WITHIN: Final = 10.0  # seconds for a small request
AT_ONCE: Final = 8  # reviews
REVIEW: Final = "create subjectaccessreviews.authorization.k8s.io"
COMPONENT: Final = {
    "namespaces": "/api/v1/namespaces",
    "priorityclasses.scheduling.k8s.io": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "validatingadmissionpolicies.admissionregistration.k8s.io": kinds.LISTED["policies"].path,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": kinds.LISTED["policy_bindings"].path,
}
"""The kinds of which manifests/components/capacity-requests has an object of the name `known.CAPACITY`."""
T = TypeVar("T")
K = TypeVar("K")


@attrs.frozen(kw_only=True)
class SnapshotReader:
    """
    Reads one cluster.

    Attributes:
        client: for one API server.
        names: scheduler names that the user has given; empty for those of the installation.
        now: seconds since the epoch, for the ages of the Lease and of pods.
    """

    client: Client
    names: tuple[str, ...] = ()
    now: Callable[[], float] = time.time
    _collection: Collection = attrs.field(
        default=attrs.Factory(lambda self: Collection(taken=self.now()), True),
        init=False,
    )
    _optional: list[Resource[PodGroupObject]] = attrs.field(factory=list, init=False)
    _malformed: list[Malformed] = attrs.field(factory=list, init=False)

    async def read(self) -> Snapshot:
        """Return what could be read; raises if there is no API server at that address, or it does not know us."""
        version, connection, collection = await self._version(), self.client.connection, self._collection
        reads: dict[str, Callable[[], Awaitable[Any]]] = {
            **{name: partial(self._list, resource) for name, resource in kinds.LISTED.items()},
            "nodes": partial(self._collect, NODES),
            "pods": self._pods,
            "deployments": self._deployments,
            "pod_groups": self._pod_groups,
            "publishing": self._publishing,
            "lease": partial(attempt, "get leases.coordination.k8s.io", self._lease, None),
        }
        found: dict[str, Any] = {}

        async def keep(name: str, read: Callable[[], Awaitable[Any]]) -> None:
            found[name] = await read()

        async with anyio.create_task_group() as tasks:
            for name, read in reads.items():
                tasks.start_soon(keep, name, read)
        for name in ("policies", "policy_bindings"):
            found[name] = found[name] if isinstance(found[name], Unread) else dict(found[name])
        capture = collection.capture()
        so_far = Snapshot(
            server=connection.server,
            source=connection.source,
            version=version,
            given_names=self.names,
            program_version=__version__,
            taken=collection.taken,
            pinned=tuple(pod.key for pod in found["pods"] if pod.key in capture.pinned),
            cluster=capture.cluster,
            malformed=tuple(sorted(f"{each.kind} {each.key}: {each.reason}" for each in self._malformed)),
            **found,
        )
        return attrs.evolve(so_far, rights=await self._rights(so_far), lacking=await self._lacking_objects(so_far))

    # One request

    async def _version(self) -> str | Unread:
        """Return the server's version; this is the first request, so a failure means that there is no server."""
        try:
            answer = await self.client.request("GET", "/version", timeout=WITHIN)
            return str(msgspec.json.decode(answer.body, type=_Version).git_version)
        except ApiError as error:
            if error.is_unauthorized:
                raise ConfigurationError(UNKNOWN_USER) from error
            if not error.is_status:
                raise UnreachableError(f"the answer to GET /version is not from an API server: {error}") from error
            return Unread("get /version", error.is_forbidden, str(error))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UnreachableError(f"the answer to GET /version is not from an API server: {error}") from error

    async def _lease(self) -> Lease:
        leases = LeaseClient(client=self.client)
        record = await leases.get(within=WITHIN)
        age = None if record.renewed is None else self.now() - record.renewed.timestamp()
        return Lease(record.holder, record.duration, age)

    # Lists

    async def _list_all(self, resource: Resource[T]) -> list[Decoded[T]] | Unread:
        name = f"{resource.name}.{resource.group}" if resource.group else resource.name
        found = await attempt(f"list {name}", partial(list_all, self.client, resource), list[Decoded[T]]())
        self._malformed.extend(decoded.value for decoded in found if isinstance(decoded.value, Malformed))
        return found

    async def _list(self, resource: Resource[T]) -> tuple[T, ...] | Unread:
        found = await self._list_all(resource)
        return found if isinstance(found, Unread) else _readable(found)

    async def _collect(self, resource: Resource[T]) -> tuple[T, ...] | Unread:
        found = await self._list_all(resource)
        for decoded in found:
            self._collection.add(resource, decoded)
        return found if isinstance(found, Unread) else _readable(found)

    async def _pods(self) -> tuple[Pod, ...] | Unread:
        """Return the pods that ask for Neuron by counts; members of groups and pods with claims are collected, too."""
        found = await self._list_all(self._collection.reader_of(PODS))
        asking: list[Pod] = []
        for decoded in found:
            pod = decoded.value
            if isinstance(pod, Pod) and has_neuron_request(pod):
                asking.append(pod)
            elif isinstance(pod, Pod) and pod.group is None and not pod.claims:
                continue
            self._collection.add(PODS, decoded)
        return found if isinstance(found, Unread) else tuple(asking)

    async def _pod_groups(self) -> Unread | None:
        self._optional.extend(await served_kinds(self.client))
        lists = [await self._collect(resource) for resource in self._optional]
        read = (resource for resource, each in zip(self._optional, lists, strict=True) if not isinstance(each, Unread))
        self._collection.cluster.groups.watched.update(resource.group for resource in read)
        return next((each for each in lists if isinstance(each, Unread)), None)

    async def _publishing(self) -> frozenset[str] | Unread:
        """Return the nodes whose Neuron devices a driver publishes; if there are some, claims are read, too."""
        slices = await self._collect(SLICES)
        if isinstance(slices, Unread):
            return slices
        nodes = frozenset(each.node_name for each in slices if each.driver == NEURON_DRIVER and each.node_name)
        lists = [await self._collect(resource) for resource in CLAIM_KINDS if nodes and resource is not SLICES]
        return next((each for each in lists if isinstance(each, Unread)), nodes)

    async def _deployments(self) -> tuple[SeenWorkload, ...] | Unread:
        found: tuple[SeenWorkload, ...] | Unread = await self._list(kinds.DEPLOYMENTS)
        return found if isinstance(found, Unread) else tuple([await self._with_configuration(each) for each in found])

    async def _with_configuration(self, workload: SeenWorkload) -> SeenWorkload:
        flagged = workload.flagged_names
        if workload.mode == "extender":
            return kinds.with_configuration(workload, ())
        if not (workload.mode or kinds.is_named(workload, "kube-scheduler")):
            return attrs.evolve(workload, serves=flagged or None)  # its ConfigMaps are no matter
        contents = await self._contents(workload)
        if isinstance(contents, Unread):
            return attrs.evolve(workload, serves=flagged or contents)
        return kinds.with_configuration(workload, contents)

    async def _contents(self, workload: SeenWorkload) -> list[dict[str, str]] | Unread:
        contents = []
        for name in workload.config_maps:
            read = partial(self._data, f"/api/v1/namespaces/{workload.namespace}/configmaps/{name}")
            data: dict[str, str] | Unread = await attempt(f"get configmaps in namespace {workload.namespace}", read, {})
            if isinstance(data, Unread):
                return data
            contents.append(data)
        return contents

    async def _data(self, path: str) -> dict[str, str]:
        answer = await self.client.request("GET", path, timeout=WITHIN)
        return msgspec.json.decode(answer.body, type=dict[str, Any]).get("data") or {}

    # Rights, and what asking for machines needs

    async def _rights(self, read: Snapshot) -> dict[str, bool] | Unread:
        if isinstance(read.deployments, Unread):
            return read.deployments
        if not any(deployment.namespace == known.NAMESPACE for deployment in read.ours):
            return {}
        needed = [resource for resource in self._collection.resources if resource not in OPTIONAL_KINDS]
        rights = (*rights_to_schedule(needed), *rights_to_lead(known.NAMESPACE, known.LEASE))
        flags = ("--authorize-metrics", "--answer-questions")
        if any(deployment.values_of(flag) for deployment in read.ours for flag in flags):
            rights += REVIEWING
        if read.has_claims:
            rights += (*rights_to_watch(CLAIM_KINDS), *CLAIMING)
        return await self._review((*rights, *rights_to_watch(self._optional)))

    async def _review(self, rights: Sequence[Right]) -> dict[str, bool] | Unread:
        reviews, limiter = UserReviews(self.client), anyio.CapacityLimiter(AT_ONCE)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{known.NAMESPACE}", "system:authenticated")
        answers: dict[Right, bool | Unread] = {}

        async def review(right: Right) -> None:
            ask = partial(reviews.may, known.USERNAME, groups, right.attributes)
            async with limiter:
                answers[right] = await attempt(REVIEW, ask, Unread(REVIEW, forbidden=False, reason="is not served"))

        await review(rights[0])
        if isinstance(answers[rights[0]], bool):  # if the first is refused, so are all
            async with anyio.create_task_group() as tasks:
                for right in rights[1:]:
                    tasks.start_soon(review, right)
        failed = next((answer for answer in answers.values() if isinstance(answer, Unread)), None)
        return failed or {str(right): answers[right] is True for right in rights}

    async def _lacking_objects(self, read: Snapshot) -> tuple[str, ...] | Unread | None:
        """Return what asking for machines needs and is not there; None if no Deployment of ours asks for any."""
        if not any(deployment.asks for deployment in read.ours):
            return None
        lacking = []
        for kind, path in COMPONENT.items():
            request = partial(self.client.request, "GET", f"{path}/{known.CAPACITY}", timeout=WITHIN)
            answer: object = await attempt(f"get {kind}", request, None)
            if isinstance(answer, Unread):
                return answer
            if answer is None:
                lacking.append(f"{kind.partition('.')[0]}/{known.CAPACITY}")
        rights = await self._review(ASKING)
        if isinstance(rights, Unread):
            return rights
        return (*lacking, *(f"the right to {right}" for right, allowed in rights.items() if not allowed))


def _readable(found: Iterable[Decoded[T]]) -> tuple[T, ...]:
    values = (decoded.value for decoded in found)
    return tuple(value for value in values if value is not None and not isinstance(value, Malformed))


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


async def attempt(request: str, work: Callable[[], Awaitable[T]], absent: K) -> "T | K | Unread":
    """Return the result; `absent` if there is no such object or kind, Unread if it was refused or has failed."""
    try:
        return await work()
    except ApiError as error:
        if error.is_unauthorized:
            raise ConfigurationError(UNKNOWN_USER) from error
        if error.status == 404:
            return absent
        if error.is_forbidden:
            return Unread(request)
        return Unread(request, forbidden=False, reason=str(error))
    except (UnreachableError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Unread(request, forbidden=False, reason=str(error))

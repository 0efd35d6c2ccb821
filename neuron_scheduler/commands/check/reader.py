"""
Reads a cluster once into a `Snapshot`: a LIST in pages for each kind, and reviews of our ServiceAccount's rights.

A request that is refused or fails becomes `Unread`, and the rest is still read. A kind that the API server does not
serve has no objects. It writes nothing: a review creates no object. What asking the autoscaler for machines needs is
read only where a profile asks: what is not used needs no right of the person who checks.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import anyio
import attrs
import msgspec

from neuron_scheduler import __version__
from neuron_scheduler.capture.live import objects
from neuron_scheduler.commands.check import kinds
from neuron_scheduler.commands.check.subjects import known, snapshot as seen
from neuron_scheduler.commands.check.subjects.snapshot import Access, Asking, Snapshot, Unread
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.status import UNKNOWN_USER
from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selecting_kinds import BUDGETS, NAMESPACES, WORKLOADS
from neuron_scheduler.kube.objects.storage import STORAGE
from neuron_scheduler.kube.reviews import ASKING, REVIEWING, Right, UserReviews, leading, scheduling
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, UnreachableError

WITHIN: Final = 10.0  # seconds for a small request
AT_ONCE: Final = 8  # reviews
REVIEW: Final = "create subjectaccessreviews.authorization.k8s.io"
WATCHED: Final[tuple[Resource[Any], ...]] = (NODES, BUDGETS, NAMESPACES, *WORKLOADS, *STORAGE, PODS)
"""What the scheduler watches, and so needs rights for."""
T = TypeVar("T")
K = TypeVar("K")


def _every(_found: object) -> bool:
    return True


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
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        reads: dict[str, Callable[[], Awaitable[Any]]] = {
            "not_served": self._not_served,
            "nodes": lambda: self._list(kinds.NODES_OF_A_SNAPSHOT),
            "slices": self._slices,
            "deployments": self._deployments,
            "daemon_sets": self._daemon_sets,
            "lease": lambda: attempt("get leases.coordination.k8s.io", self._lease(), None),
            "accounts": lambda: self._list(kinds.plain("ServiceAccount", accounts)),
            "role_bindings": lambda: self._list(kinds.ROLE_BINDINGS, self._concerns_us),
            "policies": lambda: self._list(kinds.policies("ValidatingAdmissionPolicy"), _is_policy),
            "policy_bindings": lambda: self._list(kinds.policies("ValidatingAdmissionPolicyBinding"), _is_policy),
            "others": self._others,
        }
        found: dict[str, Any] = {}

        async def keep(name: str, read: Callable[[], Awaitable[Any]]) -> None:
            found[name] = await read()

        async with anyio.create_task_group() as tasks:
            for name, read in reads.items():
                tasks.start_soon(keep, name, read)
            tasks.start_soon(self._keep_pods, found)
        read_so_far = Snapshot(
            server=self.server,
            source=self.source,
            version=version,
            namespace=self.namespace,
            lease_name=self.lease_name,
            given_names=self.names,
            program_version=__version__,
            malformed=tuple(sorted(self._malformed)),
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
            served: frozenset[str] | Unread = await attempt(f"get {prefix}", self._served(prefix), frozenset())
            if isinstance(served, Unread):
                return served
            watched = (resource for resource in WATCHED if resource.path.rpartition("/")[0] == prefix)
            missing += [resource.path for resource in watched if resource.name not in served]
        return tuple(missing)

    async def _served(self, prefix: str) -> frozenset[str]:
        """Return the plurals of the kinds below a path, such as /apis/apps/v1."""
        answer = await self.client.request("GET", prefix, timeout=WITHIN)
        return frozenset(each.name for each in msgspec.json.decode(answer.body, type=_Discovered).resources)

    async def _lease(self) -> seen.Lease:
        record = await LeaseClient(client=self.client, namespace=self.namespace, name=self.lease_name).get(
            within=WITHIN
        )
        age = None if record.renewed is None else self.now() - record.renewed.timestamp()
        return seen.Lease(record.holder, record.duration, age)

    # Lists

    async def _list(self, resource: Resource[T], wanted: Callable[[T], bool] = _every) -> tuple[T, ...] | Unread:
        """Return the objects of a kind that are wanted; those that cannot be read are kept apart."""

        async def every() -> tuple[T, ...]:
            found: list[T] = []
            async for decoded in objects(self.client, resource):
                value = decoded.value
                if isinstance(value, Malformed):
                    self._malformed.append(f"{value.kind} {value.key}: {value.reason}")
                elif value is not None and wanted(value):
                    found.append(value)
            return tuple(found)

        name = f"{resource.name}.{resource.group}" if resource.group else resource.name
        place = f" in namespace {self.namespace}" if "/namespaces/" in resource.path else ""
        return await attempt(f"list {name}{place}", every(), ())

    async def _others(self) -> tuple[tuple[seen.Object, ...] | Unread, ...]:
        """Return the objects of further kinds whose names are or were ours."""
        here = f"/namespaces/{self.namespace}"
        rbac, mutating = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
        paths = {
            "ConfigMap": f"/api/v1{here}/configmaps",
            "ClusterRole": f"{rbac}/clusterroles",
            "Role": f"{rbac}{here}/roles",
            "RoleBinding": f"{rbac}{here}/rolebindings",
            "PodDisruptionBudget": f"/apis/policy/v1{here}/poddisruptionbudgets",
            "NetworkPolicy": f"/apis/networking.k8s.io/v1{here}/networkpolicies",
            "MutatingAdmissionPolicy": f"{mutating}/mutatingadmissionpolicies",
        }
        found = [await self._list(kinds.plain(kind, path), _is_or_was_ours) for kind, path in paths.items()]
        return tuple(found)

    async def _slices(self) -> frozenset[str] | Unread:
        """Return the nodes with ResourceSlices of AWS's driver, in the newest version that is served."""
        for version in kinds.DRA_VERSIONS:
            found = await self._list(kinds.slices(version), bool)
            if found:
                return found if isinstance(found, Unread) else frozenset(found)
        return frozenset()

    async def _keep_pods(self, found: dict[str, Any]) -> None:
        """Read the pods into `pods` and `system_pods`; of all others nothing is kept."""
        neuron: list[seen.NeuronPod] = []
        system: list[seen.SeenPod] = []

        async def every() -> None:
            async for decoded in objects(self.client, kinds.PODS_WITH_ACCOUNTS):
                value = decoded.value
                if value is None:
                    continue
                if isinstance(value, Malformed):
                    namespace, _, name = value.key.partition("/")
                    pod = Pod(uid=value.uid or value.key, namespace=namespace, name=name, node_name=value.node_name)
                    neuron.append(seen.NeuronPod(pod, readable=False))
                    continue
                pod = value.pod
                if pod.namespace == known.CAPACITY:
                    continue  # it asks for a machine, and is for no scheduler
                if any(pod.requests.get(name) for name in NEURON_NAMES):
                    neuron.append(seen.NeuronPod(pod))
                if _is_of_system(pod, value.images):
                    system.append(seen.SeenPod(pod.namespace, pod.name, value.account, value.images, pod.labels))

        failed = await attempt("list pods", every(), None)
        found["pods"] = failed if isinstance(failed, Unread) else tuple(neuron)
        found["system_pods"] = failed if isinstance(failed, Unread) else tuple(system)

    async def _daemon_sets(self) -> tuple[seen.SeenWorkload, ...] | Unread:
        found = await self._list(kinds.workloads("DaemonSet"), lambda listed: _names(listed.workload, known.PLUGIN))
        return found if isinstance(found, Unread) else tuple(listed.workload for listed in found)

    async def _deployments(self) -> tuple[seen.SeenWorkload, ...] | Unread:
        """Return the Deployments of schedulers, with the names that their ConfigMaps give them."""
        found = await self._list(kinds.workloads("Deployment"), lambda listed: _names(listed.workload, "scheduler"))
        if isinstance(found, Unread):
            return found
        return tuple([await self._configured(each) for each in found])

    async def _configured(self, listed: kinds.ListedWorkload) -> seen.SeenWorkload:
        """Return a Deployment with what its flags and ConfigMaps say: which names it serves, and how it asks."""
        workload = listed.workload
        words = [word for container in workload.containers for word in container.words]
        flagged = tuple(word.partition("=")[2] for word in words if word.startswith("--scheduler-name="))
        if workload.mode == "extender":
            return attrs.evolve(workload, serves=())
        if not (workload.mode or _names(workload, "kube-scheduler")):
            return workload if not flagged else attrs.evolve(workload, serves=flagged)  # its ConfigMaps are no matter
        contents = await self._contents(listed)
        if isinstance(contents, Unread):
            return attrs.evolve(workload, serves=flagged or contents)
        names = flagged or kinds.scheduler_names(contents) or (("my-scheduler",) if workload.mode else None)
        return attrs.evolve(workload, serves=names, asks=bool(workload.mode) and kinds.asks_for_machines(contents))

    async def _contents(self, listed: kinds.ListedWorkload) -> list[dict[str, str]] | Unread:
        """Return the files in the ConfigMaps that a Deployment mounts."""
        contents = []
        namespace = listed.workload.object.namespace
        for name in listed.config_maps:
            path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
            data: dict[str, str] | Unread = await attempt(
                f"get configmaps in namespace {namespace}", self._data(path), {}
            )
            if isinstance(data, Unread):
                return data
            contents.append(data)
        return contents

    async def _data(self, path: str) -> dict[str, str]:
        answer = await self.client.request("GET", path, timeout=WITHIN)
        return kinds.CONFIG_MAP.decode(answer.body).data or {}

    def _concerns_us(self, binding: seen.RoleBinding) -> bool:
        """Return whether a binding is ours, or gives something to an account with our name or AWS's."""
        ours = (f"{self.namespace}/{name}" for name in (known.OUR_NAME, *known.AWS_ACCOUNTS))
        return known.is_or_was_ours(binding.object.name) or any(key in binding.accounts for key in ours)


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _ServedKind(msgspec.Struct):
    name: str


class _Discovered(msgspec.Struct):
    resources: list[_ServedKind]


def _is_or_was_ours(found: seen.Object) -> bool:
    return known.is_or_was_ours(found.name)


def _is_policy(policy: seen.Policy) -> bool:
    return known.is_or_was_ours(policy.object.name)


def _names(workload: seen.SeenWorkload, word: str) -> bool:
    """Return whether a workload, one of its images or commands has a word in its name."""
    texts: Iterable[str] = (
        workload.object.name,
        *(container.image.rpartition("/")[2] for container in workload.containers),
        *(first.rpartition("/")[2] for container in workload.containers for first in container.words[:1]),
    )
    return any(word in text for text in texts) or known.has(workload.labels, known.PLUGIN_LABEL)


def _is_of_system(pod: Pod, images: Iterable[str]) -> bool:
    """Return whether a pod is of a device plugin or of AWS's extension."""
    return known.is_of_plugin(pod.labels, images) or known.has(pod.labels, known.EXTENDER_LABEL)


async def attempt(request: str, work: Awaitable[T], absent: K) -> "T | K | Unread":
    """
    Return the result; `absent` if there is no such object or kind, Unread if it was refused or has failed.

    Raises:
        ConfigurationError: the API server does not know who we are.
    """
    try:
        return await work
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
    if any(deployment.has_flag(flag) for deployment in read.ours for flag in flags):
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
            answers[right] = await attempt(REVIEW, reviews.may(read.username, groups, right.attributes), None)

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
        answer: object = await attempt(f"get {request}", client.request("GET", path, timeout=WITHIN), None)
        return answer if isinstance(answer, Unread) else answer is not None

    classes = "priorityclasses.scheduling.k8s.io"
    return Asking(
        namespace=await is_there("namespaces", f"/api/v1/namespaces/{known.CAPACITY}"),
        priority_class=await is_there(classes, f"/apis/scheduling.k8s.io/v1/priorityclasses/{known.CAPACITY}"),
        rights=await reviewed(client, read, ASKING),
    )

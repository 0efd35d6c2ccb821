"""
Reads a cluster from its API server: one LIST in pages for each kind that the scheduler watches, with the reader's own
rights.

Without all nodes and all pods there is no answer: what is free depends on them. Every other kind may be refused; then a
note says what is not considered.
"""

import time
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import anyio

from neuron_scheduler.capture.collection import OPTIONAL_KINDS, Capture, Collection
from neuron_scheduler.cluster.tables.claims import Claims
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.status import UNKNOWN_USER
from neuron_scheduler.kube.objects.base import Decoded, Resource
from neuron_scheduler.kube.objects.devices import CLAIM_KINDS, TAINT_RULES
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selecting_kinds import BUDGETS, NAMESPACES
from neuron_scheduler.kube.objects.storage import STORAGE
from neuron_scheduler.kube.watch.discovery import served_kinds
from neuron_scheduler.kube.watch.informer import pages
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, UnreachableError

AT_ONCE: Final = 4
"""Kinds that are listed at the same time."""
NEEDED: Final = (NODES, PODS)

T = TypeVar("T")


async def read(client: Client, *, profiles: Sequence[Profile] = (), claims: bool = False) -> Capture:
    """
    Return the cluster as it is now, with the claims on its devices if they are served.

    Raises, in a group:
        ConfigurationError: the reader may not list nodes or pods, or is not known.
        UnreachableError, ApiError: nodes or pods could not be listed for another reason.
    """
    collection = Collection(taken=time.time(), profiles=profiles)
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def read_kind(resource: Resource[Any]) -> None:
        async with limiter:
            await _list(client, resource, collection)

    async with anyio.create_task_group() as tasks:
        for resource in NEEDED:  # at the same time: in a large cluster these two take the time
            tasks.start_soon(read_kind, resource)
        served = await served_kinds(client)
        if claims:
            collection.cluster.claims = Claims()
            served += [*CLAIM_KINDS, *await served_kinds(client, (TAINT_RULES,))]
        for resource in collection.resources:
            if resource not in NEEDED and (resource not in OPTIONAL_KINDS or resource in served):
                tasks.start_soon(read_kind, resource)
    return collection.capture()


async def _list(client: Client, resource: Resource[Any], collection: Collection) -> None:
    try:
        async for objects, _ in pages(client, collection.reader_of(resource)):
            for decoded in objects:
                collection.add(resource, decoded)
        collection.cluster.groups.watched.add(resource.group)
    except ApiError as error:
        if error.is_unauthorized:
            raise ConfigurationError(UNKNOWN_USER) from error
        if resource in NEEDED:
            if not error.is_forbidden:
                raise
            raise ConfigurationError(
                f"what is free depends on all nodes and pods, and you may not list {resource.name} in the whole cluster"
                " (403); ask the running scheduler with --ask, which answers within your rights"
            ) from error
        reason = "the right is missing" if error.is_forbidden else str(error)
        collection.note(_left_out(resource, reason))
    except UnreachableError as error:
        if resource in NEEDED:
            raise
        collection.note(_left_out(resource, str(error)))


async def list_all(client: Client, resource: Resource[T]) -> list[Decoded[T]]:
    """Return all objects of a kind."""
    return [decoded async for objects, _ in pages(client, resource) for decoded in objects]


def _left_out(resource: Resource[Any], reason: str) -> str:
    return f"{resource.name} cannot be listed ({reason}): {_meaning(resource)}"


def _meaning(resource: Resource[Any]) -> str:
    if resource is BUDGETS:
        return "which evictions a disruption budget forbids is not known"
    if resource is NAMESPACES:
        return "namespace selectors of pod affinity match no namespace by its labels"
    if resource in STORAGE:
        return "answers about pods with volumes may be wrong"
    if resource in POD_GROUPS:
        return "of groups only what their pods say counts"
    if resource in OPTIONAL_KINDS:
        return "answers about pods with claims, and about their nodes, may be wrong"
    return "a pod may be spread over nodes differently"

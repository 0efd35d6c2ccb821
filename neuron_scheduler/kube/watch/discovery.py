"""Which of the kinds that not every API server has this one serves (`GET /apis/GROUP/VERSION`)."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError

WITHIN: Final = 10.0  # seconds for one request

log = logs.logger(__name__)


class _Resources(wire.Wire):
    resources: list[wire.Named]


async def served_kinds(client: Client, kinds: Sequence[Resource[Any]] = POD_GROUPS) -> list[Resource[Any]]:
    """Return those of the kinds that are known to be served, one of each API group."""
    found = dict[str, Resource[Any]]()
    for resource in kinds:
        try:
            answer = await client.request("GET", resource.path.rpartition("/")[0], timeout=WITHIN)
            served = msgspec.json.decode(answer.body, type=_Resources).resources
            if any(each.name == resource.name for each in served):
                found.setdefault(resource.group, resource)
        except (ApiError, UnreachableError, ValueError, RecursionError) as error:
            if not (isinstance(error, ApiError) and error.status in (403, 404)):
                log.warning("Whether a kind is served is not known", kind=resource.kind, path=resource.path, exc=error)
    return [*found.values()]

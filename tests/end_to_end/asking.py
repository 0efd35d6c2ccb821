"""
A scheduler that asks the autoscaler for machines, with the rights of the component, and clusters in which it must.

Shared by the tests in which the test itself adds the nodes, and those with a real autoscaler.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import yaml

from tests.control_plane.objects import MACHINES, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.end_to_end import rights
from tests.end_to_end.process import ROOT, SHORT_LEASE, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import condition_of

CAPACITY: Final = "/api/v1/namespaces/neuron-scheduler-capacity"
PLACEHOLDERS: Final = f"{CAPACITY}/pods"
OBJECTS: Final = ROOT / "manifests" / "components" / "capacity-requests" / "objects"
APART: Final = {"trn1.32xlarge": 4, "inf2.48xlarge": 2, "inf2.24xlarge": 2}
"""Every how many devices one must be used, so that the free ones are in pieces."""


def component(name: str) -> list[Object]:
    """Return the objects of a file of the component."""
    return list(yaml.safe_load_all((OBJECTS / name).read_text()))


async def grant_capacity(api: RestClient) -> None:
    """Apply the component's namespace, priority class and rights."""
    for name in ("namespace.yaml", "priority_class.yaml"):
        for item in component(name):
            await api.apply(item)
    await rights.grant(api, component("rbac.yaml"))


@asynccontextmanager
async def asking(account: Path, folder: Path, *flags: str, **settings: Any) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler that asks for machines with short waits, and with these settings."""
    group = {"wait": "100ms", **settings}
    config = folder / f"config-{uuid4()}.yaml"  # several may run
    profiles = [{"schedulerName": "my-scheduler", "capacityRequests": group}]
    kind = {"apiVersion": "neuron-scheduler/v1", "kind": "NeuronSchedulerConfiguration", "profiles": profiles}
    config.write_text(json.dumps(kind))
    async with run_scheduler(account, f"--config={config}", *SHORT_LEASE, *flags) as scheduler:
        yield scheduler


async def fragment(
    api: RestClient, *nodes: str, instance_type: str = "trn1.32xlarge", labels: Mapping[str, str] | None = None
) -> None:
    """Create machines of which no two free devices are in one block; on trn1.32xlarge 12 of 16 are free."""
    for node in nodes:
        await create_node(api, node_manifest(node, instance_type, labels=labels))
        for device in range(0, MACHINES[instance_type][2], APART[instance_type]):
            name, ids = f"{node}-{device}", {"AWS_NEURON_IDS": str(device)}
            await create_pod(api, pod_manifest(name, neuron=1, annotations=ids, nodeName=node))


async def placeholders(api: RestClient, count: int) -> list[Object]:
    """Return the placeholders once there are so many, each with its condition."""

    def met(pods: Mapping[str, Object]) -> bool:
        return len(pods) == count and all(map(condition_of, pods.values()))

    return list((await api.wait_until(PLACEHOLDERS, met)).values())

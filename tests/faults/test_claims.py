"""Whatever becomes of the writes of claims, all pods are bound, and no device twice."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import pytest

from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.end_to_end.test_resource_claims import GROUP, TEMPLATES, claiming, grant
from tests.end_to_end.workload import PODS, clear
from tests.faults.calls import Call, Condition
from tests.faults.catalogue import FAULTS
from tests.faults.history import History, recording
from tests.faults.proxy import Fault, run_proxy
from tests.support.device_objects import devices, neuron_class, neuron_slice, template

NODES: Final = ("n1", "n2", "n3")
WRITES: Final = ("resourceclaims", "resourceclaims/status")
WITHIN: Final = 100.0


@pytest.fixture
async def fleet(fault_plane: ControlPlane, controllers: None) -> AsyncIterator[tuple[RestClient, History]]:
    """Return the client of a cluster with three nodes of 16 devices whose pods run, and what happens there."""
    api = fault_plane.admin
    await clear(api)
    await grant(api)
    for path, item in (
        (f"{GROUP}/deviceclasses", neuron_class()),
        *((TEMPLATES, template(name, devices(count, count))) for name, count in (("one", 1), ("four", 4))),
        *((f"{GROUP}/resourceslices", neuron_slice(node)) for node in NODES),
    ):
        await api.request("DELETE", f"{path}/{item['metadata']['name']}")
        await api.post(path, item)
    async with recording(api) as history, anyio.create_task_group() as tasks:
        for node in NODES:
            await create_node(api, node_manifest(node, "m5.large", cpu=64))
        tasks.start_soon(FakeKubelet(api).run)
        yield api, history
        tasks.cancel_scope.cancel()
    await clear(api)


async def bound(api: RestClient, names: list[str]) -> None:
    """Wait until all these pods run, for which their claims must be prepared."""

    def all_run(pods: dict[str, Object]) -> bool:
        return all(pods[f"default/{name}"]["status"].get("phase") == "Running" for name in names)

    await api.wait_until(PODS, all_run, within=WITHIN)


def claim_of(pod: str, resource: str) -> Condition:
    """Return a condition: the request writes the claim of a pod, or its status."""

    def matches(call: Call) -> bool:
        return (call.method, call.resource) == ("PATCH", resource) and call.name.startswith(f"{pod}-neurons-")

    return matches


async def test_every_fault_of_a_write(
    fault_plane: ControlPlane, fault_account: Path, fleet: tuple[RestClient, History]
) -> None:
    """Each strikes the finalizer of one claim and the devices of another one."""
    api, history = fleet
    struck = {f"p{n}-": (resource, FAULTS[name]) for n, (name, resource) in enumerate(_each())}
    async with run_proxy(fault_plane) as proxy:
        faults = [proxy.add(Fault(claim_of(pod[:-1], on), behaviour)) for pod, (on, behaviour) in struck.items()]
        async with run_scheduler(fault_account, f"--master={proxy.url}", "--claims") as scheduler:
            await scheduler.line(ACQUIRED)
            names = [pod[:-1] for pod in struck]
            await create_all(partial(create_pod, api), (claiming(name, "one") for name in names))
            await bound(api, names)
            for fault in faults:
                fault.release()
            await create_all(partial(create_pod, api), (claiming(f"q{number}", "four") for number in range(2)))
            await bound(api, ["q0", "q1"])
            assert await scheduler.stop() == 0
    await history.complete(api)
    assert history.violations() == []
    assert "Traceback" not in scheduler.log


def _each() -> list[tuple[str, str]]:
    return [(name, resource) for name in FAULTS for resource in WRITES]

"""What a leader leaves of CapacityBuffers, on a real API server that serves them; nothing here buys machines."""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.asking import CAPACITY, asking, fragment, grant_capacity
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, SchedulerProcess, run_scheduler, until
from tests.end_to_end.workload import clear, refused

GROUP: Final = "autoscaling.x-k8s.io"
BUFFERS: Final = f"/apis/{GROUP}/v1beta1/namespaces/neuron-scheduler-capacity/capacitybuffers"
TEMPLATES: Final = f"{CAPACITY}/podtemplates"
OF_ANY_SHAPE: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"capacitybuffers.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "CapacityBuffer", "plural": "capacitybuffers"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OF_ANY_SHAPE}}],
    },
}


@pytest.fixture(scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    """Run an API server that serves CapacityBuffers, and on which the ServiceAccount may write them."""
    async with run_control_plane() as plane:
        await rights.grant(plane.admin)
        await grant_capacity(plane.admin)
        await plane.admin.apply(DEFINITION)
        await until(partial(_served, plane.admin))
        yield plane


@pytest.fixture(scope="module")
async def account(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig of the ServiceAccount."""
    token = await plane.token_for("kube-system", "neuron-scheduler")
    return plane.kubeconfig(tmp_path_factory.mktemp("account") / "kubeconfig", token=token)


@pytest.fixture
async def empty(plane: ControlPlane) -> RestClient:
    """Return the administrator's client of a cluster without pods, nodes, buffers and templates."""
    await clear(plane.admin)
    await plane.admin.delete(BUFFERS)
    await plane.admin.delete(TEMPLATES)
    return plane.admin


async def _served(api: RestClient) -> bool:
    return (await api.request("GET", BUFFERS))[0] == 200


def _names(found: Mapping[str, Object]) -> set[str]:
    return {item["metadata"]["name"] for item in found.values()}


def _uids(found: Mapping[str, Object]) -> set[str]:
    return {item["metadata"]["uid"] for item in found.values()}


async def there(api: RestClient, count: int) -> list[str]:
    """Return the names of the buffers once there are so many, and as many templates."""
    templates = await api.wait_until(TEMPLATES, lambda found: len(found) == count)
    buffers = await api.wait_until(BUFFERS, lambda found: len(found) == count)
    assert _names(buffers) == _names(templates)
    return sorted(_names(buffers))


def buying(account: Path, folder: Path, **settings: Any) -> Any:
    """Run a scheduler that asks with CapacityBuffers."""
    return asking(account, folder, form="CapacityBuffers", **settings)


async def asked(scheduler: SchedulerProcess, api: RestClient) -> str:
    """Let a pod wait because of fragmentation, and return the name of what asks for its machine."""
    await scheduler.line(ACQUIRED)
    await fragment(api, "a")
    await refused(api, "four", neuron=4)
    (name,) = await there(api, 1)
    return name


async def test_the_next_leader_goes_on_with_a_buffer(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """What autoscalers have seen already is not asked for once more."""
    async with buying(account, tmp_path) as first:
        name = await asked(first, empty)
        await first.kill()
    async with buying(account, tmp_path) as second:
        await second.line("Took over a request for a machine")
        await second.until(lambda metrics: metrics['neuron_scheduler_capacity_requests{state="open"}'] == 1)
        assert await there(empty, 1) == [name]
        assert await second.stop() == 0


async def test_a_leader_that_ended_between_template_and_buffer(
    empty: RestClient, account: Path, tmp_path: Path
) -> None:
    """The next leader removes the template, for which nobody buys, and asks for the machine again at once."""
    async with buying(account, tmp_path) as first:
        name = await asked(first, empty)
        await first.kill()
    left = (await empty.get(f"{TEMPLATES}/{name}"))["metadata"]["uid"]
    await empty.delete(f"{BUFFERS}/{name}")
    async with buying(account, tmp_path) as second:
        await second.line("Removing a placeholder that is not needed")
        await second.line("Asked the autoscaler for a machine")
        templates = await empty.wait_until(TEMPLATES, lambda found: len(found) == 1 and left not in _uids(found))
        await empty.wait_until(BUFFERS, lambda found: _names(found) == _names(templates))
        assert await second.stop() == 0


async def test_a_profile_that_asks_no_more(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """A scheduler without capacity requests removes what an earlier one of its name has left."""
    async with buying(account, tmp_path) as first:
        await asked(first, empty)
        await first.kill()
    async with run_scheduler(account, *SHORT_LEASE) as second:
        await second.line(ACQUIRED)
        await there(empty, 0)
        assert await second.stop() == 0

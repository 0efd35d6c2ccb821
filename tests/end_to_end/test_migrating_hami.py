"""
HAMi's pods: ids that can be read count, all others never count as free; and what docs/migrating.md says about HAMi.

The annotations are those of HAMi's `pkg/device/awsneuron/device.go` (`PatchAnnotations`), with what its issues report
of older versions.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.control_plane.objects import NEURON, NEURONCORE, bind, create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import PODS, add_nodes, ids_of, kubelets, placed, refused, remove
from tests.support.documented_commands import reader_shell, run_by

THIS: Final = "tests/end_to_end/test_migrating_hami.py"
UNKNOWN: Final = "1 node(s) had a pod with an unknown Neuron allocation"


def annotations(node: str, ids: str, *, cores: bool = False) -> dict[str, str]:
    """Return what HAMi writes to a pod when it filters and binds it."""
    own = {
        "hami.io/vgpu-node": node,
        "hami.io/vgpu-time": "1789352350",
        "hami.io/bind-phase": "success",
        "hami.io/bind-time": "1789352350",
        "hami.io/aws-neuron-devices-allocated": f"{node}-AWSNeuron-0,AWSNeuron,0,3:;",
        "aws.amazon.com/predicate-node": node,
    }
    shared = {"AWS_NEURON_IDS": ids, "NEURON_ALLOC_TIME": "1789352350678418384", "NEURON_ALLOCATED": "false"}
    return own | (shared if ids else {}) | ({"NEURON_RESOURCE_TYPE": NEURONCORE} if cores else {})


async def bound_by_hami(
    api: RestClient, node: str, written: dict[str, str], *, spec: dict[str, Any] | None = None, **request: Any
) -> None:
    """Bind a pod as HAMi does: the annotations first, then a Binding without any."""
    manifest = pod_manifest("theirs", scheduler_name="hami-scheduler", annotations=written, **request)
    manifest["spec"] |= spec or {}
    await bind(api, await create_pod(api, manifest), node)


async def seen(api: RestClient) -> None:
    """Return when the scheduler has seen every change made so far: its watch is in their order."""
    await refused(api, "marker", neuron=99)
    await remove(api, "marker")


def containers(*counts: int) -> dict[str, Any]:
    """Return containers that ask for so many devices each."""
    return {
        "containers": [
            {"name": f"c{i}", "image": "c:1", "resources": {"limits": {NEURON: str(count)}}}
            for i, count in enumerate(counts)
        ]
    }


@pytest.mark.parametrize(
    ("request_", "ids", "spec", "rest", "free"),
    [
        ({"neuron": 2}, "0,1", None, {"neuron": 4}, (2, 3, 4, 5)),
        ({"neuroncore": 2}, "0,1", None, {"neuron": 5}, (1, 2, 3, 4, 5)),
        ({"neuroncore": 1}, "0", None, {"neuron": 5}, (1, 2, 3, 4, 5)),
        ({"neuroncore": 4}, "0,1,2,3", None, {"neuroncore": 8}, tuple(range(4, 12))),
        ({}, "0,1,2", containers(1, 2), {"neuron": 3}, (3, 4, 5)),
    ],
    ids=["devices", "cores of one device", "one core", "cores of whole devices", "two containers"],
)
async def test_readable_ids_are_read(
    api: RestClient,
    scheduler: SchedulerProcess,
    *,
    request_: dict[str, int],
    ids: str,
    spec: dict[str, Any] | None,
    rest: dict[str, int],
    free: tuple[int, ...],
) -> None:
    """A pod for exactly what is left gets exactly that."""
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    await bound_by_hami(api, "inf2", annotations("inf2", ids, cores="neuroncore" in request_), spec=spec, **request_)
    await seen(api)
    async with kubelets(api):
        assert ids_of(await placed(api, "ours", **rest)) == free
    assert (await scheduler.metrics())["neuron_scheduler_unknown_holders"] == 0


@pytest.mark.parametrize(
    ("request_", "written", "spec"),
    [
        ({"neuroncore": 3}, annotations("inf2", "0,1", cores=True), None),
        ({"neuron": 2}, annotations("inf2", ""), None),
        ({"neuron": 2}, annotations("inf2", "0,1", cores=True), None),
        (
            {"neuron": 2},
            annotations("inf2", "0,0,1"),
            {"initContainers": [{"name": "i", "image": "i:1", "resources": {"limits": {NEURON: "1"}}}]},
        ),
        ({"neuron": 2}, annotations("inf2", "0,1,"), None),
    ],
    ids=["an odd core lost", "its own annotations only", "of another resource", "an init container's too", "a comma"],
)
async def test_unreadable_ids_are_never_free(
    api: RestClient,
    scheduler: SchedulerProcess,
    plane: ControlPlane,
    tmp_path: Path,
    *,
    request_: dict[str, int],
    written: dict[str, str],
    spec: dict[str, Any] | None,
) -> None:
    """The node takes no pod of several devices until the pod ends, and the page's command names the pod."""
    (events,) = run_by(f"{THIS}::{test_unreadable_ids_are_never_free.__name__}")
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    await bound_by_hami(api, "inf2", written, spec=spec, **request_)
    await seen(api)
    assert UNKNOWN in (await refused(api, "pair", neuron=2))["message"]
    assert (await scheduler.metrics())["neuron_scheduler_unknown_holders"] == 1
    shell = reader_shell(tmp_path, plane.kubeconfig(tmp_path / "kubeconfig"))
    assert "pod/theirs" in await shell.run(events)
    await remove(api, "theirs")
    assert ids_of(await placed(api, "pair")) == (0, 1)


async def test_what_hami_wrote_to_a_pod_that_it_did_not_bind_is_replaced(
    api: RestClient, scheduler: SchedulerProcess
) -> None:
    """HAMi and AWS's extension write ids before they bind: ids of a pod that waits are not what it gets."""
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    await placed(api, "first", neuron=2)
    async with kubelets(api):
        left = annotations("elsewhere", "0,1")
        pod = await placed(api, "second", neuron=2, annotations=left)
    assert ids_of(pod) in ((2, 3), (4, 5))
    assert pod["metadata"]["annotations"]["NEURON_ALLOC_TIME"] != left["NEURON_ALLOC_TIME"]


async def test_the_nodes_of_our_pods_are_cordoned(
    api: RestClient, scheduler: SchedulerProcess, plane: ControlPlane, tmp_path: Path
) -> None:
    """Before HAMi comes back: the nodes with our pods, and no other node."""
    (cordon,) = run_by(f"{THIS}::{test_the_nodes_of_our_pods_are_cordoned.__name__}")
    await add_nodes(scheduler, api, ours="inf2.24xlarge", free="inf2.24xlarge")
    ours = (await placed(api, "ours", neuron=6))["spec"]["nodeName"]
    await create_pod(api, pod_manifest("waits", neuron=99))
    shell = reader_shell(tmp_path, plane.kubeconfig(tmp_path / "kubeconfig"))
    await shell.run(cordon)
    nodes = {node["metadata"]["name"]: node["spec"] for node in (await api.get("/api/v1/nodes"))["items"]}
    assert {name for name, spec in nodes.items() if spec.get("unschedulable")} == {ours}
    await remove(api, "ours", "waits")
    assert (await api.get(PODS))["items"] == []

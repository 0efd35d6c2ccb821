"""
HAMi's pods: ids that cannot be read never count as free; and what docs/migrating.md says about HAMi.

The annotations are those of HAMi's `pkg/device/awsneuron/device.go` (`PatchAnnotations`), with what its issues report
of older versions.
"""

from pathlib import Path
from typing import Any, Final

from tests.control_plane.objects import NEURONCORE, bind, create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import PODS, add_nodes, ids_of, placed, refused, remove
from tests.support.documented_commands import reader_shell, run_by

THIS: Final = "tests/end_to_end/test_migrating_hami.py"
UNKNOWN: Final = "1 node(s) had a pod with an unknown Neuron allocation"


def annotations(node: str, ids: str) -> dict[str, str]:
    """Return what HAMi writes to a pod that asks for cores when it filters and binds it."""
    own = {
        "hami.io/vgpu-node": node,
        "hami.io/vgpu-time": "1789352350",
        "hami.io/bind-phase": "success",
        "hami.io/bind-time": "1789352350",
        "hami.io/aws-neuron-devices-allocated": f"{node}-AWSNeuron-0,AWSNeuron,0,3:;",
        "aws.amazon.com/predicate-node": node,
    }
    shared = {"AWS_NEURON_IDS": ids, "NEURON_ALLOC_TIME": "1789352350678418384", "NEURON_ALLOCATED": "false"}
    return own | shared | {"NEURON_RESOURCE_TYPE": NEURONCORE}


async def bound_by_hami(api: RestClient, node: str, written: dict[str, str], **request: Any) -> None:
    """Bind a pod as HAMi does: the annotations first, then a Binding without any."""
    manifest = pod_manifest("theirs", scheduler_name="hami-scheduler", annotations=written, **request)
    await bind(api, await create_pod(api, manifest), node)


async def seen(api: RestClient) -> None:
    """Return when the scheduler has seen every change made so far: its watch is in their order."""
    await refused(api, "marker", neuron=99)
    await remove(api, "marker")


async def test_unreadable_ids_are_never_free(
    api: RestClient,
    scheduler: SchedulerProcess,
    plane: ControlPlane,
    tmp_path: Path,
) -> None:
    """Of an odd number of cores HAMi loses one: no pair fits until the pod ends, and the page's command names it."""
    (events,) = run_by(f"{THIS}::{test_unreadable_ids_are_never_free.__name__}")
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    await bound_by_hami(api, "inf2", annotations("inf2", "0,1"), neuroncore=3)
    await seen(api)
    assert UNKNOWN in (await refused(api, "pair", neuron=2))["message"]
    assert (await scheduler.metrics())["neuron_scheduler_unknown_holders"] == 1
    shell = reader_shell(tmp_path, plane.kubeconfig(tmp_path / "kubeconfig"))
    assert "pod/theirs" in await shell.run(events)
    await remove(api, "theirs")
    assert ids_of(await placed(api, "pair")) == (0, 1)


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

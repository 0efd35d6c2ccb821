"""
The installed policies as a test sees them: when they are in force, and whose Bindings the fence refuses.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.control_plane.objects import pod_manifest
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import PODS

ACCOUNT: Final = "neuron-scheduler"


async def denied(plane: ControlPlane) -> set[bool]:
    """Return whether the API server refuses a forged allocation, and a pod with Neuron that names its node."""
    pods = (pod_manifest("forged", annotations={"AWS_NEURON_IDS": "0"}), pod_manifest("named", neuron=1, nodeName="n"))
    return {(await plane.admin.request("POST", PODS, pod, dryRun="All"))[0] == 403 for pod in pods}


async def in_force(plane: ControlPlane) -> bool:
    """Return whether the API server applies the policies: it learns of each one at a moment of its own."""
    return await denied(plane) == {True}


async def not_in_force(plane: ControlPlane) -> bool:
    """Return whether it applies none of them any more: it has also dropped their parameters."""
    return await denied(plane) == {False}


@asynccontextmanager
async def leading(plane: ControlPlane, *, killed: bool = False) -> AsyncIterator[SchedulerProcess]:
    """
    Run a scheduler under the present ServiceAccount until it leads: the tokens of a deleted one are invalid.

    At the end it is stopped, which must succeed, or `killed`.
    """
    token = await plane.token_for("kube-system", ACCOUNT)
    kubeconfig = plane.kubeconfig(plane.folder / f"{ACCOUNT}.kubeconfig", token=token)
    async with run_scheduler(kubeconfig) as scheduler:
        await scheduler.line(ACQUIRED)
        yield scheduler
        if not killed:
            assert await scheduler.stop() == 0


async def fenced(plane: ControlPlane, pod: str, holder: str) -> bool:
    """Return whether the fence refuses a pod's Binding by someone who calls himself the holder of the Lease."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "annotations": {"neuron-scheduler/leader": holder}},
        "target": {"kind": "Node", "name": "inf2"},
    }
    async with plane.client(await plane.token_for("kube-system", ACCOUNT)) as impostor:
        status, answer = await impostor.request("POST", f"{PODS}/{pod}/binding", binding, dryRun="All")
    return (status, "does not hold the Lease" in answer.get("message", "")) == (422, True)  # a success has no message

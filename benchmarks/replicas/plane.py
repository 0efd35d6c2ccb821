"""
The cluster on which replicas are stopped, killed and frozen: a real control plane with all of `manifests/` in force.

Nodes are simulated, and so are their kubelets: the allocate fence is on, as in a cluster.
"""

import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import attrs

from neuron_scheduler.neuron.catalog import Machine
from tests.control_plane.objects import create_all, create_node, node_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.fence import ACCOUNT, in_force
from tests.end_to_end.process import ROOT, until
from tests.end_to_end.workload import LEASE, PODS
from tests.support.builders import machine

KUBECTL: Final = Path(sys.executable).with_name("kubectl")
FOLDERS: Final = ("manifests/lease-watch", "manifests/")


@attrs.define(eq=False)
class Cluster:
    """
    A control plane, and the scheduler's account on it.

    Attributes:
        account: kubeconfig of the ServiceAccount that the Deployment runs under.
    """

    plane: ControlPlane
    account: Path

    @property
    def api(self) -> RestClient:
        """The administrator's client."""
        return self.plane.admin

    async def add_nodes(self, instance_type: str, count: int) -> None:
        """Create nodes of a type; their names begin with it."""
        manifests = (node_manifest(node_name(instance_type, number), instance_type) for number in range(count))

        async def create(manifest: dict[str, object]) -> None:
            await create_node(self.api, manifest)

        await create_all(create, manifests)

    async def clear(self) -> None:
        """Delete all pods and the Lease, at once."""
        await self.api.delete(PODS, gracePeriodSeconds=0)
        await self.api.request("DELETE", LEASE)


def node_name(instance_type: str, number: int) -> str:
    """Return the name of a node, from which `type_of` tells its type."""
    return f"{instance_type.replace('.', '-')}-{number}"


def type_of(name: str) -> str:
    """Return the instance type of a node."""
    return name.rpartition("-")[0].replace("-", ".")


@functools.cache
def machine_on(name: str) -> Machine:
    """Return the devices and cores of a node."""
    return machine(type_of(name))


@asynccontextmanager
async def run_cluster(api_server_flags: Sequence[str] = ()) -> AsyncIterator[Cluster]:
    """Run a control plane, without nodes, until the block is left."""
    async with run_control_plane(api_server_flags=api_server_flags) as plane:
        admin = plane.kubeconfig(plane.folder / "admin.kubeconfig")
        for folder in FOLDERS:
            command = [str(KUBECTL), "apply", "-k", folder, f"--kubeconfig={admin}"]
            await anyio.run_process(command, cwd=ROOT, stderr=subprocess.STDOUT)
        await rights.grant(plane.admin)
        await until(lambda: in_force(plane))
        token = await plane.token_for("kube-system", ACCOUNT)
        yield Cluster(plane, plane.kubeconfig(plane.folder / "account.kubeconfig", token=token))

"""
The real Karpenter, with its provider for simulated nodes, against the real API server; and what it has bought.

It runs as its users run it, with its defaults, but for leader election. Its two ports, for metrics and health, are on
all interfaces, because it has no option for their address; nothing else listens.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import attrs
import yaml

from tests.control_plane.binaries import built_folder, require
from tests.control_plane.component import Component
from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import STRATEGIC, Object, RestClient
from tests.control_plane.server import ControlPlane, free_port
from tests.end_to_end.process import until
from tests.karpenter.cloud import NODE_CLASS, TYPE, write_instance_types
from tests.karpenter.kubelets import Kubelets

GROUP: Final = "/apis/karpenter.sh/v1"
NODE_CLAIMS: Final = f"{GROUP}/nodeclaims"
NODE_POOLS: Final = f"{GROUP}/nodepools"
NODE_CLASSES: Final = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
NO_PLACE: Final = "could not schedule pod"
"""The line of its log for a pod that no machine that it may buy could take."""


@attrs.define(eq=False)
class Karpenter:
    """A running Karpenter, and the kubelets of its nodes."""

    component: Component
    kubelets: Kubelets
    api: RestClient

    @property
    def log(self) -> list[Mapping[str, object]]:
        """The whole lines of its log so far that are JSON objects; it may be in the middle of writing the next."""
        lines = self.component.log.read_text(errors="replace").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def tail(self) -> str:
        """Return the last lines of its log, without those about its start."""
        lines = [json.dumps(line) for line in self.log if not str(line.get("message")).startswith("Starting")]
        return "\n".join(lines[-40:])

    def logged(self, message: str) -> list[Mapping[str, object]]:
        """Return the lines of its log with this message."""
        return [line for line in self.log if line.get("message") == message]

    async def bought(self) -> list[str]:
        """
        Return the instance type of each machine that it ever bought, sorted: also of those that are gone again.

        Returns after all that waits now has been considered, and what is needed for it has been bought.
        """
        await self.round()
        await self.round()  # a round buys at its end
        created = len(self.logged("created nodeclaim"))

        async def launched() -> bool:
            return len(self.logged("launched nodeclaim")) >= created

        await until(launched)
        return sorted(str(line["instance-type"]) for line in self.logged("launched nodeclaim"))

    async def round(self) -> None:
        """Return when a round of provisioning that starts from now on has placed all pods that wait, or not."""
        name = f"nobody-{len(self.logged(NO_PLACE))}"
        await unschedulable(self.api, pod_manifest(name, scheduler_name="nobody", nodeSelector={TYPE: "none"}))

        async def considered() -> bool:
            return any(line.get("Pod") == {"name": name, "namespace": "default"} for line in self.logged(NO_PLACE))

        await until(considered)
        await self.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)


async def unschedulable(api: RestClient, manifest: Object) -> Object:
    """Create a pod and give it the condition with which schedulers ask autoscalers for a node."""
    pod = await create_pod(api, manifest)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
    return await api.patch(path, {"status": {"conditions": [condition]}}, content_type=STRATEGIC)


async def define_kinds(api: RestClient) -> None:
    """Create the custom resource definitions of Karpenter's own module, and return when the API server serves them."""
    for file in sorted(built_folder("karpenter").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        await api.apply(definition)
        kind = definition["spec"]
        version = next(version["name"] for version in kind["versions"] if version["served"])
        await until(partial(_served, api, f"/apis/{kind['group']}/{version}/{kind['names']['plural']}"))


async def _served(api: RestClient, collection: str) -> bool:
    """Return whether a collection can be listed: not yet as soon as its definition is established."""
    status, _ = await api.request("GET", collection)
    return status == 200


@asynccontextmanager
async def run_karpenter(plane: ControlPlane, folder: Path, *flags: str) -> AsyncIterator[Karpenter]:
    """Run Karpenter and the kubelets of its nodes until the block is left; its kinds must be defined."""
    health = free_port()
    argv = [
        str(require("karpenter")),
        "--disable-leader-election=true",
        "--log-level=debug",
        f"--metrics-port={free_port()}",
        f"--health-probe-port={health}",
        f"--instance-types-file-path={write_instance_types(folder / 'instance-types.json')}",
        *flags,
    ]
    environment = {"KUBECONFIG": str(plane.kubeconfig(folder / "karpenter.kubeconfig"))}
    url = f"http://127.0.0.1:{health}/readyz"
    component = Component("karpenter", argv, url, folder / "karpenter.log", environment)
    await plane.admin.apply(NODE_CLASS)
    async with anyio.create_task_group() as tasks, component.started():
        kubelets = Kubelets(plane.admin)
        tasks.start_soon(kubelets.run)
        tasks.start_soon(FakeKubelet(plane.admin).run)
        yield Karpenter(component, kubelets, plane.admin)
        tasks.cancel_scope.cancel()

"""
The kubelets and device plugins of the nodes that Karpenter makes: they let a node become Ready with its resources.

Karpenter's provider for simulated nodes creates the Node object as EC2's bootstrap would; nothing else happens to it.
Node leases, images and probes are left out. What runs on the nodes is served by `tests.control_plane.fake_kubelet`.
"""

from contextlib import aclosing
from typing import Final

import anyio
import attrs

from tests.control_plane.fake_kubelet import unless_outrun
from tests.control_plane.objects import NEURON, NEURONCORE, lift_not_ready
from tests.control_plane.rest import STRATEGIC, Object, RestClient
from tests.karpenter.cloud import TYPE, resources

NODES: Final = "/api/v1/nodes"
KARPENTERS: Final = "kwok.x-k8s.io/node=fake"
"""The label of nodes that Karpenter's provider made."""


@attrs.define(eq=False)
class Kubelets:
    """
    All of them in one; `task_group.start_soon(Kubelets(api).run)`.

    Attributes:
        boot: is awaited before a node becomes Ready; set at first. A test that wants a slow machine replaces it.
    """

    api: RestClient
    boot: anyio.Event = attrs.field(factory=anyio.Event)
    _started: set[str] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.boot.set()

    async def run(self) -> None:
        """Start every node of Karpenter's until cancelled."""
        async with anyio.create_task_group() as starts:
            while True:
                listing = await self.api.get(NODES, labelSelector=KARPENTERS)
                for node in listing["items"]:
                    self._see(node, starts)
                version = listing["metadata"]["resourceVersion"]
                async with aclosing(self.api.watch(NODES, version, labelSelector=KARPENTERS)) as events:
                    async for kind, node in events:
                        if kind != "DELETED":
                            self._see(node, starts)

    def _see(self, node: Object, starts: anyio.abc.TaskGroup) -> None:
        if node["metadata"]["uid"] not in self._started:
            self._started.add(node["metadata"]["uid"])
            starts.start_soon(self._start, node)

    async def _start(self, node: Object) -> None:
        """Report no devices first, as the kubelet does, then Ready, and the devices as the plugin does."""
        whole = resources(node["metadata"]["labels"][TYPE])
        await self._report(node, whole | {NEURON: "0", NEURONCORE: "0"}, ready="False")
        await self.boot.wait()
        await self._report(node, whole | {NEURON: "0", NEURONCORE: "0"}, ready="True")
        with unless_outrun():
            await lift_not_ready(self.api, await self.api.get(f"{NODES}/{node['metadata']['name']}"))
        await self._report(node, whole, ready="True")

    async def _report(self, node: Object, amounts: dict[str, str], *, ready: str) -> None:
        condition = {
            "type": "Ready",
            "status": ready,
            "reason": "KubeletReady" if ready == "True" else "KubeletNotReady",
        }
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        with unless_outrun():
            path = f"{NODES}/{node['metadata']['name']}/status"
            await self.api.patch(path, {"status": status}, content_type=STRATEGIC)

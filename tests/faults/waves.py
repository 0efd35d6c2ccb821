"""
Waves of pods that each fill one machine exactly: a core that is given twice, or lost, shows in the next wave.

Refuses to know what is done to the cluster meanwhile.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
import attrs

from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import RestClient
from tests.end_to_end.workload import PODS, clear
from tests.faults.history import History, recording

SIZES: Final = (1, 1, 1, 1, 4, 4, 4)
WITHIN: Final = 100.0  # seconds; an informer may need 45 to notice that a connection is dead


@attrs.define(eq=False)
class Waves:
    """
    The machine, and the pods that come and go.

    Attributes:
        history: everything that happens.
        count: how many waves there have been.
    """

    api: RestClient
    history: History
    count: int = attrs.field(default=0, init=False)

    async def begin(self) -> None:
        """Delete the pods of the wave before, and create those of the next."""
        for number in range(len(SIZES)):
            if self.count:
                await self.api.delete(f"{PODS}/{self._name(number)}")
        self.count += 1
        manifests = (pod_manifest(self._name(number), neuron=size) for number, size in enumerate(SIZES))
        await create_all(partial(create_pod, self.api), manifests)

    async def bound(self) -> None:
        """Wait until every pod of the wave has its node."""
        wanted = {f"default/{self._name(number)}" for number in range(len(SIZES))}
        await self.api.wait_until(
            PODS,
            lambda pods: wanted <= {name for name, pod in pods.items() if "nodeName" in pod["spec"]},
            within=WITHIN,
        )

    async def judged(self) -> list[str]:
        """Return what the oracles complain about so far; check that each pod was bound once."""
        await self.history.complete(self.api)
        bound = self.history.bound()
        assert (len(bound), set(bound.values())) == (self.count * len(SIZES), {1})
        return self.history.violations()

    def _name(self, number: int) -> str:
        return f"wave-{self.count}-{number}"


@asynccontextmanager
async def waves(api: RestClient) -> AsyncIterator[Waves]:
    """Run kubelets and record what happens on a cluster of one machine, until the block is left."""
    await clear(api)
    async with recording(api) as history, anyio.create_task_group() as tasks:
        await create_node(api, node_manifest("trn1", "trn1.32xlarge"))
        tasks.start_soon(FakeKubelet(api).run)
        yield Waves(api, history)
        tasks.cancel_scope.cancel()
    await clear(api)

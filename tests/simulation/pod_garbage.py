"""
The pod garbage collector: removes pods whose node is gone.

After `pkg/controller/podgc`: every 20 seconds there, with a quarantine of 40; here sooner, so that a short simulation
sees it. Refuses to touch a pod whose node came back in the meantime.
"""

import asyncio
from typing import Final

import attrs

from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import NODES, PODS
from sandbox.apiserver.status import StatusError
from tests.simulation.history import History

PERIOD: Final = 5.0
QUARANTINE: Final = 10.0


@attrs.define(eq=False)
class PodGarbage:
    """The collector."""

    registry: Registry
    history: History
    _orphans: dict[str, float] = attrs.field(factory=dict)  # uid: seconds for which the node has been missing

    async def run(self) -> None:
        """Look at all pods again and again."""
        while True:
            await asyncio.sleep(PERIOD)
            self._sync()

    def _sync(self) -> None:
        before, self._orphans = self._orphans, {}
        for pod in self.registry.store.objects(PODS.storage):
            meta, node = pod["metadata"], pod["spec"].get("nodeName")
            if not node or self.registry.store.get(NODES.storage, "", node) is not None:
                continue
            missing = before.get(meta["uid"], 0.0)
            if missing < QUARANTINE:
                self._orphans[meta["uid"]] = missing + PERIOD
                continue
            try:
                self.registry.delete(PODS, meta["namespace"], meta["name"], {"gracePeriodSeconds": 0})
                self.history.line("pod garbage", f"removes {meta['name']}: node {node} is gone")
            except StatusError as error:
                self.history.line("pod garbage", f"cannot remove {meta['name']}: {error.message}")

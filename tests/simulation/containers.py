"""
What happens to pods on their nodes: the kubelet admits them after a while, or rejects them; they run and end.

The sandbox's kubelet follows the pods and removes terminating ones; this says how long each step takes. The device
plugin marks a pod whose ids it has handed out.
"""

import asyncio
from random import Random
from typing import Final

import anyio
import attrs

from sandbox import containers
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import CLAIMS, NODES, PODS
from sandbox.apiserver.status import StatusError
from sandbox.apiserver.store import Object
from tests.simulation.history import History
from tests.simulation.oracles.claims import problems_of
from tests.simulation.scenario import FaultWindows

SLOW: Final = "kubelet slow"
REJECTS: Final = "kubelet rejects"
REJECTION: Final = "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = ..., which is unexpected"
ADMISSION: Final = (0.05, 0.8)
"""Seconds until a bound pod is admitted."""
_PREPARES_AGAIN: Final = 2.0
"""Seconds between two tries to prepare claims."""
ENDING: Final = (0.1, 3.0)
"""Seconds until the containers of a terminating pod have ended; at most its grace period."""


@attrs.define(eq=False)
class Containers:
    """All nodes' containers; a `Runtime` of the sandbox's kubelet."""

    registry: Registry
    windows: FaultWindows
    dice: Random

    def runs(self, _pod: Object) -> bool:
        """Return True: no pod runs in another way."""
        return True

    async def run(self, pod: Object, address: str) -> None:
        """Run a pod until cancelled."""
        places = (pod["spec"]["nodeName"],)
        slow = self.windows.strikes(SLOW, *places)
        try:
            await asyncio.sleep(self.dice.uniform(*ADMISSION) + (slow.seconds if slow else 0.0))
            current = self._current(pod)
            while current is not None and any(problems_of(current, self._claim)):
                await asyncio.sleep(_PREPARES_AGAIN)
                current = self._current(pod)
            if current is None:
                return
            if self.windows.strikes(REJECTS, *places):
                self._put(_rejected(current))
                return
            self._put(_served(containers.running(current, address, self.registry.clock())))
            run = containers.run_of(pod)
            if run.seconds is not None:
                await asyncio.sleep(run.seconds)
                if (current := self._current(pod)) is not None:
                    self._put(containers.ended(current, run.exit_code, self.registry.clock()))
                return
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):  # its scope would cancel this sleep, too
                await anyio.sleep(self._ending(pod))
            raise

    def _ending(self, pod: Object) -> float:
        current = self._current(pod)
        grace = 0 if current is None else current["metadata"].get("deletionGracePeriodSeconds") or 0
        return min(float(grace), self.dice.uniform(*ENDING))

    def _current(self, pod: Object) -> Object | None:
        """Return the pod as it is now; None if it is gone."""
        meta = pod["metadata"]
        current = self.registry.store.get(PODS.storage, meta["namespace"], meta["name"])
        return current if current is not None and current["metadata"]["uid"] == meta["uid"] else None

    def _claim(self, key: tuple[str, str]) -> Object | None:
        return self.registry.store.get(CLAIMS.storage, *key)

    def _put(self, pod: Object) -> None:
        self.registry.store.put(PODS.storage, pod)


def _rejected(pod: Object) -> Object:
    """Return a pod as its kubelet leaves it after a failed admission."""
    status = pod["status"] | {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": REJECTION}
    return pod | {"status": status}


def _served(pod: Object) -> Object:
    """Return a pod as the device plugin leaves it when it has handed out its ids."""
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get("NEURON_ALLOCATED") != "false":
        return pod
    return pod | {"metadata": pod["metadata"] | {"annotations": annotations | {"NEURON_ALLOCATED": "true"}}}


PERIOD: Final = 5.0
QUARANTINE: Final = 10.0


@attrs.define(eq=False)
class PodGarbage:
    """The collector."""

    registry: Registry
    history: History
    _orphans: dict[str, float] = attrs.field(factory=dict)  # uid: seconds for which the node has been missing

    async def run(self) -> None:
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

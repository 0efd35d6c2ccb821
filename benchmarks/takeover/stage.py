"""
What a round needs: two replicas, 1,000 pods that arrive, and an observer that writes down their Bindings.

Refuses to stop a replica: `deeds` does.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
import attrs

from benchmarks.replicas.history import History, longest_gap
from benchmarks.replicas.observer import Observer
from benchmarks.replicas.plane import Cluster, machine_on
from benchmarks.replicas.replica import Replica, Replicas, holder, name_in, run_replicas
from benchmarks.takeover.figures import LeaseTimes
from tests.control_plane.objects import create_all, create_pod, pod_manifest
from tests.control_plane.rest import Object
from tests.end_to_end.workload import LEASE, PODS, kubelets

SIZES: Final = (1, 1, 4, 1, 1, 8, 1, 1)
LONGEST_WAIT: Final = 90.0  # seconds for all pods to be bound
INSTANCE_TYPE: Final = "trn1.32xlarge"
NODES: Final = 180  # 2,880 devices, for 1,000 pods with 2,250: there is always a place


@attrs.define(eq=False, kw_only=True)
class Stage:
    """
    One round.

    Attributes:
        pods: how many are created.
        replicas: starts further ones.
        leader, standby: the two that run at first.
        identity: the leader's in the Lease.
        created: when each pod was created, by name.
    """

    cluster: Cluster
    pods: int
    replicas: Replicas
    leader: Replica
    standby: Replica
    identity: str
    observer: Observer
    created: dict[str, float] = attrs.field(factory=dict, init=False)

    @property
    def history(self) -> History:
        """What was seen."""
        return self.observer.history

    async def at_once(self) -> None:
        """Create all pods as fast as the API server takes them."""
        await create_all(self._create, map(_pod, range(self.pods)))

    async def paced(self, rate: float) -> None:
        """Create so many pods a second."""
        begin = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for number in range(self.pods):
                await anyio.sleep_until(begin + number / rate)
                tasks.start_soon(self._create, _pod(number))

    async def bound(self, count: int) -> bool:
        """Wait until so many pods are bound; return whether they are."""
        return await self.observer.until(lambda: self.history.total >= count, within=LONGEST_WAIT)

    async def renewal(self) -> None:
        """Return when the Lease has just been renewed: the longest time until it expires."""
        before = (await self.cluster.api.get(LEASE))["spec"]["renewTime"]
        await self.cluster.api.wait_for(LEASE, lambda lease: lease["spec"]["renewTime"] != before)

    async def succeeded(self) -> float:
        """Wait for the first Binding of another leader; return its time, infinity if there is none."""
        there = await self.observer.until(lambda: bool(self.history.by_other_than(self.identity)), within=LONGEST_WAIT)
        return self.history.by_other_than(self.identity)[0].at if there else float("inf")

    def late(self, after: float) -> list[str]:
        """Return the Bindings of the first leader that came after the successor's first, a sentence each."""
        return [
            f"{pod.name} was bound by the old leader after the takeover"
            for pod in self.history.bound.values()
            if pod.leader == self.identity and pod.at > after
        ]

    def gap(self) -> float:
        """Return the longest time without a Binding while a pod waited."""
        return longest_gap(self.created, {pod.name: pod.at for pod in self.history.bound.values()})

    async def _create(self, manifest: Object) -> None:
        self.created[manifest["metadata"]["name"]] = time.perf_counter()
        await create_pod(self.cluster.api, manifest)


def _pod(number: int) -> Object:
    return pod_manifest(f"run-{number:06d}", neuron=SIZES[number % len(SIZES)], terminationGracePeriodSeconds=0)


@asynccontextmanager
async def run_stage(cluster: Cluster, times: LeaseTimes, pods: int) -> AsyncIterator[Stage]:
    """Run two replicas on the empty cluster until the block is left."""
    await cluster.clear()
    version = str((await cluster.api.get(PODS, limit=1))["metadata"]["resourceVersion"])
    observer = Observer(cluster.api, History(machine_on))
    async with run_replicas(cluster, *times.flags) as replicas, anyio.create_task_group() as tasks:
        leader = await replicas.start()
        identity = await holder(cluster)
        if name_in(identity) != leader.name:
            raise RuntimeError(f"{leader.name} was to hold the Lease, and {identity} does")
        standby = await replicas.start()
        tasks.start_soon(partial(observer.run, version))
        async with kubelets(cluster.api):
            yield Stage(
                cluster=cluster,
                pods=pods,
                replicas=replicas,
                leader=leader,
                standby=standby,
                identity=identity,
                observer=observer,
            )
        tasks.cancel_scope.cancel()

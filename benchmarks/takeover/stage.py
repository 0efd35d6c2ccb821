"""
What a round needs: a cluster, two replicas, 1,000 pods that arrive, and an observer that writes down their Bindings.

The cluster is a real control plane with all of `manifests/` in force. Nodes are simulated, and so are their kubelets:
the allocate fence is on, as in a cluster. A replica is a process, known by its name in the Lease; its log goes to a
file. `deeds` stops replicas, and `history` judges what was seen.
"""

import functools
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import anyio
import attrs

from benchmarks.takeover.figures import LeaseTimes
from benchmarks.takeover.history import History, longest_gap
from neuron_scheduler.neuron.catalog import Machine
from tests.control_plane.component import Component
from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, free_port, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.fence import ACCOUNT, in_force
from tests.end_to_end.process import ROOT, until
from tests.end_to_end.workload import LEASE, PODS, kubelets
from tests.support.builders import machine

SIZES: Final = (1, 1, 4, 1, 1, 8, 1, 1)
LONGEST_WAIT: Final = 90.0  # seconds for all pods to be bound
INSTANCE_TYPE: Final = "trn1.32xlarge"
NODES: Final = 180  # 2,880 devices, for 1,000 pods with 2,250: there is always a place
KUBECTL: Final = Path(sys.executable).with_name("kubectl")
FOLDERS: Final = ("manifests/lease-watch", "manifests/")
LONGEST_END: Final = 45.0  # seconds; the Deployment's grace period is 40
PAUSE: Final = 0.1  # seconds before a list


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
async def run_cluster() -> AsyncIterator[Cluster]:
    """Run a control plane, without nodes, until the block is left."""
    async with run_control_plane() as plane:
        admin = plane.kubeconfig(plane.folder / "admin.kubeconfig")
        for folder in FOLDERS:
            command = [str(KUBECTL), "apply", "-k", folder, f"--kubeconfig={admin}"]
            await anyio.run_process(command, cwd=ROOT, stderr=subprocess.STDOUT)
        await rights.grant(plane.admin)
        await until(lambda: in_force(plane))
        token = await plane.token_for("kube-system", ACCOUNT)
        yield Cluster(plane, plane.kubeconfig(plane.folder / "account.kubeconfig", token=token))


@attrs.define(eq=False)
class Replica:
    """
    A running process.

    Attributes:
        name: as POD_NAME has it in a cluster.
    """

    name: str
    component: Component

    async def ended(self) -> int:
        """Wait until it has ended; return its exit code, negative for a signal."""
        with anyio.fail_after(LONGEST_END):
            while self.component.returncode is None:  # noqa: ASYNC110 - another process's state
                await anyio.sleep(0.01)
        return self.component.returncode

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.component.send_signal(number)


@attrs.define(eq=False)
class Replicas:
    """
    Starts replicas with the same flags; all of them end with it.

    Attributes:
        flags: beside those that a test process needs.
    """

    cluster: Cluster
    flags: tuple[str, ...]
    _stack: AsyncExitStack
    _count: int = attrs.field(default=0, init=False)

    async def start(self) -> Replica:
        """Start another one, and return when it is ready."""
        self._count += 1
        name, port = f"replica-{self._count}", free_port()
        argv = ["/usr/bin/env", f"POD_NAME={name}", sys.executable, "-m", "neuron_scheduler", "run"]
        argv += [f"--kubeconfig={self.cluster.account}", "--bind-address=127.0.0.1", f"--port={port}", *self.flags]
        log = self.cluster.plane.folder / f"{name}.log"
        component = Component(name, argv, f"http://127.0.0.1:{port}/readyz", log)
        self._stack.push_async_callback(component.stop)
        await component.start()
        return Replica(name, component)


@asynccontextmanager
async def run_replicas(cluster: Cluster, *flags: str) -> AsyncIterator[Replicas]:
    """Start replicas in the block, and end them after it."""
    async with AsyncExitStack() as stack:
        yield Replicas(cluster, flags, stack)


async def holder(cluster: Cluster) -> str:
    """Wait until somebody holds the Lease; return the identity."""
    lease = await cluster.api.wait_for(LEASE, lambda lease: bool(lease["spec"].get("holderIdentity")))
    return str(lease["spec"]["holderIdentity"])


def name_in(identity: str) -> str:
    """Return the name of the replica in an identity."""
    return identity.rpartition("_")[0]


@attrs.define(eq=False)
class Observer:
    """
    Follows the pods as everybody sees them, writes their history, and lets others wait for it.

    An API server that is short of CPU ends the watch of a client that is slow for a moment; then the watch continues
    where it was. If the server no longer has the events in between, the pods are listed: what was created and ended
    meanwhile is never seen then.
    """

    api: RestClient
    history: History
    _pods: dict[str, Object] = attrs.field(factory=dict, init=False)
    _seen: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    async def run(self, version: str) -> None:
        """
        Follow the pods from that version on until cancelled.

        Raises:
            ApiError: the server refuses the watch.
        """
        while True:
            before = version
            with suppress(aiohttp.ClientError):
                async with aclosing(self.api.watch(PODS, version)) as events:
                    async for kind, pod in events:
                        version = pod["metadata"]["resourceVersion"]
                        self._take(kind, pod)
            if version == before:
                await anyio.sleep(PAUSE)
                version = await self._list()

    async def _list(self) -> str:
        """Hand over what is gone, then what is there; return the version of the list."""
        listing = await self.api.get(PODS)
        there = {pod["metadata"]["uid"]: pod for pod in listing["items"]}
        for pod in [pod for uid, pod in self._pods.items() if uid not in there]:
            self._take("DELETED", pod)
        for pod in there.values():
            self._take("MODIFIED", pod)
        return str(listing["metadata"]["resourceVersion"])

    def _take(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        if kind != "DELETED":
            self._pods[uid] = pod
        self.history.note(kind, pod, time.perf_counter())
        self._seen.set()

    async def until(self, met: Callable[[], bool], *, within: float) -> bool:
        """Wait until a condition on the history holds; return whether it does within so many seconds."""
        with anyio.move_on_after(within):
            while not met():
                self._seen = anyio.Event()
                await self._seen.wait()
        return met()


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

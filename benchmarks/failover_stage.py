"""
What a round of `benchmarks.failover` needs: a cluster, two replicas, pods that arrive, and an observer of the Bindings.

The cluster is a real control plane with all of `manifests/` in force. Nodes are simulated, and so are their kubelets:
the allocate fence is on, as in a cluster. Times are those at which a watch shows a Binding, so nothing that a scheduler
says about itself counts.
"""

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import attrs

from tests.control_plane.component import Component
from tests.control_plane.fake_kubelet import path_of, running
from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import STRATEGIC, Object, RestClient
from tests.control_plane.server import ControlPlane, free_port, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.fence import ACCOUNT, in_force
from tests.end_to_end.process import ROOT, until
from tests.end_to_end.workload import LEASE, PODS, ids_of, kubelets

SIZES: Final = (1, 1, 4, 1, 1, 8, 1, 1)
NODES: Final = 180  # with 2,880 devices, for 1,000 pods with 2,250: there is always a place
OTHERS: Final = "others"
INSTANCE_TYPE: Final = "trn1.32xlarge"
LONGEST_WAIT: Final = 90.0  # seconds for all pods to be bound
LONGEST_END: Final = 45.0  # seconds; the Deployment's grace period is 40
LEADER: Final = "neuron-scheduler/leader"
KUBECTL: Final = Path(sys.executable).with_name("kubectl")


@asynccontextmanager
async def run_cluster(fillers: int = 0) -> AsyncIterator[ControlPlane]:
    """Run a control plane with nodes, the manifests and pods on other nodes until the block is left."""
    async with run_control_plane() as plane:
        admin = plane.kubeconfig(plane.folder / "admin.kubeconfig")
        for folder in ("manifests/lease-watch", "manifests/my-scheduler"):
            command = [str(KUBECTL), "apply", "-k", folder, f"--kubeconfig={admin}"]
            await anyio.run_process(command, cwd=ROOT, stderr=subprocess.STDOUT)
        await rights.grant(plane.admin)
        await until(lambda: in_force(plane))
        plane.kubeconfig(_account(plane), token=await plane.token_for("kube-system", ACCOUNT))
        names = (*(f"node-{number:03d}" for number in range(NODES)), *{_node_of(number) for number in range(fillers)})
        await create_all(partial(create_node, plane.admin), (node_manifest(name, INSTANCE_TYPE) for name in names))
        await plane.admin.post("/api/v1/namespaces", {"metadata": {"name": OTHERS}})
        await create_all(partial(_run, plane.admin), map(_filler, range(fillers)))
        yield plane


def _node_of(number: int) -> str:
    return f"other-{number // 100:04d}"


def _filler(number: int) -> Object:
    return pod_manifest(f"filler-{number:06d}", namespace=OTHERS, nodeName=_node_of(number))


async def _run(api: RestClient, manifest: Object) -> None:
    pod = await create_pod(api, manifest)
    await api.patch(f"{path_of(pod)}/status", {"status": running(pod)}, content_type=STRATEGIC)


def _account(plane: ControlPlane) -> Path:
    """Return the kubeconfig of the ServiceAccount that the Deployment runs under."""
    return plane.folder / "account.kubeconfig"


@attrs.frozen
class Bound:
    """A Binding: who sent it, the node, the ids of the devices, and when the watch showed it."""

    leader: str
    node: str
    ids: tuple[int, ...]
    at: float


@attrs.define(eq=False)
class Observer:
    """
    Follows the pods as everybody sees them, and lets others wait for their Bindings.

    Attributes:
        bound: by the name of the pod.
        wrong: what must not happen, a sentence each.
    """

    api: RestClient
    bound: dict[str, Bound] = attrs.field(factory=dict, init=False)
    wrong: list[str] = attrs.field(factory=list, init=False)
    _used: set[tuple[str, int]] = attrs.field(factory=set, init=False)
    _seen: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    async def run(self, version: str) -> None:
        """Follow the pods from that version on until cancelled; the watch continues where the server has ended it."""
        while True:
            async with aclosing(self.api.watch(PODS, version)) as events:
                async for _, pod in events:
                    version = pod["metadata"]["resourceVersion"]
                    if "nodeName" in pod["spec"]:
                        self._take(pod)

    def _take(self, pod: Object) -> None:
        name, node, ids = pod["metadata"]["name"], pod["spec"]["nodeName"], ids_of(pod)
        now = Bound(pod["metadata"]["annotations"][LEADER], node, ids, time.perf_counter())
        before = self.bound.setdefault(name, now)
        if before is now:
            devices = {(node, number) for number in ids}
            if devices & self._used:
                self.wrong.append(f"{name} has devices of {node} that another pod has: {ids}")
            self._used |= devices
            self._seen.set()
        elif (before.leader, before.node, before.ids) != (now.leader, now.node, now.ids):
            self.wrong.append(f"{name} was bound twice: {before} and {now}")

    async def until(self, met: Callable[[], bool]) -> bool:
        """Wait until a condition on the Bindings holds; return whether it does in the end."""
        with anyio.move_on_after(LONGEST_WAIT):
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
        flags: of every replica.
        leader, standby: the two that run at first.
        identity: the leader's in the Lease.
        created: when each pod was created, by name.
    """

    plane: ControlPlane
    pods: int
    flags: tuple[str, ...]
    observer: Observer
    leader: Component = attrs.field(init=False)
    standby: Component = attrs.field(init=False)
    identity: str = attrs.field(init=False)
    created: dict[str, float] = attrs.field(factory=dict, init=False)
    _stack: AsyncExitStack
    _replicas: int = attrs.field(default=0, init=False)

    async def start(self) -> Component:
        """Start another replica, and return when it is ready; it ends with the round."""
        self._replicas += 1
        name, port = f"replica-{self._replicas}", free_port()
        argv = [sys.executable, "-m", "neuron_scheduler", "run", f"--kubeconfig={_account(self.plane)}"]
        argv += ["--bind-address=127.0.0.1", f"--port={port}", *self.flags]
        log = self.plane.folder / f"{name}.log"
        component = Component(name, argv, f"http://127.0.0.1:{port}/readyz", log)
        return await self._stack.enter_async_context(component.started())

    async def start_both(self) -> None:
        """Start the leader, and when it holds the Lease the other one."""
        self.leader = await self.start()
        lease = await self.plane.admin.wait_for(LEASE, lambda lease: bool(lease["spec"].get("holderIdentity")))
        self.identity = lease["spec"]["holderIdentity"]
        self.standby = await self.start()

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

    async def bound(self, count: int) -> None:
        """Wait until so many pods are bound, at most for `LONGEST_WAIT`."""
        await self.observer.until(lambda: len(self.observer.bound) >= count)

    async def renewal(self) -> None:
        """Return when the Lease has just been renewed: the longest time until it expires."""
        before = (await self.plane.admin.get(LEASE))["spec"]["renewTime"]
        await self.plane.admin.wait_for(LEASE, lambda lease: lease["spec"]["renewTime"] != before)

    async def succeeded(self) -> float:
        """Wait for the first Binding of another leader; return its time, infinity if there is none."""

        def others() -> list[float]:
            return [bound.at for bound in self.observer.bound.values() if bound.leader != self.identity]

        return min(others()) if await self.observer.until(lambda: bool(others())) else float("inf")

    def late(self, after: float) -> list[str]:
        """Return the Bindings of the first leader that came after the successor's first, a sentence each."""
        return [
            f"{name} was bound by the old leader after the takeover"
            for name, bound in self.observer.bound.items()
            if bound.leader == self.identity and bound.at > after
        ]

    async def _create(self, manifest: Object) -> None:
        self.created[manifest["metadata"]["name"]] = time.perf_counter()
        await create_pod(self.plane.admin, manifest)


def _pod(number: int) -> Object:
    return pod_manifest(f"run-{number:06d}", neuron=SIZES[number % len(SIZES)], terminationGracePeriodSeconds=0)


async def ended(replica: Component) -> int:
    """Wait until a replica has ended; return its exit code, negative for a signal."""
    with anyio.fail_after(LONGEST_END):
        while replica.returncode is None:  # noqa: ASYNC110 - another process's state
            await anyio.sleep(0.01)
    return replica.returncode


async def stopped(replica: Component) -> list[str]:
    """Wait for the end of a replica that got SIGTERM; return what is wrong with it."""
    code = await ended(replica)
    return [] if code == 0 else [f"{replica.name} ended with {code} after SIGTERM"]


@asynccontextmanager
async def run_stage(plane: ControlPlane, flags: tuple[str, ...], pods: int) -> AsyncIterator[Stage]:
    """Run two replicas on the cluster, without other pods, until the block is left."""
    await plane.admin.delete(PODS, gracePeriodSeconds=0)
    await plane.admin.request("DELETE", LEASE)
    version = str((await plane.admin.get(PODS, limit=1))["metadata"]["resourceVersion"])
    observer = Observer(plane.admin)
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        stage = Stage(plane=plane, pods=pods, flags=flags, observer=observer, stack=stack)
        await stage.start_both()
        tasks.start_soon(observer.run, version)
        async with kubelets(plane.admin):
            yield stage
        tasks.cancel_scope.cancel()

"""
The cluster that contenders take turns on: created once for a number of nodes, cleared between two runs.

A real etcd and kube-apiserver with simulated nodes, the rights of `manifests/base/rbac.yaml` and, except to measure
their cost, the admission policies of `manifests/`. Policies cannot be deleted and created again on one API server
(kubernetes/kubernetes#130887), so there is one arena with them and one without.
"""

import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import anyio
import attrs
import yaml

from benchmarks.contest import workloads
from tests.control_plane.objects import NEURON, NEURONCORE, create_all, create_pod
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.support.device_objects import API, devices, neuron_class, neuron_slice

MANIFESTS: Final = Path(__file__).parents[2] / "manifests" / "base"
RIGHTS_FOR_CLAIMS: Final = "../components/claims/rbac.yaml"
ACCOUNT: Final = "neuron-scheduler"
EXTENDER_ACCOUNT: Final = "k8s-neuron-scheduler"  # AWS's; the policies' manifest says how to allow it
PODS: Final = "/api/v1/namespaces/default/pods"
FILLERS: Final = f"/api/v1/namespaces/{workloads.BACKGROUND}/pods"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
CLAIMS: Final = f"/apis/{API}/namespaces/default/resourceclaims"
SLICES: Final = f"/apis/{API}/resourceslices"
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/my-scheduler"
LEASE_METADATA: Final = {"name": "my-scheduler", "namespace": "kube-system"}
PROBE: Final = {"AWS_NEURON_IDS": "0"}  # annotations that the policies refuse once they are in force
QUIET: Final = 0.15  # cores that etcd and kube-apiserver may use together before a run starts
LONGEST_NOISE: Final = 20.0  # seconds to wait for that
API_SERVER_FLAGS: Final = (
    "--delete-collection-workers=16",
    # Nodes are created ready in one request: no controller would remove the taint.
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
)


@attrs.define(eq=False)
class Arena:
    """
    A control plane with nodes on it.

    Attributes:
        policies: whether the admission policies of `manifests/` are in force.
    """

    plane: ControlPlane
    policies: bool
    _cleared_at: str = attrs.field(default="", init=False)

    @property
    def account(self) -> Path:
        """Kubeconfig of the scheduler's ServiceAccount."""
        return self.plane.folder / "account.kubeconfig"

    @property
    def admin(self) -> Path:
        """Kubeconfig of the administrator."""
        return self.plane.folder / "admin.kubeconfig"

    @property
    def extender_token(self) -> Path:
        """File with the token of the extender's ServiceAccount."""
        return self.plane.folder / "extender.token"

    @property
    def api(self) -> RestClient:
        """The administrator's client."""
        return self.plane.admin

    async def prepare(self, nodes: int, node: Callable[[int], Object]) -> None:
        """Grant the rights, put the policies in force, create the nodes."""
        started = time.perf_counter()
        for manifest in _manifests(self.policies):
            await self.api.apply(manifest, namespace=manifest["metadata"].get("namespace", "default"))
        self.plane.kubeconfig(self.account, token=await self.plane.token_for("kube-system", ACCOUNT))
        self.plane.kubeconfig(self.admin)
        self.extender_token.write_text(await self.plane.token_for("kube-system", EXTENDER_ACCOUNT))
        create = partial(self.api.post, "/api/v1/nodes")
        await create_all(create, map(node, range(nodes)))
        if self.policies:
            await self._in_force()
        with_policies = "with" if self.policies else "without"
        print(f"{nodes} nodes {with_policies} policies, {time.perf_counter() - started:.0f} s", flush=True)

    async def create_pods(self, manifests: Iterable[Object]) -> str:
        """Create pods; return the resource version after the last."""
        await create_all(self.create, manifests)
        return str((await self.api.get(PODS, limit=1))["metadata"]["resourceVersion"])

    async def create(self, manifest: Object) -> None:
        """Create a pod, and before it the claims that it names, on a device each."""
        for reference in manifest["spec"].get("resourceClaims", ()):
            metadata = {"name": reference["resourceClaimName"]}
            claim = {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": devices(1)}
            await self.api.post(CLAIMS, claim)
        await create_pod(self.api, manifest)

    async def publish(self, nodes: int) -> None:
        """Let the nodes publish their devices in place of counts."""
        await self.api.apply(neuron_class())

        async def change(node: Object) -> None:
            amounts = dict.fromkeys((NEURON, NEURONCORE))
            path = f"/api/v1/nodes/{node['metadata']['name']}"
            await self.api.patch(f"{path}/status", {"status": {"allocatable": amounts, "capacity": amounts}})
            await self.api.apply(neuron_slice(node["metadata"]["name"]))

        await create_all(change, map(workloads.node, range(nodes)))

    async def withdraw(self, nodes: int) -> None:
        """End that."""
        await self.api.delete(SLICES)

        async def change(node: Object) -> None:
            await self.api.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", {"status": node["status"]})

        await create_all(change, map(workloads.node, range(nodes)))

    async def fill(self, nodes: int) -> None:
        """Create the missing pod of low priority on every node."""
        there = {pod["metadata"]["name"] for pod in (await self.api.get(FILLERS))["items"]}
        fillers = map(workloads.filler, range(nodes))
        await create_all(
            partial(create_pod, self.api), (pod for pod in fillers if pod["metadata"]["name"] not in there)
        )

    async def empty(self) -> None:
        """Delete the pods of low priority."""
        await self.api.delete(FILLERS)

    async def clear(self) -> None:
        """Delete the objects of a run, also in etcd's history, and wait until the servers are quiet."""
        await self.api.delete(PODS)
        await create_all(self._unprotect, (await self.api.get(CLAIMS))["items"])
        await self.api.delete(CLAIMS)
        await self.api.delete(EVENTS)
        await self.api.patch(LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
        await self._compact()
        with anyio.move_on_after(LONGEST_NOISE):
            busy = 1.0
            while busy > QUIET:
                before = self.server_cpu()
                await anyio.sleep(0.5)
                busy = (self.server_cpu() - before) / 0.5

    async def _unprotect(self, claim: Object) -> None:
        """Let a claim go without the controller, which does not run."""
        await self.api.patch(f"{CLAIMS}/{claim['metadata']['name']}", {"metadata": {"finalizers": None}})

    def server_cpu(self) -> float:
        """Return the CPU seconds that etcd and kube-apiserver have used so far."""
        return sum(cpu_seconds(self.plane.components[name].pid) for name in ("etcd", "kube-apiserver"))

    async def event_count(self) -> int:
        """Return the number of Events, without reading them."""
        listing = await self.api.get(EVENTS, limit=1)
        return len(listing["items"]) + int(listing["metadata"].get("remainingItemCount", 0))

    async def _compact(self) -> None:
        """
        Compact etcd, so that the tenth run has the same etcd as the first.

        Keep the last writes: a watch of the API server that is slightly behind would start again, and with it all its
        clients.
        """
        url = self.plane.components["etcd"].health.removesuffix("/health")
        async with aiohttp.ClientSession(url, raise_for_status=True) as etcd:
            async with etcd.post("/v3/maintenance/status", json={}) as answer:
                revision = (await answer.json())["header"]["revision"]
            if self._cleared_at:
                with suppress(aiohttp.ClientResponseError):  # after five minutes the API server has compacted it
                    await etcd.post("/v3/kv/compaction", json={"revision": self._cleared_at, "physical": True})
                await etcd.post("/v3/maintenance/defragment", json={})
            self._cleared_at = revision

    async def _in_force(self) -> None:
        probe = workloads.WORKLOADS["one-shape"].pod(0)
        probe["metadata"]["annotations"] = PROBE
        with anyio.fail_after(30):
            while (await self.api.request("POST", PODS, probe, dryRun="All"))[0] != 403:  # noqa: ASYNC110 - another process's state
                await anyio.sleep(0.1)


@asynccontextmanager
async def run_arena(
    *, nodes: int, policies: bool, node: Callable[[int], Object] = workloads.node
) -> AsyncIterator[Arena]:
    """Run a control plane with so many nodes until the block is left."""
    async with run_control_plane(api_server_flags=API_SERVER_FLAGS) as plane:
        arena = Arena(plane, policies)
        await arena.prepare(nodes, node)
        await arena.clear()
        yield arena


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """Return the peak of a process's resident set."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) << 10 if match else 0


def _manifests(policies: bool) -> list[Object]:
    """Return the objects of `kubectl apply -k manifests/` without the Deployment, and those that the workloads need."""
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    extender = {"kind": "ServiceAccount", "name": EXTENDER_ACCOUNT, "namespace": "kube-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "roleRef": role}
    names = [
        "rbac.yaml",
        RIGHTS_FOR_CLAIMS,
        *(("admission_bindings.yaml", "admission_annotations.yaml") if policies else ()),
    ]
    return [
        *(item for name in names for item in yaml.safe_load_all(_with_extender((MANIFESTS / name).read_text()))),
        priority | {"metadata": {"name": workloads.HIGH_PRIORITY}},
        binding | {"metadata": {"name": EXTENDER_ACCOUNT}, "subjects": [extender]},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workloads.BACKGROUND}},
        # `clear` deletes it, for any holder.
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": LEASE_METADATA},
    ]


def _with_extender(text: str) -> str:
    """Allow the extender's account to bind with an allocation."""
    condition = f"request.userInfo.username != 'system:serviceaccount:kube-system:{EXTENDER_ACCOUNT}'"
    return text.replace(
        "  matchConditions:\n", f"  matchConditions:\n    - name: not-by-the-extender\n      expression: {condition}\n"
    )

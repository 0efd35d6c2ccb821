"""
docs/runbook.md: what it says to do helps, tried in the state that the alert means.

`test_reinstall.py` has the stale fence, `test_unknown_outcomes.py` Bindings in doubt, `test_rejected_pods.py` nodes
that reject pods, `test_replicas.py` a leader that is gone, `tests/karpenter/test_capacity_requests.py` machines that do
not come.
"""

import base64
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from tests.control_plane.objects import bind, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end.asking import asking, fragment, placeholders
from tests.end_to_end.fence import in_force, leading
from tests.end_to_end.process import ACQUIRED, BOUND, SYNCED, SchedulerProcess, run_scheduler, until
from tests.end_to_end.rights import grant
from tests.end_to_end.workload import PODS, placed, refused, remove
from tests.faults.answers import SILENCE
from tests.faults.calls import at
from tests.faults.proxy import ALWAYS, Fault, instead, run_proxy
from tests.support.documented_commands import Shell, reader_shell, run_by
from tests.support.kustomize import customized

THIS = "tests/end_to_end/test_runbook.py"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEADS = 'leader_election_master_status{name="my-scheduler"}'
MALFORMED = "neuron_scheduler_malformed_objects_total"
STALE = "neuron_scheduler_watch_stale"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/my-scheduler"

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ControlPlane, Shell]]:
    """Run a control plane with a node and the installation, and yield it with a shell of its administrator."""
    async with run_control_plane() as plane:
        folder = tmp_path_factory.mktemp("reader")
        shell = reader_shell(folder, plane.kubeconfig(folder / "kubeconfig"), road="my-scheduler")
        for each in ("manifests/lease-watch", "manifests/"):
            await shell.output(f"kubectl apply -k {each}")
        await until(lambda: in_force(plane))
        await create_node(plane.admin, node_manifest("inf2", "inf2.24xlarge"))
        yield plane, shell


async def is_ready(scheduler: SchedulerProcess) -> bool:
    return (await scheduler.get("/readyz"))[0] == 200


async def gauge(scheduler: SchedulerProcess, name: str, value: float) -> None:
    """Return when a metric has a value."""
    await scheduler.until(lambda metrics: metrics[name] == value)


async def elsewhere(plane: ControlPlane, name: str, annotations: dict[str, str] | None = None) -> Object:
    """Return a pod of two devices that another scheduler has bound."""
    pod = await create_pod(plane.admin, pod_manifest(name, scheduler_name="another", neuron=2))
    await bind(plane.admin, pod, "inf2", annotations)
    return pod


async def test_rights_that_are_missing(installed: tuple[ControlPlane, Shell]) -> None:
    """Not ready: without its rights a replica ends, and says which; the manifests bring them back."""
    plane, shell = installed
    (restore,) = run_by(f"{THIS}::{test_rights_that_are_missing.__name__}")
    await plane.admin.delete(f"{RBAC}/clusterrolebindings/neuron-scheduler")
    token = await plane.token_for("kube-system", "neuron-scheduler")
    kubeconfig = plane.kubeconfig(plane.folder / "without-rights", token=token)
    async with run_scheduler(kubeconfig) as scheduler:
        await scheduler.line("does not allow this process to")
    await shell.run(restore)
    async with leading(plane) as scheduler:
        await until(partial(is_ready, scheduler))


async def test_unknown_holders_and_cores_of_two_pods(installed: tuple[ControlPlane, Shell]) -> None:
    """A pod with unknown ids keeps the node from others until it ends; of two with the same ids the last one goes."""
    plane, shell = installed
    async with leading(plane) as scheduler:
        await elsewhere(plane, "unknown")
        await gauge(scheduler, "neuron_scheduler_unknown_holders", 1)
        await refused(plane.admin, "pair", neuron=2)
        await shell.output("kubectl delete pod unknown --grace-period=0 --force")
        await placed(plane.admin, "pair")
        await gauge(scheduler, "neuron_scheduler_unknown_holders", 0)
        ids = (await plane.admin.get(f"{PODS}/pair"))["metadata"]["annotations"]["AWS_NEURON_IDS"]
    # Only an administrator who removes the policy can do what it forbids.
    await shell.output("kubectl delete validatingadmissionpolicybinding neuron-scheduler-allocations")
    async with leading(plane) as scheduler:
        await until(partial(doubled, plane, ids))
        await gauge(scheduler, "neuron_scheduler_conflicting_cores", 4)
        await shell.output("kubectl delete pod doubled --grace-period=0 --force")
        await gauge(scheduler, "neuron_scheduler_conflicting_cores", 0)
        await shell.output("kubectl delete pod pair --grace-period=0 --force && kubectl apply -k manifests/")


async def doubled(plane: ControlPlane, ids: str) -> bool:
    """Return whether a pod with these ids could be created: the API server learns of a policy's end a bit later."""
    pod = pod_manifest("doubled", scheduler_name="another", neuron=2, annotations={"AWS_NEURON_IDS": ids})
    status, created = await plane.admin.request("POST", PODS, pod)
    if status == 201:
        await bind(plane.admin, created, "inf2")
    return status == 201


async def test_another_program_with_the_lease(installed: tuple[ControlPlane, Shell]) -> None:
    """No leader: as long as another program renews the Lease, no replica leads; when that one is gone, one does."""
    plane, _ = installed
    lease = {"holderIdentity": "another", "leaseDurationSeconds": 15, "renewTime": "2099-01-01T00:00:00.000000Z"}
    manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "my-scheduler"}}
    await plane.admin.request("DELETE", LEASE)
    await plane.admin.post(LEASE.rpartition("/")[0], manifest | {"spec": lease})
    token = await plane.token_for("kube-system", "neuron-scheduler")
    async with run_scheduler(plane.kubeconfig(plane.folder / "waiting", token=token)) as scheduler:
        await scheduler.line("another")
        assert scheduler.lines_with(ACQUIRED) == []
        await scheduler.line(ACQUIRED)  # nobody has renewed the Lease for its duration
        assert await scheduler.stop() == 0


async def store(plane: ControlPlane, key: str, item: Object) -> None:
    """Write an object into etcd past the API server, which would refuse it: an older release may have let it in."""
    etcd, encoded = plane.components["etcd"].health.rpartition("/")[0], json.dumps(item).encode()
    body = {"key": f"/registry/{key}".encode(), "value": encoded}
    body_in_base64 = {name: base64.b64encode(value).decode() for name, value in body.items()}
    async with aiohttp.request("POST", f"{etcd}/v3/kv/put", json=body_in_base64) as answer:
        assert answer.status == 200


async def test_objects_that_cannot_be_read(installed: tuple[ControlPlane, Shell]) -> None:
    """Malformed objects: the log names object and field; a node is corrected, a pod deleted, and all is used again."""
    plane, shell = installed
    node = await create_node(plane.admin, node_manifest("odd", "inf2.24xlarge", labels={"odd": "yes"}))
    async with leading(plane) as scheduler:
        await store(plane, "minions/odd", node | {"spec": {"taints": [{"key": "odd", "effect": "Maybe"}]}})
        line = await scheduler.line("Skipping malformed node")
        assert ('node="odd"' in line, "taint odd has the unknown effect" in line) == (True, True)
        await refused(plane.admin, "waits", neuron=2, nodeSelector={"odd": "yes"})
        await shell.output("kubectl taint node odd odd-")
        await placed(plane.admin, "waits")

        pod = await elsewhere(plane, "unread", {})
        spread = {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        bound = await plane.admin.get(f"{PODS}/{pod['metadata']['name']}")
        bound["spec"]["topologySpreadConstraints"] = [spread]
        await store(plane, "pods/default/unread", bound)
        line = await scheduler.line("Skipping malformed pod", 'pod="default/unread"')
        assert "maxSkew" in line
        await refused(plane.admin, "pair", neuron=2, nodeSelector={"kubernetes.io/hostname": "inf2"})
        await shell.output("kubectl delete pod unread --grace-period=0 --force")
        await placed(plane.admin, "pair")
    async with leading(plane) as scheduler:  # the alert does not come again
        assert not [name for name in await scheduler.metrics() if name.startswith(MALFORMED)]
    await remove(plane.admin, "pair", "waits")
    await shell.output("kubectl delete node odd")


async def test_two_replicas_that_are_active(installed: tuple[ControlPlane, Shell]) -> None:
    """Two leaders: one that elects nobody binds nothing; deleted, and with corrected flags, it is on standby."""
    plane, _ = installed
    async with leading(plane) as holder:
        kubeconfig = plane.folder / "neuron-scheduler.kubeconfig"
        async with run_scheduler(kubeconfig, "--leader-elect=false") as other:
            await other.line(SYNCED)
            await gauge(holder, LEADS, 1)
            await gauge(other, LEADS, 1)
            await placed(plane.admin, "first", neuron=1)
            await placed(plane.admin, "second", neuron=1)
            await holder.line(BOUND, count=2)
            assert await other.stop() == 0  # as `kubectl delete pod` does
            assert other.lines_with(BOUND) == []
        async with run_scheduler(kubeconfig) as other:
            await other.line(SYNCED)
            await gauge(other, LEADS, 0)
            await gauge(holder, LEADS, 1)
            await placed(plane.admin, "third", neuron=1)
            assert await other.stop() == 0
    await remove(plane.admin, "first", "second", "third")


async def test_a_way_that_lets_nothing_through(installed: tuple[ControlPlane, Shell]) -> None:
    """Stale watches: a proxy holds back the nodes, so the replica is not ready; another way or a mended one helps."""
    plane, _ = installed
    module = "tests.end_to_end.soon_stale"
    async with run_proxy(plane) as proxy, leading(plane) as holder:
        kubeconfig = plane.folder / "neuron-scheduler.kubeconfig"
        async with run_scheduler(kubeconfig, f"--master={proxy.url}", module=module) as behind:
            await behind.line(SYNCED)
            held = proxy.add(Fault(at("/api/v1/nodes"), instead(SILENCE), times=ALWAYS))
            proxy.cut()
            await gauge(behind, f'{STALE}{{resource="nodes"}}', 1)
            status, text = await behind.get("/readyz")
            assert (status == 200, "nodes" in text) == (False, True)
            await behind.line("Watch failed", "/api/v1/nodes")
            assert await is_ready(holder)
            async with run_scheduler(kubeconfig, module=module) as successor:  # as if its pod had been deleted
                await successor.line(SYNCED)
                await until(partial(is_ready, successor))
                assert await successor.stop() == 0
            held.times = 0
            await gauge(behind, f'{STALE}{{resource="nodes"}}', 0)
            await until(partial(is_ready, behind))
            assert await behind.stop() == 0


async def test_machines_that_cannot_be_asked_for(tmp_path: Path) -> None:
    """Without the component the API server refuses each request; the manifests with it bring one."""
    async with run_control_plane() as plane:
        await grant(plane.admin)
        await fragment(plane.admin, "trn1")
        token = await plane.token_for("kube-system", "neuron-scheduler")
        kubeconfig = plane.kubeconfig(tmp_path / "account", token=token)
        async with asking(kubeconfig, tmp_path, giveUp="1s") as scheduler:
            await create_pod(plane.admin, pod_manifest("four", neuron=4))
            await scheduler.line("The API server refuses a request for a machine")
            reader = tmp_path / "reader"
            reader.mkdir()
            folder = customized("my-scheduler", tmp_path, "capacity-requests")
            shell = reader_shell(reader, plane.kubeconfig(tmp_path / "admin"))
            await shell.output(f"kubectl apply -k manifests/lease-watch && kubectl apply -k {folder}")
            await placeholders(plane.admin, 1)

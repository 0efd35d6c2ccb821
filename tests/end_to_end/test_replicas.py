"""
Two replicas with `manifests/` applied: one binds, the other takes over, and the server refuses a replica that is too
late.

The control plane is this module's own: policies with the Lease as parameter cannot be deleted and applied again on one
API server (kubernetes/kubernetes#130887).
"""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.control_plane.objects import bind, create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end.fence import in_force
from tests.end_to_end.process import ACQUIRED, BOUND, ROOT, SHORT_LEASE, SYNCED, SchedulerProcess, run_scheduler, until
from tests.end_to_end.workload import LEASE, PODS, all_placed, clear, events_of, held_cores, kubelets, on, placed
from tests.faults.answers import Refusal
from tests.faults.calls import at, binding_of
from tests.faults.proxy import ALWAYS, HELD, Fault, instead, run_proxy

pytestmark = pytest.mark.main_job

TYPES = {"trn1-a": "trn1.32xlarge", "trn1-b": "trn1.32xlarge", "inf2": "inf2.24xlarge"}
STARTED = "Starting to schedule pods"
KUBECTL = Path(sys.executable).with_name("kubectl")
NOT_THE_HOLDER = "this scheduler does not hold the Lease kube-system/my-scheduler"


@pytest.fixture(scope="module")
async def fenced_plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane on which `kubectl apply -k manifests/` has taken effect."""
    async with run_control_plane() as plane:
        kubeconfig = plane.kubeconfig(plane.folder / "admin.kubeconfig")
        command = [str(KUBECTL), "apply", "-k", "manifests/my-scheduler", f"--kubeconfig={kubeconfig}"]
        await anyio.run_process(command, cwd=ROOT, stderr=subprocess.STDOUT)
        await until(lambda: in_force(plane))
        yield plane


@pytest.fixture(scope="module")
async def token(fenced_plane: ControlPlane) -> str:
    """Return a token of the ServiceAccount that the Deployment runs under."""
    return await fenced_plane.token_for("kube-system", "neuron-scheduler")


@pytest.fixture(scope="module")
def kubeconfig(fenced_plane: ControlPlane, token: str) -> Path:
    """Return that ServiceAccount's kubeconfig."""
    return fenced_plane.kubeconfig(fenced_plane.folder / "account.kubeconfig", token=token)


@pytest.fixture
async def cluster(fenced_plane: ControlPlane) -> RestClient:
    """Return the administrator's client of a cluster with nodes and nothing else."""
    await clear(fenced_plane.admin)
    for name, instance_type in TYPES.items():
        await create_node(fenced_plane.admin, node_manifest(name, instance_type))
    return fenced_plane.admin


async def leads(scheduler: SchedulerProcess) -> bool:
    """Return whether a replica's metrics say that it leads."""
    return (await scheduler.metrics())['leader_election_master_status{name="my-scheduler"}'] == 1


async def ready_to_follow(scheduler: SchedulerProcess) -> None:
    """Wait until a replica's caches are synced while another leads; it is ready then, as a leader is."""
    await scheduler.line(SYNCED)
    assert await scheduler.get("/readyz") == (200, "ok")
    assert not await leads(scheduler)


def wave(name: str) -> list[Object]:
    """Return pods that take a third of the cluster, in sizes that always fit."""
    small = [pod_manifest(f"{name}-one-{n}", neuron=1, **on("inf2.24xlarge")) for n in range(2)]
    return [*small, *(pod_manifest(f"{name}-four-{n}", neuron=4, **on("trn1.32xlarge")) for n in range(2))]


async def create_wave(api: RestClient, name: str) -> list[str]:
    """Create the pods of a wave; return their names."""
    pods = wave(name)
    await create_all(partial(create_pod, api), pods)
    return [pod["metadata"]["name"] for pod in pods]


async def test_exactly_one_binds_and_a_clean_stop_hands_over_at_once(kubeconfig: Path, cluster: RestClient) -> None:
    """The follower is ready but binds nothing until the leader stops; it does not wait for an expiry."""
    never = "--leader-elect-lease-duration=3600s"
    async with (
        kubelets(cluster),
        run_scheduler(kubeconfig, never) as first,
        run_scheduler(kubeconfig, never) as second,
    ):
        await first.line(SYNCED)
        await second.line(SYNCED)
        await cluster.wait_for(LEASE, lambda lease: bool(lease["spec"]["holderIdentity"]))

        async def one_leads() -> bool:
            return await leads(first) or await leads(second)

        await until(one_leads)
        leader, follower = (first, second) if await leads(first) else (second, first)
        await ready_to_follow(follower)
        holder = (await cluster.get(LEASE))["spec"]["holderIdentity"]
        await follower.line("New leader elected", f'identity="{holder}"')
        assert not follower.lines_with(STARTED)
        names = await create_wave(cluster, "before")
        await all_placed(cluster, names)
        await leader.line(BOUND, count=len(names))
        assert not follower.lines_with(BOUND)
        assert await leader.stop() == 0
        await follower.line(ACQUIRED)
        await follower.line(STARTED, "nodes=3", f"pods={len(names)}", "pending=0")
        more = await create_wave(cluster, "after")
        pods = await all_placed(cluster, names + more)
        await follower.line(BOUND, count=len(more))
        held_cores(pods.values(), TYPES)
        assert len(follower.lines_with(BOUND)) == len(more)
        assert await follower.stop() == 0
    assert not [line for line in (*leader.lines, *follower.lines) if line[:1] in "EF"]


async def test_a_killed_leader_is_followed_when_its_lease_expires(kubeconfig: Path, cluster: RestClient) -> None:
    """With a current cache, that is without listing nodes first, and without giving a core twice."""
    async with kubelets(cluster), run_scheduler(kubeconfig, *SHORT_LEASE) as leader:
        await leader.line(ACQUIRED)
        async with run_scheduler(kubeconfig, *SHORT_LEASE) as follower:
            await ready_to_follow(follower)
            first = await create_wave(cluster, "first")
            await all_placed(cluster, first)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(create_wave, cluster, "second")
                await leader.kill()
            second = [pod["metadata"]["name"] for pod in wave("second")]
            await follower.line(ACQUIRED)
            pods = await all_placed(cluster, first + second)
            held_cores(pods.values(), TYPES)
            assert len(follower.lines_with(SYNCED)) == 1
            assert follower.lines.index(follower.lines_with(SYNCED)[0]) < follower.lines.index(
                follower.lines_with(ACQUIRED)[0]
            )
            assert (await cluster.get(LEASE))["spec"]["leaseTransitions"] == 1
            assert await follower.stop() == 0


async def test_the_next_leader_tells_of_unknown_allocations_again(kubeconfig: Path, cluster: RestClient) -> None:
    """The Event that a former leader wrote may have expired; a replica on standby writes none."""
    reason, warning = "NeuronAllocationUnknown", "Pod uses Neuron devices, but their ids are unknown"
    await bind(cluster, await create_pod(cluster, pod_manifest("theirs", scheduler_name="another", neuron=1)), "inf2")
    async with run_scheduler(kubeconfig) as leader:
        await leader.line(ACQUIRED)
        await events_of(cluster, "theirs", reason)
        async with run_scheduler(kubeconfig) as follower:
            await ready_to_follow(follower)
            await follower.line(warning)
            assert len(await events_of(cluster, "theirs", reason)) == 1
            assert await leader.stop() == 0
            await follower.line(ACQUIRED)
            await events_of(cluster, "theirs", reason, count=2)
            assert await follower.stop() == 0


async def test_a_frozen_leader_binds_nothing_when_it_wakes(
    fenced_plane: ControlPlane, kubeconfig: Path, token: str, cluster: RestClient
) -> None:
    """It ends with 1 without binding the pods that came meanwhile, and the server refuses its identity."""
    async with run_scheduler(kubeconfig, *SHORT_LEASE) as old:
        await old.line(ACQUIRED)
        await placed(cluster, "before", neuron=1)
        await old.line(BOUND)
        identity = (await cluster.get(LEASE))["spec"]["holderIdentity"]
        async with run_scheduler(kubeconfig, *SHORT_LEASE) as new:
            await ready_to_follow(new)
            old.send_signal(signal.SIGSTOP)
            await new.line(ACQUIRED)
            new.send_signal(signal.SIGSTOP)  # so that the old one finds the pod unbound when it wakes
            await create_pod(cluster, pod_manifest("meanwhile", neuron=1))
            old.send_signal(signal.SIGCONT)
            assert await old.ended() == 1
            assert len(old.lines_with(BOUND)) == 1
            assert "nodeName" not in (await cluster.get(f"{PODS}/meanwhile"))["spec"]
            new.send_signal(signal.SIGCONT)
            holder = (await cluster.get(LEASE))["spec"]["holderIdentity"]
            pod = await create_pod(cluster, pod_manifest("direct", scheduler_name="nobody", neuron=1))
            async with fenced_plane.client(token) as impostor:
                status, answer = await impostor.request(
                    "POST", f"{PODS}/direct/binding", binding(pod, {"neuron-scheduler/leader": identity})
                )
            assert holder != identity
            assert (status, NOT_THE_HOLDER in answer["message"]) == (422, True)
    assert old.lines_with("Leaderelection lost")


async def test_a_binding_that_arrives_after_a_takeover_is_refused(
    fenced_plane: ControlPlane, kubeconfig: Path, cluster: RestClient
) -> None:
    """A Binding that the old holder sent, and that the network delivers late, does not bind; the new holder's does."""
    async with (
        run_proxy(fenced_plane) as proxy,
        run_scheduler(kubeconfig, f"--master={proxy.url}", *SHORT_LEASE) as old,
    ):
        await old.line(ACQUIRED)
        async with run_scheduler(kubeconfig, *SHORT_LEASE) as new:
            await ready_to_follow(new)
            late = proxy.add(Fault(binding_of("late"), HELD, times=ALWAYS))
            proxy.add(Fault(at(LEASE), instead(Refusal(503)), times=ALWAYS))
            await create_pod(cluster, pod_manifest("late", neuron=1))
            await late.taken.wait()
            assert await old.ended() == 1
            await new.line(ACQUIRED)
            pod = await placed(cluster, "late")
            late.release()
            status, text = await late.answered()
            assert (status, NOT_THE_HOLDER in json.loads(text)["message"]) == (422, True)
            now = await cluster.get(f"{PODS}/late")
            assert now["metadata"]["annotations"] == pod["metadata"]["annotations"]
            assert await new.stop() == 0
    assert not old.lines_with(BOUND)


def binding(pod: Object, annotations: dict[str, str]) -> Object:
    """Return a Binding of a pod to an existing node."""
    metadata = {key: pod["metadata"][key] for key in ("namespace", "name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata | {"annotations": annotations},
        "target": {"kind": "Node", "name": "inf2"},
    }

"""How the process ends: 0 stopped, 1 lost the Lease, 2 wrong configuration, each with its reason."""

import signal
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end import rights
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, SYNCED, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import LEASE, LEASES, add_nodes, placed
from tests.faults.calls import binding_of
from tests.faults.proxy import HELD, Fault, run_proxy


@pytest.mark.parametrize("granted", ["none", "all but one"])
async def test_missing_rights_are_named(plane: ControlPlane, tmp_path: Path, granted: str) -> None:
    """One sentence names the missing rights and what to do; the exit code is 2."""
    name = granted.replace(" ", "-")
    token = await plane.token_for("kube-system", name)
    missing = ", ".join(map(str, rights.needed()))
    if granted == "all but one":
        missing = "create pods/binding"
        await rights.grant(plane.admin, without_binding(name))
    async with run_scheduler(plane.kubeconfig(tmp_path / "kubeconfig", token=token)) as scheduler:
        assert await scheduler.ended() == 2
    assert scheduler.lines[-1] == (
        f"neuron-scheduler: the API server does not allow this process to {missing};"
        " apply manifests/base/rbac.yaml or the chart, and run under its ServiceAccount"
    )
    assert not scheduler.lines_with("Traceback")


def without_binding(name: str) -> list[Object]:
    """Return the manifest's rights without the one to bind, for a ServiceAccount of this name."""
    items = deepcopy(rights.manifests())
    for item in items:
        item["metadata"]["name"] = name
        for rule in list(item.get("rules", [])):
            if rule["resources"] == ["pods/binding"]:
                item["rules"].remove(rule)
        if "subjects" in item:
            item["subjects"][0]["name"] = item["roleRef"]["name"] = name
    return items


async def test_unknown_credentials(plane: ControlPlane, tmp_path: Path) -> None:
    """A token that the API server refuses is a configuration error: exit code 2."""
    async with run_scheduler(plane.kubeconfig(tmp_path / "kubeconfig", token="no-such-token")) as scheduler:
        assert await scheduler.ended() == 2
    assert "does not accept our credentials" in scheduler.lines[-1]


async def test_a_port_that_is_taken(account: Path, empty: RestClient) -> None:
    """Two processes on one port: the second reports it and ends with 2, the first continues."""
    async with run_scheduler(account) as first:
        await first.line(ACQUIRED)
        async with run_scheduler(account, f"--port={first.port}") as second:
            assert await second.ended() == 2
        assert str(first.port) in second.lines[-1]
        assert await first.get("/healthz") == (200, "ok")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_clean_stop(account: Path, empty: RestClient, number: signal.Signals) -> None:
    """On SIGTERM it releases the Lease and ends with 0; pending Events and conditions have been written."""
    async with run_scheduler(account) as scheduler:
        await scheduler.line(ACQUIRED)
        lease = await empty.get(LEASE)
        await add_nodes(scheduler, empty, inf2="inf2.xlarge")
        await placed(empty, "pod", neuron=1)
        scheduler.send_signal(number)
        assert await scheduler.ended() == 0
    assert lease["spec"]["holderIdentity"]
    assert (await empty.get(LEASE))["spec"]["holderIdentity"] == ""
    events = await empty.get("/apis/events.k8s.io/v1/namespaces/default/events")
    assert [event["reason"] for event in events["items"]] == ["Scheduled"]
    assert not [line for line in scheduler.lines if line[:1] in "WEF"]


async def test_a_second_signal_leaves_a_binding_behind(plane: ControlPlane, account: Path, empty: RestClient) -> None:
    """A Binding that may still take effect keeps the Lease until it expires; the exit code is still 0."""
    async with run_proxy(plane) as proxy, run_scheduler(account, f"--master={proxy.url}") as scheduler:
        await scheduler.line(ACQUIRED)
        binding = proxy.add(Fault(binding_of("pod"), HELD))
        await add_nodes(scheduler, empty, inf2="inf2.xlarge")
        await create_pod(empty, pod_manifest("pod", neuron=1))
        await binding.taken.wait()
        scheduler.send_signal(signal.SIGTERM)
        await scheduler.line("Stopping", "bindings=1")
        scheduler.send_signal(signal.SIGINT)
        assert await scheduler.ended() == 0
    assert scheduler.lines_with("Lease is not released and will expire")
    assert (await empty.get(LEASE))["spec"]["holderIdentity"]


@pytest.mark.parametrize("reached", ["Starting neuron-scheduler", SYNCED, ACQUIRED])
async def test_signals_without_end(account: Path, empty: RestClient, reached: str) -> None:
    """A signal at any moment, also while the process stops and the interpreter ends: never 143, no Lease kept."""
    async with run_scheduler(account) as scheduler:
        await scheduler.line(reached)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_for_ever, scheduler)
            assert await scheduler.ended() == 0
            tasks.cancel_scope.cancel()
    status, lease = await empty.request("GET", LEASE)
    assert status == 404 or lease["spec"]["holderIdentity"] == ""


async def send_for_ever(scheduler: SchedulerProcess) -> None:
    """Send one signal after the other, as fast as the event loop turns."""
    with suppress(ProcessLookupError):
        while True:
            scheduler.send_signal(signal.SIGTERM)
            await anyio.lowlevel.checkpoint()


async def test_waiting_for_an_api_server_ends_when_asked(plane: ControlPlane, account: Path) -> None:
    """The process waits for an unreachable API server; SIGTERM still ends it with 0."""
    async with run_scheduler(account, "--master=https://127.0.0.1:9") as scheduler:
        await scheduler.line("API server cannot be reached; trying again")
        status, text = await scheduler.get("/readyz")
        assert (status, "informer-sync" in text) == (500, True)
        assert await scheduler.get("/livez") == (200, "ok")
        assert await scheduler.stop() == 0


async def test_a_lost_lease_ends_the_process(account: Path, empty: RestClient) -> None:
    """Another holder in the Lease means that another process may lead: exit code 1, and the Lease stays theirs."""
    async with run_scheduler(account, *SHORT_LEASE) as scheduler:
        await scheduler.line(ACQUIRED)
        await held_by(empty, "somebody")
        assert await scheduler.ended() == 1
    assert scheduler.lines_with("Leaderelection lost", "is held by somebody")
    assert not scheduler.lines_with("Traceback")
    assert (await empty.get(LEASE))["spec"]["holderIdentity"] == "somebody"


async def test_a_deleted_lease_is_created_again(account: Path, empty: RestClient) -> None:
    """Without another holder, the next renewal creates the Lease again, and the process continues."""
    async with run_scheduler(account, *SHORT_LEASE) as scheduler:
        await scheduler.line(ACQUIRED)
        holder = (await empty.get(LEASE))["spec"]["holderIdentity"]
        await empty.delete(LEASE)
        lease = await empty.wait_for(LEASE, lambda lease: bool(lease["spec"]["holderIdentity"]))
        assert lease["spec"]["holderIdentity"] == holder
        assert await scheduler.stop() == 0


async def held_by(api: RestClient, holder: str) -> None:
    """Set the holder of the Lease."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "my-scheduler", "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600},
    }
    status, _ = await api.request("POST", LEASES, lease)
    if status == 409:
        await api.patch(LEASE, {"spec": lease["spec"]})

"""A Binding without an answer may still have its effect: until that is known, its devices go to no other pod."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane.objects import NEURON, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, BOUND, SHORT_LEASE, run_scheduler
from tests.end_to_end.workload import LEASE, PODS, ids_of, placed, refused
from tests.faults.answers import CUT
from tests.faults.calls import binding_of
from tests.faults.proxy import ALWAYS, HELD, Behaviour, Fault, Proxy, run_proxy

pytestmark = pytest.mark.main_job


@pytest.fixture
async def proxy(plane: ControlPlane, empty: RestClient) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a cluster with one machine of six devices."""
    await create_node(empty, node_manifest("inf2", "inf2.24xlarge"))
    async with run_proxy(plane) as proxy:
        yield proxy


async def test_an_answer_that_was_lost_is_found_out(account: Path, empty: RestClient, proxy: Proxy) -> None:
    """The repeated Binding meets a conflict with its own success, which counts as success."""
    lost = proxy.add(Fault(binding_of("pod"), Behaviour(CUT)))
    again = proxy.add(Fault(binding_of("pod")))
    async with run_scheduler(account, f"--master={proxy.url}") as scheduler:
        pod = await placed(empty, "pod", neuron=2)
        await scheduler.line(BOUND, 'pod="default/pod"', 'devices="0,1"')
        assert [(await fault.answered())[0] for fault in (lost, again)] == [201, 409]
        assert await scheduler.stop() == 0
    assert (await empty.get(f"{PODS}/pod"))["metadata"]["annotations"] == pod["metadata"]["annotations"]
    assert (await empty.get(LEASE))["spec"]["holderIdentity"] == ""


async def test_a_late_binding_changes_nothing(account: Path, empty: RestClient, proxy: Proxy) -> None:
    """The first try arrives after the second has bound the pod: it is the identical Binding, and is refused."""
    late = proxy.add(Fault(binding_of("pod"), HELD))
    async with run_scheduler(account, f"--master={proxy.url}", *SHORT_LEASE) as scheduler:
        pod = await placed(empty, "pod", neuron=2)
        await scheduler.line(BOUND, 'pod="default/pod"')
        late.release()
        assert (await late.answered())[0] == 409
        assert ids_of(await placed(empty, "next", neuron=4)) == (2, 3, 4, 5)
        assert await scheduler.stop() == 0
    assert (await empty.get(f"{PODS}/pod"))["metadata"]["annotations"] == pod["metadata"]["annotations"]
    assert len(scheduler.lines_with(BOUND)) == 2


async def test_devices_of_an_unknown_outcome_stay_in_use(account: Path, empty: RestClient, proxy: Proxy) -> None:
    """While the outcome is unknown no other pod gets its devices, and after a stop the Lease expires."""
    slow = proxy.add(Fault(binding_of("slow"), HELD, times=ALWAYS))
    flags = ("--shutdown-grace-period=1s", *SHORT_LEASE)
    async with run_scheduler(account, f"--master={proxy.url}", *flags) as scheduler:
        await scheduler.line(ACQUIRED)
        await create_pod(empty, pod_manifest("slow", neuron=1))
        await scheduler.until(lambda metrics: metrics["neuron_scheduler_binds_unknown"] == 1)
        condition = await refused(empty, "all", neuron=6)
        assert condition["message"].startswith(f"0/1 nodes are available: 1 Insufficient {NEURON}. Capacity: 5 Neuron")
        assert ids_of(await placed(empty, "five", neuron=5)) in (tuple(range(1, 6)), tuple(range(5)))
        assert await scheduler.stop() == 0
        assert (await empty.get(LEASE))["spec"]["holderIdentity"] != ""
        slow.release()
        slow_pod, five = await placed(empty, "slow"), await empty.get(f"{PODS}/five")
    assert not set(ids_of(slow_pod)) & set(ids_of(five))
    assert scheduler.lines_with("Lease is not released and will expire")
    assert not scheduler.lines_with(BOUND, 'pod="default/slow"')

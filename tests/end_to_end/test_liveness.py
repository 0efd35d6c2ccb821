"""A blocked leader keeps its Lease for a while; one that stops scheduling loses it."""

from pathlib import Path

from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.end_to_end.process import ACQUIRED, BOUND, SHORT_LEASE, run_scheduler
from tests.end_to_end.workload import add_nodes, all_placed

SLOW = "tests.end_to_end.slow_decision"
LEASE_OF_SIX = (
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
)


async def test_a_long_decision_does_not_cost_the_lease(account: Path, empty: RestClient) -> None:
    """After a decision that takes longer than the renew deadline, the pod is bound."""
    async with run_scheduler(account, *LEASE_OF_SIX, module=SLOW) as scheduler:
        await scheduler.line(ACQUIRED)
        await add_nodes(scheduler, empty, inf2="inf2.xlarge")
        await create_pod(empty, pod_manifest("long", neuron=1, labels={"seconds": "5"}))
        await all_placed(empty, ["long"])
        await scheduler.line(BOUND)
        assert await scheduler.stop() == 0
    assert not scheduler.lines_with("renew the lease")


async def test_a_decision_without_end_ends_the_process(account: Path, empty: RestClient) -> None:
    """Its Lease is not renewed any more, and the process does not continue to believe that it leads: exit code 1."""
    async with run_scheduler(account, *SHORT_LEASE, module=SLOW) as scheduler:
        await scheduler.line(ACQUIRED)
        await add_nodes(scheduler, empty, inf2="inf2.xlarge")
        await create_pod(empty, pod_manifest("endless", neuron=1, labels={"seconds": "3600"}))
        assert await scheduler.ended() == 1
    assert scheduler.lines_with("its lease is not renewed")
    assert scheduler.lines_with("ending the process", "the scheduler did not answer")

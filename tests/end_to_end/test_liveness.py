"""A scheduler that hangs keeps neither its Lease nor its liveness."""

from pathlib import Path

from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, run_scheduler
from tests.end_to_end.workload import add_nodes, all_placed

SLOW = "tests.end_to_end.slow_decision"


async def test_a_decision_without_end_costs_the_lease(account: Path, empty: RestClient) -> None:
    """Another replica takes the Lease and binds the pod; the one that hangs renews nothing and has to be killed."""
    async with run_scheduler(account, *SHORT_LEASE, module=SLOW) as stuck:
        await stuck.line(ACQUIRED)
        await add_nodes(stuck, empty, inf2="inf2.xlarge")
        await create_pod(empty, pod_manifest("endless", neuron=1, labels={"seconds": "3600"}))
        async with run_scheduler(account, *SHORT_LEASE) as other:
            await other.line(ACQUIRED)
            await all_placed(empty, ["endless"])
            assert await other.stop() == 0
        await stuck.kill()

"""Several scheduler names in one process, from a file: each has its own preferences and reports under its name."""

from pathlib import Path

from tests.control_plane.rest import RestClient
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.end_to_end.workload import add_nodes, events_of, placed, refused

CONFIG = """
apiVersion: neuron-scheduler/v1
kind: NeuronSchedulerConfiguration
profiles:
  - schedulerName: packing
  - schedulerName: oldest
    preferences: []
leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""


async def test_two_profiles(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """The same request goes to the smallest block under one name and to the oldest node under the other."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    async with run_scheduler(account, f"--config={config}") as scheduler:
        await scheduler.line(ACQUIRED)
        await add_nodes(scheduler, empty, large="trn1.32xlarge", small="inf2.xlarge")
        where = {}
        for name in ("packing", "oldest"):
            pod = await placed(empty, name, scheduler_name=name, neuron=1)
            where[name] = pod["spec"]["nodeName"]
            (event,) = await events_of(empty, name, "Scheduled")
            assert event["reportingController"] == name
            await refused(empty, f"{name}-seven", scheduler_name=name, neuron=7)
            (event,) = await events_of(empty, f"{name}-seven", "FailedScheduling")
            assert event["reportingController"] == name
        assert where == {"packing": "small", "oldest": "large"}
        metrics = await scheduler.metrics()
        for name in where:
            assert metrics[f'scheduler_schedule_attempts_total{{profile="{name}",result="scheduled"}}'] == 1
            assert metrics[f'scheduler_unschedulable_pods{{plugin="NeuronTopology",profile="{name}"}}'] == 1
        assert await scheduler.stop() == 0

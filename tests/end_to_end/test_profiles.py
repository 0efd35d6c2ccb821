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


async def test_the_config_of_awss_my_scheduler(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """The file of AWS's ConfigMap runs this scheduler, and one line names its fields without effect."""
    config = tmp_path / "my-scheduler-config.yaml"
    config.write_text(
        """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: my-scheduler}]
extenders: [{urlPrefix: 'http://k8s-neuron-scheduler.kube-system.svc.cluster.local:12345', filterVerb: filter}]
leaderElection: {leaderElect: true, resourceNamespace: kube-system, resourceName: my-scheduler}
"""
    )
    async with run_scheduler(account, f"--config={config}", "--leader-elect=true", "--v=2") as scheduler:
        await scheduler.line(ACQUIRED)
        assert len(scheduler.lines_with("W", "have no effect here", 'fields=["extenders"]')) == 1
        await add_nodes(scheduler, empty, inf2="inf2.xlarge")
        await placed(empty, "pod", neuron=1)
        assert await scheduler.stop() == 0

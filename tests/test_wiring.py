"""Each part is given its settings."""

from neuron_scheduler.controllers import leader_elector
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.writes.evictor import Evictor
from neuron_scheduler.kube.writes.volume_writer import VolumeWriter
from neuron_scheduler.settings import lease_times
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire


async def test_all_fenced_writes_have_the_bind_timeout() -> None:
    """A leader's last write ends before the next leader begins, whatever it writes; a short Lease leaves less time."""
    config = Config(leader_elect_lease_duration=3, leader_elect_renew_deadline=2, leader_elect_retry_period=0.5)
    parts = wire(config, Client(connection=Connection("http://127.0.0.1:1", "a test")), Metrics())
    volume_writer, preemption_executor = parts.volumes.writer, parts.scheduling_loop.preemption_executor
    assert isinstance(volume_writer, VolumeWriter)
    assert isinstance(preemption_executor, PreemptionExecutor)
    assert isinstance(preemption_executor.evictor, Evictor)
    timeouts = (parts.binder.timeout, volume_writer.timeout, preemption_executor.evictor.timeout)
    assert timeouts == (0.8, 0.8, 0.8)


def test_the_settings_judge_the_times_that_the_elector_uses() -> None:
    """The check of the retry period has the jitter of the elector, which imports no settings."""
    assert lease_times.JITTER == leader_elector.JITTER

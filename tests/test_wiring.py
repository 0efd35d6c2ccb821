"""Each part is given its settings."""

import json
import subprocess
import sys
import time
from typing import cast

import pytest

from neuron_scheduler.app import pages_of
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.extender.forward import Forward
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.informer import sync_problem
from neuron_scheduler.kube.writes.evictor import Evictor
from neuron_scheduler.kube.writes.volume_writer import VolumeWriter
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.serving.sources import DecisionRing
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profile_config import ProfileConfig
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from tests.support.listing_server import neuron_pod
from tests.support.web_requests import answer, body_of, request
from tests.support.wire_objects import encoded, pod
from tests.support.wired_scheduler import WiredScheduler


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


async def test_pods_are_read_as_their_profiles_decide_them() -> None:
    """Those of a profile with pairs may get them, no others; without such a profile nothing is in the way."""
    client, names = Client(connection=Connection("http://127.0.0.1:1", "a test")), ("serving", "training", "theirs")
    profiles = tuple(ProfileConfig(scheduler_name=name, allow_aligned_pairs=name == "serving") for name in names[:2])
    resource = wire(Config(profiles=profiles), client, Metrics()).pods.resource
    spec = neuron_pod("p", 2)["spec"]
    read = [resource.decode(encoded(pod(spec={**spec, "schedulerName": name}))).value for name in names]
    assert [each.neuron.pairs for each in read if isinstance(each, Pod) and each.neuron] == [True, False, False]
    assert wire(Config(), client, Metrics()).pods.resource is PODS


async def test_what_is_not_listed_yet() -> None:
    """Each kind is named, with what is wrong and what to do if that is known; nothing is said when all are listed."""
    parts = wire(Config(), Client(connection=Connection("http://127.0.0.1:1", "a test")), Metrics())
    budgets, *others = parts.others
    for informer in (parts.nodes, *others):
        informer.synced.set()
    budgets.problem = "the API server does not serve it; serve it"
    missing = f"{budgets.resource.path} (the API server does not serve it; serve it), /api/v1/pods"
    assert sync_problem(parts.informers) == f"not listed yet: {missing}"
    for informer in parts.informers:
        informer.synced.set()
    assert sync_problem(parts.informers) is None


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, ""),
        ({"extender_bind_address": ":12345"}, "http://10.1.2.3:12345"),
        ({"extender_bind_address": "10.9.9.9:1"}, "http://10.9.9.9:1"),
    ],
    ids=["off", "all addresses", "one address"],
)
async def test_the_lease_gets_the_address_of_the_extender(
    settings: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other replicas find it there; without an extender nothing is kept for kube-scheduler either."""
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    config = Config(**settings)  # type: ignore[arg-type]  # each is a string
    parts = wire(config, Client(connection=Connection("http://127.0.0.1:1", "a test")), Metrics())
    assert parts.election is not None
    assert parts.election.extender_address == url
    assert (parts.extender is None) == (not url)
    if parts.extender is not None:
        assert isinstance(parts.extender.verbs.forward, Forward)
        assert parts.extender.verbs.forward.leader_url() == ""


async def test_decisions_are_shown() -> None:
    """The answers learn of each decision."""
    decisions = DecisionRing(now=time.time)
    world = WiredScheduler(Config(leader_elect=False, answer_questions=True, serve_page=True), (decisions.note,))
    pages = pages_of(world.config, world.parts, cast(Client, world), decisions)
    await world.bind(["p"])
    for informer in world.parts.informers:
        informer.synced.set()
    reply = await answer(pages["/v1/decisions"], request("/v1/decisions"))
    assert len(json.loads(await body_of(reply))["decisions"]) == 1


LOADED = """
import sys
import neuron_scheduler.commands.run, neuron_scheduler.app, neuron_scheduler.wiring
off = ("neuron_scheduler.capacity", "neuron_scheduler.extender", "neuron_scheduler.controllers.foreign_nominations")
print([name for name in sys.modules if name.startswith(off)])
"""


def test_a_product_that_is_off_is_not_loaded() -> None:
    """The modules that run the process import it only where the configuration asks for it."""
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"

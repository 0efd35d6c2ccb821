"""
What real processes answered at /metrics in a short story: pods are bound, pods wait, pods go wrong.

The scheduler runs as a process of its own in front of an embedded API server, and its answers are kept as they were
sent. What such a run cannot show in seconds (a defect, a kubelet's rejection, a lost log line) is counted on the same
`Metrics` in this process. Only the oldest wait grows while a state lasts.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import attrs

from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.state_metrics import State
from sandbox import fleet
from sandbox.apiserver.status import StatusError
from sandbox.server import ApiServer
from tests.control_plane.objects import pod_manifest
from tests.end_to_end.process import SYNCED, SchedulerProcess, run_scheduler
from tests.monitoring.engine import STEP, Scrape
from tests.support.sandbox_faults import Answer, Faults, Reset

TRN1, INF2 = "trn1.32xlarge", "inf2.48xlarge"
TRN1_NODES, INF2_NODES = ({fleet.INSTANCE_TYPE_LABEL: instance_type} for instance_type in (TRN1, INF2))
STARTED: Final = "Starting to schedule pods"
MACHINES: Final = {"trn1-a": TRN1, "trn1-b": TRN1, "inf2-a": INF2, "trn1-c": TRN1} | dict.fromkeys(
    ("plain-a", "plain-b", "plain-c"), "m7g.4xlarge"
)
ASKING: Final = {
    "four": (4, TRN1_NODES),
    "one": (1, TRN1_NODES),
    "eight": (8, TRN1_NODES),
    "inf2-1": (4, INF2_NODES),
    "inf2-2": (4, INF2_NODES),
    "inf2-3": (4, INF2_NODES),
}
PLAIN: Final = 150
CHAPTER: Final = 600
"""Seconds that each state of the story lasts, when it is put on a line of time."""
_WAIT: Final = re.compile(r"^(neuron_scheduler_oldest_wait_seconds\{.*\}) (\S+)$", re.MULTILINE)


@attrs.frozen
class Story:
    """
    The answers, in the order in which they came.

    Attributes:
        empty, bound, busy: before any pod, after some were bound, and after many more were.
        standby: of a replica that waits for the Lease, when the pods are bound.
        second_leader: of a replica without leader election at that time.
        waiting: pods wait for capacity, because of fragmentation, for another count, and for their gates.
        in_doubt: a Binding has no definite outcome.
        wrong: pods of another scheduler without ids, two pods with the same ids, and a node that cannot be read.
        unready: of a replica that may not list the nodes.
    """

    empty: str
    bound: str
    busy: str
    standby: str
    second_leader: str
    waiting: str
    in_doubt: str
    wrong: str
    unready: str

    def scrapes(self) -> list[Scrape]:
        """Return the whole story on a line of time, with a standby, and with each event that is only counted."""
        active = [self.empty, self.bound, self.busy, self.waiting, self.in_doubt, self.wrong]
        first: dict[str, int] = {}
        told = [
            scrape for chapter, body in enumerate(active) for scrape in lasting(body, chapter * CHAPTER, CHAPTER, first)
        ]
        others = [Scrape(self.standby, instance="10.0.0.2:10251"), Scrape(every_event(), instance="10.0.0.3:10251")]
        return told + others

    @property
    def end(self) -> int:
        return 6 * CHAPTER - STEP


def lasting(body: str, start: int, seconds: int, first: dict[str, int] | None = None) -> Iterator[Scrape]:
    """
    Yield the scrapes of a state that lasts: nothing changes but the oldest waits.

    `first` has the time from which each of them grows; the times of others are added.
    """
    since = {} if first is None else first
    for at in range(start, start + seconds, STEP):
        yield Scrape(_WAIT.sub(partial(_longer, at, since), body), at=at)


def _longer(at: int, since: dict[str, int], wait: re.Match[str]) -> str:
    return f"{wait[1]} {float(wait[2]) + at - since.setdefault(wait[1], at)}"


def counted(count: Callable[[Metrics], object] = lambda _: None, state: State | None = None) -> str:
    """Return what a leader answers that counts these events, or has this state."""
    metrics = Metrics()
    metrics.ask(lambda: state or State(leader=True), tuple)
    count(metrics)
    return metrics.exposition()[0].decode()


def every_event() -> str:
    """Return what a replica on standby answers that has counted every event which the story does not have."""

    def count(metrics: Metrics) -> None:
        metrics.count_unexpected_error("scheduling")
        metrics.count_unhandled("pods")
        metrics.count_rejection("UnexpectedAdmissionError")
        metrics.count_stale_fence()
        metrics.count_capacity_request("given_up")

    return counted(
        count, State(leader=False, capacity_requests=dict.fromkeys(("open", "arriving", "limited", "refused"), 0))
    )


async def told(folder: Path) -> Story:
    """Run the processes, and return what they answered."""
    async with _world(folder) as (server, faults, config), run_scheduler(config) as scheduler:
        await scheduler.line(STARTED)
        empty = await _answer(scheduler)
        bound = await _bound(server, scheduler)
        busy = await _busy(server, scheduler)
        async with run_scheduler(config) as second:
            await second.line(SYNCED)
            standby = await _answer(second)
        async with run_scheduler(config, "--leader-elect=false") as second:
            await second.line(STARTED)
            second_leader = await _answer(second)
        waiting = await _waiting(server, scheduler)
        in_doubt = await _in_doubt(server, faults, scheduler)
        wrong = await _wrong(server, scheduler)
        refused = Answer(StatusError(500, "InternalError", "no"))
        faults.add(refused, path="/api/v1/nodes$")
        async with run_scheduler(config) as second:
            await second.line("nodes", "500")
            unready = await _answer(second)
    return Story(empty, bound, busy, standby, second_leader, waiting, in_doubt, wrong, unready)


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[tuple[ApiServer, Faults, Path]]:
    """Run an API server with four machines, one of them cordoned, and others; yield it, its faults and a kubeconfig."""
    faults = Faults()
    async with ApiServer(middlewares=[faults.middleware]).serving() as server:
        for name, instance_type in MACHINES.items():
            made = fleet.node(name, instance_type)
            made["spec"] = {**made.get("spec", {}), "unschedulable": name == "trn1-c"}
            server.create(made)
        config = folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": server.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        document = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
        config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c", **document}))
        yield server, faults, config


async def _answer(scheduler: SchedulerProcess) -> str:
    status, text = await scheduler.get("/metrics")
    assert status == 200
    return text


async def _bound(server: ApiServer, scheduler: SchedulerProcess) -> str:
    """Bind pods that cut the machines into pieces."""
    for name, (devices, nodes) in ASKING.items():
        server.create(pod_manifest(name, neuron=devices, nodeSelector=nodes))
    return await _many(server, scheduler, "first")


async def _busy(server: ApiServer, scheduler: SchedulerProcess) -> str:
    return await _many(server, scheduler, "second")


async def _many(server: ApiServer, scheduler: SchedulerProcess, prefix: str) -> str:
    """Bind so many pods without Neuron that some decisions are surely timed."""
    for number in range(PLAIN):
        server.create(pod_manifest(f"{prefix}-{number}"))
    bound = 'scheduler_schedule_attempts_total{profile="my-scheduler",result="scheduled"}'
    many = len(ASKING) + PLAIN * (1 if prefix == "first" else 2)
    await scheduler.until(lambda seen: seen.get(bound) == many)
    return await _answer(scheduler)


async def _waiting(server: ApiServer, scheduler: SchedulerProcess) -> str:
    """Let pods wait for different causes; one of them because two pods leave and a third stays between them."""
    for name in ("inf2-1", "inf2-3"):
        async with aiohttp.request("DELETE", f"{server.url}/api/v1/namespaces/default/pods/{name}") as answer:
            assert answer.status == HTTPStatus.OK
    free = f'neuron_scheduler_free_devices{{instance_type="{INF2}"}}'
    await scheduler.until(lambda seen: seen.get(free) == 2 * 4)
    server.create(pod_manifest("fragmented", neuron=8, nodeSelector=INF2_NODES))
    for number in range(3):
        server.create(pod_manifest(f"large-{number}", neuron=16, nodeSelector=TRN1_NODES))
    server.create(pod_manifest("seven", neuron=7, nodeSelector=TRN1_NODES))
    server.create(pod_manifest("gated", neuron=4, schedulingGates=[{"name": "queue"}]))
    waits = 'neuron_scheduler_pods_waiting{cause="%s"}'
    await scheduler.until(
        lambda seen: (
            seen.get(waits % "untried") == 0
            and all(seen.get(waits % cause) for cause in ("capacity", "fragmentation", "invalid_count", "gated"))
        )
    )
    return await _answer(scheduler)


async def _in_doubt(server: ApiServer, faults: Faults, scheduler: SchedulerProcess) -> str:
    """End the connection of each Binding without an answer."""
    faults.add(Reset(), path="/binding$")
    server.create(pod_manifest("doubtful", neuron=1))
    await scheduler.until(lambda seen: bool(seen.get("neuron_scheduler_binds_unknown")))
    return await _answer(scheduler)


async def _wrong(server: ApiServer, scheduler: SchedulerProcess) -> str:
    """Add pods of another scheduler."""
    for number in range(2):
        server.create(pod_manifest(f"unknown-{number}", neuron=2, nodeName="trn1-b", scheduler_name="other"))
    for name in ("twin-a", "twin-b"):
        ids = {"AWS_NEURON_IDS": "4,5,6,7"}
        server.create(pod_manifest(name, neuron=4, nodeName="trn1-c", annotations=ids, scheduler_name="other"))
    broken = fleet.node("broken", TRN1)
    broken["spec"] = {"taints": "none"}  # no list: API servers refuse that, but an old object may have anything
    server.create(broken)
    await scheduler.until(
        lambda seen: bool(
            seen.get("neuron_scheduler_conflicting_cores")
            and seen.get('neuron_scheduler_malformed_objects_total{resource="nodes"}')
            and seen.get('neuron_scheduler_unknown_holders_by_node{node="trn1-b"}') == 2
        )
    )
    return await _answer(scheduler)

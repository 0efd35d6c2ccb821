"""
The four phases of the published benchmark of a cluster of 65,000 nodes, at any size: training gives way to inference.

    1 training        a training job on all nodes
    2 both            another one on ten thirteenths of them, and inference of higher priority on the others
    3 inference grows to all nodes: it evicts training, whose controller creates each evicted pod again
    4 inference shrinks to three thirteenths, and training runs again

Run as `python -m benchmarks.phases [--nodes 2600 13000] [--group] [--profile FILE]`. A pod takes a whole machine. All
parts of the scheduler are wired as in production; the API server is a function that answers at once, so CPU is counted
and no time. With `--group`, training is one group whose pods start together. Prints for each phase the pods that got a
node, the milliseconds of CPU for each, how many that makes in a second of CPU, and how often a pod was refused.
"""

import argparse
import cProfile
import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import anyio
import anyio.lowlevel
import attrs
import msgspec
import uvloop

from neuron_scheduler.app import collections_in_steps
from neuron_scheduler.kube.http.client import Response
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.errors import ApiError
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.control_plane.rest import Object
from tests.support.wired_scheduler import NODES, WiredScheduler

SIZES: Final = (2_600, 13_000)
SHARES: Final = 13
OF_INFERENCE: Final = 3
PRIORITIES: Final = {"training": 0, "inference": 1_000}
AT_ONCE: Final = 16  # objects that the controllers create or delete in one turn of the event loop
A_SECOND: Final = 200  # pods that their kubelets start
LONGEST_PAUSE: Final = 60.0  # seconds in which no pod comes, goes or gets a node, after which the phase is given up
_GROUP: Final = "pod-group.scheduling.sigs.k8s.io/"


@attrs.define(eq=False, kw_only=True)
class Fleet(WiredScheduler):
    """
    Nodes of one kind, and two workloads that have as many pods as they want.

    Attributes:
        size: the number of nodes.
        group: whether training is one group.
        wanted: how many pods each workload wants.
        there: the names of its pods, the oldest first.
        running: how many of them have a node.
        placed: how many pods have got a node.
        refused: how many attempts ended without a node.
    """

    size: int
    group: bool
    config: Config = attrs.field(factory=lambda: Config(leader_elect=False, allocate_fence=False))
    wanted: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(PRIORITIES, 0))
    there: dict[str, dict[str, None]] = attrs.field(factory=lambda: {name: {} for name in PRIORITIES})
    running: Counter[str] = attrs.field(factory=Counter)
    placed: int = 0
    refused: int = 0
    _numbers: Iterator[int] = attrs.field(factory=count)

    def __attrs_post_init__(self) -> None:
        self.listeners = (self._note,)
        super().__attrs_post_init__()
        for number in range(NODES, self.size):
            self.deliver(self.parts.nodes, "ADDED", node_manifest(f"n{number}"))

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> Response:
        """Answer as the API server does, for a pod that its kubelet starts and ends at once."""
        words = path.split("/")
        if words[-1] == "events":
            return Response(201, b'{"kind":"Event","apiVersion":"events.k8s.io/v1"}')
        pod = self.pods.get(words[6])
        if pod is None:
            raise ApiError(404, reason="NotFound", kind="pods", name=words[6], is_status=True)
        if method == "DELETE":
            self._delete(pod)
        elif words[-1] == "status":
            patch = msgspec.json.decode(body)["status"]
            conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
            conditions |= {each["type"]: each for each in patch.pop("conditions", ())}
            pod["status"] |= patch | {"conditions": list(conditions.values())}
            self.deliver(self.parts.pods, "MODIFIED", pod)
        else:
            binding = msgspec.json.decode(body)
            pod["spec"]["nodeName"] = binding["target"]["name"]
            pod["metadata"]["annotations"] = binding["metadata"]["annotations"]
            started = self.placed // A_SECOND
            pod["status"] = {"phase": "Running", "startTime": f"2026-11-27T00:{started // 60:02}:{started % 60:02}Z"}
            self.running[pod["metadata"]["labels"]["app"]] += 1
            self.placed += 1
            self.deliver(self.parts.pods, "MODIFIED", pod)
        return Response(200, b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}')

    async def scale(self, **wanted: int) -> None:
        """Let the controllers delete the newest pods of some workloads, then create missing ones."""
        self.wanted |= wanted
        for name in wanted:
            surplus = list(self.there[name])[self.wanted[name] :]
            for number, pod in enumerate(surplus):
                self._delete(self.pods[pod])
                if number % AT_ONCE == 0:
                    await anyio.lowlevel.checkpoint()
        for name in wanted:
            for number in range(self.wanted[name] - len(self.there[name])):
                self._create(name)
                if number % AT_ONCE == 0:
                    await anyio.lowlevel.checkpoint()

    async def settle(self, **running: int) -> bool:
        """Wait until so many pods of some workloads have a node; False if nothing has happened for long."""
        version, since = self.version, time.monotonic()
        while any(self.running[name] < number for name, number in running.items()):
            await anyio.sleep(0.1)
            if self.version > version:
                version, since = self.version, time.monotonic()
            elif time.monotonic() > since + LONGEST_PAUSE:
                return False
        return True

    def _create(self, workload: str) -> None:
        name = f"{workload}-{next(self._numbers)}"
        labels = {"app": workload}
        if self.group and workload == "training":
            labels |= {f"{_GROUP}name": workload, f"{_GROUP}min-available": str(self.wanted[workload])}
        pod: Object = pod_manifest(name, neuron=16, labels=labels, priority=PRIORITIES[workload])
        pod["status"] = {"phase": "Pending"}
        self.pods[name], self.there[workload][name] = pod, None
        self.deliver(self.parts.pods, "ADDED", pod)

    def _delete(self, pod: Object) -> None:
        name, workload = pod["metadata"]["name"], pod["metadata"]["labels"]["app"]
        del self.pods[name], self.there[workload][name]
        self.running[workload] -= "nodeName" in pod["spec"]
        self.deliver(self.parts.pods, "DELETED", pod)
        if len(self.there[workload]) < self.wanted[workload]:
            self._create(workload)

    def _note(self, _pod: Pod, decision: Decision | FitError) -> None:
        self.refused += isinstance(decision, FitError)


async def measure(size: int, *, group: bool, profile: cProfile.Profile | None) -> None:
    """Run the four phases and print a line for each; `profile` is of the third."""
    fleet = Fleet(size=size, group=group)
    most, least = size, size * OF_INFERENCE // SHARES
    gc.collect()  # what is there is frozen, as in the scheduler once it has listed everything
    async with _running(fleet):
        phases = (
            ("1 training", {"training": most}),
            ("2 both", {"training": most - least, "inference": least}),
            ("3 inference grows", {"inference": most}),
            ("4 inference shrinks", {"inference": least}),
        )
        for name, wanted in phases:
            fleet.placed, fleet.refused, started = 0, 0, time.process_time()
            if profile is not None and name.startswith("3"):
                profile.enable()
            if len(wanted) == len(PRIORITIES):
                await fleet.scale(training=0)
            await fleet.scale(**wanted)
            is_complete = await fleet.settle(**(wanted if name.startswith("3") else fleet.wanted))
            if profile is not None:
                profile.disable()
            took = time.process_time() - started
            per_pod = took / max(1, fleet.placed)
            figures = f"{fleet.placed:>8}{per_pod * 1e3:>9.2f}{1 / per_pod:>9.0f}{fleet.refused:>9}"
            print(f"{size:>7} {name:<20}{figures}{'' if is_complete else '  GIVEN UP'}", flush=True)


@asynccontextmanager
async def _running(fleet: Fleet) -> AsyncIterator[None]:
    parts = fleet.parts
    async with anyio.create_task_group() as tasks:
        for part in (parts.scheduling_loop, parts.recorder, parts.conditions):
            tasks.start_soon(part.run)
        yield
        tasks.cancel_scope.cancel()


def main() -> None:
    """Print a table for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--group", action="store_true", help="training is one group")
    parser.add_argument("--profile", metavar="FILE", help="where to write a profile of the third phase")
    arguments = parser.parse_args()
    print(f"{'nodes':>7} {'phase':<20}{'pods':>8}{'ms each':>9}{'pods/s':>9}{'refusals':>9}   (of CPU)")
    for size in arguments.nodes:
        profile = cProfile.Profile() if arguments.profile else None
        with collections_in_steps():
            uvloop.run(measure(size, group=arguments.group, profile=profile))
        if profile is not None:
            profile.dump_stats(arguments.profile)


if __name__ == "__main__":
    main()

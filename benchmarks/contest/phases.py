"""
The four phases of `benchmarks.phases` on a real API server, this scheduler and kube-scheduler one after the other.

Run as `python -m benchmarks.contest.phases [--nodes 2600] [--contenders ours kube-scheduler] [--group]`. A pod takes a
whole machine, and ends as soon as it is deleted. Prints for each phase the pods that were bound, the seconds from its
start to the last Binding, what that makes in pods a second, and the contender's CPU for each.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from typing import Final

import anyio
import attrs

from benchmarks.contest.arena import PODS, Arena, run_arena
from benchmarks.contest.contenders import CONTENDERS
from benchmarks.contest.workloads import HIGH_PRIORITY, WORKLOADS
from benchmarks.phases import OF_INFERENCE, SHARES
from tests.control_plane.objects import create_all, create_pod, pod_manifest
from tests.control_plane.rest import Object

LONGEST_PAUSE: Final = 60.0  # seconds without a Binding after which a phase is given up
_PROBE: Final = "probe"
_BOUND: Final = "spec.nodeName!="
_GROUP: Final = "pod-group.scheduling.sigs.k8s.io/"


@attrs.define(eq=False)
class Controllers:
    """
    Two workloads, each with as many pods as it wants; a pod that was evicted is created again.

    Attributes:
        wanted, running: how many pods each wants, and the names of those that have a node, the oldest first.
        bound: how many Bindings there were.
        last: the `time.perf_counter()` of the latest.
    """

    arena: Arena
    group: bool
    wanted: dict[str, int] = attrs.field(factory=dict)
    running: dict[str, dict[str, None]] = attrs.field(factory=lambda: {"training": {}, "inference": {}, _PROBE: {}})
    bound: int = 0
    last: float = 0.0
    _numbers: Iterator[int] = attrs.field(factory=count)

    async def watch(self, version: str) -> None:
        """Follow the Bindings and the ends of pods until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                async with aclosing(self.arena.api.watch(PODS, version, fieldSelector=_BOUND)) as events:
                    async for kind, pod in events:
                        version = pod["metadata"]["resourceVersion"]
                        if self._take(kind, pod):
                            tasks.start_soon(create_pod, self.arena.api, self._pod(pod["metadata"]["labels"]["app"]))

    async def scale(self, name: str, wanted: int) -> None:
        """Delete the newest pods of a workload, or create missing ones."""
        self.wanted[name] = wanted
        surplus = [{"name": pod} for pod in list(self.running[name])[wanted:]]
        await create_all(lambda pod: self.arena.api.delete(f"{PODS}/{pod['name']}"), surplus)
        missing = range(wanted - len(self.running[name]))
        await create_all(partial(create_pod, self.arena.api), (self._pod(name) for _ in missing))

    async def settle(self, names: Iterable[str]) -> bool:
        """Wait until all pods of some workloads have a node; False if nothing has happened for long."""
        self.last = time.perf_counter()
        while any(len(self.running[name]) != self.wanted[name] for name in names):
            await anyio.sleep(0.05)
            if time.perf_counter() > self.last + LONGEST_PAUSE:
                return False
        return True

    def _take(self, kind: str, pod: Object) -> bool:
        """Take an event; return whether the pod has to be created again."""
        name, workload = pod["metadata"]["name"], pod["metadata"]["labels"]["app"]
        if kind == "ADDED":
            self.running[workload][name] = None
            self.bound, self.last = self.bound + 1, time.perf_counter()
        elif kind == "DELETED":
            del self.running[workload][name]
            return len(self.running[workload]) < self.wanted[workload]
        return False

    def _pod(self, workload: str) -> Object:
        labels = {"app": workload}
        if self.group and workload == "training":
            labels |= {f"{_GROUP}name": workload, f"{_GROUP}min-available": str(self.wanted[workload])}
        name = f"{workload}-{next(self._numbers)}"
        pod = pod_manifest(name, neuron=16, labels=labels, terminationGracePeriodSeconds=0)
        pod["spec"] |= {"priorityClassName": HIGH_PRIORITY} if workload == "inference" else {}
        return pod


async def measure(arena: Arena, name: str, *, nodes: int, group: bool) -> None:
    """Run the four phases with one contender and print a line for each."""
    contender = CONTENDERS[name].make(arena, WORKLOADS["mix"])
    controllers = Controllers(arena, group)
    most, least = nodes, nodes * OF_INFERENCE // SHARES
    phases: Sequence[tuple[str, dict[str, int], Sequence[str]]] = (
        ("1 training", {"training": most}, ("training",)),
        ("2 both", {"training": most - least, "inference": least}, ("training", "inference")),
        ("3 inference grows", {"inference": most}, ("inference",)),
        ("4 inference shrinks", {"inference": least}, ("training", "inference")),
    )
    version = await arena.create_pods(())
    async with contender.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(controllers.watch, version)
        await _starts(controllers)
        for title, wanted, expected in phases:
            if len(wanted) == len(expected) > 1:  # another training job
                await controllers.scale("training", 0)
                await controllers.settle(["training"])
            controllers.bound, started, cpu = 0, time.perf_counter(), contender.cpu_seconds()
            for workload, number in wanted.items():
                await controllers.scale(workload, number)
            is_complete = await controllers.settle(expected)
            took, spent = controllers.last - started, contender.cpu_seconds() - cpu
            bound = controllers.bound or 1
            figures = f"{controllers.bound:>8}{took:>9.1f}{bound / took:>9.0f}{spent / bound * 1e3:>9.2f}"
            print(f"{name:<16}{title:<20}{figures}{'' if is_complete else '  GIVEN UP'}", flush=True)
        tasks.cancel_scope.cancel()
    await arena.clear()


async def _starts(controllers: Controllers) -> None:
    """Wait for the first Binding, so that no start is measured."""
    await controllers.scale(_PROBE, 1)
    await controllers.settle([_PROBE])
    await controllers.scale(_PROBE, 0)
    await controllers.settle([_PROBE])


async def main(options: argparse.Namespace) -> None:
    """Print a table."""
    async with run_arena(nodes=options.nodes, policies=True) as arena:
        print(f"{'':<16}{'phase':<20}{'pods':>8}{'seconds':>9}{'pods/s':>9}{'CPU ms':>9}")
        for name in options.contenders:
            await measure(arena, name, nodes=options.nodes, group=options.group)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2_600)
    parser.add_argument("--contenders", nargs="+", default=("ours", "kube-scheduler"), choices=CONTENDERS)
    parser.add_argument("--group", action="store_true", help="training is one group")
    anyio.run(main, parser.parse_args(), backend_options={"use_uvloop": True})

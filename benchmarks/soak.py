"""
An hour of churn at full rate with faults: does anything grow, and is anything left behind?

    nice python -m benchmarks.soak                   an hour, as fast as the machine allows
    nice python -m benchmarks.soak --minutes 3       to try it: memory is shown, but not judged

Two replicas as real processes; a real etcd and kube-apiserver with the admission policies; a proxy in between that
cuts, delays, refuses and spoils. Pods of mixed Neuron sizes come and go as fast as the API server and the kubelets keep
up (`endurance.pace`), nodes come and go, and the leader is stopped, killed, robbed of its Lease and frozen. Every few
minutes everything is held still: then a pod that fits must be bound within 30 s. Prints tables; the exit code is 1 if a
bound does not hold.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import attrs

from benchmarks.contest.records import machine, now
from benchmarks.endurance import verdict
from benchmarks.endurance.churn import Churn, sizes_of
from benchmarks.endurance.faults import Faults
from benchmarks.endurance.pace import LEAST, Pace
from benchmarks.endurance.samples import Meter, Sample
from benchmarks.endurance.takeovers import Takeovers
from benchmarks.endurance.verdict import Finding
from benchmarks.replicas.plane import run_cluster
from benchmarks.replicas.replica import run_replicas
from tests.faults.proxy import run_proxy

API_SERVER_FLAGS: Final = ("--event-ttl=5m", "--etcd-compaction-interval=1m")  # or etcd grows by gigabytes
IDLE: Final = 20.0  # seconds, before the load and at the end
LONGEST_LEFT: Final = 30.0  # seconds that a pod which fits may wait after the last fault
LONGEST_END: Final = 120.0  # seconds for the last pods to end
SAMPLE_EVERY: Final = 5.0
REST_EVERY: Final = 300.0
WARM_UP: Final = 600.0  # seconds of a process, or a quarter of the run
SETTLED: Final = 0.25  # share of the run in which the highest rate is found; later it may fall, and rise again
AT: Final = (0.08, 0.14, 0.20, 0.94)
"""When the leader goes, as shares of the run: in between the same two processes run for three quarters of it."""


@attrs.define(eq=False, kw_only=True)
class Soak:
    """A run."""

    churn: Churn
    faults: Faults
    seconds: float
    began: float = attrs.field(factory=time.perf_counter)
    takeovers: Takeovers = attrs.field(init=False)
    samples: list[Sample] = attrs.field(factory=list, init=False)
    rests: list[float] = attrs.field(factory=list, init=False)
    left_behind: list[str] = attrs.field(factory=list, init=False)
    _meters: dict[str, Meter] = attrs.field(factory=dict, init=False)
    _load_began: float = attrs.field(default=0.0, init=False)

    async def run(self) -> list[Finding]:
        """Run to the end, and judge."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.takeovers.run)
            await anyio.sleep(IDLE)
            before = await self._sample_all()
            tasks.start_soon(self.churn.run)
            tasks.start_soon(self.faults.run)
            tasks.start_soon(self._settle)
            tasks.start_soon(self._each, SAMPLE_EVERY, self._sample_all)
            tasks.start_soon(self._each, min(REST_EVERY, self.seconds / 3), self.rest)
            self._load_began = time.perf_counter()
            for share, deed in zip(AT, self.takeovers.ways, strict=True):
                await anyio.sleep(max(0.0, self._load_began + share * self.seconds - time.perf_counter()))
                await deed()
            await anyio.sleep(max(0.0, self._load_began + self.seconds - time.perf_counter()))
            unfinished = await self._wind_down()
            after = await self._sample_all()
            tasks.cancel_scope.cancel()
        return self._judged(before, after, unfinished)

    def started(self, replica: Any) -> None:
        """Sample a replica from now on."""
        self._meters[replica.name] = Meter(replica, self.began)

    def ended(self, replica: Any) -> None:
        """Sample it no more."""
        del self._meters[replica.name]

    async def rest(self) -> None:
        """Hold everything still, and wait until no pod is left behind that fits."""
        self.faults.paused = True
        with self.churn.rest():
            self.faults.end()
            await self.churn.still()
            began = time.perf_counter()
            with anyio.move_on_after(LONGEST_LEFT):
                while self.churn.left_behind():  # noqa: ASYNC110 - what changes it comes from the API server
                    await anyio.sleep(0.1)
            self.rests.append(time.perf_counter() - began)
            if left := self.churn.left_behind():
                self.left_behind.append(f"{len(left)} pods fit and wait: {sizes_of(left)}")
        self.faults.paused = False

    async def _settle(self) -> None:
        """Limit the rate to the highest that was seen: what is kept for minutes grows with each new height."""
        await anyio.sleep(SETTLED * self.seconds)
        self.churn.pace.most = max(LEAST, verdict.fastest(self.samples))

    async def _each(self, seconds: float, act: Callable[[], Awaitable[object]]) -> None:
        while True:
            await anyio.sleep(seconds)
            await act()

    async def _sample_all(self) -> list[Sample]:
        """Sample every replica that answers; one that is frozen or about to end does not."""
        taken = []
        for meter in list(self._meters.values()):
            with anyio.move_on_after(5):
                try:
                    taken.append(await meter.sample(self.churn.history.total))
                except (aiohttp.ClientError, FileNotFoundError, KeyError):
                    continue
        self.samples += taken
        last = taken[-1] if taken else None
        if last is not None:
            print(
                f"{last.at:7.0f} s {last.bound} bound, {self.churn.alive} alive, {self.churn.pace.rate:.0f} a second, "
                f"{[s.memory >> 20 for s in taken]} MiB, {[s.descriptors for s in taken]} descriptors",
                flush=True,
            )
        return taken

    async def _wind_down(self) -> int:
        """End the faults, let all pods end, and wait a moment; return how many pods are left."""
        self.churn.creating = False
        self.faults.paused = True
        self.faults.end()
        with anyio.move_on_after(LONGEST_END):
            while self.churn.alive:  # noqa: ASYNC110 - what changes it comes from the API server
                await anyio.sleep(0.1)
        await anyio.sleep(IDLE)
        return self.churn.alive

    def _judged(self, before: list[Sample], after: list[Sample], unfinished: int) -> list[Finding]:
        history, requests = self.churn.history, sum(self.faults.counts.values())
        findings = [
            Finding("pods created that never got a node, or did not end", str(unfinished), "0", unfinished == 0),
            Finding(
                "cores held twice, illegal sets, pods bound twice", str(len(history.wrong)), "0", not history.wrong
            ),
            Finding(
                f"longest wait of a pod that fits, in {len(self.rests)} rests",
                f"{max(self.rests, default=math.inf):.1f} s",
                f"{LONGEST_LEFT:g} s",
                not self.left_behind,
            ),
            Finding(
                "replicas that ended without being made to",
                str(len(self.takeovers.surprises)),
                "0",
                not self.takeovers.surprises,
            ),
            Finding("replicas that run at the end", str(len(after)), "2", len(after) == 2),
            verdict.log_rate(self.samples, requests, (after[-1].at if after else self.seconds) / 60),
        ]
        for last in after:
            findings += verdict.at_rest(last, before)
        for name in sorted({sample.replica for sample in self.samples}):
            findings += self._growth([sample for sample in self.samples if sample.replica == name])
        return findings

    def _growth(self, life: list[Sample]) -> list[Finding]:
        """Judge a process under load after its warm-up, if there are many samples of that."""
        begin = max(life[0].at, self._load_began - self.began) + min(WARM_UP, self.seconds / 4)
        end = self._load_began - self.began + self.seconds
        settled = [sample for sample in life if begin <= sample.at <= end]
        return [verdict.memory(life, begin, end), verdict.descriptors(settled)] if len(settled) > 3 else []


@asynccontextmanager
async def prepared(arguments: Any) -> AsyncIterator[Soak]:
    """Run everything that a soak needs."""
    dice = random.Random(arguments.seed)
    async with (
        run_cluster(API_SERVER_FLAGS) as cluster,
        run_proxy(cluster.plane) as proxy,
        run_replicas(cluster, f"--master={proxy.url}") as replicas,
    ):
        churn = Churn(cluster, dice, Pace(arguments.rate))
        await churn.prepare()
        soak = Soak(churn=churn, faults=Faults(proxy, dice), seconds=arguments.minutes * 60)
        soak.takeovers = Takeovers(cluster, replicas, soak.began, soak.started, soak.ended)
        yield soak


async def main(arguments: Any) -> int:
    """Run, judge and print; return the exit code."""
    async with prepared(arguments) as soak:
        findings = await soak.run()
    print(f"\n{now()}, {arguments.minutes:g} minutes, {soak.churn.created} pods, {machine()}\n")
    print(
        f"{soak.churn.history.total / arguments.minutes / 60:.1f} pods a second, "
        f"{verdict.fastest(soak.samples):.1f} in the fastest minute; "
        f"at most {soak.churn.pace.most:.1f} after a quarter of the run\n"
    )
    print(verdict.table(findings), "\n")
    print(verdict.course(soak.samples, arguments.minutes / 12), "\n")
    print("takeovers:", ", ".join(f"{deed} at {at} s" for deed, at in soak.takeovers.done))
    print(f"connections cut {soak.faults.cuts} times; requests that met a fault:")
    for name, count in sorted(soak.faults.counts.items()):
        print(f"  {name}: {count}")
    for sentence in (*soak.churn.history.wrong[:20], *soak.left_behind, *soak.takeovers.surprises):
        print(f"WRONG: {sentence}")
    if arguments.samples:
        lines = (json.dumps(attrs.asdict(sample), separators=(",", ":")) for sample in soak.samples)
        arguments.samples.write_text("\n".join(lines) + "\n")
    return 0 if all(finding.holds for finding in findings) else 1


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=math.inf, help="pods a second at most, to leave others some CPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=Path, help="file for all samples, a line of JSON each")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(anyio.run(main, _arguments(), backend_options={"use_uvloop": True}))

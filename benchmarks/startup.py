"""
A start in a large cluster: how long the event loop is blocked at most, and how much memory it takes.

    python -m benchmarks.startup [--nodes 15000] [--bound 30000] [--pending 300]

The whole scheduler runs in this process, against the embedded API server in another: it lists, takes the Lease and
binds the pending pods, which are of several kinds. A sampler that asks for a turn every millisecond measures how long
it did not get one, by the clock and by the CPU time of this thread, which other processes do not disturb. Appends a
line of JSON to `benchmarks/results/startup.jsonl`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from benchmarks.contest.arena import peak_bytes
from benchmarks.contest.records import machine, now
from benchmarks.contest.workloads import WORKLOADS
from neuron_scheduler import app
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from sandbox import fleet
from sandbox.server import ApiServer
from tests.control_plane.objects import pod_manifest

RESULTS: Final = Path(__file__).parent / "results" / "startup.jsonl"
IMAGES: Final = 50  # for each node, as many as a kubelet reports
SORTS: Final = ("one-shape", "spread-zone", "anti-affinity", "affinity", "unlike")
MOST_STALL: Final = 50.0  # milliseconds
MOST_MEMORY: Final = 300  # MiB
LONGEST: Final = 60.0  # seconds


@attrs.define(eq=False)
class Stalls:
    """The longest time without a turn in each stage, in milliseconds: by the clock, and of this thread's CPU."""

    stage: str = "listing"
    wall: dict[str, float] = attrs.field(factory=dict)
    cpu: dict[str, float] = attrs.field(factory=dict)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            stage, wall, cpu = self.stage, time.perf_counter(), time.thread_time()
            await anyio.sleep(0.001)
            self.wall[stage] = max(self.wall.get(stage, 0.0), (time.perf_counter() - wall - 0.001) * 1e3)
            self.cpu[stage] = max(self.cpu.get(stage, 0.0), (time.thread_time() - cpu) * 1e3)


async def serve(nodes: int, bound: int, pending: int) -> None:
    """Be the API server until killed; print the port once the objects are stored."""
    server = ApiServer(kubelet=False)
    for obj in (*_nodes(nodes), *_bound(bound, nodes), *_pending(pending)):
        server.create(obj)
    async with server.serving():
        print(server.port, flush=True)
        await anyio.sleep_forever()


def _nodes(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        node = fleet.node(f"node-{i:05d}", "trn1.32xlarge", zone=f"zone-{i % 3}")
        images = ((i + k) % 200 for k in range(IMAGES))
        node["status"]["images"] = [
            {"names": [f"registry.example/app-{k}:v1", f"registry.example/app@sha256:{k:064x}"], "sizeBytes": k << 20}
            for k in images
        ]
        yield node


def _bound(count: int, nodes: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield pod_manifest(
            f"bound-{i:05d}",
            neuron=1,
            requests={"cpu": "1", "memory": "1Gi"},
            labels={"app": f"app-{i % 500}"},
            annotations={AWS_NEURON_IDS: str(i // nodes)},
            nodeName=f"node-{i % nodes:05d}",
        )


def _pending(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        pod = WORKLOADS[SORTS[i % len(SORTS)]].pod(i)
        pod["metadata"]["labels"] = {"app": "run"}
        yield pod


async def measure(port: int, bound: int, pending: int) -> dict[str, Any]:
    """Start, bind, and return the figures."""
    stalls, began = Stalls(), time.perf_counter()
    connection = await auth.load(None, f"http://127.0.0.1:{port}")
    metrics = Metrics(["my-scheduler"], "my-scheduler", connection.server)
    config = Config(master=connection.server, port=0, secure_port=0)
    client = Client(connection=connection, bind_concurrency=config.bind_concurrency)
    async with client, anyio.create_task_group() as tasks:
        parts = wire(config, client, metrics)
        tasks.start_soon(stalls.run)
        tasks.start_soon(app.App(config=config, client=client, metrics=metrics, parts=parts).run)
        with anyio.fail_after(LONGEST):
            await parts.pods.synced.wait()
            stalls.stage, synced = "warming up and leading", time.perf_counter()
            while parts.cluster.pod_count <= bound:  # noqa: ASYNC110 - there is no event to wait for
                await anyio.sleep(0.001)
            stalls.stage = "binding"
            while parts.cluster.pod_count < bound + pending or parts.cluster.assumed_count:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.01)
        done = time.perf_counter()
        tasks.cancel_scope.cancel()
    return {
        "seconds": {"listed": round(synced - began, 2), "bound": round(done - began, 2)},
        "stall_wall_ms": {stage: round(longest, 1) for stage, longest in stalls.wall.items()},
        "stall_cpu_ms": {stage: round(longest, 1) for stage, longest in stalls.cpu.items()},
        "peak_mib": peak_bytes(os.getpid()) >> 20,
    }


def main() -> None:
    """Measure one start and print it with the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=15_000)
    parser.add_argument("--bound", type=int, default=30_000)
    parser.add_argument("--pending", type=int, default=300)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        anyio.run(serve, asked.nodes, asked.bound, asked.pending)
        return
    logs.configure(verbosity=0)
    command = [sys.executable, "-m", "benchmarks.startup", "--serve"]
    command += [f"--{name}={getattr(asked, name)}" for name in ("nodes", "bound", "pending")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline()) if server.stdout is not None else 0
            figures = anyio.run(measure, port, asked.bound, asked.pending, backend_options={"use_uvloop": True})
        finally:
            server.kill()
    record = {"when": now(), "machine": machine(), "nodes": asked.nodes, "bound": asked.bound, **figures}
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as results:
        results.write(json.dumps(record) + "\n")
    print(json.dumps(figures, indent=1))
    print(f"longest stall {max(figures['stall_cpu_ms'].values())} ms of CPU (at most {MOST_STALL:.0f})")
    print(f"peak memory {figures['peak_mib']} MiB (at most {MOST_MEMORY})")


if __name__ == "__main__":
    main()

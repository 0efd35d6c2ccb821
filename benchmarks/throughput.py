"""
How many pods per second, end to end, on a real kube-apiserver: N fake nodes, P pods that all wait before the start.

    python -m benchmarks.throughput [--nodes 1000] [--pods 3000] [--peers binding-loop kube-scheduler] [--rounds 1]

Ours runs as a process of its own, with leader election and events, under the rights of `manifests/rbac.yaml`. Peers
run on the same control plane, one after the other, each on fresh pods: `binding-loop` only POSTs Bindings, which no
scheduler can beat; `kube-scheduler` is the real one, without topology and with its client limits lifted. Absolute
rates belong to the machine, which API server, etcd and this program share; compare within one run.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import yaml

from tests.control_plane.binaries import require
from tests.control_plane.component import Component
from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.server import ControlPlane, free_port, run_control_plane

ROOT: Final = Path(__file__).parent.parent
SIZES: Final = (1, 4, 1, 8, 1, 4, 1, 16)
LONGEST_START: Final = 60.0  # seconds until the first bind
LONGEST_PAUSE: Final = 10.0  # seconds without a bind after which a contender is taken to have no place for the rest
PODS: Final = "/api/v1/namespaces/default/pods"


@attrs.frozen
class Result:
    """
    What one contender did.

    Attributes:
        bound: how many pods; fewer than asked for if it did not finish.
        seconds: from the first to the last bind, as a watch sees them.
        cpu: its own CPU seconds in between.
    """

    contender: str
    bound: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Pods per second."""
        return self.bound / self.seconds if self.seconds else 0.0


async def main(arguments: argparse.Namespace) -> None:
    """Measure every contender in turn and print a table."""
    wanted, there = arguments.pods * sum(SIZES) / len(SIZES), arguments.nodes * max(SIZES)
    if wanted > 0.9 * there:
        raise SystemExit(f"{arguments.pods} pods ask for {wanted:.0f} of {there} devices: ask for more --nodes")
    async with run_control_plane() as plane:
        await _prepare(plane, arguments.nodes)
        results: dict[str, list[Result]] = {}
        contenders = {"ours": _ours, "binding-loop": _binding_loop, "kube-scheduler": _kube_scheduler}
        for _ in range(arguments.rounds):
            for name in ("ours", *arguments.peers):
                component = await contenders[name](plane)
                result = await _measure(plane, name, component, arguments.pods)
                results.setdefault(name, []).append(result)
                print(f"  {name}: {result.bound} pods in {result.seconds:.2f} s", flush=True)
    _print_table(results, arguments)


async def _prepare(plane: ControlPlane, nodes: int) -> None:
    for manifest in yaml.safe_load_all((ROOT / "manifests/rbac.yaml").read_text()):
        await plane.admin.apply(manifest, namespace=manifest["metadata"].get("namespace", "default"))
    plane.kubeconfig(plane.folder / "ours", token=await plane.token_for("kube-system", "my-scheduler"))
    plane.kubeconfig(plane.folder / "admin")
    zones = ({"topology.kubernetes.io/zone": f"zone-{i % 3}"} for i in range(nodes))
    manifests = (node_manifest(f"node-{i:05d}", "trn1.32xlarge", labels=zone) for i, zone in enumerate(zones))
    await create_all(partial(create_node, plane.admin), manifests)
    print(f"{nodes} nodes are there", flush=True)


async def _measure(plane: ControlPlane, name: str, component: Component, pods: int) -> Result:
    """Create the pods, start the contender, watch until all are bound, and clear up."""
    manifests = (
        pod_manifest(f"{name}-{i:05d}", neuron=SIZES[i % len(SIZES)], requests={"cpu": "1", "memory": "1Gi"})
        for i in range(pods)
    )
    await create_all(partial(create_pod, plane.admin), manifests)
    version = (await plane.admin.get(PODS, limit=1))["metadata"]["resourceVersion"]
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(component.start)
            result = await _watch_binds(plane, name, lambda: component.pid, pods=pods, version=version)
    finally:
        await component.stop()
        await plane.admin.delete(PODS, gracePeriodSeconds=0)
        await plane.admin.delete("/apis/events.k8s.io/v1/namespaces/default/events")
    return result


async def _watch_binds(plane: ControlPlane, name: str, pid: Callable[[], int], *, pods: int, version: str) -> Result:
    """Count pods as they appear among those that have a node."""
    bound, first, last, cpu_before = set[str](), 0.0, 0.0, 0.0
    while len(bound) < pods:
        with anyio.move_on_after(LONGEST_PAUSE if bound else LONGEST_START) as patience:
            async with aclosing(plane.admin.watch(PODS, version, fieldSelector="spec.nodeName!=")) as events:
                async for _, pod in events:
                    bound.add(pod["metadata"]["name"])
                    version, last = pod["metadata"]["resourceVersion"], time.perf_counter()
                    patience.deadline = anyio.current_time() + LONGEST_PAUSE
                    if len(bound) == 1:
                        first, cpu_before = last, _cpu_seconds(pid())
                    if len(bound) == pods:
                        break
        if patience.cancelled_caught:
            break  # it has bound what it can
    return Result(name, len(bound), last - first, _cpu_seconds(pid()) - cpu_before)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _ours(plane: ControlPlane) -> Component:
    port = free_port()
    argv = [sys.executable, "-m", "neuron_scheduler", "run", "--kubeconfig", str(plane.folder / "ours")]
    argv += ["--bind-address", "127.0.0.1", "--port", str(port)]
    return Component("ours", argv, f"http://127.0.0.1:{port}/readyz", plane.folder / "ours.log")


async def _binding_loop(plane: ControlPlane) -> Component:
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.binding_loop", str(plane.folder / "ours"), str(port)]
    return Component("binding-loop", argv, f"http://127.0.0.1:{port}/readyz", plane.folder / "binding-loop.log")


async def _kube_scheduler(plane: ControlPlane) -> Component:
    port = free_port()
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.folder / "admin"), "qps": 100_000, "burst": 100_000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "my-scheduler"}],
    }
    path = plane.folder / "kube-scheduler.json"
    path.write_text(json.dumps(config))
    argv = [str(require("kube-scheduler")), f"--config={path}", "--bind-address=127.0.0.1", f"--secure-port={port}"]
    return Component("kube-scheduler", argv, f"https://127.0.0.1:{port}/healthz", plane.folder / "kube-scheduler.log")


def _print_table(results: dict[str, list[Result]], arguments: argparse.Namespace) -> None:
    ours = statistics.median(result.rate for result in results["ours"])
    print(f"\n{arguments.nodes} nodes, {arguments.pods} pods of 1/4/8/16 devices, median of {arguments.rounds} run(s)")
    print(f"{'':16}{'pods/s':>8}{'ours is':>9}{'CPU ms/pod':>12}   every run, pods/s")
    for name, runs in results.items():
        rate = statistics.median(run.rate for run in runs)
        cpu = statistics.median(run.cpu / max(run.bound, 1) * 1e3 for run in runs)
        every = " ".join(f"{run.rate:.0f}" + ("" if run.bound == arguments.pods else "!") for run in runs)
        print(f"{name:16}{rate:>8.0f}{ours / rate if rate else 0:>8.2f}x{cpu:>12.2f}   {every}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=3_000)
    parser.add_argument("--peers", nargs="*", default=[], choices=("binding-loop", "kube-scheduler"))
    parser.add_argument("--rounds", type=int, default=1)
    anyio.run(main, parser.parse_args(), backend_options={"use_uvloop": True})

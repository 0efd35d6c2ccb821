"""
Both roads of AWS's documentation on the same churn, on a real API server with simulated nodes.

    python -m benchmarks.roads                    both, two minutes each
    python -m benchmarks.roads --seconds 60 --load 0.9 --scenario ring

`own scheduler` is `neuron-scheduler run`; `extender` is kube-scheduler with the entry of `manifests/default-scheduler`
and `neuron-scheduler extender`. Pods, times and lifetimes are the same; only the scheduler's name differs. The kubelets
are simulated, and the allocate fence is on. Prints a line for each road.
"""

import argparse
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.churn.workload import SCENARIOS, workload
from benchmarks.roads.churn import Churn, Figures
from tests.control_plane.component import Component
from tests.control_plane.objects import create_all, create_node, wipe
from tests.control_plane.server import ControlPlane, free_port, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.kube_scheduler import NAME, run_kube_scheduler
from tests.end_to_end.workload import kubelets

Running = Callable[[ControlPlane, Path], AbstractAsyncContextManager[None]]


def _process(plane: ControlPlane, account: Path, command: str, *flags: str) -> Component:
    port = free_port()
    argv = [sys.executable, "-m", "neuron_scheduler", command, f"--kubeconfig={account}"]
    argv += ["--bind-address=127.0.0.1", f"--port={port}", *flags]
    return Component(command, argv, f"http://127.0.0.1:{port}/readyz", plane.folder / f"{command}.log")


@asynccontextmanager
async def own_scheduler(plane: ControlPlane, account: Path) -> AsyncIterator[None]:
    """Run the scheduler with its own queue."""
    async with _process(plane, account, "run").started():
        yield


@asynccontextmanager
async def extended(plane: ControlPlane, account: Path) -> AsyncIterator[None]:
    """Run the extender, and a kube-scheduler that calls it."""
    port = free_port()
    process = _process(plane, account, "extender", f"--extender-bind-address=127.0.0.1:{port}")
    async with process.started(), run_kube_scheduler(plane, f"http://127.0.0.1:{port}"):
        yield


ROADS: Final[dict[str, tuple[str, Running]]] = {
    "own scheduler": ("my-scheduler", own_scheduler),
    "extender": (NAME, extended),
}


async def measure(road: str, arguments: Any) -> Figures:
    """Return the figures of one road on a control plane of its own."""
    made = workload(SCENARIOS[arguments.scenario], load=arguments.load, seed=arguments.seed, pods=arguments.pods)
    name, running = ROADS[road]
    async with run_control_plane() as plane:
        await wipe(plane.admin)
        await rights.grant(plane.admin)
        token = await plane.token_for("kube-system", rights.ACCOUNT.rpartition(":")[2])
        account = plane.kubeconfig(plane.folder / "account", token=token)
        churn = Churn(api=plane.admin, workload=made, factor=made.end / arguments.seconds, scheduler_name=name)
        await create_all(partial(create_node, plane.admin), churn.nodes)
        async with kubelets(plane.admin), running(plane, account):
            return await churn.run()


async def main(arguments: Any) -> None:
    """Measure and print."""
    print(f"{SCENARIOS[arguments.scenario].title}, load {arguments.load:g}, {arguments.pods} pods")
    print(f"{'':<16}{'bound':>7}{'legal':>8}{'in use':>9}{'mean wait':>11}{'unplaced':>10}{'most in 1 s':>13}")
    for road in arguments.roads:
        seen = await measure(road, arguments)
        print(
            f"{road:<16}{seen.bound:>7}{seen.legal:>8.3f}{seen.utilisation:>9.1%}{seen.mean_wait:>9.2f} s"
            f"{seen.unplaced:>10.1%}{seen.rate:>13}",
            flush=True,
        )


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roads", nargs="+", choices=ROADS, default=list(ROADS))
    parser.add_argument("--scenario", choices=SCENARIOS, default="torus")
    parser.add_argument("--load", type=float, default=0.95, help="requested devices divided by the fleet's")
    parser.add_argument("--pods", type=int, default=2_000, help="arrivals after the first moment")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the run")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, _arguments())

"""
The upper limit: a program that only POSTs Bindings for the pending pods, as fast as the API server accepts them.

Run by `benchmarks.throughput` as a process of its own: `python -m benchmarks.contest.binding_loop KUBECONFIG PORT`. It
holds the Lease, because the admission policy requires that, and never checks whether a pod fits; neither does the API
server.
"""

import itertools
import sys
from typing import Any

import anyio
import msgspec
from aiohttp import web

from neuron_scheduler.controllers.leader_elector import LeaderElector
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.writes.binder import Binder, Bound
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.model.annotations import OUR_LEADER
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

CONCURRENCY = 48
POLICY_LEARNS = 0.5  # seconds until the admission policy has the Lease; nothing is measured before


async def _ready(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _listed(client: Client, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = msgspec.json.decode((await client.request("GET", path)).body)["items"]
    return items


async def main(kubeconfig: str, port: int) -> None:
    """List pods and nodes once, then bind them in turn."""
    application = web.Application()
    application.router.add_get("/readyz", _ready)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    connection = await auth.load(kubeconfig, None)
    async with Client(connection=connection, bind_concurrency=CONCURRENCY) as client:
        waiting = [pod["metadata"] for pod in await _listed(client, PODS.path) if "nodeName" not in pod["spec"]]
        pods = [Pod(uid=pod["uid"], namespace=pod["namespace"], name=pod["name"]) for pod in waiting]
        nodes = [item["metadata"]["name"] for item in await _listed(client, NODES.path)]
        work = zip(pods, itertools.cycle(nodes), strict=False)
        leader = LeaderElector(leases=LeaseClient(client=client), lease_duration=15, renew_deadline=10, retry_period=2)
        (is_ready := anyio.Event()).set()
        await leader.acquire(is_ready)
        await anyio.sleep(POLICY_LEARNS)
        binder = Binder(
            client=client, may_bind=lambda: True, timeout=4.0, errors=UnexpectedErrors(Metrics().count_unexpected_error)
        )

        async def bind_each() -> None:
            for pod, node in work:
                outcome = await binder.bind(pod, node, {OUR_LEADER: leader.identity})
                if not isinstance(outcome, Bound):
                    raise SystemExit(f"the API server refuses what the ceiling is made of: {outcome}")

        async with anyio.create_task_group() as tasks:
            for _ in range(CONCURRENCY):
                tasks.start_soon(bind_each)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]), backend_options={"use_uvloop": True})

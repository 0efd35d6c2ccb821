"""
The most memory that an informer uses while pods of a megabyte are listed and watched; JSON's escapes make six of it.

Measured in a process of its own, by Linux's high-water mark of its memory.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import pytest
from aiohttp import web

from tests.support.wire_objects import pod

PODS: Final = 60
MOST: Final = 300  # MiB; the Deployment has 1024
ESCAPED: Final = b"\\u003c" * (1 << 20)

INFORMER: Final = """
import sys
from pathlib import Path
import anyio
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.credentials import NOBODY
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.informer import Informer

class Counting:
    kept = {}
    def on_added(self, new): self.kept[new.key] = new
    def on_updated(self, old, new): self.kept[new.key] = new
    def on_deleted(self, old): del self.kept[old.key]
    def on_malformed(self, malformed): raise AssertionError(malformed)
    def on_malformed_gone(self, malformed): pass

async def main():
    async with Client(connection=Connection(sys.argv[1], "test", NOBODY)) as client:
        informer = Informer(client=client, resource=PODS, on_failure=print, on_unhandled=print)
        informer.add_event_handler(Counting())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            while informer.events < int(sys.argv[2]):
                await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
    assert len(Counting.kept) == informer.events and informer.lists == 1
    status = Path("/proc/self/status").read_text().split()
    print(int(status[status.index("VmHWM:") + 1]) // 1024)

anyio.run(main)
"""


def large(number: int, version: int) -> tuple[bytes, bytes, bytes]:
    """A pod in three parts, of which the second is long: environment, image, labels or an annotation of it."""
    plain = pod(f"p{number}", metadata={"resourceVersion": str(version), "labels": {"version": str(version)}})
    container = plain["spec"]["containers"][0]
    if number % 2:
        container["env"] = [{"name": "E", "value": "HERE"}]
    else:
        container["image"] = f"{number}HERE"
    before, after = json.dumps(plain).encode().split(b"HERE")
    return before, ESCAPED, after


@asynccontextmanager
async def serving(pods: int) -> AsyncIterator[str]:
    """Serve so many pods, and then a change of each; only one at a time is in memory."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if "watch" in request.query:
            for number in range(pods):
                for part in (b'{"type":"MODIFIED","object":', *large(number, 20 + number), b"}\n"):
                    await response.write(part)
            await anyio.sleep_forever()
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        token = str(start + limit) if start + limit < pods else ""
        metadata = json.dumps({"resourceVersion": "10", "continue": token}).encode()
        await response.write(b'{"metadata":' + metadata + b',"items":[')
        for number in range(start, min(pods, start + limit)):
            for part in (b"," * (number > start), *large(number, 5)):
                await response.write(part)
        await response.write(b"]}\n")
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports a process's high-water mark")
async def test_large_pods_are_listed_and_watched_in_little_memory() -> None:
    """Neither the bytes of a page nor those of earlier objects are kept."""
    async with serving(PODS) as url:
        done = await anyio.run_process([sys.executable, "-c", INFORMER, url, str(PODS)], stderr=None)

    assert int(done.stdout) < MOST

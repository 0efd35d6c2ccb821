"""The demo's address of the page leads to the scheduler that is active now."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from neuron_scheduler.sandbox.demo import page_port


@asynccontextmanager
async def answering(text: str) -> AsyncIterator[int]:
    """Run a server that says this, and yield its port."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text)

    application = web.Application()
    application.router.add_get("/page", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def test_it_follows_the_active_scheduler() -> None:
    """Another scheduler answers when it has taken over; with none, or one that has just ended, there is no answer."""
    now: list[int] = []
    async with (
        answering("first") as first,
        answering("second") as second,
        page_port.leading_to(lambda: now[-1] if now else None) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):

        async def page() -> str:
            async with client.get("/page", headers={"Connection": "close"}) as response:
                return await response.text()

        with pytest.raises(aiohttp.ClientError):
            await page()
        now.append(first)
        assert [await page(), await page()] == ["first", "first"]
        now.append(second)
        assert await page() == "second"
        now.append(1)
        with pytest.raises(aiohttp.ClientError):
            await page()

"""Fixtures for the whole suite: one uvloop event loop for every async fixture and test, and settings of hypothesis."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import hypothesis
import pytest

pytest_plugins = ["tests.control_plane.fixtures"]

hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, max_examples=100)
hypothesis.settings.load_profile("suite")

# uvloop (MagicStack/uvloop#506): bytes that arrive on a TLS connection which was just closed make it write to the
# closed transport. Nobody awaits that connection any more; anyio would fail whichever test happens to run.
CLOSED_BY_UVLOOP = "unable to perform operation on <TCPTransport closed=True"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Run all async tests on one uvloop event loop, as the scheduler itself does."""
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="session", autouse=True)
async def _closed_connections_stay_closed() -> AsyncIterator[None]:
    """Leave every other error in a callback to anyio, which fails the test."""
    loop = asyncio.get_running_loop()
    reported = loop.get_exception_handler()

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if str(context.get("exception", "")).startswith(CLOSED_BY_UVLOOP):
            return
        (reported or asyncio.AbstractEventLoop.default_exception_handler)(loop, context)

    loop.set_exception_handler(report)
    yield
    loop.set_exception_handler(reported)

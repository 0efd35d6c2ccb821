"""One browser for all tests of the page, and a scheduler's port with the page and answers that a test makes up."""

from collections.abc import AsyncIterator

import pytest

from tests.browser.chromium import Chromium, running
from tests.browser.install import NoBrowserError, require
from tests.page.fake_scheduler import FakeScheduler


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Chromium]:
    """Run a browser, which is unpacked first if the machine has none; without apt there may be none."""
    try:
        found = require()
    except NoBrowserError as error:
        pytest.skip(str(error))
    async with running(found) as chromium:
        yield chromium


@pytest.fixture
async def scheduler(free_tcp_port: int) -> AsyncIterator[FakeScheduler]:
    """Serve the page on a port of the process, as `app` does, with answers that are made up."""
    fake = FakeScheduler(free_tcp_port)
    await fake.start()
    yield fake
    await fake.stop()

"""A scheduler's port with the page, and answers that a test makes up."""

from collections.abc import AsyncIterator

import pytest

from tests.page.fake_scheduler import FakeScheduler


@pytest.fixture
async def scheduler(free_tcp_port: int) -> AsyncIterator[FakeScheduler]:
    """Serve the page on a port of the process, as `app` does, with answers that are made up."""
    fake = FakeScheduler(free_tcp_port)
    await fake.start()
    yield fake
    await fake.stop()

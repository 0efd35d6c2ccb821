"""The browser as a pytest fixture: one for the whole session; each test opens a tab of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.browser.chromium import Chromium, running
from tests.browser.install import NoBrowserError, require


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Chromium]:
    """Run a browser, which is unpacked first if the machine has none; without apt there may be none."""
    try:
        found = require()
    except NoBrowserError as error:
        pytest.skip(str(error))
    async with running(found) as chromium:
        yield chromium

"""What the whole suite shares: one uvloop event loop for async tests, settings of hypothesis, the number of workers."""

import os

import hypothesis
import pytest

from tests.support.thoroughness import examples

pytest_plugins = ["tests.browser.fixtures", "tests.control_plane.fixtures"]

# Explaining a failure means tracing every line of every example before there is one (Python before 3.12): 3x the time.
PHASES = [phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain]
hypothesis.settings.register_profile(
    "suite", derandomize=True, deadline=None, max_examples=examples(100), phases=PHASES
)
hypothesis.settings.load_profile("suite")


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Run all async tests on one uvloop event loop, as the scheduler itself does."""
    return ("asyncio", {"use_uvloop": True})


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores: some tests wait for a timeout or for a process."""
    return (os.cpu_count() or 1) + 1

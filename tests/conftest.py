"""
What the whole suite shares.

One uvloop event loop for async tests, settings of hypothesis, the number of workers, what a failed program printed.
"""

import os
import subprocess
from collections.abc import Generator

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what a program printed that failed: the message of Python's error has only its arguments and exit code."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, subprocess.CalledProcessError):
        for output in (error.stdout, error.stderr):
            if output:
                error.add_note(output.decode(errors="replace") if isinstance(output, bytes) else output)
    return (yield)

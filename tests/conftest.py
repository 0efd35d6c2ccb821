"""Fixtures for the whole suite: one uvloop event loop for every async fixture and test, and settings of hypothesis."""

import hypothesis
import pytest

from tests.support.thoroughness import examples

pytest_plugins = ["tests.control_plane.fixtures"]

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

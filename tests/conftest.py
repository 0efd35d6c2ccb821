"""
What the whole suite shares.

One uvloop event loop for async tests, settings of hypothesis, the number of workers, how a failure reads.
"""

import inspect
import os
import subprocess
from collections.abc import Generator

import hypothesis
import pytest

from tests.support.thoroughness import examples, states

pytest_plugins = ["tests.browser.fixtures", "tests.control_plane.fixtures"]

# Explaining a failure means tracing every line of every example before there is one (Python before 3.12): 3x the time.
PHASES = [phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain]
hypothesis.settings.register_profile(
    "suite", derandomize=True, deadline=None, max_examples=examples(100), phases=PHASES
)
hypothesis.settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that try a share of their examples in `make test`, and those that need a browser."""
    for item in items:
        names = vars(getattr(item, "module", object))
        shared = (names.get("examples") is examples, names.get("states") is states, "FAST" in names)
        if any(shared) or hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("sampled")
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Run all async tests on one uvloop event loop, as the scheduler itself does."""
    return ("asyncio", {"use_uvloop": True})


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use a worker for each core where each has an API server, else one more: some tests wait for a process."""
    return (os.cpu_count() or 1) + (0 if config.getoption("dist") == "loadfile" else 1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """
    Let a failure begin with the promise, which is the first line of the test's docstring, and end with few lines.

    A program that failed shows what it printed: the message of Python's error has only its arguments and exit code. Of
    long outputs, such as the log of a process, the last lines are shown; with `-v` all.
    """
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, subprocess.CalledProcessError):
        for output in (error.stdout, error.stderr):
            if output:
                error.add_note(output.decode(errors="replace") if isinstance(output, bytes) else output)
    report = yield
    if report.failed:
        path, line, name = report.location
        promise = inspect.getdoc(getattr(item, "obj", None)) or ""
        report.location = (path, line, f"{name}: {promise.splitlines()[0]}" if promise else name)
        if not item.config.getoption("verbose"):
            report.sections = [(title, last_lines(text)) for title, text in report.sections]
    return report


def last_lines(text: str, count: int = 20) -> str:
    """Return the last lines of a text, and how many there are before."""
    lines = text.splitlines()
    left_out = len(lines) - count
    return text if left_out <= 0 else "\n".join([f"({left_out} lines before; -v shows them)", *lines[-count:]])

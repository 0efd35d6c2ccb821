"""`python -m tests.run`: every step runs, what fails is shown whole, and a line says how far it is."""

import sys

import pytest

from tests.control_plane.fixtures import SECONDS, TESTS
from tests.run import Plan, Step

PASSES = """
import time
print(40 * "." + " [ 50%]", flush=True)
time.sleep(0.8)
print("80 passed in 0.80s")
"""


def step(code: str, title: str = "step", *, needs_builds: bool = False) -> Step:
    """Return a step that runs a text of Python."""
    return Step(title, [sys.executable, "-c", code], needs_builds=needs_builds)


async def test_a_step_that_succeeds_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """While it runs, a line shows how far it is; at its end there are the counts, and not its output."""
    assert await Plan([step(PASSES)]).run() == 0
    shown = capsys.readouterr().out
    assert "step: done in" in shown
    assert "80 passed" in shown
    assert "...." not in shown


async def test_a_step_that_fails_is_shown_whole_and_the_next_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1, and its output is above the line that says so."""
    assert await Plan([step("print('the reason'); exit(3)", "first"), step("pass", "second")]).run() == 1
    shown = capsys.readouterr().out
    assert shown.index("the reason") < shown.index("first: FAILED") < shown.index("second: done")


async def test_how_far_tests_are() -> None:
    """How many have run, of how many, and how many failed; the last line of marks is not yet whole."""
    tests = step("print('2 workers [73 items]'); print(39 * '.' + 'F [ 50%]'); print(5 * '.', end='')")
    await tests.run()
    assert tests.news == "45 of 73, 1 failed"


async def test_a_step_waits_for_what_is_built_and_is_not_run_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Other steps run meanwhile."""
    plan = Plan([step("pass", "first"), step("pass", "last", needs_builds=True)], [step("exit(1)", "build")])
    assert await plan.run() == 1
    shown = capsys.readouterr().out
    assert "first: done" in shown
    assert "last: not run" in shown


def test_the_files_that_take_long_are_there() -> None:
    """A file with another name would be begun last."""
    assert [name for name in SECONDS if not (TESTS / name).exists()] == []

"""`python -m tests.run`: every step runs, what fails is shown whole, and a line says how far it is."""

import sys

import pytest

from tests.control_plane.fixtures import SECONDS, TESTS
from tests.run import Plan, Step


def step(code: str, title: str = "step", *, needs_builds: bool = False) -> Step:
    """Return a step that runs a text of Python."""
    return Step(title, [sys.executable, "-c", code], needs_builds=needs_builds)


async def test_a_step_that_fails_is_shown_whole_and_the_next_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1, and its output is above the line that says so."""
    assert await Plan([step("print('the reason'); exit(3)", "first"), step("pass", "second")]).run() == 1
    shown = capsys.readouterr().out
    assert shown.index("the reason") < shown.index("first: FAILED") < shown.index("second: done")


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

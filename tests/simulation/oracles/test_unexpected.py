"""The oracle of errors: tracebacks and ends that nothing explains."""

import pytest

from tests.simulation.oracles.unexpected import Unexpected


def a_judge(found: list[str]) -> Unexpected:
    """Return the oracle."""
    return Unexpected(report=lambda _, text: found.append(text))


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ('I1121 08:00:00.000000 1 app.py:1] "Starting to schedule pods"', 0),
        ('E1121 08:00:00.000000 1 x.py:1] "Unexpected error, please report it" err="KeyError"', 1),
        ("Traceback (most recent call last):", 1),
    ],
)
def test_lines_of_a_log(line: str, count: int) -> None:
    """A traceback is an error of ours, whatever the world does."""
    found: list[str] = []
    a_judge(found).logged("a", line)
    assert len(found) == count


def test_only_the_first_are_reported() -> None:
    """An error that repeats does not fill the report."""
    found: list[str] = []
    judge = a_judge(found)
    for _ in range(100):
        judge.logged("a", "Traceback (most recent call last):")
    assert len(found) < 10


@pytest.mark.parametrize(
    ("code", "why", "count"),
    [
        (0, "asked", 0),
        (0, "", 1),
        (137, "killed", 0),
        (137, "", 1),
        (2, "refused", 0),
        (2, "asked", 1),
        (1, "asked", 1),
        (-1, "killed", 1),
    ],
)
def test_ends(code: int, why: str, count: int) -> None:
    """An end is explained by what was done to the process."""
    found: list[str] = []
    a_judge(found).ended("a", code, asked=why == "asked", killed=why == "killed", refused=why == "refused")
    assert len(found) == count


def test_a_lost_lease_explains_one_end() -> None:
    """The log says why a process ended with 1; its successor needs a reason of its own."""
    found: list[str] = []
    judge = a_judge(found)
    judge.logged("a", 'E1121 08:00:00.000000 1 run_command.py:1] "Leaderelection lost" err="..."')
    judge.ended("b", 1, asked=False, killed=False, refused=False)
    judge.ended("a", 1, asked=False, killed=False, refused=False)
    judge.ended("a", 1, asked=False, killed=False, refused=False)
    assert [text.split()[0] for text in found] == ["b", "a"]

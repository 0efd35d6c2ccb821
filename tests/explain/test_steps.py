"""A computation in steps has one answer."""

import pytest

from neuron_scheduler.explain.steps import finished


def test_the_answer_comes_last() -> None:
    """The pauses before it are no answer."""
    assert finished(iter([None, None, 7])) == 7


def test_steps_without_an_answer() -> None:
    """That is a mistake in the program."""
    with pytest.raises(RuntimeError, match="without an answer"):
        finished(iter([None]))

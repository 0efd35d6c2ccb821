"""An unexpected exception is counted each time, and logged with its traceback once for a pod and cause."""

import io
from collections.abc import Callable

import pytest

from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.line_formats import klog_line
from neuron_scheduler.telemetry.unexpected import MOST_SHOWN, UnexpectedErrors


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return the stream of the log."""
    stream = io.StringIO()
    monkeypatch.setattr(logs, "_output", logs._Output(stream, klog_line))
    return stream


def break_here(text: str) -> None:
    """Fail."""
    raise ValueError(text)


def break_there(text: str) -> None:
    """Fail at another place."""
    raise ValueError(text)


def raised(text: str, broken: Callable[[str], None] = break_here) -> Exception:
    """Return the exception that a function raises."""
    with pytest.raises(ValueError, match=text) as caught:
        broken(text)
    return caught.value


def test_once_for_a_pod_and_cause(stream: io.StringIO) -> None:
    """Another text of the same cause is not logged again; another pod, place or task is."""
    counted: list[str] = []
    errors = UnexpectedErrors(counted.append)
    for text in ("a", "b", "c"):
        errors.report(raised(text), task="t", pod="d/p")
    assert stream.getvalue().count("Traceback") == 1
    errors.report(raised("a"), task="t", pod="d/q")
    errors.report(raised("a", break_there), task="t", pod="d/p")
    errors.report(raised("a"), task="u", pod="d/p")
    assert stream.getvalue().count("Traceback") == 4
    assert 'pod="d/q"' in stream.getvalue()
    assert counted == ["t"] * 5 + ["u"]


def test_what_the_owner_is_told() -> None:
    """The message has the type and the text, cut because it may quote a whole object."""
    message = UnexpectedErrors().report(raised("x" * 5000), task="scheduling", pod="d/p")
    assert message == f"unexpected error in scheduling: ValueError: {'x' * MOST_SHOWN}"

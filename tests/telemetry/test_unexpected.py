"""An unexpected exception is counted each time, and logged with its traceback once for a pod and kind."""

import asyncio
import io

import pytest

from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.line_formats import klog_line
from neuron_scheduler.telemetry.unexpected import MOST_SHOWN, UnexpectedErrors, report_in_callback


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return the stream of the log."""
    stream = io.StringIO()
    monkeypatch.setattr(logs, "_output", logs._Output(stream, klog_line))
    return stream


async def test_an_error_of_a_connection_is_one_line(stream: io.StringIO) -> None:
    """An API server that is killed under a frozen process leaves one behind; an error of our own has its traceback."""
    loop, error = asyncio.get_running_loop(), raised("the handler is closed")
    context = {"message": "Fatal error on SSL protocol", "exception": error}
    report_in_callback(loop, {**context, "transport": None, "protocol": None})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith('"A connection broke off" err="the handler is closed" reason="Fatal error on SSL protocol"')
    report_in_callback(loop, context)
    assert len(stream.getvalue().splitlines()) == 1, "the library reports it, through its own logger"


def raised(text: str, kind: type[Exception] = ValueError) -> Exception:
    """Return an exception that was raised."""
    with pytest.raises(kind, match=text) as caught:
        raise kind(text)
    return caught.value


def test_once_for_a_pod_and_kind(stream: io.StringIO) -> None:
    """Another text of the same kind is not logged again; another pod, kind or task is."""
    counted: list[str] = []
    errors = UnexpectedErrors(counted.append)
    for text in ("a", "b", "c"):
        errors.report(raised(text), task="t", pod="d/p")
    assert stream.getvalue().count("Traceback") == 1
    errors.report(raised("a"), task="t", pod="d/q")
    errors.report(raised("a", KeyError), task="t", pod="d/p")
    errors.report(raised("a"), task="u", pod="d/p")
    assert stream.getvalue().count("Traceback") == 4
    assert 'pod="d/q"' in stream.getvalue()
    assert counted == ["t"] * 5 + ["u"]


def test_what_the_owner_is_told() -> None:
    """The message has the type and the text, cut because it may quote a whole object."""
    message = UnexpectedErrors(list[str]().append).report(raised("x" * 5000), task="scheduling", pod="d/p")
    assert message == f"unexpected error in scheduling: ValueError: {'x' * MOST_SHOWN}"

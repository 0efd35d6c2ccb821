"""Log lines have exactly klog's format, and no value can forge a line."""

import errno
import io
import json
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.line_formats import sentence

HEADER = re.compile(r"^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} {1,7}\d+ (test_logs\.py:\d+)\] (.*)\Z", re.DOTALL)

log = logs.logger("neuron_scheduler.tests")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Restore the root logger after the test."""
    root, ours = logging.getLogger(), logging.getLogger(logs.ROOT)
    before = (root.handlers[:], root.level, ours.level)
    root.handlers.clear()
    yield
    root.handlers[:], level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)
    logging.captureWarnings(capture=False)
    logs._output = None


def configured(**settings: Any) -> io.StringIO:
    """Log into the stream that is returned."""
    stream = io.StringIO()
    logs.configure(stream=stream, **settings)
    return stream


def body(line: str) -> str:
    """Return the part of a klog line after its header."""
    match = HEADER.match(line.removesuffix("\n"))
    assert match is not None, line
    return match[3]


def test_a_line_is_klogs() -> None:
    """Header, quoted message, quoted strings, bare numbers: as kube-scheduler writes its bind line."""
    stream = configured()
    log.info("Successfully bound pod to node", pod="default/a", node="n1", evaluatedNodes=16, feasibleNodes=3)
    line = stream.getvalue()
    assert body(line) == (
        '"Successfully bound pod to node" pod="default/a" node="n1" evaluatedNodes=16 feasibleNodes=3'
    )
    assert f" {os.getpid():7d} test_logs.py:" in line


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param('say "hi"', r'"say \"hi\""', id="quotes"),
        pytest.param("a\\b\tc\x00\x7f", r'"a\\b\tc\x00\x7f"', id="control characters"),
        pytest.param("größe 東", '"größe 東"', id="printable beyond ASCII stays"),
        pytest.param("\u200b\ud800", r'"\u200b\ud800"', id="what cannot be printed is escaped"),
        pytest.param("\U000e0001", r'"\U000e0001"', id="beyond the basic plane"),
        pytest.param("one\ntwo", "<\n\tone\n\ttwo\n >", id="several lines are indented, as klog does"),
        pytest.param("a\nI1121 b\r\x1b[2J\u2028c", "<\n\ta\n\tI1121 b\\r\\x1b[2J\\u2028c\n >", id="escaped there too"),
        pytest.param([0, 1, 2], "[0,1,2]", id="a list is JSON"),
        pytest.param({"n1": "why"}, '{"n1":"why"}', id="a mapping is JSON"),
        pytest.param(True, "true", id="a truth value"),
        pytest.param(None, "null", id="nothing"),
        pytest.param(1.5, "1.5", id="a fraction"),
        pytest.param(OSError("gone"), '"gone"', id="an exception is its sentence"),
        pytest.param(TimeoutError(), '"TimeoutError"', id="an exception without words is its type"),
        pytest.param(frozenset({1}), '"frozenset({1})"', id="anything else is quoted"),
    ],
)
def test_values(value: object, want: str) -> None:
    """Each kind of value is written as klog writes it."""
    stream = configured()
    log.info("m", key=value)
    assert body(stream.getvalue()) == f'"m" key={want}'


def test_severities() -> None:
    """Warnings, errors and fatal lines carry their letter, and `err` comes first."""
    stream = configured()
    log.warning("w", exc=OSError("gone"), resource="pods")
    log.error("e", exc=OSError("gone"))
    log.fatal("f")
    lines = stream.getvalue().splitlines()
    assert [line[0] for line in lines] == ["W", "E", "F"]
    assert body(lines[0]) == '"w" err="gone" resource="pods"'


def test_a_surprise_shows_its_place() -> None:
    """A traceback is an indented pair of the same line."""
    stream = configured()
    with pytest.raises(ValueError, match="odd") as caught:
        int("odd")
    log.error("Unexpected", exc=caught.value, traceback=True)
    text = stream.getvalue()
    assert '"Unexpected" err="invalid literal for int() with base 10: ' in text
    assert "stack=<\n\tTraceback (most recent call last):\n" in text
    assert text.endswith("'odd'\n >\n")


def test_a_group_is_the_sum_of_its_parts() -> None:
    """Equal errors of several tasks are written once."""
    group = ExceptionGroup("tasks", [OSError("gone"), ExceptionGroup("more", [OSError("gone"), ValueError("odd")])])
    assert sentence(group) == "gone; odd"


def test_verbosity() -> None:
    """A line appears from its verbosity on, by either spelling, and a logger knows whether it would write."""
    stream = configured(verbosity=4)
    log.v(4).info("four")
    log.v(5).info("five")
    log.info("also four", v=4)
    log.info("also five", v=5)
    assert [body(line) for line in stream.getvalue().splitlines()] == ['"four"', '"also four"']
    assert (log.is_enabled, log.v(4).is_enabled, log.v(5).is_enabled, log.v(99).is_enabled) == (
        True,
        True,
        False,
        False,
    )


def test_lines_of_libraries() -> None:
    """A library's warnings are written, unquoted as klog's unstructured lines are."""
    stream = configured()
    logging.getLogger("aiohttp").info("hidden")
    logging.getLogger("aiohttp").warning("loud %d", 1)
    assert body(stream.getvalue()) == "loud 1"


def test_a_library_s_line_forges_no_line_of_ours() -> None:
    """What a server sent may be in it: a further line is indented, and control characters are escaped."""
    stream = configured()
    logging.getLogger("aiohttp").warning("Illegal cookie %s", "a\nE1121 forged\x1b[2J\r")
    assert stream.getvalue().partition("] ")[2] == "Illegal cookie a\n\tE1121 forged\\x1b[2J\\r\n"


class FullDisk(io.StringIO):
    """A full disk."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, f"no space left for {text}")


def test_a_line_that_cannot_be_written_ends_nothing() -> None:
    """A log that cannot be written does not stop the scheduler."""
    logs.configure(stream=FullDisk())
    log.info("lost")
    logging.getLogger("aiohttp").warning("lost")


def test_json() -> None:
    """One object per line with klog's keys, which a pair cannot overwrite."""
    stream = configured(logging_format="json")
    log.v(2).info("bound", pod="default/a", n=3, ts="forged", why=OSError("gone"))
    log.error("failed", exc=OSError("a\nb"))
    logging.getLogger("aiohttp").warning("loud %d", 1)
    first, second, third = (json.loads(line) for line in stream.getvalue().splitlines())
    assert list(first) == ["ts", "caller", "msg", "v", "pod", "n", "why"]
    assert first["ts"] > 1e12
    assert re.fullmatch(r"test_logs\.py:\d+", first["caller"])
    assert (first["v"], first["n"], first["why"]) == (2, 3, "gone")
    assert (second["severity"], second["err"], "v" in second) == ("error", "a\nb", False)
    assert third["msg"] == "loud 1"


def test_once() -> None:
    """A key is new once, until it is forgotten or dropped in favour of others."""
    once = logs.Once(limit=2)
    assert [once("a"), once("a"), once("b"), once("a"), once("c")] == [True, False, True, False, True]
    assert once("b"), "b was the one seen longest ago"
    once.forget("b")
    assert once("b")


def test_once_about_a_subject() -> None:
    """Each detail of a subject is new once, and all of them again after the subject was forgotten."""
    once = logs.Once(details=2)
    assert [once("node", text) for text in ("a", "a", "b", "a")] == [True, False, True, False]
    assert once("other", "a")
    once.forget("node")
    assert [once("node", text) for text in ("b", "a", "b")] == [True, True, False]
    assert not once("other", "a")
    assert [once("node", text) for text in ("c", "c", "a")] == [True, False, True], "too many to keep: told afresh"

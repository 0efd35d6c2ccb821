"""A log line as text: klog's format (`internal/serialize`, `klog.go`), component-base's JSON (`logs/json`)."""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

_SEVERITIES: Final = {logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}

_encode: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode
_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def klog_line(level: int, created: float, place: str, message: str, pairs: Mapping[str, Any] | None) -> str:
    """
    Return klog's text: `I1121 08:15:04.123456       1 scheduler.py:88] "message" key="value" n=16`.

    Values and libraries' messages may have texts of users. Their further lines begin with a tab, so that none can look
    like a line of ours, and control characters are escaped.
    """
    second = int(created)
    stamp = f"{_stamp(second)}.{int((created - second) * 1_000_000):06d}"
    header = f"{_SEVERITIES.get(level, 'I')}{stamp} {os.getpid():7d} {place}] "
    if pairs is None:
        return header + "\n\t".join(map(printable, message.split("\n")))
    return header + _quote(message) + "".join([f" {key}={_text(value)}" for key, value in pairs.items()])


def json_line(level: int, created: float, place: str, message: str, pairs: Mapping[str, Any] | None) -> str:
    """Return one JSON object: ts (milliseconds), caller, msg, v (or severity, from warnings up), then the pairs."""
    line: dict[str, object] = {"ts": round(created * 1000, 3), "caller": place, "msg": message}
    if level < logging.WARNING:
        line["v"] = logging.INFO - level
    else:
        line["severity"] = logging.getLevelName(level).lower()
    if pairs is not None:
        line.update((key, value) for key, value in pairs.items() if key not in line)
    return json.dumps(line, separators=(",", ":"), default=_json_value)


def sentence(exc: BaseException) -> str:
    """Return the text of an exception, or its type if it has none; for a group, those of its parts."""
    return "; ".join(dict.fromkeys(str(leaf) or type(leaf).__name__ for leaf in leaves(exc)))


def leaves(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group and of the groups in it; of any other exception itself."""
    if isinstance(exc, BaseExceptionGroup):
        for part in exc.exceptions:
            yield from leaves(part)
    else:
        yield exc


def printable(text: str) -> str:
    """Return a text from the cluster for a person's terminal: control characters are shown as Go's escapes."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _quote(text: str) -> str:
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    if (known := _ESCAPES.get(character)) is not None:
        return known
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _text(value: object) -> str:
    if type(value) is int:
        return str(value)
    if isinstance(value, BaseException):
        value = sentence(value)
    if isinstance(value, str):
        if "\n" not in value:
            return _quote(value)
        return "<\n" + "".join(f"\t{printable(line)}\n" for line in value.split("\n")) + " >"
    if value is None or isinstance(value, int | float | list | tuple | dict):
        return _encode(value)
    return _quote(str(value))


@lru_cache(maxsize=4)
def _stamp(second: int) -> str:
    """Return the local time as klog writes it; cached, because many lines have the same second."""
    return time.strftime("%m%d %H:%M:%S", time.localtime(second))


def _json_value(value: object) -> object:
    return sentence(value) if isinstance(value, BaseException) else str(value)

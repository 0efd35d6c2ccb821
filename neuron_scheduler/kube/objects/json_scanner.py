"""
Find the parts of JSON text without recursion and without decoding it, for objects that the decoder refuses.

msgspec gives up about a thousand levels deep, also where it only skips; `managedFields` of a pod may be ten times as
deep. Every function is a generator that pauses after a few thousand tokens, so that megabytes do not block the event
loop: `finish` runs one to its end, `finish_with_pauses` lets other tasks run in between. Refuses to check the syntax of
what it skips: it only distinguishes strings and brackets.
"""

import re
from collections.abc import Collection, Generator, Sequence
from typing import Final, TypeVar

import attrs
import msgspec
from anyio.lowlevel import checkpoint

T = TypeVar("T")
Steps = Generator[None, None, T]

TOKENS: Final = 10_000  # between two pauses: about 3 ms
LONG: Final = 64 << 10  # bytes of a value before a pause: a string of 9 MB that is all escapes takes 75 ms

_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING: Final = re.compile(_TEXT, re.DOTALL)
_SCALAR: Final = re.compile(rb"[^\s,\]}]+")
_BLANK: Final = re.compile(rb"\s*")
_FLAT: Final = rb'[^{}\[\]"]++|' + _TEXT + rb"|\{\}|\[\]"
_BRACKETS: Final = re.compile(
    rb"(?:" + _FLAT + rb"|\{(?:" + _FLAT + rb")*+\})*+"  # flat text, or one level deep
    rb'(?:((?:[{\[](?:"[^"\\{}\[\]]*+":)?+)++)|([}\]]++)|.|\Z)',  # a run of opening brackets, or of closing ones
    re.DOTALL,
)
_PAIR: Final = re.compile(rb'[\s,]*("\w+")\s*:\s*(' + _TEXT + rb"|[-+.\w]+)", re.DOTALL)


class ScanError(ValueError):
    """The text is not JSON, or was cut off."""


@attrs.frozen
class Member:
    """
    A member of an object, or an element of an array.

    Attributes:
        name: as it is in the text, with its quotes; empty in an array.
        start, end: where the value is.
        members: of the value, if they were requested.
    """

    name: bytes
    start: int
    end: int
    members: Sequence["Member"] = ()


def finish(steps: Steps[T]) -> T:
    """Return the result without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def finish_with_pauses(steps: Steps[T]) -> T:
    """Return the result; other tasks run in between."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await checkpoint()


def members(text: bytes, *within: bytes) -> Steps[Sequence[Member]]:
    """
    Return the members of an object, and the members of those that have one of the names `within`.

    Raises:
        ScanError: the text is no object or array, has no end, or goes on after it.
    """
    found = yield from _container(text, _skip(text, 0), b"", within)
    if _skip(text, found.end) < len(text):
        raise ScanError(f"something follows the end at byte {found.end}")
    return found.members


def list_items(text: bytes) -> Steps[tuple[Sequence[bytes] | None, str]]:
    """
    Return the texts of a list's items, None if it has no array of that name, and the list's kind, empty if it has none.

    Raises:
        ScanError: as `members`.
    """
    parts = {member.name: member for member in (yield from members(text, b'"items"'))}
    kind, found = parts.get(b'"kind"'), parts.get(b'"items"')
    named = "" if kind is None else text[kind.start : kind.end].strip(b'"').decode(errors="replace")
    if found is None or text[found.start : found.start + 1] != b"[":
        return None, named
    return [text[item.start : item.end] for item in found.members], named


def without(text: bytes, outer: bytes, inner: bytes) -> Steps[bytes]:
    """
    Return the text of an object with null in place of each `outer.inner`.

    Raises:
        ScanError: the text is no object.
    """
    parts, position = [], 0
    for member in (yield from members(text, outer)):
        for dropped in member.members:
            if dropped.name == inner:
                parts.append(text[position : dropped.start])
                position = dropped.end
    return b"null".join((*parts, text[position:]))


def strings(text: bytes, *within: bytes) -> Steps[dict[bytes, str]]:
    """
    Return the strings in some members of an object, by name; if the text is cut off, those before the cut.

    The first of several members of one name counts. Strings that cannot be read are left out; bytes that are not UTF-8
    are replaced, as in Go.
    """
    texts: dict[bytes, bytes] = {}
    try:
        for member in (yield from members(text, *within)):
            texts = {inner.name: text[inner.start : inner.end] for inner in member.members} | texts
    except ScanError:
        for name in within:
            texts = _first_pairs(text, text.find(name)) | texts
    decoded = {name: _string(value) for name, value in texts.items() if value.startswith(b'"')}
    return {name: value for name, value in decoded.items() if value is not None}


def _first_pairs(text: bytes, start: int) -> dict[bytes, bytes]:
    """Return the members before the first container in the object that begins after `start`."""
    pairs: dict[bytes, bytes] = {}
    position = text.find(b"{", start) + 1 if start >= 0 else 0
    while position and (pair := _PAIR.match(text, position)):
        pairs[pair[1]] = pair[2]
        position = pair.end()
    return pairs


def _string(value: bytes) -> str | None:
    try:
        return msgspec.json.decode(value.decode(errors="replace"), type=str)
    except msgspec.MsgspecError:
        return None


def _container(text: bytes, start: int, name: bytes, within: Collection[bytes]) -> Steps[Member]:
    opening = text[start : start + 1]
    if opening not in (b"{", b"["):
        raise ScanError(f"neither an object nor an array at byte {start}")
    parts: list[Member] = []
    position = _skip(text, start + 1)
    while text[position : position + 1] not in (b"}", b"]"):
        if parts:
            position = _after(text, position, b",")
        inner = b""
        if opening == b"{":
            inner = _matched(_STRING, text, position)
            position = _after(text, _skip(text, position + len(inner)), b":")
        if inner in within and text[position : position + 1] in (b"{", b"["):
            parts.append((yield from _container(text, position, inner, ())))
        else:
            parts.append(Member(inner, position, (yield from _end(text, position))))
        if len(parts) % TOKENS == 0 or parts[-1].end - position > LONG:
            yield
        position = _skip(text, parts[-1].end)
    return Member(name, start, position + 1, parts)


def _end(text: bytes, start: int) -> Steps[int]:
    """Return where the value that begins at `start` ends."""
    if text[start : start + 1] not in (b"{", b"["):
        return start + len(_matched(_STRING if text[start : start + 1] == b'"' else _SCALAR, text, start))
    depth = 1
    for number, token in enumerate(_BRACKETS.finditer(text, start + 1), start=1):
        opened, closed = token.groups()
        if opened:
            depth += opened.count(b"{") + opened.count(b"[")
        elif closed:
            if len(closed) >= depth:
                return token.start(2) + depth
            depth -= len(closed)
        else:
            break
        if number % TOKENS == 0:
            yield
    raise ScanError(f"the value at byte {start} has no end")


def _skip(text: bytes, position: int) -> int:
    blank = _BLANK.match(text, position)
    return position if blank is None else blank.end()


def _after(text: bytes, position: int, mark: bytes) -> int:
    if text[position : position + 1] != mark:
        raise ScanError(f"no {mark.decode()} at byte {position}")
    return _skip(text, position + 1)


def _matched(pattern: re.Pattern[bytes], text: bytes, position: int) -> bytes:
    match = pattern.match(text, position)
    if match is None:
        raise ScanError(f"no value at byte {position}")
    return match[0]

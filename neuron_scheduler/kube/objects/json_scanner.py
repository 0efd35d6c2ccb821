"""
JSON text that is correct, and that the decoder refuses all the same.

Users write `managedFields`, those of a pod template as they like, and the API server sends them as they are. msgspec
gives up about a thousand levels deep, also where it only skips (Python 3.13: ten thousand); the API server allows ten
thousand. And it refuses halves of surrogate pairs, which Go accepts. Nothing that we read is deeper than twenty levels
or has such a half. So what the decoder refuses is made shallow by one count of its brackets, and the halves are
replaced, in steps: megabytes must not block the event loop.
"""

import mmap
import re
from collections.abc import Generator
from typing import Final, TypeVar

import msgspec
from anyio.lowlevel import checkpoint

T = TypeVar("T")
Steps = Generator[None, None, T]

MOST_LEVELS: Final = 100
TOKENS: Final = 10_000  # between two pauses: about 3 ms
PARTS: Final = 10  # the same, of up to 4,096 escapes each

_FLAT: Final = rb'[^{}\[\]"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\{\}|\[\]'
_BRACKETS: Final = re.compile(
    rb"(?:" + _FLAT + rb"|\{(?:" + _FLAT + rb")*+\})*+"  # flat text, or one level deep
    rb'(?:((?:[{\[](?:"[^"\\{}\[\]]*+":)?+)++)|([}\]]++)|.|\Z)',  # a run of opening brackets, or of closing ones
    re.DOTALL,
)
_OPENING: Final = re.compile(rb"[{\[]")
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_PAIR: Final = rb"\\u[dD][89abAB]..\\u[dD][c-fC-F].."
_HALVES: Final = re.compile(
    rb"((?:[^\\]++|\\(?!u[dD][89a-fA-F]).|" + _PAIR + rb"){1,4096}+)|\\u[dD][89a-fA-F]..",
    re.DOTALL,
)


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


async def decoded(text: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """
    Return what a decoder reads, however deep the text is; other tasks run while an odd one is read.

    Raises:
        ValueError: it is no JSON, or not what the decoder reads (`msgspec.ValidationError`).
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except (RecursionError, msgspec.DecodeError):
        return decoder.decode(await finish_with_pauses(readable(text)))


def decoded_at_once(text: bytes | msgspec.Raw | mmap.mmap, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return what `decoded` returns, without a pause; the errors are the same."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except (RecursionError, msgspec.DecodeError):
        return decoder.decode(finish(readable(bytes(text))))


def readable(text: bytes) -> Steps[bytes]:
    """Return the text with null in place of what is too deep, and U+FFFD in place of what is half a character."""
    text = yield from shallow(text)
    if _HALF.search(text) is None:
        return text
    parts = []
    for number, token in enumerate(_HALVES.finditer(text), start=1):
        parts.append(token[1] or b"\\ufffd")
        if number % PARTS == 0:
            yield
    return b"".join(parts)


def shallow(text: bytes, most: int = MOST_LEVELS) -> Steps[bytes]:
    """Return the text with null in place of each object or array that is inside `most` others."""
    parts, position, depth = [], 0, 0
    for number, token in enumerate(_BRACKETS.finditer(text), start=1):
        opened, closed = token.groups()
        if opened:
            deeper = depth + opened.count(b"{") + opened.count(b"[")
            if depth <= most < deeper:
                starts = [opening.start() for opening in _OPENING.finditer(opened)]
                parts.append(text[position : token.start(1) + starts[most - depth]])
            depth = deeper
        elif closed:
            if depth > most >= depth - len(closed):
                position = token.start(2) + depth - most
            depth -= len(closed)
        if number % TOKENS == 0:
            yield
    return b"null".join((*parts, text[position:]))

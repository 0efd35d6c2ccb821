"""
Correct JSON text that the decoder refuses.

The API server sends `managedFields` as users write them, up to ten thousand levels deep. The decoder gives up at a
thousand, even where it skips, and refuses the halves of surrogate pairs that Go accepts. Nothing that we read is deeper
than twenty levels. So refused text is made shallow by one count of its brackets, and half characters are replaced. This
is done in steps, because megabytes must not block the event loop.
"""

import mmap
import re
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from anyio.lowlevel import checkpoint

T = TypeVar("T")

MOST_LEVELS: Final = 100
TOKENS: Final = 10_000  # between two pauses: about 3 ms

_FLAT: Final = rb'[^{}\[\]"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\{\}|\[\]'
_BRACKETS: Final = re.compile(
    rb"(?:" + _FLAT + rb"|\{(?:" + _FLAT + rb")*+\})*+"  # flat text, or one level deep
    rb'(?:((?:[{\[](?:"[^"\\{}\[\]]*+":)?+)++)|([}\]]++)|.|\Z)',  # a run of opening brackets, or of closing ones
    re.DOTALL,
)
_OPENING: Final = re.compile(rb"[{\[]")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]..")


async def decode_in_steps(text: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
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
        parts = []
        for part in shallow(text):
            parts.append(part)
            if not part:
                await checkpoint()
        return decoder.decode(_whole_characters(b"".join(parts)))


def decode_at_once(text: bytes | msgspec.Raw | mmap.mmap, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return what `decode_in_steps` returns, without a pause; the errors are the same."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except (RecursionError, msgspec.DecodeError):
        return decoder.decode(_whole_characters(b"".join(shallow(bytes(text)))))


def shallow(text: bytes, most: int = MOST_LEVELS) -> Iterator[bytes]:
    """Yield a text in parts, with null in place of what is inside `most` others; an empty part where it may pause."""
    position, depth = 0, 0
    for number, token in enumerate(_BRACKETS.finditer(text), start=1):
        opened, closed = token.groups()
        if opened:
            deeper = depth + opened.count(b"{") + opened.count(b"[")
            if depth <= most < deeper:
                starts = [opening.start() for opening in _OPENING.finditer(opened)]
                yield text[position : token.start(1) + starts[most - depth]] + b"null"
            depth = deeper
        elif closed:
            if depth > most >= depth - len(closed):
                position = token.start(2) + depth - most
            depth -= len(closed)
        if number % TOKENS == 0:
            yield b""
    yield text[position:]


def _whole_characters(text: bytes) -> bytes:
    """Return a text with U+FFFD in place of each escaped surrogate; an escaped backslash begins no escape."""
    return _SURROGATE.sub(rb"\\ufffd", text.replace(rb"\\", rb"\u005c"))

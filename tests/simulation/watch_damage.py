"""
What becomes of the lines of a watch on their way, beside what the network does to bytes.

Each kind can be seen by a client, or does no harm; the table says why. What nobody can see is left out: a line that is
lost with its line break, and a value that is another valid one. Refuses to choose when a kind strikes.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
from aiohttp import web

from neuron_scheduler.sandbox.apiserver.status import StatusError
from neuron_scheduler.sandbox.apiserver.watch import error_event
from tests.simulation.clock import CLOCK
from tests.simulation.fault_windows import FaultWindows

CUT: Final = "line cut"
GARBLED: Final = "line garbled"
GLUED: Final = "lines glued"
REPEATED: Final = "line repeated"
ENDLESS: Final = "line endless"
PAGE: Final = "page in a watch"
ERROR: Final = "error in a watch"
VERSION: Final = "line with a wrong version"
IDENTITY: Final = "line without a name"
LINES: Final[Mapping[str, str]] = {
    CUT: "the end of a line is lost, and the next one follows on it: what that gives is no JSON",
    GARBLED: "bytes that no JSON has, or that are no UTF-8: no API server sends them",
    GLUED: "a line break is lost: no API server sends two objects in one line",
    REPEATED: "a line comes twice: the second says nothing new",
    ENDLESS: "bytes come, and never a line break: a client has to give up by its own clock",
    PAGE: "lines of HTML between two events: they are no JSON",
    ERROR: "an ERROR object, and the events go on: the server has said that the watch has failed",
    VERSION: "no number, or versions do not grow: seen at once, at the next event, or at the next watch",
    IDENTITY: "an object without a name or uid, or an event of an unknown type: no API server sends them",
}
"""Kinds that strike a line of a watch."""

ZERO: Final = b"\x00"
"""No JSON has such a byte, not even in a string, so a client can see it."""
GARBAGE: Final = b"\xff\x00{{]garb"
NO_TEXT: Final = b"\xff"
"""No UTF-8 has such a byte, but a decoder may overlook it where it skips."""
HTML: Final = b"<html>\n<head><title>502</title></head>\n\n<body>proxy</body></html>\n"
FAILED: Final = StatusError(500, "InternalError", "Internal error occurred: etcdserver: leader changed")
CLIENT_GONE: Final = 90.0
"""Seconds within which every client has given up a line without an end."""

_FIELD: Final = re.compile(rb'"(?:name|uid|resourceVersion|metadata|annotations|nodeName|deletionTimestamp)":')
"""The fields whose loss would mean the most."""
_VERSION: Final = re.compile(rb'("resourceVersion":")(\d+)"')
_TYPE: Final = re.compile(rb'\A\{"type":"(\w+)"')
_IDENTITIES: Final = (re.compile(rb'("type":")\w+"'), re.compile(rb'("name":")[^"]+"'), re.compile(rb'("uid":")[^"]+"'))

Send = Callable[[bytes], Awaitable[None]]


def damage(request: web.Request, windows: FaultWindows, *places: str) -> None:
    """Let the lines of a watch be struck; aiohttp writes each of them with one call."""
    writer: Any = request._payload_writer
    writer.write = partial(_write, writer.write, windows, (*places, request.path.rpartition("/")[2]))


async def _write(send: Send, windows: FaultWindows, places: tuple[str, ...], line: bytes) -> None:
    found = _TYPE.match(line)
    event_type = found[1].decode() if found else ""
    kind = next((kind for kind in LINES if windows.strikes(kind, *places, event_type)), "")
    if kind == ENDLESS:
        await _without_end(send, line)
    await send(damaged(kind, line, Random(f"{CLOCK.now}/{kind}")))


async def _without_end(send: Send, line: bytes) -> None:
    await send(line[: len(line) // 2])
    for _ in range(int(CLIENT_GONE)):
        await send(b"x" * 100)
        await asyncio.sleep(1)


def damaged(kind: str, line: bytes, dice: Random) -> bytes:
    """Return what arrives in place of a line; the line itself if the kind does nothing to it."""
    return _DAMAGED[kind](line, dice) if kind in _DAMAGED else line


def _garbled(line: bytes, dice: Random) -> bytes:
    """Return a line that is damaged in one place: half of the time in the name of a field."""
    names = [found.start() for found in _FIELD.finditer(line)]
    if names and dice.random() < 0.5:
        at, bad = dice.choice(names) + 2, dice.choice((ZERO, NO_TEXT))
    else:
        at, bad = dice.randrange(len(line)), dice.choice((ZERO, GARBAGE, NO_TEXT))
    return line[:at] + bad + line[at + len(bad) :]


def _failed(line: bytes, _dice: Random) -> bytes:
    event = error_event(FAILED)
    return msgspec.json.encode({"type": event.type, "object": event.object}) + b"\n" + line


def _with_a_wrong_version(line: bytes, dice: Random) -> bytes:
    """Return a line with an earlier version, with a later one, with no number, or with none."""
    found = _VERSION.search(line)
    if found is None:
        return line
    earlier = str(max(1, int(found[2]) - dice.randrange(1, 100))).encode()
    version = dice.choice((earlier, found[2] + b"7", found[2] + b"x", b""))
    return line[: found.start(2)] + version + line[found.end(2) :]


_DAMAGED: Final[Mapping[str, Callable[[bytes, Random], bytes]]] = {
    CUT: lambda line, dice: line[: dice.randrange(1, len(line) - 1)],
    GARBLED: _garbled,
    GLUED: lambda line, _dice: line[:-1],
    REPEATED: lambda line, _dice: line * 2,
    PAGE: lambda line, _dice: HTML + line,
    ERROR: _failed,
    VERSION: _with_a_wrong_version,
    IDENTITY: lambda line, dice: dice.choice(_IDENTITIES).sub(rb'\1"', line, count=1),
}

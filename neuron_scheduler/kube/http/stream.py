"""
The body of an answer as it arrives: line by line for a watch, up to a limit for a list.

Keeps at most one line or body of the allowed size; of a longer one only the beginning, which contains the name. An
object in etcd has at most about 1.5 MiB, of which JSON's escapes (six bytes for `<`) may make six times as much.
"""

from collections import deque
from typing import Final

import aiohttp
import attrs

from neuron_scheduler.errors import OversizedLineError
from neuron_scheduler.kube.http.pools import translated

LONGEST: Final = 32 << 20
BEGINNING: Final = 64 << 10


@attrs.define(eq=False)
class Stream:
    """A streamed answer: either its lines are read, or all of it."""

    _content: aiohttp.StreamReader
    _target: str
    _longest: int = LONGEST
    _lines: deque[bytes] = attrs.field(factory=deque, init=False)
    _parts: list[bytes] = attrs.field(factory=list, init=False)
    _length: int = attrs.field(default=0, init=False)

    async def next(self) -> bytes:
        """
        Return the next line with its newline; a last line without one was cut off; empty at the end.

        Raises:
            ApiTimeoutError: nothing came within the read timeout.
            OversizedLineError: the line is too long; it has been skipped, and the following line is next.
            UnreachableError: the connection broke.
        """
        while not self._lines:
            chunk = await self._read()
            if not chunk:
                return self._joined()
            first, *rest = chunk.split(b"\n")
            self._keep(first, self._longest)
            if rest:
                length, line = self._length, self._joined()
                self._lines.extend(complete + b"\n" for complete in rest[:-1])
                self._keep(rest[-1], self._longest)
                if length > self._longest:
                    raise OversizedLineError(f"{self._target} sent a line of {length} bytes", line)
                return line + b"\n"
        return self._lines.popleft()

    async def whole(self, most: int) -> bytes:
        """
        Return the body.

        Raises:
            OversizedLineError: it is longer than `most` bytes; the rest of it is not read.
            ApiTimeoutError, UnreachableError: as `next`.
        """
        while chunk := await self._read():
            self._keep(chunk, most)
            if self._length > most:
                raise OversizedLineError(f"the answer to {self._target} has more than {most} bytes", self._joined())
        return self._joined()

    def _keep(self, part: bytes, most: int) -> None:
        """Keep a part of the current line; once that is longer than `most`, only its beginning."""
        before, self._length = self._length, self._length + len(part)
        if self._length <= most:
            self._parts.append(part)
        elif before <= most:
            self._parts = [b"".join((*self._parts, part))[:BEGINNING]]

    def _joined(self) -> bytes:
        joined, self._parts, self._length = b"".join(self._parts), [], 0
        return joined

    async def _read(self) -> bytes:
        with translated(self._target):
            return await self._content.readany()

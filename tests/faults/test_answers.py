"""What a client gets to see of a watch that the API server itself ends before the fault has begun."""

from collections.abc import AsyncIterator

import pytest

from tests.faults.answers import Stream, after_lines, cut_in_line

LINES = (b"first\n", b"second\n", b"third\n")


async def pieces(stream: Stream, *lines: bytes) -> list[bytes]:
    """Return what the client gets of a watch of these lines."""

    async def watch() -> AsyncIterator[bytes]:
        for line in lines:
            yield line

    return [piece async for piece in stream.change(watch())]


@pytest.mark.parametrize("there", [0, 1, 2, 3])
async def test_after_as_many_lines_as_there_are(there: int) -> None:
    """Of three lines two are passed on; a shorter watch has the bytes at its end."""
    assert await pieces(after_lines(2, b"more"), *LINES[:there]) == [*LINES[: min(there, 2)], b"more"]


@pytest.mark.parametrize(
    ("there", "seen"), [(0, []), (1, [LINES[0]]), (2, [LINES[0], b"sec"]), (3, [LINES[0], b"sec"])]
)
async def test_cut_in_a_line_that_may_not_be_there(there: int, seen: list[bytes]) -> None:
    """A watch that has no such line is passed on as it is."""
    assert await pieces(cut_in_line(2), *LINES[:there]) == seen

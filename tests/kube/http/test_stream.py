"""Lines and bodies of any length, over a real socket."""

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.errors import OversizedLineError
from neuron_scheduler.kube.http.stream import BEGINNING, Stream
from tests.support.patience import PATIENCE
from tests.support.scripted_server import scripted, watching


class Chunks:
    """Content that comes in given pieces."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = [chunk for chunk in chunks if chunk]

    async def readany(self) -> bytes:
        """Return the next piece."""
        return self.chunks.pop(0) if self.chunks else b""


async def lines_of(stream: Stream) -> list[bytes | None]:
    """Return all lines; None for one that is too long."""
    lines: list[bytes | None] = []
    while True:
        try:
            line = await stream.next()
        except OversizedLineError:
            lines.append(None)
            continue
        if not line:
            return lines
        lines.append(line)


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"a\nb", b"\n\n"])))
async def test_lines_do_not_depend_on_the_pieces(chunks: list[bytes]) -> None:
    """The lines do not depend on the pieces; a line that is too long is skipped, and the next one is read."""
    *complete, last = b"".join(chunks).split(b"\n")
    want = [line + b"\n" if len(line) <= 20 else None for line in complete]
    lines = await lines_of(Stream(Chunks(chunks), "x", 20))  # type: ignore[arg-type]  # all that is asked of it

    assert lines[: len(want)] == want
    assert last.startswith(b"".join(line or b"" for line in lines[len(want) :]))


async def test_a_line_of_twelve_mebibytes_is_read() -> None:
    """An object of 1.5 MiB has 9 MiB if each byte is escaped."""
    line = b"x" * (12 << 20) + b"\n"
    async with (
        scripted(watching(line, b"next\n")) as (_, client),
        client.stream("/x", params={}, read_timeout=PATIENCE) as stream,
    ):
        assert line == await stream.next()
        assert await stream.next() == b"next\n"
        assert await stream.next() == b""


async def test_of_a_longer_line_the_beginning_is_kept() -> None:
    """The beginning, with the name, is kept; the next line is read."""
    async with (
        scripted(watching(b"name" + b"x" * (40 << 20) + b"\n", b"next\n")) as (_, client),
        client.stream("/x", params={}, read_timeout=PATIENCE) as stream,
    ):
        with pytest.raises(OversizedLineError) as raised:
            await stream.next()
        assert (raised.value.beginning[:5], len(raised.value.beginning)) == (b"namex", BEGINNING)
        assert await stream.next() == b"next\n"


async def test_a_body_is_read_up_to_a_bound() -> None:
    """A page that is too large is not read to its end."""
    async with scripted(watching(b"x" * 1000), watching(b"x" * 1001)) as (_, client):
        async with client.stream("/x", params={}, read_timeout=PATIENCE) as stream:
            assert await stream.whole(1000) == b"x" * 1000
        async with client.stream("/x", params={}, read_timeout=PATIENCE) as stream:
            with pytest.raises(OversizedLineError, match="more than 1000 bytes"):
                await stream.whole(1000)

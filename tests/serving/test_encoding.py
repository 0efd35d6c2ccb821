"""Answers are valid JSON however they are cut, and are not sent to a client that has them."""

import gzip as compression
import json
from collections.abc import Iterator

import attrs
import pytest

from neuron_scheduler.explain.answers import to_json
from neuron_scheduler.serving import encoding
from neuron_scheduler.serving.encoding import accepts_gzip, answered, has_it, packed, pieces_of, tag, unchanged
from tests.support.web_requests import body_of, request


@attrs.frozen
class Line:
    """An item of an answer."""

    some_text: str


@attrs.frozen
class Lines:
    """An answer."""

    all_lines: tuple[Line, ...]
    total: int
    numbers: tuple[int, ...] = (1, 2)
    none: tuple[Line, ...] = ()
    word: str = "w"


def text(count: int, *, gzip: bool) -> tuple[bytes, int]:
    """Return an answer with so many lines, and the number of pauses."""
    answers = list[tuple[bytes, ...]]()

    def steps() -> Iterator[None]:
        answers.append((yield from packed(pieces_of(Lines((Line("x" * 1000),) * count, count)), gzip=gzip)))

    pauses = sum(1 for _ in steps())
    return b"".join(answers[0]), pauses


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_in_steps(count: int) -> None:
    """The pieces together are the answer, compressed or not, and long ones are made in steps."""
    plain, pauses = text(count, gzip=False)
    lines = [{"someText": "x" * 1000}] * count
    assert json.loads(plain) == {"allLines": lines, "total": count, "numbers": [1, 2], "none": [], "word": "w"}
    assert json.loads(plain) == to_json(Lines((Line("x" * 1000),) * count, count))
    assert pauses >= count // encoding.PIECES_A_STEP
    small, _ = text(count, gzip=True)
    assert compression.decompress(small) == plain


@pytest.mark.parametrize(
    ("accepted", "want"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP, br", True),
        ("gzip;q=0", False),
        ("gzip; q=0.5", True),
        ("x-gzip", False),
        ("identity", False),
    ],
)
def test_who_takes_compressed_answers(accepted: str, *, want: bool) -> None:
    """By the header Accept-Encoding; where in doubt, not."""
    assert accepts_gzip(request("/", {"Accept-Encoding": accepted})) is want


async def test_what_the_client_has() -> None:
    """The ETag differs if any part does, and a client may name several."""
    etag = tag(1, ("a",))
    assert etag not in (tag(1, ("b",)), tag(2, ("a",)))
    assert tag(1, ("a",)) == etag
    for known, want in ((etag, True), (f'"x", {etag}', True), ("", False), ('"x"', False)):
        assert has_it(request("/", {"If-None-Match": known}), etag) is want
    assert (unchanged(etag).status, unchanged(etag).headers["ETag"]) == (304, etag)
    reply = answered((b"{}",), etag=etag, gzip=True)
    assert reply.headers["Content-Encoding"] == "gzip"
    assert await body_of(reply) == b"{}"

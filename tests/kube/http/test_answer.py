"""An answer is read to its last byte or refused."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.kube.http.answer import MOST_HEAD, MOST_INTERIM
from neuron_scheduler.kube.http.pools import MOST_BYTES, TooLongError
from tests.support.http_answers import OK, read_answer

ANSWERS: dict[str, tuple[bytes, int, bytes, bool]] = {
    "with a length": (OK, 200, b"hi", True),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "without a reason phrase": (b"HTTP/1.1 201\r\nContent-Length: 0\r\n\r\n", 201, b"", True),
    "in chunks": (
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
        201,
        b"abc0123456789",
        True,
    ),
    "the last on its connection": (
        b"HTTP/1.1 409 Conflict\r\nConnection: Close\r\nContent-Length: 1\r\n\r\n!",
        409,
        b"!",
        False,
    ),
    "of HTTP/1.0": (b"HTTP/1.0 502 Bad Gateway\r\nContent-Length: 1\r\n\r\n!", 502, b"!", False),
    "the last on its connection, in other words": (
        b"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: a, CLOSE\r\nConnection: y\r\nContent-Length: 0\r\n\r\n",
        200,
        b"",
        False,
    ),
    "after an interim one": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, 200, b"hi", True),
    "after as many interim ones as may be": (b"HTTP/1.1 100 Continue\r\n\r\n" * MOST_INTERIM + OK, 200, b"hi", True),
    "with many headers": (OK.replace(b"Content", b"a:\r\n" * 16_000 + b"Content"), 200, b"hi", True),
}


@pytest.mark.parametrize("sentence", ANSWERS)
def test_answers(sentence: str) -> None:
    """All ways to mark the end of an answer are supported, and a part of an answer is not taken for a whole one."""
    data, *want = ANSWERS[sentence]
    answer = read_answer(data)

    assert answer is not None
    assert [answer.status, answer.body, answer.reusable] == want
    assert read_answer(*(data[i : i + 1] for i in range(len(data)))) == answer
    assert read_answer(*(data[i : i + 1] for i in range(len(data) - 1))) is None


def test_headers_are_found_by_their_name_in_lower_case() -> None:
    """Headers are read by lower-case name, such as `retry-after`."""
    answer = read_answer(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After:  7 \r\nContent-Length: 0\r\n\r\n")

    assert answer is not None
    assert answer.headers == {"retry-after": "7", "content-length": "0"}


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2 200\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 2\xb200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nwithout a length",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"x" * 2_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: trailer\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n Content-Length: 2\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + OK,
        b"HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\n" + OK,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1_200 + OK,
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
        OK.replace(b"Content", b"a:\r\n" * 17_000 + b"Content"),
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    """An invalid answer is refused as a whole, at once."""
    with pytest.raises(ValueError, match=r"."):
        read_answer(data)
    with pytest.raises(ValueError, match=r"."):
        read_answer(*(data[i : i + 7] for i in range(0, len(data), 7)))


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MOST_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b"x" * (1 << 20) + b"\r\n") * 16,
    ],
)
def test_what_is_too_long(data: bytes) -> None:
    """A body that is too long is refused as soon as its length is known."""
    with pytest.raises(TooLongError):
        read_answer(data)


def test_an_answer_may_be_as_long_as_it_may_be() -> None:
    """The limit is for the body, not for the headers."""
    assert read_answer(OK, most_bytes=2) is not None
    with pytest.raises(TooLongError, match="2 bytes or more, of at most 1"):
        read_answer(OK, most_bytes=1)


@pytest.mark.timeout(30)  # a reader that looks at all of it for every piece takes an hour
@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (MOST_HEAD - 100) + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n" + b"x" * (4 << 20),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 500_000 + b"0\r\n\r\n",
    ],
    ids=["headers", "a body", "chunks"],
)
def test_an_answer_may_come_byte_by_byte(data: bytes) -> None:
    """The time is linear in the number of bytes."""
    assert read_answer(*(data[i : i + 1] for i in range(len(data)))) is not None


@given(st.binary())
def test_noise_is_never_an_answer(noise: bytes) -> None:
    """Random bytes are refused, or more are awaited."""
    with suppress(ValueError):
        assert read_answer(noise) is None

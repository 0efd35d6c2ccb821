"""Our reader of HTTP/1.1 is compared with h11's: h11 accepts each answer that we accept, with the same content."""

from collections.abc import Callable
from typing import Final

import attrs
import h11
from hypothesis import given, settings, strategies as st

from tests.support.http_answers import read_answer
from tests.support.thoroughness import examples

EXAMPLES: Final = examples(400)
STATUSES: Final = (200, 201, 204, 304, 400, 401, 404, 409, 422, 429, 500, 503)
NOISE: Final = (
    b"\r\n",
    b"\r",
    b"\n",
    b"\0",
    b" ",
    b":",
    b",",
    b"0\r\n\r\n",
    b"\r\nConnection: close",
    b"\r\nConnection: keep-alive, Close",
    b"\r\nContent-Length: 1",
    b"\r\nTransfer-Encoding: chunked",
    b"\r\n folded: 1",
    b"HTTP/1.0",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b";a=b",
    b"\xc2\xb2",
)


@attrs.frozen
class Read:
    """The result of a reader."""

    status: int
    body: bytes
    reusable: bool


def ours(*pieces: bytes) -> Read | None:
    """Read with `kube.http.answer`; None for no answer, or none yet. Anything raised but ValueError is a fault."""
    try:
        answer = read_answer(*pieces)
    except ValueError:
        return None
    return None if answer is None else Read(answer.status, answer.body, answer.reusable)


def theirs(data: bytes) -> Read | None:
    """Read with h11, after a POST; None for no answer, or none yet."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        connection.receive_data(data)
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                left_over = bool(connection.trailing_data[0])
                return Read(status, body, connection.their_state is h11.DONE and not left_over)
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError:
        return None


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """An answer that h11 has written, as a server."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    while server.next_event() is not h11.NEED_DATA and server.their_state is not h11.DONE:
        pass
    parts: list[bytes | None] = [
        server.send(h11.InformationalResponse(status_code=status, headers=[("Link", "x")]))
        for status in draw(st.lists(st.sampled_from([100, 102, 103]), max_size=3))
    ]
    pieces = draw(st.lists(st.binary(max_size=40), max_size=4))
    headers = [("X-Kubernetes-Pf-Flowschema-Uid", "a-b"), ("Retry-After", "1")][: draw(st.integers(0, 2))]
    status = draw(st.sampled_from(STATUSES))
    if draw(st.booleans()) and status not in (204, 304):
        headers.append(("Content-Length", str(sum(map(len, pieces)))))
    if draw(st.booleans()):
        headers.append(("Connection", "close"))
    parts.append(server.send(h11.Response(status_code=status, headers=headers, reason=b"Reason")))
    if status not in (204, 304):
        parts += [server.send(h11.Data(data=piece)) for piece in pieces]
    parts.append(server.send(h11.EndOfMessage()))
    return b"".join(filter(None, parts))


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes in pieces, as a network may deliver them."""
    places = sorted(draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An answer that was changed: bytes are inserted, removed, repeated or replaced."""
    data = draw(written())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 12)))
        change: Callable[[bytes], bytes] = draw(st.sampled_from(_CHANGES))
        put_in = draw(st.sampled_from(NOISE) | st.binary(max_size=3))
        data = data[:start] + change(data[start:end]) + put_in * draw(st.integers(0, 1)) + data[end:]
    return data


_CHANGES: Final[tuple[Callable[[bytes], bytes], ...]] = (
    lambda _: b"",
    lambda part: part,
    lambda part: part * 2,
    bytes.swapcase,
    lambda part: part[::-1],
)


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_what_a_server_writes_is_read(data: st.DataObject) -> None:
    """Status, body and reuse of the connection are those of h11, for all pieces."""
    answer = data.draw(written())
    read = ours(*data.draw(cut(answer)))

    assert read is not None
    assert read == theirs(answer)


@settings(max_examples=3 * EXAMPLES)
@given(st.data())
def test_what_is_damaged_is_refused_or_read_alike(data: st.DataObject) -> None:
    """We may refuse or wait where h11 does not, but never read another answer, for all pieces."""
    answer = data.draw(damaged())
    read = ours(answer)

    assert read in (None, theirs(answer))
    for pieces in (data.draw(cut(answer)), [answer[i : i + 1] for i in range(len(answer))]):
        again = ours(*pieces)  # whether anything is left over is known later
        assert (again and attrs.evolve(again, reusable=False)) == (read and attrs.evolve(read, reusable=False))

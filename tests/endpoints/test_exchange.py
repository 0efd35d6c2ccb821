"""Requests are read in full or refused, and answers are valid HTTP/1.1."""

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.endpoints.exchange import Reply, Request, Unconnected, read_request, text


def test_a_request() -> None:
    """Path and query are separated; of a repeated header the first counts."""
    request = read_request(b"GET /livez?verbose HTTP/1.1\r\nHost: a\r\nACCEPT:\t text \r\naccept: other\r\nx:\r\n\r\n")
    assert request == Request("GET", "/livez", "verbose", {"host": "a", "accept": "text", "x": ""})
    assert request.asks_for("verbose")
    assert not request.asks_for("verb")
    assert read_request(b"HEAD / HTTP/1.0\r\n\r\n") == Request("HEAD", "/")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"get / HTTP/1.1\r\n\r\n",
        b"GET http://a/metrics HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\n\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\na : b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
    ids=repr,
)
def test_no_request(head: bytes) -> None:
    """A request with any invalid byte is refused."""
    assert read_request(head) is None


@given(st.binary() | st.text("GET /HTP1.:\r\nabc", max_size=80).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """No bytes raise an error."""
    request = read_request(data + b"\r\n\r\n")
    assert request is None or request.path.startswith("/")


def test_a_reply() -> None:
    """The length is that of the body, with or without it, and the connection ends."""
    reply = Reply(200, "ü".encode(), fields={"Allow": "GET"})
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n"
        b"X-Content-Type-Options: nosniff\r\nAllow: GET\r\nConnection: close\r\n\r\n"
    )
    assert reply.encode() == head + "ü".encode()
    assert reply.encode(with_body=False) == head
    assert text(405, "no", {"Allow": "GET"}) == Reply(405, b"no", fields={"Allow": "GET"})


@pytest.mark.parametrize(
    ("peer", "encrypted", "want"),
    [
        ("127.0.0.1", False, True),
        ("127.8.8.8", False, True),
        ("::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("::ffff:10.0.0.1", False, False),
        ("10.0.0.1", False, False),
        ("10.0.0.1", True, True),
        ("", False, False),
        ("fe80::1%eth0", False, False),
    ],
)
def test_what_nobody_else_reads(peer: str, encrypted: bool, want: bool) -> None:
    """Tokens may come over TLS, or from this host."""
    assert Request("GET", "/", connection=Unconnected(peer, encrypted)).confidential is want

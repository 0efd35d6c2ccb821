"""
The faults that one request can meet, by name: every answer before and after the API server has acted.

`before` means that the API server never got the request; `after` that it has acted, and the answer is not the true one.
A Status before the request has arrived stands for a server that refuses it; after it, for a load balancer that sends a
request again to another server and returns that one's answer.
"""

import gzip
import os
from collections.abc import Iterator, Mapping
from typing import Final

from tests.faults.answers import CUT, SILENCE, UNCHANGED, Answer, End, Page, Refusal, Spoilt
from tests.faults.proxy import Behaviour, Late, instead

NOISE: Final = bytes(range(256)) * 4

STATUSES: Final[Mapping[str, Refusal]] = {
    "401": Refusal(401),
    "403": Refusal(403),
    "404": Refusal(404, "the server could not find the requested resource"),
    "409": Refusal(409),
    "410": Refusal(410),
    "422": Refusal(422),
    "429": Refusal(429),
    "429-retry-after": Refusal(429, seconds=1),
    "500": Refusal(500),
    "503": Refusal(503),
    "504": Refusal(504),
}
PAGES: Final[Mapping[str, Page]] = {
    f"page-{status}": Page(status) for status in (200, 201, 400, 401, 403, 404, 409, 502, 503)
}
CONNECTIONS: Final[Mapping[str, Answer]] = {"cut": CUT, "silence": SILENCE}


def _head_of(raw: bytes) -> int:
    return raw.index(b"\r\n\r\n") + 4


# Bytes of a true answer, as far as they come, or something in their place.
SPOILT: Final[Mapping[str, Spoilt]] = {
    "truncated-in-the-status-line": Spoilt(lambda raw: raw[:11]),
    "truncated-in-the-headers": Spoilt(lambda raw: raw[: _head_of(raw) - 6]),
    "truncated-after-the-headers": Spoilt(lambda raw: raw[: _head_of(raw)]),
    "truncated-in-the-body": Spoilt(lambda raw: raw[: (_head_of(raw) + len(raw)) // 2]),
    "truncated-before-the-last-byte": Spoilt(lambda raw: raw[:-1]),
    "stalled-in-the-body": Spoilt(lambda raw: raw[: (_head_of(raw) + len(raw)) // 2], End.SILENT),
    "noise": Spoilt(lambda _: NOISE),
    "noise-in-the-body": Spoilt(lambda raw: raw[: _head_of(raw)] + os.urandom(len(raw) - _head_of(raw))),
    "a-length-that-is-too-short": Spoilt(lambda raw: raw.replace(b"Content-Length: ", b"Content-Length: 0\r\nX: ", 1)),
    "two-answers": Spoilt(lambda raw: raw + raw),
}


def _in_form(raw: bytes, *fields: bytes, body: bytes) -> bytes:
    """Return an answer with another body, and header fields that say how to read it."""
    return b"\r\n".join((raw.partition(b"\r\n")[0], b"Content-Type: application/json", *fields, b"", body))


def _in_chunks(raw: bytes) -> bytes:
    body = raw[_head_of(raw) :]
    pieces = [body[start : start + 97] for start in range(0, len(body), 97)]
    chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return _in_form(raw, b"Transfer-Encoding: chunked", body=chunks + b"0\r\n\r\n")


def _packed(raw: bytes) -> bytes:
    body = gzip.compress(raw[_head_of(raw) :])
    return _in_form(raw, b"Content-Encoding: gzip", b"Content-Length: %d" % len(body), body=body)


def _proxy(status: bytes, field: bytes) -> Spoilt:
    """Return the page of a proxy with a header field."""
    return Spoilt(lambda _: b"HTTP/1.1 %b\r\n%b\r\nContent-Length: 4\r\n\r\npage" % (status, field))


# True answers in a form in which the API server does not send them.
FORMS: Final[Mapping[str, Spoilt]] = {
    "in-chunks": Spoilt(_in_chunks),
    "in-chunks-that-are-cut": Spoilt(lambda raw: _in_chunks(raw)[:-5]),
    "compressed": Spoilt(_packed),
    "after-interim-answers": Spoilt(lambda raw: b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3 + raw),
}
# Words of proxies alone.
ODD: Final[Mapping[str, Spoilt]] = {
    "503-for-a-day": _proxy(b"503 Busy", b"Retry-After: 86400"),
    "503-until-a-date": _proxy(b"503 Busy", b"Retry-After: Wed, 21 Oct 2099 07:28:00 GMT"),
    "429-for-ever": _proxy(b"429 Busy", b"Retry-After: " + b"9" * 400),
    "307-elsewhere": _proxy(b"307 Moved", b"Location: http://127.0.0.1:1/"),
}

_LATE: Final[Mapping[str, Behaviour]] = {
    "delivered-twice": Behaviour(UNCHANGED, delivered=2),
    "delivered-twice-and-cut": Behaviour(CUT, delivered=2),
    "delivered-again-at-the-end": Behaviour(UNCHANGED, late=Late.ON_RELEASE),
    "delayed-until-its-repeat": Behaviour(SILENCE, delivered=0, late=Late.BEFORE_ITS_REPEAT),
    "delayed-until-the-end": Behaviour(SILENCE, delivered=0, late=Late.ON_RELEASE),
}


def _faults() -> Iterator[tuple[str, Behaviour]]:
    for name, answer in {**STATUSES, **PAGES, **CONNECTIONS}.items():
        times = 2 if name.endswith("401") else 1  # the client repeats at once what is answered with 401
        yield f"{name}-before", Behaviour(answer, delivered=0, times=times)
        yield f"{name}-after", Behaviour(answer, times=times)
    yield "noise-before", instead(SPOILT["noise"])
    yield "truncated-in-the-body-before", instead(SPOILT["truncated-in-the-body"])
    for name, spoilt in SPOILT.items():
        yield f"{name}-after", Behaviour(spoilt)
    for name, form in FORMS.items():
        yield f"{name}-after", Behaviour(form)
    for name, odd in ODD.items():
        yield f"{name}-before", instead(odd)
        yield f"{name}-after", Behaviour(odd)
    yield from _LATE.items()


FAULTS: Final[Mapping[str, Behaviour]] = dict(_faults())

# The API server itself refuses the request: what is only tried once, is then not done.
REFUSALS: Final = ("403", "404", "409", "410", "422")
DEFINITE_REFUSALS: Final = frozenset(f"{code}-before" for code in REFUSALS)
# The same answers to a request that has been carried out. No API server gives them of its own: a load balancer would
# have to send the request again to another server. The scheduler believes such a refusal.
UNTRUE: Final = frozenset(f"{code}-after" for code in ("401", "403", "404", "410", "422"))

"""
The faults that one request can meet, by name: one for each kind of answer, before and after the API server has acted.

`before` means that the API server never got the request; `after` that it has acted, and the answer is not the true one.
A Status before the request has arrived stands for a server that refuses it; after it, for a server whose answer was
lost on the way, and a repeat is refused. What else a network can do to bytes is for aiohttp, httptools and TLS.
"""

from collections.abc import Mapping
from typing import Final

from tests.faults.answers import CUT, SILENCE, UNCHANGED, Page, Refusal, Spoilt
from tests.faults.proxy import Behaviour, Late, instead

HALF: Final = Spoilt(lambda raw: raw[: (raw.index(b"\r\n\r\n") + 4 + len(raw)) // 2])
"""The true answer, cut in the middle of its body."""

FAULTS: Final[Mapping[str, Behaviour]] = {
    "401-before": Behaviour(Refusal(401), delivered=0, times=2),  # the client repeats it at once
    "403-before": instead(Refusal(403)),
    "404-before": instead(Refusal(404, "the server could not find the requested resource")),
    "409-before": instead(Refusal(409)),
    "422-before": instead(Refusal(422)),
    "429-retry-after-before": instead(Refusal(429, seconds=1)),
    "503-before": instead(Refusal(503)),
    "page-502-before": instead(Page(502)),
    "cut-before": instead(CUT),
    "409-after": Behaviour(Refusal(409)),
    "504-after": Behaviour(Refusal(504)),
    "page-502-after": Behaviour(Page(502)),
    "cut-after": Behaviour(CUT),
    "silence-after": Behaviour(SILENCE),
    "half-after": Behaviour(HALF),
    "delivered-twice": Behaviour(UNCHANGED, delivered=2),
    "delayed-until-its-repeat": Behaviour(SILENCE, delivered=0, late=Late.BEFORE_ITS_REPEAT),
    "delayed-until-the-end": Behaviour(SILENCE, delivered=0, late=Late.ON_RELEASE),
}

# The API server itself refuses the request: what is only tried once, is then not done.
DEFINITE_REFUSALS: Final = frozenset({"403-before", "404-before", "409-before", "422-before"})

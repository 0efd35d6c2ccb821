"""Answers as bytes, read as a connection reads them."""

from typing import cast

from neuron_scheduler.kube.http.answer import Answer, reading
from neuron_scheduler.kube.http.pools import MOST_BYTES

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def read_answer(*pieces: bytes, most_bytes: int = MOST_BYTES) -> Answer | None:
    """Return the answer that these pieces make, None while it is not complete."""
    reader = reading(most_bytes)
    next(reader)
    for piece in pieces:
        try:
            reader.send(piece)
        except StopIteration as end:
            return cast(Answer, end.value)
    return None

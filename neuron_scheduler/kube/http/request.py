"""
One request to the API server as a value, and its headers as text.

Does not send: that is for `client`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from neuron_scheduler.errors import CredentialsError
from neuron_scheduler.kube.http.pools import MOST_BYTES, Pool

JSON: Final = "application/json"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request without its credentials; `timeout` (0 for none) and `read_timeout` in seconds."""

    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON
    timeout: float = 0.0
    pool: Pool = Pool.API
    permit: Callable[[], bool] | None = None
    read_timeout: float | None = None
    most_bytes: int = MOST_BYTES

    def __str__(self) -> str:
        return f"{self.method} {self.target.partition('?')[0]}"


@lru_cache(maxsize=8)
def common_fields(
    netloc: str, user_agent: str, content_type: str, authorization: str | None, configured: tuple[tuple[str, str], ...]
) -> str:
    """Return the headers that many requests have in common; `auth` has checked the `configured` ones."""
    host = netloc.rpartition("@")[2]
    fields = {
        "Host": host,
        "User-Agent": user_agent,
        "Accept": JSON,
        "Accept-Encoding": "identity",
        "Content-Type": content_type,
    }
    if authorization is not None:
        fields["Authorization"] = authorization
    own = "".join(f"{name}: {printable_value(name, value)}\r\n" for name, value in fields.items())
    return own + "".join(f"{name}: {value}\r\n" for name, value in configured)


def printable_value(name: str, value: str) -> str:
    """
    Return the value of a header.

    Raises:
        CredentialsError: it has characters that are not printable ASCII.
    """
    if not (value.isascii() and value.isprintable()):
        raise CredentialsError(f"the header {name} cannot be sent: it has characters that are not printable ASCII")
    return value

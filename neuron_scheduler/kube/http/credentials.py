"""
The Authorization header, and a token in a file that another process replaces.

The last token is used while the file cannot be read. kubernetes-asyncio refuses every request meanwhile. A token is
never logged.
"""

from collections.abc import Callable
from typing import Final, Protocol

import attrs

from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import CredentialsError

MOST_TOKEN: Final = 1 << 20  # characters
REREAD: Final = 10.0  # seconds a token file is trusted; the kubelet rotates it at 80 % of its hour

UNREAD: Final = "Could not read the token file, keeping the last token"

log = logs.logger(__name__)


class Credentials(Protocol):
    """What a request sends to prove who sent it."""

    async def authorization(self) -> str | None:
        """Return the Authorization header, None for none; raises CredentialsError if none can be sent."""

    async def renew(self, rejected: str | None, /) -> str | None:
        """Return the header to try after the server answered 401 to `rejected`, None for none."""


@attrs.frozen
class Fixed:
    """A header that never changes: of a token or password in the kubeconfig, or none."""

    header: str | None = attrs.field(default=None, repr=False)

    async def authorization(self) -> str | None:
        return self.header

    async def renew(self, _rejected: str | None, /) -> str | None:
        return self.header


NOBODY: Final = Fixed()


@attrs.define(eq=False)
class TokenFile:
    """A bearer token in a file, without white space around it; the last good one is kept."""

    path: str
    clock: Callable[[], float]
    _header: str | None = attrs.field(default=None, init=False, repr=False)
    _read_at: float = attrs.field(default=-REREAD, init=False)
    _trouble: logs.Trouble = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = logs.Trouble(log, "Token file can be read again", self.clock, pairs={"path": self.path})

    async def authorization(self) -> str | None:
        """Return the header, from a read at most `REREAD` seconds ago."""
        if self.clock() - self._read_at >= REREAD:
            self._read()
        if self._header is None:
            raise CredentialsError(
                f"token file {self.path} contains no token that can be sent; check that it is mounted"
            )
        return self._header

    async def renew(self, rejected: str | None, /) -> str | None:
        """Return what the file contains now, unless the rejected token has been replaced already."""
        if self._header == rejected:
            self._read()
        return await self.authorization()

    def _read(self) -> None:
        self._read_at = self.clock()
        try:
            with open(self.path, encoding="utf-8") as file:  # noqa: PTH123 - a few bytes from tmpfs
                token = printable(file.read(MOST_TOKEN), "the file")
        except (OSError, ValueError, CredentialsError) as error:
            self._trouble.report(UNREAD, error)
            return
        if not token:
            self._trouble.report(UNREAD, CredentialsError("the file is empty"))
            return
        self._trouble.report_end()
        self._header = f"Bearer {token}"


def printable(token: str, origin: str) -> str:
    """
    Return a token without the white space around it.

    Raises:
        CredentialsError: it cannot be part of a header.
    """
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise CredentialsError(f"{origin}'s token has characters that are not printable ASCII, so it cannot be sent")
    return token

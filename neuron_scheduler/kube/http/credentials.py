"""
The Authorization header, renewed before it expires.

client-go runs a plugin while a request waits for it, and kubernetes-asyncio reads a token once or refuses every request
while a file is being replaced. Here the token in memory is used until it expires, and is replaced in the background
before that: no request waits for a plugin while it has a token to send. Does not talk to the API server itself, and
to log a token.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs

from neuron_scheduler.errors import CredentialsError
from neuron_scheduler.kube.http.exec_plugin import Ticket, printable
from neuron_scheduler.telemetry import logs

MOST_TOKEN: Final = 1 << 20  # characters
REREAD: Final = 10.0  # seconds a token file is trusted; the kubelet rotates it at 80 % of its hour
RENEW_AT: Final = 0.8  # of a token's life, as the kubelet does
PAUSE: Final = 10.0  # seconds before a plugin that failed, or whose token was rejected, runs again
PATIENCE: Final = 5.0  # seconds that a request waits for a plugin if there is no token, or a rejected one

UNREAD: Final = "Could not read the token file, keeping the last token"

log = logs.logger(__name__)


class Credentials(Protocol):
    """What a request sends to prove who sent it."""

    async def authorization(self) -> str | None:
        """Return the Authorization header, None for none; raises CredentialsError if none can be sent."""

    async def renew(self, rejected: str | None, /) -> str | None:
        """Return the header to try after the server answered 401 to `rejected`, None for none."""

    def certificate(self) -> tuple[str, str] | None:
        """Return a client certificate and its key as PEM, if the plugin gives one instead of a token."""


@attrs.frozen
class Fixed:
    """A header that never changes: a token or password in the kubeconfig, or none at all."""

    header: str | None = attrs.field(default=None, repr=False)

    async def authorization(self) -> str | None:
        """Return the header."""
        return self.header

    async def renew(self, _rejected: str | None, /) -> str | None:
        """Return the same header: nothing newer exists."""
        return self.header

    def certificate(self) -> tuple[str, str] | None:
        """Return None."""
        return None


@attrs.define(eq=False)
class TokenFile:
    """
    A bearer token in a file that another process replaces, without white space; the last good one is kept.

    Attributes:
        otherwise: the token to use until the file has been read, empty for none.
    """

    path: str
    clock: Callable[[], float]
    otherwise: str = attrs.field(default="", repr=False)
    _header: str | None = attrs.field(init=False, repr=False)
    _read_at: float = attrs.field(default=-REREAD, init=False)
    _trouble: logs.Trouble = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._header = f"Bearer {self.otherwise}" if self.otherwise else None
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

    def certificate(self) -> tuple[str, str] | None:
        """Return None."""
        return None

    def _read(self) -> None:
        self._read_at = self.clock()
        try:
            with open(self.path, encoding="utf-8") as file:  # noqa: PTH123 - a few bytes from tmpfs
                token = printable(file.read(MOST_TOKEN), "the file's token")
        except (OSError, ValueError, CredentialsError) as error:
            self._trouble.met(UNREAD, error)
            return
        if not token:
            self._trouble.met(UNREAD, CredentialsError("the file is empty"))
            return
        self._trouble.over()
        self._header = f"Bearer {token}"


@attrs.define(eq=False)
class ExecPlugin:
    """
    Credentials from a plugin such as `aws eks get-token`.

    One run at a time, in a task of its own, which continues when a request ends. It begins with the first request after
    80 % of the token's life, or after a 401.

    Attributes:
        run: runs the plugin once; raises CredentialsError.
        now: Unix time, which the plugin's expirationTimestamp is compared with.
    """

    run: Callable[[], Awaitable[Ticket]]
    now: Callable[[], float]
    _certificate: tuple[str, str] | None = attrs.field(default=None, init=False, repr=False)
    _header: str | None = attrs.field(default=None, init=False, repr=False)
    _due_at: float = attrs.field(default=-math.inf, init=False)  # when the next run is to begin
    _expires: float = attrs.field(default=-math.inf, init=False)
    _not_before: float = attrs.field(default=-math.inf, init=False)  # when the next run may begin
    _failure: str = attrs.field(default="", init=False)  # of the last run
    _running: "asyncio.Task[None] | None" = attrs.field(default=None, init=False)
    _trouble: logs.Trouble = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = logs.Trouble(log, "Credential plugin works again", self.now)

    async def start(self) -> None:
        """Wait for a first run; raises CredentialsError if it fails."""
        self._accept(await self.run())

    async def authorization(self) -> str | None:
        """Return the header; waits for the plugin only if there is no valid token, for `PATIENCE` seconds at most."""
        now = self.now()
        if now < self._due_at:
            return self._header
        running = self._begin()
        if now >= self._expires:
            await _patiently(running)
            if self.now() >= self._expires:
                raise CredentialsError(self._failure or f"credential plugin has not answered for {PATIENCE:.0f} s")
        return self._header

    async def renew(self, rejected: str | None, /) -> str | None:
        """Return the header of a new run, unless another request has already replaced the rejected one."""
        if self._header == rejected:
            await _patiently(self._begin(pause=PAUSE))
        return self._header

    def certificate(self) -> tuple[str, str] | None:
        """Return the certificate of the last run."""
        return self._certificate

    def _begin(self, *, pause: float = 0.0) -> "asyncio.Task[None] | None":
        """Return the task of the run that is under way or begins now; `pause` is in seconds after it."""
        if self._running is None and not 0 < self._not_before - self.now() <= PAUSE:  # the clock may have been set back
            self._running = asyncio.create_task(self._replace(pause), name="credential plugin")
        return self._running

    async def _replace(self, pause: float) -> None:
        try:
            self._accept(await self.run())
            self._trouble.over()
        except (CredentialsError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._failure, pause = str(error), PAUSE
            self._trouble.met("Credential plugin fails", error)
        finally:
            self._not_before = self.now() + pause
            self._running = None

    def _accept(self, ticket: Ticket) -> None:
        self._header = f"Bearer {ticket.token}" if ticket.token else None
        self._certificate, self._failure = ticket.certificate, ""
        self._expires = self._due_at = math.inf
        if ticket.expires is not None:
            now = self.now()
            life = max(ticket.expires - now, PAUSE)  # an expired one is used once, as by client-go
            self._expires, self._due_at = now + life, now + RENEW_AT * life


async def _patiently(running: "asyncio.Task[None] | None") -> None:
    """Wait for a run, without ending it when the wait ends or is cancelled."""
    if running is not None:
        await asyncio.wait([running], timeout=PATIENCE)

"""
The Authorization header, kept fresh.

kubernetes-asyncio reads a token once (kubeconfig `exec` and `tokenFile`) or refuses every request while a file is being
replaced (in-cluster); one failing plugin run ends its refresh for good. Here the last good token is kept for as long as
it may be valid, one refresh runs at a time, and a 401 forces one. Refuses to talk to the API server itself.
"""

import datetime as dt
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import anyio
import attrs

from neuron_scheduler import logs
from neuron_scheduler.errors import CredentialsError

REREAD = 10.0  # seconds a token file is trusted; the kubelet rotates it at 80 % of its hour
RENEW_EARLY = 60.0  # seconds before its expiry that an exec token is replaced
PLUGIN_TIMEOUT = 30.0
PLUGIN_PAUSE = 10.0  # seconds between runs of a plugin that fails while its last token is still valid

log = logs.logger(__name__)


class Credentials(Protocol):
    """What a request needs to prove who it is."""

    async def authorization(self) -> str | None:
        """Return the Authorization header, None for none; raises CredentialsError if there is nothing to send."""

    async def renew(self, rejected: str | None, /) -> str | None:
        """Return the header to try after the server answered 401 to `rejected`."""

    def certificate(self) -> tuple[str, str] | None:
        """Return a client certificate and its key as PEM, where the plugin gives one instead of a token."""


@attrs.frozen
class Fixed:
    """A header that never changes: a token or password in the kubeconfig, or none at all."""

    header: str | None = None

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
    """A bearer token in a file that someone else rotates; stripped, and the last good one kept."""

    path: str
    clock: Callable[[], float]
    _token: str = attrs.field(default="", init=False)
    _read_at: float = attrs.field(default=-REREAD, init=False)

    async def authorization(self) -> str | None:
        """Return the header, from a read at most `REREAD` seconds ago."""
        if self.clock() - self._read_at >= REREAD:
            self._read()
        if not self._token:
            raise CredentialsError(f"token file {self.path} is missing or empty; check that it is mounted")
        return f"Bearer {self._token}"

    async def renew(self, _rejected: str | None, /) -> str | None:
        """Return what the file holds now."""
        self._read_at = -REREAD
        return await self.authorization()

    def certificate(self) -> tuple[str, str] | None:
        """Return None."""
        return None

    def _read(self) -> None:
        try:
            with open(self.path, encoding="utf-8") as file:  # noqa: PTH123 - a few bytes from tmpfs
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            log.warning("Could not read the token file, keeping the last token", path=self.path, exc=error)
            return
        if token:
            self._token = token
            self._read_at = self.clock()


@attrs.frozen
class Ticket:
    """What one run of an exec plugin gave: a token, or a certificate with its key; `expires` in Unix seconds."""

    token: str = ""
    certificate: tuple[str, str] | None = None
    expires: float | None = None


@attrs.define(eq=False)
class ExecPlugin:
    """
    Credentials from a plugin such as `aws eks get-token`.

    Attributes:
        run: runs the plugin once; raises CredentialsError.
        now: Unix time, which the plugin's expirationTimestamp is compared with.
    """

    run: Callable[[], Awaitable[Ticket]]
    now: Callable[[], float]
    _ticket: Ticket | None = attrs.field(default=None, init=False)
    _retry_at: float = attrs.field(default=0.0, init=False)
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def authorization(self) -> str | None:
        """Return the header; the plugin runs when the token is about to expire."""
        return _header(await self._fresh(rejected=None))

    async def renew(self, rejected: str | None, /) -> str | None:
        """Return the header of a new run, unless another request has already replaced the rejected one."""
        return _header(await self._fresh(rejected=rejected or ""))

    def certificate(self) -> tuple[str, str] | None:
        """Return the certificate of the last run."""
        return None if self._ticket is None else self._ticket.certificate

    async def _fresh(self, *, rejected: str | None) -> Ticket:
        ticket = self._ticket
        if ticket is not None and rejected is None and not self._is_due(ticket):
            return ticket
        async with self._lock:
            ticket = self._ticket
            if ticket is not None:
                replaced = rejected is not None and rejected != (_header(ticket) or "")
                if replaced or (rejected is None and not self._is_due(ticket)):
                    return ticket
            return await self._replace(ticket)

    async def _replace(self, ticket: Ticket | None) -> Ticket:
        try:
            self._ticket = await self.run()
        except CredentialsError as error:
            if ticket is None or (ticket.expires is not None and ticket.expires <= self.now()):
                raise
            self._retry_at = self.now() + PLUGIN_PAUSE
            log.warning("Credential plugin failed, keeping the last token while it is valid", exc=error)
            return ticket
        self._retry_at = 0.0
        return self._ticket

    def _is_due(self, ticket: Ticket) -> bool:
        if ticket.expires is None:
            return False
        now = self.now()
        return ticket.expires <= now or (ticket.expires - RENEW_EARLY <= now and self._retry_at <= now)


def _header(ticket: Ticket) -> str | None:
    return f"Bearer {ticket.token}" if ticket.token else None


async def run_plugin(arguments: Sequence[str], environment: Mapping[str, str], api_version: str) -> Ticket:
    """
    Run a client-go credential plugin once, without a terminal and under a time limit.

    Raises:
        CredentialsError: it could not be run, failed, hung, or gave something else.
    """
    info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {**environment, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        with anyio.fail_after(PLUGIN_TIMEOUT):
            done = await anyio.run_process(list(arguments), env=environment, check=False, stdin=None)
    except (OSError, TimeoutError) as error:
        hint = str(error) or f"no answer within {PLUGIN_TIMEOUT:.0f} s"
        raise CredentialsError(f"credential plugin {arguments[0]} could not be run: {hint}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise CredentialsError(f"credential plugin {os.fspath(arguments[0])} ended with {done.returncode}: {said}")
    return read_ticket(done.stdout, api_version)


def read_ticket(output: bytes, api_version: str) -> Ticket:
    """
    Return what an ExecCredential on a plugin's stdout grants (client.authentication.k8s.io/v1 and v1beta1).

    Raises:
        CredentialsError: it is no ExecCredential of that version, or grants nothing.
    """
    try:
        credential = json.loads(output)
        status = credential["status"]
        expires = status.get("expirationTimestamp")
        ticket = Ticket(
            token=status.get("token") or "",
            certificate=_pair(status),
            expires=None if not expires else dt.datetime.fromisoformat(expires).timestamp(),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CredentialsError(f"credential plugin did not print an ExecCredential: {error!r}") from error
    if credential.get("apiVersion") != api_version:
        raise CredentialsError(f"credential plugin answered in {credential.get('apiVersion')}, not in {api_version}")
    if not ticket.token and ticket.certificate is None:
        raise CredentialsError("credential plugin gave neither a token nor a certificate with its key")
    return ticket


def _pair(status: Mapping[str, str]) -> tuple[str, str] | None:
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    return (certificate, key) if certificate and key else None

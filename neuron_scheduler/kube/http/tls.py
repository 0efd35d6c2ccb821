"""
The TLS context for the API server, rebuilt when a certificate changes.

A context that cannot be rebuilt is kept: half-written files become readable soon. Certificates are verified as Go
verifies them, whatever the defaults of Python are: chain, dates and host name.
"""

import os
import ssl
from collections.abc import Callable

import attrs

from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ConfigurationError

RECHECK = 10.0  # seconds between looks at the files

log = logs.logger(__name__)


@attrs.define(eq=False)
class Tls:
    """
    The sources of the trusted authorities and of the client certificate.

    Attributes:
        ca_file: None for the system's store.
        server_name: the name to check instead of the URL's host.
        check_name: False where every server of these authorities is trusted alike.
        origin: names in an error what has these settings.
    """

    clock: Callable[[], float]
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    server_name: str | None = None
    check_name: bool = True
    origin: str = ""
    _context: ssl.SSLContext | None = attrs.field(default=None, init=False)
    _seen: object = attrs.field(default=None, init=False)
    _failed: object = attrs.field(default=None, init=False)  # the stamps of the last failure that was logged
    _checked_at: float = attrs.field(default=0.0, init=False)

    def context(self) -> ssl.SSLContext:
        """
        Return the context to use now.

        Raises:
            ConfigurationError: the first one cannot be built.
        """
        now = self.clock()
        if self._context is not None and now - self._checked_at < RECHECK:
            return self._context
        self._checked_at = now
        seen = tuple(map(stamp, (self.ca_file, self.cert_file, self.key_file)))
        if self._context is not None and seen == self._seen:
            return self._context
        try:
            self._context = self._build()
            self._seen = seen
        except (OSError, ValueError) as error:
            if self._context is None:
                files = ", ".join(filter(None, (self.ca_file, self.cert_file, self.key_file, self.origin)))
                raise ConfigurationError(
                    f"cannot read the certificates in {files}: {error}; check the files"
                ) from error
            if seen != self._failed:
                self._failed = seen
                log.warning("Could not reload the certificates, keeping those in use", exc=error)
        return self._context

    def _build(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        trust_as_go(context)
        context.check_hostname = self.verify and self.check_name
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file:  # without a password OpenSSL would ask the terminal for that of an encrypted key
            context.load_cert_chain(self.cert_file, self.key_file, password="")
        return context


def trust_as_go(context: ssl.SSLContext) -> None:
    """Trust what Go trusts, in every Python: an authority of the CA file without key identifiers, and below a root."""
    # Python 3.13 turns this on. It refuses the authorities of EKS, and those that openssl and cfssl make.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # Python 3.13 turns this on


def stamp(path: str | None) -> object:
    """Return a value that changes with the file: None without a path, a text if the file is missing."""
    try:
        stat = os.stat(path) if path else None  # noqa: PTH116 - follows the symlinks that Secrets are mounted by
    except OSError:
        return "missing"
    return stat and (stat.st_ino, stat.st_mtime_ns, stat.st_size)

"""
The certificate of a port with TLS, read again when its files change, so that a renewal needs no restart.

A certificate that cannot be used does not replace the one in use: files that are half-written become readable soon.
"""

import ssl

import attrs

from neuron_scheduler.kube.http.tls import stamp, trust_as_go
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ConfigurationError

log = logs.logger(__name__)


@attrs.define(eq=False)
class Certificate:
    """
    A certificate (and chain) and its key, as PEM files.

    Attributes:
        client_ca_file: clients must show a certificate that one of these authorities has signed; empty for none.
        flags: the beginning of the names of the two flags.

    Raises:
        ConfigurationError: they cannot be used when it is built.
    """

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    flags: str = "--tls"
    _context: ssl.SSLContext = attrs.field(init=False)
    _seen: object = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._seen = self._stamps()
        try:
            self._context = self._load()
        except (OSError, ValueError) as error:
            trusting = f" and {self.flags.removesuffix('-tls')}-client-ca-file {self.client_ca_file}"
            raise ConfigurationError(
                f"cannot use {self.flags}-cert-file {self.cert_file} with {self.flags}-private-key-file"
                f" {self.key_file}{trusting if self.client_ca_file else ''}: {error}"
            ) from error

    def context(self) -> ssl.SSLContext:
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._context = self._load()
            except (OSError, ValueError) as error:
                log.warning("Cannot read the renewed certificate; keeping the old one", file=self.cert_file, exc=error)
            else:
                log.info("Certificate was renewed", file=self.cert_file)
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # With an encrypted key OpenSSL would ask for a password on the terminal; an empty one makes it fail instead.
        context.load_cert_chain(self.cert_file, self.key_file, password=lambda: "")
        if self.client_ca_file:
            trust_as_go(context)
            context.load_verify_locations(self.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _stamps(self) -> object:
        return tuple(map(stamp, (self.cert_file, self.key_file, self.client_ca_file)))

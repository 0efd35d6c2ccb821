"""
The TLS context for the API server, rebuilt when a certificate file changes, and the proxy that leads there.

kubernetes-asyncio loads the CA once per client; a rotated CA would then need a restart. A context that cannot be
rebuilt is not replaced: half-written files are a moment, not an outage.
"""

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from neuron_scheduler import logs
from neuron_scheduler.errors import ConfigurationError

RECHECK = 10.0  # seconds between looks at the files

log = logs.logger(__name__)


@attrs.define(eq=False)
class Tls:
    """
    Where the trust and the client certificate come from.

    Attributes:
        ca_file: None for the system's store.
        certificate: gives a client certificate and key as PEM that override the files (exec plugin).
        server_name: to be checked in place of the URL's host.
    """

    clock: Callable[[], float]
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    server_name: str | None = None
    certificate: Callable[[], tuple[str, str] | None] = lambda: None
    _context: ssl.SSLContext | None = attrs.field(default=None, init=False)
    _seen: object = attrs.field(default=None, init=False)
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
        seen = (*map(_stamp, (self.ca_file, self.cert_file, self.key_file)), self.certificate())
        if self._context is not None and seen == self._seen:
            return self._context
        try:
            self._context = self._build()
            self._seen = seen
        except (OSError, ValueError) as error:
            if self._context is None:
                files = ", ".join(filter(None, (self.ca_file, self.cert_file, self.key_file))) or "the plugin's output"
                raise ConfigurationError(
                    f"cannot read the certificates in {files}: {error}; check the files"
                ) from error
            log.warning("Could not reload the certificates, keeping those in use", exc=error)
        return self._context

    def _build(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        pair = self.certificate()
        if pair is not None:
            with tempfile.TemporaryDirectory() as folder:  # mode 0700; the ssl module reads files only
                cert, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
                cert.write_text(pair[0])
                key.write_text(pair[1])
                context.load_cert_chain(cert, key)
        elif self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


def _stamp(path: str | None) -> object:
    try:
        stat = os.stat(path) if path else None  # noqa: PTH116 - follows the symlinks that Secrets are mounted by
    except OSError:
        return "missing"
    return stat and (stat.st_ino, stat.st_mtime_ns, stat.st_size)


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """
    Return the proxy that Go's `http.ProxyFromEnvironment` would use for the URL, or None for a direct connection.

    NO_PROXY entries are hosts, domains with or without a leading dot, addresses, networks, or `*`, each with an
    optional port; loopback is never proxied.
    """
    parts = urlsplit(url)
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name)
    host = (parts.hostname or "").rstrip(".")
    if not proxy or host == "localhost" or _is_loopback(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    excepted = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if any(_excepts(entry.strip().lower(), host, port) for entry in excepted.split(",") if entry.strip()):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _excepts(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass  # the host or the entry is a name
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isdigit() and not name.endswith(":"):
        if int(digits) != port:
            return False
        entry = name.strip("[]")
    if entry.startswith("*."):
        entry = entry[1:]
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")

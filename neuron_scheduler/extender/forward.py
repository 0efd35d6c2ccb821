"""
Passes `bind` and `preempt` on from a follower to the replica that holds the Lease.

A Service sends kube-scheduler to any replica, and only the leader may decide. Its address is in the Lease, which nobody
else may write; no other address is trusted. A request is passed on once, or two replicas could send it back and forth.
With TLS the leader must show a certificate of the clients' authority. If clients need none, it shows the certificate
that this replica serves, or one of an authority in the same file: they share a Secret.
"""

import ssl
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, urlsplit

import attrs

from neuron_scheduler.extender.bind import LONGEST_CALL
from neuron_scheduler.extender.protocol import FORWARDED, VerbAnswer, sentence
from neuron_scheduler.kube.http.client import JSON
from neuron_scheduler.kube.http.http1 import KeptConnections
from neuron_scheduler.kube.http.pools import Pool, open_socket
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry import logs

TIMEOUT: Final = LONGEST_CALL + 3.0
"""Seconds for the whole request; kube-scheduler's `httpTimeout` in our manifests is 30 s."""
MOST_CONNECTIONS: Final = 1024
_NO_LEADER: Final = "this replica does not hold the Lease, and knows no extender of the replica that does; try again"
_UNREACHABLE: Final = "set the environment variable POD_IP from status.podIP, or a specific --extender-bind-address"

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class Forward:
    """
    Sends requests to the leader, over connections that it keeps.

    Attributes:
        leader_url: returns the URL in the Lease, empty if nobody holds it or if its holder serves no extender.
        identity: who we are, for the leader's log.
        cert_file, key_file: what this replica serves with TLS; empty without TLS.
        client_ca_file: the authority of the clients' certificates, empty if they need none.
    """

    leader_url: Callable[[], str]
    identity: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    timeout: float = TIMEOUT
    _tls: Tls | None = attrs.field(init=False)
    _url: str = attrs.field(default="", init=False)
    _connections: KeptConnections | None = attrs.field(default=None, init=False)

    @_tls.default
    def _make_tls(self) -> Tls | None:
        if not self.cert_file:
            return None
        return Tls(
            time.monotonic, ca_file=self._authority, cert_file=self.cert_file, key_file=self.key_file, check_name=False
        )

    @property
    def _authority(self) -> str:
        return self.client_ca_file or self.cert_file

    async def send(self, verb: str, body: bytes) -> VerbAnswer:
        """Return the leader's status and answer; 503 and a sentence if no answer came."""
        url = self.leader_url()
        if not url:
            return sentence(503, _NO_LEADER)
        try:
            server = urlsplit(url)
            answer = await self._to(url, server).exchange(
                self._encode(server, verb, body),
                context=self._context(server),
                server_name=None,
                permit=None,
                timeout=self.timeout,
            )
        except Exception as error:  # noqa: BLE001 - a hostile answer can raise anything; it is one request's error
            return sentence(503, f"the leader's extender at {url[:100]!a} gives no answer: {self._reason(error)}")
        return VerbAnswer(answer.status, answer.body)

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()

    def _to(self, url: str, server: SplitResult) -> KeptConnections:
        """Return the connections to a leader; those to the leader before it are closed when they are free."""
        if self._connections is None or url != self._url:
            self.close()
            self._url = url
            self._connections = KeptConnections(
                server=server, limit=MOST_CONNECTIONS, open_socket=open_socket(Pool.API)
            )
        return self._connections

    def _context(self, server: SplitResult) -> ssl.SSLContext | None:
        if server.scheme == "http":
            return None
        if self._tls is None:
            raise ValueError("it serves TLS, and this replica has no certificate to compare its own with")
        return self._tls.context()

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"none came within {self.timeout:g} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted by {self._authority}: {error.verify_message}"
        if isinstance(error, ConnectionError | ssl.SSLError) and self._tls is not None:
            return f"{error}; with --extender-client-ca-file, {self.cert_file} must be valid for clients, too"
        return str(error) or type(error).__name__

    def _encode(self, server: SplitResult, verb: str, body: bytes) -> bytes:
        head = (
            f"POST /{verb} HTTP/1.1\r\nHost: {server.netloc}\r\nContent-Type: {JSON}\r\nAccept-Encoding: identity\r\n"
            f"{FORWARDED}: {self.identity or 'unknown'}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode("ascii") + body


def own_url(host: str, port: int, *, pod_ip: str, tls: bool) -> str:
    """
    Return the URL of this replica's extender for the Lease; empty if no address is known at which others reach it.

    `pod_ip` is the environment variable POD_IP, or empty; it counts where the extender listens on all addresses.
    """
    reached = pod_ip if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - nothing listens here
    if not reached:
        log.warning("Other replicas cannot pass requests on to this one", hint=_UNREACHABLE)
        return ""
    return f"{'https' if tls else 'http'}://{f'[{reached}]' if ':' in reached else reached}:{port}"

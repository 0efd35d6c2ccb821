"""
Options of connections below HTTP, and the errors of HTTP libraries as ours.

There are three pools. A watch keeps its connection, and the Lease must never wait for one. A Binding that we give up
must end with a reset. Else an API server that was stopped for 18 s has still committed it.
"""

import contextlib
import enum
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Final

import aiohttp
from aiohappyeyeballs import AddrInfoType

from neuron_scheduler.telemetry.errors import ApiTimeoutError, NeuronSchedulerError, UnreachableError

READ_BUFFER: Final = 8 << 20  # twice as much of an answer may be unread, or be one line; then the server must wait
KEEPALIVE: Final = 75.0  # the API server keeps idle connections for 90 s
SPARE: Final = 10.0  # seconds after which a connection is closed that no request has needed; not that of the Lease
CONNECT_TIMEOUT: Final = 10.0
DEAD_AFTER: Final = 20.0  # seconds without an acknowledgement
ACK_TIMEOUT: Final = 4.0  # the same for `Pool.BIND`; a request that is given up earlier resets its connection at once

LONGEST_REASON: Final = 500  # characters of a library's error, which may quote what a server sent


class Pool(enum.Enum):
    """Separate connections; the value is the largest number of them, except for the first tries of Bindings."""

    API = 128
    LEASE = 4
    BIND = 40  # 8 repeated Bindings, 8 writes of volumes, 24 evictions


def open_session(pool: Pool, user_agent: str, limit: int) -> aiohttp.ClientSession:
    """Return a session of at most so many connections; it reads no environment (which costs 4 times the CPU)."""
    kept = KEEPALIVE if pool is Pool.LEASE else SPARE
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=kept, socket_factory=open_socket(pool)),
        trust_env=False,
        read_bufsize=READ_BUFFER,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept": "application/json", "User-Agent": user_agent},
    )


def open_socket(pool: Pool) -> Callable[[AddrInfoType], socket.socket]:
    return _bind_socket if pool is Pool.BIND else _socket


def _socket(address: AddrInfoType) -> socket.socket:
    """
    Open a socket whose half-open peer is noticed within `DEAD_AFTER`, whatever the read timeout.

    Without TCP_USER_TIMEOUT nothing probes where a request waits for its acknowledgement. A list from a server that
    died would last until its own timeout.
    """
    opened = socket.socket(family=address[0], type=address[1], proto=address[2])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 2)):
        _set(opened, option, seconds)
    _set(opened, "TCP_USER_TIMEOUT", int(DEAD_AFTER * 1000))
    return opened


def _bind_socket(address: AddrInfoType) -> socket.socket:
    """Open a socket that is closed with a reset, and waits for acknowledgements no longer than `ACK_TIMEOUT`."""
    opened = _socket(address)
    _set(opened, "TCP_USER_TIMEOUT", int(ACK_TIMEOUT * 1000))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return opened


def _set(opened: socket.socket, option: str, value: int) -> None:
    number = getattr(socket, option, None)  # macOS lacks some; it is for trying the scheduler out
    if number is not None:
        opened.setsockopt(socket.IPPROTO_TCP, number, value)


def unreachable(error: Exception, target: str) -> UnreachableError:
    """Return our error for whatever an HTTP library raised; `target` names the request in the message."""
    if isinstance(error, TimeoutError):
        return ApiTimeoutError(f"no answer in time to {target}")
    if isinstance(error, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
        cause = str(getattr(error, "certificate_error", error))[:LONGEST_REASON]
        return UnreachableError(
            f"certificate of the API server is not trusted: {cause};"
            " check certificate-authority in the kubeconfig, or ca.crt of the service account"
        )
    return UnreachableError(f"connection failed during {target}: {_reason(error) or type(error).__name__}")


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):  # its own text has the repr of an SSLContext
        return f"cannot connect to {error.host}:{error.port}: {error.os_error}"[:LONGEST_REASON]
    if isinstance(error, OSError | ValueError | aiohttp.ClientError):
        return str(error)[:LONGEST_REASON]
    return repr(error)[:LONGEST_REASON]


@contextlib.contextmanager
def translate_errors(target: str) -> Iterator[None]:
    """Turn every exception into one of our errors, so that it ends only its request."""
    try:
        yield
    except NeuronSchedulerError:
        raise
    except Exception as error:
        raise unreachable(error, target) from error

"""Sockets notice a peer that is gone without a word, whether they wait for something or not."""

import socket
import sys

import pytest

from neuron_scheduler.kube.http.pools import ACK_TIMEOUT, DEAD_AFTER, Pool, open_socket

ANYWHERE = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))


def milliseconds(opened: socket.socket) -> int:
    """Return for how long sent bytes may stay without an acknowledgement."""
    return opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


@pytest.mark.skipif(sys.platform != "linux", reason="the options are Linux's")
@pytest.mark.parametrize(
    ("pool", "seconds"), [(Pool.API, DEAD_AFTER), (Pool.LEASE, DEAD_AFTER), (Pool.BIND, ACK_TIMEOUT)]
)
def test_a_dead_peer_is_noticed(pool: Pool, seconds: float) -> None:
    """A request without an acknowledgement fails in time; an idle connection is probed twice within `DEAD_AFTER`."""
    with open_socket(pool)(ANYWHERE) as opened:
        assert milliseconds(opened) == 1000 * seconds
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        first, pause, count = (
            opened.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert (first + pause * count, count) == (DEAD_AFTER, 2)

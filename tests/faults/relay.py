"""
A load balancer that knows nothing of HTTP: each connection goes to the next server, and stays there.

TLS goes through, so a client checks the certificate of the server itself. A server can be taken out of the balance, its
connections be reset, or its bytes be held back.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import anyio
import anyio.abc
import attrs

CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


@attrs.define(eq=False)
class Server:
    """
    A server behind the relay.

    Attributes:
        balanced: whether new connections may go there.
        connections: how many have gone there so far.
    """

    port: int
    balanced: bool = True
    connections: int = 0
    _flows: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _open: set[anyio.CancelScope] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._flows.set()

    def hold(self) -> None:
        """Hold all bytes back, in both directions; connections stay open."""
        self._flows = anyio.Event()

    def flow(self) -> None:
        self._flows.set()

    def reset(self) -> None:
        for scope in tuple(self._open):
            scope.cancel()

    async def serve(self, client: anyio.abc.SocketStream) -> None:
        """Connect a client until one of the two ends the connection."""
        self.connections += 1
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with (
                    await anyio.connect_tcp("127.0.0.1", self.port) as upstream,
                    anyio.create_task_group() as both,
                ):
                    both.start_soon(self._pump, client, upstream, scope)
                    both.start_soon(self._pump, upstream, client, scope)
            except* OSError:
                pass  # nobody listens there
            finally:
                self._open.discard(scope)

    async def _pump(
        self, source: anyio.abc.SocketStream, sink: anyio.abc.SocketStream, scope: anyio.CancelScope
    ) -> None:
        try:
            async for piece in source:
                await self._flows.wait()
                await sink.send(piece)
        except CLOSED:
            pass
        scope.cancel()


@attrs.define(eq=False)
class Relay:
    """
    Balances connections.

    Attributes:
        port: where it listens.
    """

    port: int
    servers: tuple[Server, ...]
    _turns: "count[int]" = attrs.field(factory=count, init=False)

    async def serve(self, client: anyio.abc.SocketStream) -> None:
        """Serve one connection: the next server in turn that is in the balance."""
        async with client:
            candidates = [server for server in self.servers if server.balanced]
            if candidates:
                await candidates[next(self._turns) % len(candidates)].serve(client)


@asynccontextmanager
async def run_relay(*ports: int, host: str = "127.0.0.1") -> AsyncIterator[Relay]:
    """Run a relay to servers on ports of 127.0.0.1 until the block is left."""
    async with await anyio.create_tcp_listener(local_host=host) as listener, anyio.create_task_group() as tasks:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        relay = Relay(port, tuple(Server(port) for port in ports))
        tasks.start_soon(listener.serve, relay.serve)
        yield relay
        tasks.cancel_scope.cancel()

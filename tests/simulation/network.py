"""
The network between simulated processes: connections in memory that are late, silent or cut.

Connections overtake each other; within one, bytes keep their order (`transport`). What can go wrong with a connection
is a fault of the scenario: `faults` is asked at each connect and at each chunk. Refuses names: an address is where a
server listens, or has several servers behind it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import Final, TypeAlias

import attrs

from tests.simulation.process import Process, current
from tests.simulation.transport import FASTEST, TYPICAL, Connection, Faults, Transport

Address: TypeAlias = tuple[str, int]

PORTS: Final = 40_000


@attrs.define(eq=False)
class _Listener:
    name: str
    process: Process | None
    protocol_factory: Callable[[], asyncio.Protocol]
    context: Context


@attrs.define(eq=False)
class Server:
    """What `create_server` returns."""

    network: "Network"
    address: Address
    sockets: list["_Socket"] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sockets = [_Socket(self.address)]

    def close(self) -> None:
        self.network.listeners.pop(self.address, None)

    async def wait_closed(self) -> None:
        """Return: there is nothing to wait for."""

    def is_serving(self) -> bool:
        return self.address in self.network.listeners


@attrs.frozen
class _Socket:
    address: Address

    def getsockname(self) -> Address:
        return self.address


class _Nothing:
    """A network on which nothing goes wrong."""

    def at_connect(self, _client: str, _server: str) -> str:
        return ""

    def at_chunk(self, _client: str, _server: str) -> tuple[str, float]:
        return "", 0.0


@attrs.define(eq=False, kw_only=True)
class Network:
    """
    All connections of a simulation.

    Attributes:
        balanced: addresses behind which there are several servers; each connection goes to one that listens.
        faults: what goes wrong.
        listeners: by address.
        connections: all that were made and have not ended on both ends.
    """

    seed: int
    balanced: dict[Address, tuple[Address, ...]] = attrs.field(factory=dict)
    faults: Faults = attrs.field(factory=_Nothing)
    listeners: dict[Address, _Listener] = attrs.field(factory=dict, init=False)
    connections: list[Connection] = attrs.field(factory=list, init=False)
    _made: Counter[str] = attrs.field(factory=Counter, init=False)  # connections, by client
    _dice: Random = attrs.field(init=False)
    _connected: dict[int, _Listener] = attrs.field(factory=dict, init=False)  # by the file number of the socket

    def __attrs_post_init__(self) -> None:
        self._dice = Random(f"{self.seed}/connect")

    def listen(self, address: Address, protocol_factory: Callable[[], asyncio.Protocol], name: str) -> Server:
        """Accept connections at an address, for the process that calls."""
        process = current()
        self.listeners[address] = _Listener(name, process, protocol_factory, copy_context())
        if process is not None:
            process.at_end(partial(self._forget, address))
        return Server(self, address)

    def _forget(self, address: Address) -> None:
        self.listeners.pop(address, None)

    async def connect(self, file_number: int, address: Address) -> None:
        """
        Connect a socket.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        await asyncio.sleep(FASTEST + self._dice.expovariate(1 / TYPICAL))
        choices = [a for a in self.balanced.get(address, (address,)) if a in self.listeners]
        client = _name()
        listener = self.listeners[self._dice.choice(choices)] if choices else None
        fault = self.faults.at_connect(client, listener.name if listener else "")
        if fault == "hang":
            await asyncio.get_running_loop().create_future()
        if listener is None or fault == "refuse":
            raise ConnectionRefusedError(111, f"Connect call failed {address}")
        self._connected[file_number] = listener

    def open(self, file_number: int, protocol_factory: Callable[[], asyncio.Protocol]) -> Transport:
        """Give a connected socket its protocol, and let the server accept the connection."""
        listener, client = self._connected.pop(file_number), _name()
        self._made[client] += 1
        number = self._made[client]
        connection = Connection(self.faults, self.seed, client, listener.name, number)
        names = {"peername": ("10.0.0.1", 6443), "sockname": ("10.0.1.1", PORTS + number)}
        back = {"peername": names["sockname"], "sockname": names["peername"]}
        connection.client = Transport(connection, current(), names)
        connection.server = listener.context.copy().run(Transport, connection, listener.process, back)
        connection.client.peer, connection.server.peer = connection.server, connection.client
        self.connections.append(connection)
        for end in (connection.client, connection.server):
            if end.owner is not None:
                end.owner.at_end(end.hang_up)
        connection.client.protocol = protocol_factory()
        connection.client.protocol.connection_made(connection.client)
        connection.server._context.run(_accept, connection.server, listener.protocol_factory)
        return connection.client


def _accept(transport: Transport, protocol_factory: Callable[[], asyncio.Protocol]) -> None:
    transport.protocol = protocol_factory()
    transport.protocol.connection_made(transport)


def _name() -> str:
    process = current()
    return "world" if process is None else process.name

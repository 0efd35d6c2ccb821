"""The simulated loop: time, processes and connections."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import attrs
import pytest

from tests.simulation import clock
from tests.simulation.clock import CLOCK
from tests.simulation.loop import SimulatedLoop, StuckError
from tests.simulation.network import Network
from tests.simulation.process import KILLED, Process, current

SERVER = ("10.0.0.1", 6443)


@attrs.define
class OneFault:
    """Lets one thing happen to each connection, or to each chunk."""

    connect: str = ""
    chunk: str = ""
    seconds: float = 0.0

    def at_connect(self, _client: str, _server: str) -> str:
        """Return it."""
        return self.connect

    def at_chunk(self, _client: str, _server: str) -> tuple[str, float]:
        """Return it."""
        return self.chunk, self.seconds


_LEFT: list[object] = []
"""Tasks that had not ended: nothing may close them when they are no longer referenced."""


def simulated(main: Coroutine[Any, Any, Any], network: Network | None = None, *, most_steps: int = 10_000) -> Any:
    """Run a coroutine on a new loop at the time 0, and return its result."""
    clock.begin(1)
    loop = SimulatedLoop(network or Network(seed=1), most_steps=most_steps)
    try:
        return loop.run_until_complete(main)
    finally:
        _LEFT.extend(asyncio.all_tasks(loop))
        loop.close()


def started(process: Process, main: Coroutine[Any, Any, Any], thread: str = "main") -> None:
    """Start a task in a process."""
    context = process.context(thread)
    context.run(asyncio.get_running_loop().create_task, main, context=context)


async def ticking(noted: list[float]) -> None:
    """Note the time, once a second, for a minute."""
    for _ in range(60):
        noted.append(round(CLOCK.now, 1))
        await asyncio.sleep(1)


def test_time_passes_when_nothing_else_can_happen() -> None:
    """A sleep of an hour takes an hour of virtual time."""

    async def main() -> float:
        await asyncio.sleep(3600)
        return CLOCK.now

    assert simulated(main()) == pytest.approx(3600, abs=0.001)


def test_a_wait_without_an_end_is_noticed() -> None:
    """A loop in which nothing can happen any more says so."""

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="nothing can happen"):
        simulated(main())


def test_a_turn_without_an_end_is_noticed() -> None:
    """Code that turns for ever at one moment is stopped after so many steps."""

    async def main() -> None:
        asyncio.get_running_loop().call_soon(turning)
        await asyncio.get_running_loop().create_future()

    def turning() -> None:
        asyncio.get_running_loop().call_soon(turning)

    with pytest.raises(StuckError, match="no end"):
        simulated(main())


def test_a_stopped_process_does_later_what_it_would_have_done() -> None:
    """A process that is stopped for 10 s runs no step meanwhile, and goes on afterwards."""
    noted: list[float] = []

    async def main() -> None:
        process = Process("p", lambda _process: None)
        started(process, ticking(noted))
        await asyncio.sleep(2.5)
        process.stop(10)
        await asyncio.sleep(12)

    simulated(main())
    assert noted == [0.0, 1.0, 2.0, 12.5, 13.5]


def test_one_thread_can_be_stopped() -> None:
    """While the main thread is in a long step, another one goes on."""
    main_thread: list[float] = []
    other: list[float] = []

    async def main() -> None:
        process = Process("p", lambda _process: None)
        started(process, ticking(main_thread))
        started(process, ticking(other), "lease")
        process.stop(5, thread="main")
        await asyncio.sleep(3.5)

    simulated(main())
    assert (main_thread, other) == ([], [0.0, 1.0, 2.0, 3.0])


def test_a_killed_process_does_nothing_more() -> None:
    """No step runs after the end, and no `finally` either."""
    done: list[str] = []
    codes: list[int | None] = []

    async def working() -> None:
        try:
            await asyncio.sleep(5)
            done.append("worked")
        finally:
            done.append("cleaned up")

    async def main() -> None:
        process = Process("p", lambda process: codes.append(process.exit_code))
        started(process, working())
        await asyncio.sleep(1)
        assert len(process.tasks) == 1
        process.end(KILLED)
        await asyncio.sleep(10)

    simulated(main())
    assert (done, codes) == ([], [KILLED])


class Server(asyncio.Protocol):
    """Notes what comes, and sends it back."""

    def __init__(self, received: list[bytes] | None = None) -> None:
        self.received = [] if received is None else received
        self.transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self.received.append(data)
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(data)

    def eof_received(self) -> None:
        """Note the end."""
        self.received.append(b"")


class Client(asyncio.Protocol):
    """Sends four bytes, and waits for four."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"ping")

    def data_received(self, data: bytes) -> None:
        """Collect."""
        self.came += data
        if self.came == b"ping":
            self.answer.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail."""
        if not self.answer.done():
            self.answer.set_exception(exc or ConnectionError("the end"))


async def asked(network: Network) -> bytes:
    """Connect, send four bytes, and return what comes back."""
    await network.connect(3, SERVER)
    client = Client()
    network.open(3, lambda: client)
    return await client.answer


def test_bytes_arrive() -> None:
    """What a client sends reaches the server, and the answer comes back, later."""
    network = Network(seed=1)

    async def main() -> tuple[bytes, bool]:
        network.listen(SERVER, Server, "server")
        return await asked(network), CLOCK.now > 0.001

    assert simulated(main(), network) == (b"ping", True)


@pytest.mark.parametrize("chunk", ["cut", "half"])
def test_a_connection_can_be_cut(chunk: str) -> None:
    """Both ends see a reset; of a chunk that is cut in its middle, half arrives."""
    network = Network(seed=1, faults=OneFault(chunk=chunk))

    async def main() -> None:
        network.listen(SERVER, Server, "server")
        await asked(network)

    with pytest.raises(ConnectionResetError):
        simulated(main(), network)


@pytest.mark.parametrize("fault", [OneFault(chunk="silence"), OneFault(connect="hang")])
def test_a_connection_can_be_silent(fault: OneFault) -> None:
    """Bytes vanish, or a connection is never made, and nobody is told."""
    network = Network(seed=1, faults=fault)

    async def main() -> None:
        network.listen(SERVER, Server, "server")
        async with asyncio.timeout(60):
            await asked(network)

    with pytest.raises(TimeoutError):
        simulated(main(), network)


@pytest.mark.parametrize("listens", [True, False])
def test_a_connection_can_be_refused(*, listens: bool) -> None:
    """Nobody listens, or a fault says so."""
    network = Network(seed=1, faults=OneFault(connect="refuse"))

    async def main() -> None:
        if listens:
            network.listen(SERVER, Server, "server")
        await asked(network)

    with pytest.raises(ConnectionRefusedError):
        simulated(main(), network)


def test_what_a_killed_process_has_sent_arrives() -> None:
    """The kernel delivers what was written before the end, and then the end."""
    network = Network(seed=1)
    received: list[bytes] = []

    async def main() -> None:
        network.listen(SERVER, lambda: Server(received), "server")
        process = Process("p", lambda _process: None)
        started(process, asked(network))
        await asyncio.sleep(0.1)
        received.clear()
        network.connections[0].client.write(b"last words")
        process.end(KILLED)
        await asyncio.sleep(1)

    simulated(main(), network)
    assert received == [b"last words", b""]


def test_a_balanced_address_leads_to_the_servers_that_listen() -> None:
    """Each connection goes to one of the servers behind an address."""
    network = Network(seed=1, balanced={("10.0.0.100", 6443): (SERVER, ("10.0.0.2", 6443))})

    async def main() -> set[str]:
        for number, address in enumerate(network.balanced["10.0.0.100", 6443], start=1):
            network.listen(address, Server, f"server-{number}")
        for file_number in range(20):
            await network.connect(file_number, ("10.0.0.100", 6443))
            network.open(file_number, Server)
        return {connection.server_name for connection in network.connections}

    assert simulated(main(), network) == {"server-1", "server-2"}


def test_the_wall_clock_belongs_to_a_process() -> None:
    """A process whose clock is wrong reads another time than the world."""

    async def main() -> list[float]:
        process, read = Process("p", lambda _process: None), []
        process.wall_offset = -300.0

        async def reading() -> None:
            assert current() is process
            read.append(CLOCK.time() - clock.START - CLOCK.now)

        started(process, reading())
        await asyncio.sleep(1)
        return [*read, CLOCK.time() - clock.START - CLOCK.now]

    assert simulated(main()) == pytest.approx([-300.0, 0.0], abs=1e-6)

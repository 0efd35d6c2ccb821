"""What becomes of a request that is late, when its client has gone meanwhile."""

import asyncio
from random import Random

import pytest
from aiohttp import web

from tests.simulation.clock import CLOCK
from tests.simulation.fault_windows import FaultWindows
from tests.simulation.http_faults import LATE, HttpFaults
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.scenario import Fault
from tests.simulation.test_loop import SERVER, simulated, started

REQUEST = b"POST /api/v1/namespaces/default/pods/a/binding HTTP/1.1\r\nHost: api\r\nContent-Length: 4\r\n\r\nbody"


def carried_out(*faults: Fault, frozen: float = 0.0) -> list[tuple[int, bytes]]:
    """Send a request at second 1, and give it up at second 2; return when the server carries out which body."""
    windows = FaultWindows(1, faults, lambda _kind, _place: None)
    network = Network(seed=1, faults=windows)
    done: list[tuple[int, bytes]] = []
    server, client = (Process(name, lambda _process: None) for name in ("server", "client"))

    async def carry_out(request: web.Request) -> web.Response:
        body = await request.read()
        done.append((round(CLOCK.now), body))
        return web.Response()

    async def serve() -> None:
        application = web.Application(middlewares=[HttpFaults("server", windows, Random(1), quiet_at=60.0).answered])
        application.router.add_route("*", "/{path:.*}", carry_out)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, *SERVER).start()

    async def ask() -> None:
        await network.connect(3, SERVER)
        transport = network.open(3, asyncio.Protocol)
        transport.write(REQUEST)
        await asyncio.sleep(1)
        transport.abort()

    async def main() -> None:
        started(server, serve())
        await asyncio.sleep(0.9)
        if frozen:
            server.stop(frozen)
        await asyncio.sleep(0.1)
        started(client, ask())
        await asyncio.sleep(59)

    simulated(main(), network)
    return done


def test_a_late_request_is_carried_out_although_its_client_has_gone() -> None:
    """A proxy or a busy server has all of it."""
    assert carried_out(Fault(kind=LATE, at=0, until=60, seconds=8.0)) == [(9, b"body")]


@pytest.mark.parametrize("frozen", [0.0, 4.1])
def test_what_arrives_before_the_end_of_a_connection_is_carried_out(frozen: float) -> None:
    """The bytes are late on their way, or the server does not read them for seconds."""
    faults = [] if frozen else [Fault(kind="late", at=0, until=60, target="client", seconds=4.0)]
    assert carried_out(*faults, frozen=frozen) == [(5, b"body")]

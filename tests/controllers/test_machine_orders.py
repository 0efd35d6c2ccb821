"""Objects become what is wanted of them, whatever the API server answers, and whatever changes meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
import pytest

from neuron_scheduler.controllers.machine_orders import MachineOrders
from neuron_scheduler.kube.writes.machine_order import Asked, Declined, MachineOrder, Unsettled, Withdrawn
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.kube.writes.machine_orders import NAME, order

NO_RIGHT = Declined("no right")
LATER = Unsettled("503")


@attrs.define(eq=False)
class Server:
    """
    Stands in for what writes, and for the listener.

    Attributes:
        answers: to the next requests; afterwards everything succeeds.
        requests: what was asked, in order.
        told: what the listener was told.
        gate: requests wait until it is set.
    """

    answers: list[Any] = attrs.field(factory=list)
    requests: list[str] = attrs.field(factory=list)
    told: list[str] = attrs.field(factory=list)
    gate: anyio.Event = attrs.field(factory=anyio.Event)
    now: float = 0.0

    async def ask(self, order: MachineOrder) -> Any:
        """Answer."""
        return await self._answer(f"ask {order.name}", Asked("u"))

    async def withdraw(self, name: str, uid: str) -> Any:
        """Answer."""
        return await self._answer(f"withdraw {name} {uid}", Withdrawn())

    async def found(self) -> list[Pod]:
        """Return nothing."""
        return []

    def declined(self, name: str, message: str) -> None:
        """Remember it."""
        self.told.append(f"declined {name}: {message}")

    def withdrawn(self, name: str) -> None:
        """Remember it."""
        self.told.append(f"withdrawn {name}")

    async def _answer(self, request: str, usual: Any) -> Any:
        self.requests.append(request)
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else usual
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def server() -> Server:
    """Return a server that answers at once."""
    server = Server()
    server.gate.set()
    return server


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[MachineOrders]:
    """Run orders that are tried again without a pause."""
    orders = MachineOrders(clock=lambda: server.now, listener=server, random=lambda: 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(orders.run)
        yield orders
        tasks.cancel_scope.cancel()


async def settled(server: Server, orders: MachineOrders) -> None:
    """Return when nothing more happens; the time of all pauses is over then."""
    for _ in range(20):
        await anyio.wait_all_tasks_blocked()
        server.now += 100.0
        orders._turns.add("nothing of this name", "", 0.0)  # wakes a task, which looks at the clock


async def test_asked_and_withdrawn(server: Server) -> None:
    """One request each; the uid of the answer is the precondition of the deletion."""
    async with running(server) as orders:
        orders.ask(order(), server)
        await settled(server, orders)
        assert (server.requests, server.told, list(orders.names)) == ([f"ask {NAME}"], [], [NAME])
        orders.withdraw(NAME)
        orders.withdraw(NAME)
        await settled(server, orders)
    assert server.requests[1:] == [f"withdraw {NAME} u"]
    assert server.told == [f"withdrawn {NAME}"]
    assert not orders.names


async def test_withdrawn_while_it_is_being_created(server: Server) -> None:
    """The deletion follows the answer to the creation, and only then is it gone."""
    server.gate = anyio.Event()
    async with running(server) as orders:
        orders.ask(order(), server)
        await anyio.wait_all_tasks_blocked()
        orders.withdraw(NAME)
        await anyio.wait_all_tasks_blocked()
        assert (server.requests, server.told) == ([f"ask {NAME}"], [])
        server.gate.set()
        await settled(server, orders)
    assert (server.requests, server.told) == ([f"ask {NAME}", f"withdraw {NAME} u"], [f"withdrawn {NAME}"])


async def test_a_refusal_is_reported_once_and_cleaned_up(server: Server) -> None:
    """A part may have been created before the refusal."""
    server.answers = [NO_RIGHT]
    async with running(server) as orders:
        orders.ask(order(), server)
        await settled(server, orders)
    assert server.requests == [f"ask {NAME}", f"withdraw {NAME} "]
    assert server.told == [f"declined {NAME}: no right", f"withdrawn {NAME}"]
    assert not orders.names


async def test_a_refusal_of_what_was_never_there(server: Server) -> None:
    """Without any right nothing is left to be done: no name is kept, and no request is repeated for ever."""
    server.answers = [NO_RIGHT, NO_RIGHT]
    async with running(server) as orders:
        orders.ask(order(), server)
        await settled(server, orders)
        assert not orders.names
    assert server.requests == [f"ask {NAME}", f"withdraw {NAME} "]


async def test_a_deletion_that_is_refused(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Bindings may go on at the first refusal; the deletion is tried until it succeeds, and one line says why."""
    async with running(server) as orders:
        orders.ask(order(), server)
        await settled(server, orders)
        server.answers = [NO_RIGHT] * 3
        orders.withdraw(NAME)
        await anyio.wait_all_tasks_blocked()
        assert server.told == [f"withdrawn {NAME}"]
        await settled(server, orders)
    assert server.requests[1:] == [f"withdraw {NAME} u"] * 4
    assert not orders.names
    assert len([line for line in caplog.messages if "cannot be written" in line]) == 1


async def test_no_answer(server: Server) -> None:
    """The same request is sent again, after a pause, until there is one; an exception is one request's error."""
    server.answers = [LATER, RuntimeError("defect"), LATER, Asked("u"), LATER]
    async with running(server) as orders:
        orders.ask(order(), server)
        await settled(server, orders)
        orders.withdraw(NAME)
        await settled(server, orders)
    assert server.requests == [f"ask {NAME}"] * 4 + [f"withdraw {NAME} u"] * 2
    assert server.told == [f"withdrawn {NAME}"]


async def test_what_the_watch_shows(server: Server) -> None:
    """An adopted object is only ever deleted; one that vanishes is forgotten, and was wanted or not."""
    async with running(server) as orders:
        orders.adopt(NAME, "old", server)
        await settled(server, orders)
        assert not server.requests
        assert not orders.vanished(NAME, "another"), "that one was not ours"
        assert orders.vanished(NAME, "old")
        assert not orders.vanished(NAME, "old")
        orders.adopt(NAME, "", server)
        orders.seen(NAME, "new")
        orders.withdraw(NAME)
        await settled(server, orders)
    assert server.requests == [f"withdraw {NAME} new"]
    assert server.told == [f"withdrawn {NAME}"] * 2


async def test_an_error_of_the_listener_ends_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported; what was refused is removed all the same, and the next order is written."""
    surprises: list[str] = []

    def fail(_server: Server, name: str, message: str) -> None:
        raise RuntimeError(f"{name} {message}")

    monkeypatch.setattr(Server, "declined", fail)
    server.answers = [NO_RIGHT]
    async with running(server) as orders:
        orders.errors = UnexpectedErrors(surprises.append)
        orders.ask(order(), server)
        await settled(server, orders)
        assert not orders.names
        orders.ask(order(), server)
        await settled(server, orders)
    assert surprises
    assert server.requests == [f"ask {NAME}", f"withdraw {NAME} ", f"ask {NAME}"]

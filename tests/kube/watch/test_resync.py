"""A resync hands over a list that began after its call, whatever is in flight at that moment."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.informer import Informer
from neuron_scheduler.model.pod import Pod
from tests.support.patience import PATIENCE
from tests.support.scripted_server import event
from tests.support.wire_objects import pod


@attrs.define(eq=False)
class Known:
    """A handler that keeps names."""

    names: set[str] = attrs.field(factory=set)

    def added(self, new: Pod) -> None:
        """Keep it."""
        self.names.add(new.name)

    def updated(self, old: Pod, new: Pod) -> None:
        """Names do not change."""

    def deleted(self, old: Pod) -> None:
        """Drop it."""
        self.names.remove(old.name)

    def malformed(self, malformed: object) -> None:
        """Nothing here is malformed."""

    def no_longer_malformed(self, malformed: object) -> None:
        """Nothing here is malformed."""


@attrs.define(eq=False)
class ByHand:
    """An API server whose answers a test gives one by one: bodies of lists and lines of watches."""

    answers: list[asyncio.Future[bytes]] = attrs.field(factory=list)
    requests: list[str] = attrs.field(factory=list)

    @asynccontextmanager
    async def stream(self, *_request: Any, **_options: Any) -> AsyncIterator[Any]:
        """Open a list or a watch."""
        yield self

    async def whole(self, _most: int) -> bytes:
        """Wait for the answer to a list."""
        return await self._next("list")

    async def next(self) -> bytes:
        """Wait for the line of a watch."""
        return await self._next("watch")

    async def _next(self, request: str) -> bytes:
        self.requests.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def reached(self, *requests: str) -> None:
        """Wait until exactly these requests were made."""
        with anyio.fail_after(PATIENCE):
            while self.requests != list(requests):
                await anyio.lowlevel.checkpoint()


def at(version: str, name: str) -> dict[str, Any]:
    """Return a pod of that name and version."""
    return pod(name, metadata={"resourceVersion": version})


def page(*items: Any) -> bytes:
    """Return the body of a list."""
    return json.dumps({"metadata": {"resourceVersion": "10"}, "items": items}).encode()


async def test_an_event_during_a_resync_does_not_delay_the_list() -> None:
    """The event sets the version after the resync was called, and the list still follows."""
    known, server = Known(), ByHand()
    informer = Informer(client=server, resource=PODS, handler=known)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informer.run)
        await server.reached("list")
        server.answers[-1].set_result(page())
        await server.reached("list", "watch")
        server.answers[-1].set_result(event("ADDED", at("11", "a")))  # the informer handles it in the next turn
        async with anyio.create_task_group() as resyncing:
            resyncing.start_soon(answer_next_list, server, page(at("11", "a"), at("12", "b")))
            with anyio.fail_after(PATIENCE):
                await informer.resync()
        assert known.names == {"a", "b"}
        tasks.cancel_scope.cancel()


async def test_a_list_that_began_before_a_resync_does_not_count() -> None:
    """Its answer is there, but may be older than the takeover; the resync waits for a list that begins afterwards."""
    known, server = Known(), ByHand()
    informer = Informer(client=server, resource=PODS, handler=known)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informer.run)
        await server.reached("list")
        server.answers[-1].set_result(page(at("1", "a")))  # the informer handles it in the next turn
        async with anyio.create_task_group() as resyncing:
            resyncing.start_soon(answer_next_list, server, page(at("2", "b")))
            with anyio.fail_after(PATIENCE):
                await informer.resync()
        assert known.names == {"b"}
        tasks.cancel_scope.cancel()


async def answer_next_list(server: ByHand, body: bytes) -> None:
    """Wait for the next request for a list, and answer it."""
    count = server.requests.count("list")
    with anyio.fail_after(PATIENCE):
        while server.requests.count("list") == count:
            await anyio.lowlevel.checkpoint()
    server.answers[-1].set_result(body)


async def test_each_resync_has_a_list_of_its_own_or_a_later_one() -> None:
    """A resync that is called during the list of another one waits for the next list."""
    known, server = Known(), ByHand()
    informer = Informer(client=server, resource=PODS, handler=known)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informer.run)
        await server.reached("list")
        server.answers[-1].set_result(page())
        await server.reached("list", "watch")
        tasks.start_soon(informer.resync)
        await server.reached("list", "watch", "list")
        server.answers[-1].set_result(page(at("1", "a")))
        async with anyio.create_task_group() as resyncing:
            resyncing.start_soon(answer_next_list, server, page(at("1", "a"), at("2", "b")))
            with anyio.fail_after(PATIENCE):
                await informer.resync()
        assert known.names == {"a", "b"}
        tasks.cancel_scope.cancel()

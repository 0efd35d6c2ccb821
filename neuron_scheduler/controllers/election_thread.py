"""
Runs the candidate for the Lease in a thread of its own, so that no decision, however long, delays a renewal.

    event loop of the scheduler --beat, leave-------------------> thread: connect -> acquire -> hold (renew) -> release
                                <--tried, acquired, ended--------

The thread has its own event loop and its own connection; only plain values pass between the two. A renewal that nothing
delays must not hide a scheduler that hangs: without a beat for as long as the renew deadline the Lease is not renewed,
and when the Lease is lost, the process has a few seconds to end before the thread ends it. What the thread does is a
coroutine, and only `in_a_thread` starts a thread: a simulation runs it as a task. Refuses to know when a beat is due:
that is for `app`.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, TypeAlias

import anyio
import attrs

from neuron_scheduler.controllers.identity import identity
from neuron_scheduler.controllers.leader_elector import RELEASE_TIMEOUT, LeaderElector, boot_time
from neuron_scheduler.controllers.lease_waiting import Leases
from neuron_scheduler.errors import LeaseLostError
from neuron_scheduler.lease_times import DURATION, RENEW_DEADLINE, RETRY_PERIOD
from neuron_scheduler.telemetry import logs

LAST_SECONDS: Final = 10.0  # for the process to end after the Lease was lost
CLOSING_TIME: Final = 3.0  # for the thread to close its connections
_UNEXPECTED: Final = "the thread that holds the lease ended unexpectedly"

log = logs.logger(__name__)

Beside: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]], Callable[[BaseException | None], None]], None]
"""Runs the coroutine of the first in an event loop, then calls the second with what kept that loop from running."""


def in_a_thread(
    take_part: Callable[[], Coroutine[Any, Any, None]], over: Callable[[BaseException | None], None]
) -> None:
    """Run a coroutine in a thread with an event loop of its own; `over` is called in the thread, after the loop."""

    def run() -> None:
        failure = None
        try:
            anyio.run(take_part, backend_options={"use_uvloop": True})
        except BaseException as error:  # noqa: BLE001 - it is raised in the scheduler's event loop
            failure = error
        over(failure)

    threading.Thread(target=run, name="lease", daemon=True).start()


@attrs.define(eq=False, kw_only=True)
class ElectionThread:
    """
    A candidate in a thread. Call `start`, `acquire`, `hold` and `leave` in one event loop, the rest in any thread.

    Attributes:
        connect: opens the Lease in the event loop of the thread, with credentials and connections of its own.
        identity: who holds the Lease when we do.
        extender_address: written into the Lease; see `LeaderElector`, like the next three (seconds).
        lease_duration, renew_deadline, retry_period: seconds.
        clock: monotonic seconds, for all threads.
        beside: starts the thread.
        end_process: called with the exit code when the scheduler does not react after the Lease was lost.
        last_seconds: for how long the thread waits for that.
    """

    connect: Callable[[], AbstractAsyncContextManager[Leases]]
    identity: str = attrs.field(factory=identity)
    extender_address: str = ""
    lease_duration: float = DURATION
    renew_deadline: float = RENEW_DEADLINE
    retry_period: float = RETRY_PERIOD
    clock: Callable[[], float] = boot_time
    beside: Beside = in_a_thread
    end_process: Callable[[int], object] = os._exit
    last_seconds: float = LAST_SECONDS
    _beaten_at: float = attrs.field(default=0.0, init=False)
    _elector: LeaderElector | None = attrs.field(default=None, init=False)
    _error: BaseException | None = attrs.field(default=None, init=False)
    _scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _left: bool = attrs.field(default=False, init=False)
    _releasing: bool = attrs.field(default=False, init=False)
    _scheduler_reacts: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)  # in the thread's event loop
    _scheduler_loop: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)
    _thread_loop: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)
    _tried: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)  # to take the Lease, once
    _acquired: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _ended: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _closed: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)  # the thread's event loop

    @property
    def leading(self) -> bool:
        """Whether we hold the Lease, as far as we know."""
        return self._elector is not None and self._elector.leading

    @property
    def renewed_at(self) -> float | None:
        """When the last successful renewal was sent, on `clock`; None while we do not lead."""
        return None if self._elector is None else self._elector.renewed_at

    @property
    def leader_address(self) -> str:
        """The URL of the extender of another replica that holds the Lease now; empty if there is none."""
        return "" if self._elector is None else self._elector.leader_address

    def may_bind(self) -> bool:
        """Return whether a Binding may be started now."""
        return self._elector is not None and self._elector.may_bind()

    def beat(self) -> None:
        """Record that the scheduler's event loop is alive; without this the thread stops renewing the Lease."""
        self._beaten_at = self.clock()

    # -- in the scheduler's event loop ---------------------------------------------------------------------------------

    async def start(self) -> bool:
        """
        Start the thread; return True if the Lease was free and is ours now, False if the thread waits for it.

        Raises:
            ConfigurationError: the credentials or the address of the API server cannot be used.
        """
        self.beat()
        self._scheduler_loop = asyncio.get_running_loop()
        self.beside(self._run, self._over)
        await self._tried.wait()
        self._raise()
        return self._acquired.is_set()

    async def acquire(self) -> None:
        """
        Wait until the Lease is ours; from then on the thread renews it.

        Raises:
            LeaseLostError: the thread has ended.
        """
        await self._acquired.wait()
        self._raise()

    async def hold(self) -> None:
        """
        Wait until the thread has ended.

        Raises:
            LeaseLostError: another candidate holds it, or it was not renewed in time; `may_bind` is False by then.
        """
        await self._ended.wait()
        self._raise()

    async def leave(self, *, release: bool) -> None:
        """End the thread; it gives the Lease back if it is ours and `release` says that no Binding is in doubt."""
        self._releasing, self._left = release, True
        if self._scheduler_loop is None:
            return
        for call in (self._scope.cancel, self._scheduler_reacts.set):
            _call(self._thread_loop, call)  # a thread that has no loop yet looks at `_left` first
        with anyio.CancelScope(shield=True), anyio.move_on_after(RELEASE_TIMEOUT + CLOSING_TIME):
            await self._closed.wait()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # -- in the thread -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._thread_loop = asyncio.get_running_loop()
        try:
            await self._take_part()
            self._error = None if self._left else LeaseLostError(_UNEXPECTED)
        except asyncio.CancelledError:  # raised in the scheduler's event loop, it would look like a stop
            self._error = LeaseLostError(_UNEXPECTED)
        except BaseException as error:  # noqa: BLE001 - it is raised in the scheduler's event loop
            self._error = error
        self._tell_end()
        if self._error is not None:
            await self._end_a_hung_scheduler(self._error)

    async def _end_a_hung_scheduler(self, error: BaseException) -> None:
        if self._left:
            return
        with anyio.move_on_after(self.last_seconds):
            await self._scheduler_reacts.wait()
            return
        log.error("The scheduler did not end after its lease was lost; ending the process", exc=error)
        logs.flush()
        self.end_process(1)

    def _over(self, failure: BaseException | None) -> None:
        """Tell the scheduler that the thread ends; without an event loop it could not before."""
        self._error = self._error or failure
        self._tell_end()
        _call(self._scheduler_loop, self._closed.set)

    def _tell_end(self) -> None:
        for event in (self._acquired, self._tried, self._ended):
            _call(self._scheduler_loop, event.set)

    async def _take_part(self) -> None:
        """Acquire the Lease and hold it until it is lost or the scheduler leaves."""
        with self._scope:
            if self._left:
                return
            async with self.connect() as leases:
                elector = self._elector = self._new_elector(leases)
                try:
                    await elector.acquire()
                    for event in (self._acquired, self._tried):
                        _call(self._scheduler_loop, event.set)
                    await elector.hold()
                finally:
                    if self._releasing:
                        await elector.release()

    def _new_elector(self, leases: Leases) -> LeaderElector:
        return LeaderElector(
            leases=leases,
            identity=self.identity,
            extender_address=self.extender_address,
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
            answering=self._answering,
            waits=lambda: _call(self._scheduler_loop, self._tried.set),
            clock=self.clock,
        )

    def _answering(self) -> bool:
        return self.clock() - self._beaten_at < self.renew_deadline


def _call(loop: asyncio.AbstractEventLoop | None, function: Callable[[], object]) -> None:
    """Call a function in another thread's event loop, if it still runs."""
    if loop is not None:
        with suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(function)

"""
Runs the candidate for the Lease in a thread of its own, so that no decision, however long, delays a renewal.

    event loop of the scheduler --beat, leave--> thread: connect -> acquire -> hold (renew) -> release
                                <--waits, led, over----

The thread has its own event loop and its own connection; only plain values cross over. A renewal that nothing delays
must not hide a scheduler that hangs: without a beat for as long as the renew deadline the Lease is not renewed, and
when the Lease was lost, the process has a few seconds to end before the thread ends it. Refuses to know when a
beat is due: that is for `app`.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

import anyio
import attrs

from neuron_scheduler.controllers.leader_elector import RELEASE_TIMEOUT, LeaderElector, Leases, boot_time, identity
from neuron_scheduler.errors import LeaseLostError
from neuron_scheduler.telemetry import logs

LAST_SECONDS: Final = 10.0  # to end in, after the Lease was lost
CLOSING_TIME: Final = 3.0  # in which the thread's connections are closed

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class ElectionThread:
    """
    A candidate in a thread. `stand`, `acquire`, `hold` and `leave` are for one event loop, the rest for any thread.

    Attributes:
        connect: opens the Lease in the event loop of the thread, with credentials and connections of its own.
        identity: who holds the Lease when we do.
        lease_duration, renew_deadline, retry_period: seconds; see `Leader`.
        clock: monotonic seconds, for all threads.
        end_process: called with the exit code when the scheduler does not answer after the Lease was lost.
        last_seconds: for how long the thread waits for its answer.
    """

    connect: Callable[[], AbstractAsyncContextManager[Leases]]
    identity: str = attrs.field(factory=identity)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    clock: Callable[[], float] = boot_time
    end_process: Callable[[int], object] = os._exit
    last_seconds: float = LAST_SECONDS
    _beaten_at: float = attrs.field(default=0.0, init=False)
    _leader: LeaderElector | None = attrs.field(default=None, init=False)
    _error: BaseException | None = attrs.field(default=None, init=False)
    _scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _left: bool = attrs.field(default=False, init=False)
    _releasing: bool = attrs.field(default=False, init=False)
    _heeded: threading.Event = attrs.field(factory=threading.Event, init=False)
    _here: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)
    _there: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)
    _waits: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)  # or leads, or has ended
    _led: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _over: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    @property
    def leading(self) -> bool:
        """Whether we hold the Lease, as far as we know."""
        return self._leader is not None and self._leader.leading

    @property
    def renewed_at(self) -> float | None:
        """When the last successful renewal was sent, on `clock`; None while we do not lead."""
        return None if self._leader is None else self._leader.renewed_at

    def may_bind(self) -> bool:
        """Tell whether a Binding may be started now."""
        return self._leader is not None and self._leader.may_bind()

    def beat(self) -> None:
        """Tell the thread that the scheduler's event loop is alive."""
        self._beaten_at = self.clock()

    # -- in the scheduler's event loop ---------------------------------------------------------------------------------

    async def stand(self) -> bool:
        """
        Start the thread; return True if the Lease was free and is ours now, False if the thread waits for it.

        Raises:
            ConfigurationError: the API server cannot be talked to as it is set up.
        """
        self.beat()
        self._here = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="lease", daemon=True).start()
        await self._waits.wait()
        self._raise()
        return self._led.is_set()

    async def acquire(self) -> None:
        """
        Wait until the Lease is ours; from then on the thread renews it.

        Raises:
            LeaseLostError: the thread has ended.
        """
        await self._led.wait()
        self._raise()

    async def hold(self) -> None:
        """
        Wait until the candidacy is over.

        Raises:
            LeaseLostError: somebody else holds the Lease, or it was not renewed in time; `may_bind` is False by then.
        """
        await self._over.wait()
        self._raise()

    async def leave(self, *, release: bool) -> None:
        """End the thread; it gives the Lease back if it is ours and `release` says that no Binding is in doubt."""
        self._heeded.set()
        self._releasing, self._left = release, True
        if self._here is None:
            return
        _call(self._there, self._scope.cancel)  # if it is not there yet, it is about to see that we have left
        with anyio.CancelScope(shield=True), anyio.move_on_after(RELEASE_TIMEOUT + CLOSING_TIME):
            await self._over.wait()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            anyio.run(self._stand, backend_options={"use_uvloop": True})
            if not self._left:
                self._error = LeaseLostError("the candidate for the lease ended unasked")
        except BaseException as error:  # noqa: BLE001 - it is raised in the scheduler's event loop
            self._error = error
        for event in (self._led, self._waits, self._over):
            _call(self._here, event.set)
        if self._error is not None and not self._heeded.wait(self.last_seconds):
            log.error("The scheduler did not end after its lease was lost; ending the process", exc=self._error)
            logs.flush()
            self.end_process(1)

    async def _stand(self) -> None:
        """Stand for the Lease until it is lost or the scheduler leaves."""
        self._there = asyncio.get_running_loop()
        with self._scope:
            if self._left:
                return
            async with self.connect() as leases:
                leader = self._leader = self._candidate(leases)
                try:
                    await leader.acquire()
                    for event in (self._led, self._waits):
                        _call(self._here, event.set)
                    await leader.hold()
                finally:
                    if self._releasing:
                        await leader.release()

    def _candidate(self, leases: Leases) -> LeaderElector:
        return LeaderElector(
            leases=leases,
            identity=self.identity,
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
            answering=self._answering,
            waits=lambda: _call(self._here, self._waits.set),
            clock=self.clock,
        )

    def _answering(self) -> bool:
        return self.clock() - self._beaten_at < self.renew_deadline


def _call(loop: asyncio.AbstractEventLoop | None, function: Callable[[], object]) -> None:
    """Let another thread's event loop call a function, if it still runs."""
    if loop is not None:
        with suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(function)

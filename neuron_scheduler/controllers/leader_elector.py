"""
Take the Lease, renew it, and stop when it is lost.

Upstream: `client-go/tools/leaderelection`, with a gap closed: the deadline counts from the *send time* of the last
successful renewal. The holder of the Lease may bind until `renew_deadline` after that; others can take it
`lease_duration` after they last saw it change, so there is time between for a Binding that was already sent.
Other candidates wait for its expiry or release (`lease_waiting`). Time is local and monotonic. The Lease is neither
taken nor renewed while the work for which it is held does not answer. Refuses to know what that work is.
"""

import datetime as dt
import math
import random as randomness
import time
from collections.abc import Callable
from typing import Final

import anyio
import attrs

from neuron_scheduler.controllers.identity import identity
from neuron_scheduler.controllers.lease_waiting import Leases, LeaseWaiting, is_missing
from neuron_scheduler.controllers.observed_lease import ObservedLease
from neuron_scheduler.errors import ApiError, ConfigurationError, LeaseLostError, UnreachableError
from neuron_scheduler.kube.writes.lease import Record
from neuron_scheduler.lease_times import DURATION, JITTER, RENEW_DEADLINE, RETRY_PERIOD
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.line_formats import sentence

SOONER: Final = 4.0  # times the retry period may be divided by, near the deadline
RELEASE_TIMEOUT: Final = 3.0
_NO_TRY: Final = "is the API server reachable?"

log = logs.logger(__name__)


def boot_time() -> float:
    """Return seconds that also pass while the machine sleeps, and never jump."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def utc_now() -> dt.datetime:
    """Return the wall-clock time that is written into the Lease for people to read."""
    return dt.datetime.fromtimestamp(time.time(), dt.UTC)


def _always() -> bool:
    return True


@attrs.define(eq=False, kw_only=True)
class LeaderElector:
    """
    One candidate.

    Attributes:
        identity: who holds the Lease when we do.
        extender_address: the URL that followers send to what only the leader may do; empty if we serve no extender.
        lease_duration, renew_deadline, retry_period: seconds; see kube-scheduler's `--leader-elect-*`.
        answering: whether the work for which the Lease is held goes on.
        waits: called each time the Lease could not be taken at once.
        clock: monotonic seconds.
        now: wall clock, only written, never compared.

    The properties and `may_bind` are safe in any thread: `renewed_at` is one value, which is replaced, not changed.
    """

    leases: Leases
    identity: str = attrs.field(factory=identity)
    extender_address: str = ""
    lease_duration: float = DURATION
    renew_deadline: float = RENEW_DEADLINE
    retry_period: float = RETRY_PERIOD
    answering: Callable[[], bool] = _always
    waits: Callable[[], object] = _always
    clock: Callable[[], float] = boot_time
    now: Callable[[], dt.datetime] = utc_now
    random: Callable[[], float] = randomness.random
    _renewed_at: float | None = attrs.field(default=None, init=False)
    _claimed: bool = attrs.field(default=False, init=False)  # the server may have our name in the Lease
    _lease: ObservedLease = attrs.field(init=False)
    _waiting: LeaseWaiting = attrs.field(init=False)
    _failure: str = attrs.field(default=_NO_TRY, init=False)  # of the last renewal
    _trouble: logs.Trouble = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lease = ObservedLease(self.identity, self.clock)
        pairs = {"lease": self.leases.key}
        self._trouble = logs.Trouble(log, "Lease can be taken again", self.clock, pairs=pairs)
        self._waiting = LeaseWaiting(leases=self.leases, lease=self._lease)
        if not self.lease_duration > self.renew_deadline > JITTER * self.retry_period > 0:
            raise ConfigurationError(
                f"leader election needs lease duration > renew deadline > {JITTER} * retry period, and they are "
                f"{self.lease_duration:g}, {self.renew_deadline:g} and {self.retry_period:g} s; "
                "change --leader-elect-lease-duration, --leader-elect-renew-deadline or --leader-elect-retry-period"
            )

    @property
    def leading(self) -> bool:
        """Whether we hold the Lease, as far as we know."""
        return self._renewed_at is not None

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen; empty if nobody."""
        return self._lease.holder

    @property
    def leader_address(self) -> str:
        """The URL of the extender of another replica that holds the Lease now; empty if there is none."""
        record = self._lease.record
        if record is None or record.holder == self.identity or self._lease.expires_in() <= 0:
            return ""
        return record.extender_address

    @property
    def renewed_at(self) -> float | None:
        """When the last successful renewal was sent, on `clock`; None while we do not lead."""
        return self._renewed_at

    def may_bind(self) -> bool:
        """Return whether a Binding may be started now: within the renew deadline since the last renewal was sent."""
        renewed_at = self._renewed_at  # read once: another thread may replace it
        return renewed_at is not None and self.clock() < renewed_at + self.renew_deadline

    # -- acquire -------------------------------------------------------------------------------------------------------

    async def acquire(self) -> None:
        """Wait until the Lease is ours; failures are tried again for ever. The log lines are client-go's."""
        log.info("Attempting to acquire leader lease...", lease=self.leases.key, identity=self.identity)
        while not await self._attempt():
            pass
        self._trouble.over()
        log.info("Successfully acquired lease", lease=self.leases.key, identity=self.identity)

    async def _attempt(self) -> bool:
        """Take the Lease if it is free, else wait for the moment when it may be; True when it is ours."""
        try:
            if not self._waiting.seen_free():
                await self._waiting.look(within=self.renew_deadline)
            wait = self._lease.expires_in()
            if wait > 0:
                self._trouble.over()
                self.waits()
                await self._waiting.wait(wait, pause=self._retry_pause)
                return False
            if self.answering():
                return await self._take()
            self._trouble.met("The scheduler does not answer; the lease is not taken")
        except ApiError as error:
            self._trouble.met("Could not take the lease, retrying", error, kind=error.status)
        except UnreachableError as error:
            self._trouble.met("Could not reach the lease, retrying", error)
        self.waits()
        await anyio.sleep(self._retry_pause())
        return False

    def _retry_pause(self) -> float:
        return self.retry_period * (1 + JITTER * self.random())

    async def _take(self) -> bool:
        """Write ourselves as the holder; False after losing the race to another."""
        sent_at, now, old = self.clock(), self.now(), self._lease.record
        claimed, self._claimed = self._claimed, True
        new = attrs.evolve(
            (old or Record("", 0)).with_extender_address(self.extender_address),
            holder=self.identity,
            duration=math.ceil(self.lease_duration),
            acquired=now,
            renewed=now,
            transitions=0 if old is None else old.transitions + (old.holder != self.identity),
        )
        write = self.leases.create if old is None else self.leases.update
        try:
            record = await write(new, within=self.renew_deadline)
        except ApiError as error:
            if error.status != 409:
                raise
            # Without a reason it is a proxy's answer, which does not count; or an earlier write of ours arrived late.
            self._claimed = claimed or not error.reason
            await anyio.sleep(self.retry_period * JITTER * self.random())
            return False
        self._lease.record, self._renewed_at = record, sent_at
        return True

    # -- hold ----------------------------------------------------------------------------------------------------------

    async def hold(self) -> None:
        """
        Renew the Lease until cancelled.

        Raises:
            LeaseLostError: another candidate holds it, or it could not be renewed in time; `may_bind` is False by then.
        """
        try:
            while True:
                await anyio.sleep(self._pause())
                await self._renew()
        except LeaseLostError:
            self._renewed_at = None
            raise

    def _pause(self) -> float:
        """Return how long to wait before the next try: near the deadline less, so that there is time for its answer."""
        left = self._time_left()
        return max(0.0, min(self.retry_period, max(left / 2, self.retry_period / SOONER), left))

    def _time_left(self) -> float:
        renewed_at = -math.inf if self._renewed_at is None else self._renewed_at
        return renewed_at + self.renew_deadline - self.clock()

    async def _renew(self) -> None:
        """Renew once, never beyond the deadline; after a failure in time `hold` tries again."""
        left, answering = self._time_left(), self.answering()
        if left <= 0:
            why = self._failure if answering else "the scheduler did not answer; was it frozen?"
            raise LeaseLostError(
                f"lease {self.leases.key} could not be renewed within {self.renew_deadline:g} s; {why}"
            )
        if not answering:
            log.warning("The scheduler does not answer; its lease is not renewed", lease=self.leases.key)
            return
        sent_at = self.clock()
        try:
            with anyio.fail_after(left):
                record = await self._renewed()
        except (ApiError, UnreachableError, TimeoutError) as error:
            self._failure = f"no answer within {left:.1f} s" if isinstance(error, TimeoutError) else sentence(error)
            log.warning("Could not renew the lease, retrying", err=self._failure, lease=self.leases.key)
            return
        self._failure = _NO_TRY
        self._lease.record, self._renewed_at = record, sent_at

    async def _renewed(self) -> Record:
        """Write the Lease; after a conflict read it first: our own write may have succeeded without an answer."""
        limit = max(self.renew_deadline / 2, self.retry_period)
        try:
            return await self.leases.update(self._next_record(), within=limit)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        try:
            lease = await self.leases.get(within=limit)
        except ApiError as error:
            if is_missing(error):
                raise LeaseLostError(f"lease {self.leases.key} was deleted") from error
            raise
        self._lease.record = lease
        if lease.holder != self.identity:
            raise LeaseLostError(f"lease {self.leases.key} is held by {lease.holder or 'nobody'}")
        return await self.leases.update(self._next_record(), within=limit)

    def _next_record(self) -> Record:
        if self._lease.record is None:
            raise LeaseLostError(f"lease {self.leases.key} was never acquired")
        record = self._lease.record.with_extender_address(self.extender_address)
        return attrs.evolve(record, duration=math.ceil(self.lease_duration), renewed=self.now())

    # -- release -------------------------------------------------------------------------------------------------------

    async def release(self) -> bool:
        """
        Give the Lease back, so that the next holder need not wait; True if the server took it.

        Only for a clean stop with every Binding resolved: otherwise the Lease must expire. Takes a few seconds at most,
        also when it is called while being cancelled. A claim that was interrupted, and may have taken the Lease, is
        undone too.
        """
        if not self._claimed:
            return False
        self._renewed_at = None
        released: bool | None = None
        with anyio.CancelScope(shield=True), anyio.move_on_after(RELEASE_TIMEOUT):
            try:
                while released is None:
                    released = await self._give_back()
            except (ApiError, UnreachableError) as error:
                log.warning("Could not release the lease, it will expire", lease=self.leases.key, exc=error)
        if released:
            self._claimed = False
            log.info("Released lease", lease=self.leases.key)
        return bool(released)

    async def _give_back(self) -> bool | None:
        """Clear the holder; False if that is not us, None if a write came in between, which may be our last renewal."""
        lease, self._lease.record = self._lease.record, None  # tried once without reading it: the successor waits
        if lease is None or lease.holder != self.identity:
            lease = await self.leases.get(within=RELEASE_TIMEOUT)
        if lease.holder != self.identity:
            return False
        now = self.now()
        released = attrs.evolve(lease.with_extender_address(""), holder="", duration=1, acquired=now, renewed=now)
        try:
            await self.leases.update(released, within=RELEASE_TIMEOUT)
        except ApiError as error:
            if error.status != 409:
                raise
            return None
        return True

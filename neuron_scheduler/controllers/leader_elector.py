"""
One candidate for the Lease: takes it, renews it, and gives it back.

Upstream: `client-go/tools/leaderelection`, with a gap closed: the deadline counts from the *send time* of the last
successful renewal. The holder may bind until `renew_deadline` after that; others can take the Lease `lease_duration`
after its last change. The time between is for a Binding that was already sent. A candidate watches the Lease, and takes
it at its expiry, or at once when it is released.

It runs in the scheduler's event loop, so a scheduler that hangs loses its Lease (docs/decisions/0006).
"""

import datetime as dt
import math
import os
import random as randomness
import re
import socket
import time
import uuid
from collections.abc import Callable
from typing import Final

import anyio
import attrs

from neuron_scheduler.kube.writes.lease import LeaseClient, Record
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, LeaseLostError, UnreachableError
from neuron_scheduler.telemetry.line_formats import sentence

JITTER: Final = 1.2  # client-go's: a retry may take so many times its period
SOONER: Final = 4.0  # times the retry period may be divided by, near the deadline
RELEASE_TIMEOUT: Final = 3.0
WATCH_SECONDS: Final = 300
LEASE_TOLERANCE: Final = 20.0  # seconds beyond the lease duration, as kube-scheduler's watchdog allows
_FROZEN: Final = "the scheduler did not answer; was it frozen?"
"""No renewal has failed, so none was tried."""

_POD_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?", re.ASCII)

log = logs.logger(__name__)


def identity() -> str:
    """
    Return a new holder identity for this process: `<name>_<uuid>`, with the pod's name or the hostname.

    Raises:
        ConfigurationError: POD_NAME is not the name of a pod.
    """
    name = os.environ.get("POD_NAME", "")
    if name and not _POD_NAME.fullmatch(name):
        raise ConfigurationError(
            f"the environment variable POD_NAME is {name[:64]!a}, which is not the name of a pod; "
            "take it from metadata.name as in manifests/base/deployment.yaml, or unset it"
        )
    return f"{name or socket.gethostname()}_{uuid.uuid4()}"


def boot_time() -> float:
    """Return seconds that also pass while the machine sleeps, and never jump."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def utc_now() -> dt.datetime:
    """Return the wall-clock time that is written into the Lease for people to read."""
    return dt.datetime.fromtimestamp(time.time(), dt.UTC)


@attrs.define(eq=False, kw_only=True)
class LeaderElector:
    """
    One candidate; no other machine's clock is compared with ours.

    Attributes:
        identity: who holds the Lease when we do.
        extender_address: where followers send requests for the leader; empty if we serve no extender.
        lease_duration, renew_deadline, retry_period: seconds; see kube-scheduler's `--leader-elect-*`.
        clock: monotonic seconds.
        now: wall clock, only written, never compared.
        tried: set when the Lease was taken, or could not be taken at once.
        acquired: set when the Lease is ours.
    """

    leases: LeaseClient
    identity: str = attrs.field(factory=identity)
    extender_address: str = ""
    lease_duration: float
    renew_deadline: float
    retry_period: float
    clock: Callable[[], float] = boot_time
    now: Callable[[], dt.datetime] = utc_now
    random: Callable[[], float] = randomness.random
    tried: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    acquired: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _renewed_at: float | None = attrs.field(default=None, init=False)
    _claimed: bool = attrs.field(default=False, init=False)  # the server may have our name in the Lease
    _record: Record | None = attrs.field(default=None, init=False)  # the Lease; None if there is none, or not seen yet
    _changed_at: float = attrs.field(default=0.0, init=False)  # when we last saw it change
    _seen_free: bool = attrs.field(default=False, init=False)  # by the watch, since the last attempt
    _failure: str = attrs.field(default=_FROZEN, init=False)  # of the last renewal
    _trouble: logs.Trouble = attrs.field(init=False)
    _watch_trouble: logs.Trouble = attrs.field(init=False)
    _scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _running: anyio.Event | None = attrs.field(default=None, init=False)  # set when `run` has ended

    def __attrs_post_init__(self) -> None:
        pairs = {"lease": self.leases.key}
        self._trouble = logs.Trouble(log, "Lease can be taken again", self.clock, pairs=pairs)
        self._watch_trouble = logs.Trouble(log, "", self.clock, verbosity=2, pairs=pairs)

    @property
    def is_leading(self) -> bool:
        """Whether we hold the Lease, as far as we know."""
        return self._renewed_at is not None

    @property
    def holder(self) -> str:
        return "" if self._record is None else self._record.holder

    @property
    def leader_address(self) -> str:
        """The URL of the extender of another replica that holds the Lease now; empty if there is none."""
        record = self._record
        if record is None or record.holder == self.identity or self._expires_in() <= 0:
            return ""
        return record.extender_address

    def may_bind(self) -> bool:
        """Return whether a Binding may be started now: within the renew deadline since the last renewal was sent."""
        return self._renewed_at is not None and self.clock() < self._renewed_at + self.renew_deadline

    def find_overdue(self) -> str | None:
        """Return what is wrong if we lead and the last renewal is overdue by more than the tolerance (`Check`)."""
        late = 0.0 if self._renewed_at is None else self.clock() - self._renewed_at
        if late <= self.lease_duration + LEASE_TOLERANCE:
            return None
        return f"the Lease was last renewed {late:.0f} s ago; it lasts {self.lease_duration:g} s"

    async def run(self, is_ready: anyio.Event) -> None:
        """Take the Lease, at once or when we are ready, and hold it until `leave`; LeaseLostError as `hold`."""
        self._running = anyio.Event()
        try:
            with self._scope:
                await self.acquire(is_ready)
                await self.hold()
        finally:
            self._running.set()

    async def leave(self, *, release: bool) -> None:
        """Stop renewing; give the Lease back if it is ours and `release` says that no Binding is in doubt."""
        self._scope.cancel()
        if self._running is not None:
            await self._running.wait()
        if release:
            await self.release()

    # -- acquire -------------------------------------------------------------------------------------------------------

    async def acquire(self, is_ready: anyio.Event) -> None:
        """Wait until the Lease is ours; failures are tried again for ever. The log lines are client-go's."""
        log.info("Attempting to acquire leader lease...", lease=self.leases.key, identity=self.identity)
        while not await self._attempt():
            self.tried.set()
            await is_ready.wait()  # another replica may be ready already
        self.acquired.set()
        self.tried.set()
        self._trouble.report_end()
        log.info("Successfully acquired lease", lease=self.leases.key, identity=self.identity)

    async def _attempt(self) -> bool:
        """Take the Lease if it is free, else wait for the moment when it may be; True when it is ours."""
        try:
            if not self._seen_free:
                await self._look()
            self._seen_free = False  # a write fails if what the watch has shown is out of date
            if self._expires_in() <= 0:
                return await self._take()
            self._trouble.report_end()
            self.tried.set()
            await self._wait_until_free()
        except ApiError as error:
            self._trouble.report("Could not take the lease, retrying", error, kind=error.status)
        except UnreachableError as error:
            self._trouble.report("Could not reach the lease, retrying", error)
        else:
            return False
        await anyio.sleep(self._retry_pause())
        return False

    async def _look(self) -> None:
        try:
            self._observe(await self.leases.get(within=self.renew_deadline))
        except ApiError as error:
            if not _is_missing(error):
                raise
            self._observe(None)

    def _observe(self, record: Record | None) -> None:
        before = self.holder
        if record != self._record or record is None:
            self._changed_at = self.clock()
        self._note(record)
        if self.holder not in ("", before, self.identity):
            log.info("New leader elected", lease=self.leases.key, identity=self.holder)

    def _note(self, record: Record | None) -> None:
        known, self._record = self._record, record
        if known is not None and record is not None and int(record.resource_version) < int(known.resource_version):
            raise LeaseLostError(
                f"lease {self.leases.key} is older than before: was etcd restored? a new start lists all"
            )

    def _expires_in(self) -> float:
        """Return in how many seconds the Lease may be taken; the duration in it counts, not ours."""
        if self._record is None or self._record.holder in ("", self.identity):
            return 0.0
        return self._changed_at + self._record.duration - self.clock()

    async def _wait_until_free(self) -> None:
        """Return when the Lease has expired, at once when it is released or deleted, or if it cannot be watched."""
        with anyio.move_on_after(self._expires_in()) as scope:

            def on_change(record: Record | None) -> bool:
                self._observe(record)
                scope.deadline = anyio.current_time() + self._expires_in()
                self._seen_free = self.holder == ""
                return self._expires_in() <= 0

            try:
                version = "" if self._record is None else self._record.resource_version
                await self.leases.watch(version, on_change, seconds=WATCH_SECONDS)
            except (ApiError, UnreachableError) as error:
                self._watch_trouble.report("Watch of the lease broke off", error)
            await anyio.sleep(self._retry_pause())  # a server that hangs up at once

    def _retry_pause(self) -> float:
        return self.retry_period * (1 + JITTER * self.random())

    async def _take(self) -> bool:
        sent_at, now, old = self.clock(), self.now(), self._record
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
            if error.status != 409 or not error.reason:  # without a reason it is a proxy's answer, which does not count
                raise
            self._claimed = claimed  # or an earlier write of ours arrived late
            await self._look()  # the winner's time counts from now
            await anyio.sleep(self.retry_period * JITTER * self.random())
            return False
        self._note(record)
        self._renewed_at = sent_at
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
        left = self._time_left()
        if left <= 0:
            raise LeaseLostError(
                f"lease {self.leases.key} could not be renewed within {self.renew_deadline:g} s; {self._failure}"
            )
        sent_at = self.clock()
        try:
            with anyio.fail_after(left):
                record = await self._write_renewal()
        except (ApiError, UnreachableError, TimeoutError) as error:
            self._failure = f"no answer within {left:.1f} s" if isinstance(error, TimeoutError) else sentence(error)
            log.warning("Could not renew the lease, retrying", err=self._failure, lease=self.leases.key)
            return
        self._failure = _FROZEN
        self._note(record)
        self._renewed_at = sent_at

    async def _write_renewal(self) -> Record:
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
            if _is_missing(error):
                raise LeaseLostError(f"lease {self.leases.key} was deleted") from error
            raise
        self._note(lease)
        if lease.holder != self.identity:
            raise LeaseLostError(f"lease {self.leases.key} is held by {lease.holder or 'nobody'}")
        return await self.leases.update(self._next_record(), within=limit)

    def _next_record(self) -> Record:
        if self._record is None:
            raise LeaseLostError(f"lease {self.leases.key} was never acquired")
        record = self._record.with_extender_address(self.extender_address)
        return attrs.evolve(record, duration=math.ceil(self.lease_duration), renewed=self.now())

    # -- release -------------------------------------------------------------------------------------------------------

    async def release(self) -> bool:
        """
        Give the Lease back, so that the next holder need not wait; True if the server took it.

        Only for a clean stop with every Binding resolved: otherwise the Lease must expire. An interrupted claim that
        may have taken the Lease is undone, too.
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
        """Clear the holder; False if that is not us, None if a write (such as our last renewal) came in between."""
        lease, self._record = self._record, None  # tried once without reading it: the successor waits
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


def _is_missing(error: ApiError) -> bool:
    """Return whether the API server says that there is no Lease; a load balancer's 404 does not count."""
    return error.status == 404 and error.reason == "NotFound"

"""
Wait until a Lease that another candidate holds may be taken: exactly at its expiry, or at once when it is released.

The Lease is read once and then watched. Refuses to take it, and to decide how long it is held: that is for
`leader_elector` and `observed_lease`.
"""

from collections.abc import Callable
from typing import Final, Protocol

import anyio
import attrs

from neuron_scheduler.controllers.observed_lease import ObservedLease
from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.writes.lease import Record
from neuron_scheduler.telemetry import logs

WATCH_SECONDS: Final = 300

log = logs.logger(__name__)


class Leases(Protocol):
    """The Lease at the API server."""

    @property
    def key(self) -> str:
        """`namespace/name`."""

    async def get(self, *, within: float) -> Record:
        """Read it."""

    async def create(self, record: Record, *, within: float) -> Record:
        """Create it."""

    async def update(self, record: Record, *, within: float) -> Record:
        """Replace it if it has not changed."""

    async def watch(self, resource_version: str, seen: Callable[[Record | None], bool], *, seconds: int) -> None:
        """Follow its changes."""


def is_missing(error: ApiError) -> bool:
    """Return whether the API server says that there is no Lease; a proxy's 404 does not count."""
    return error.status == 404 and error.reason == "NotFound"


@attrs.define(eq=False, kw_only=True)
class LeaseWaiting:
    """
    Reads and watches the Lease.

    Attributes:
        lease: what is seen of it goes here.
    """

    leases: Leases
    lease: ObservedLease
    _seen_free: bool = attrs.field(default=False, init=False)  # by the watch, since the last attempt
    _watch_trouble: logs.Trouble = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._watch_trouble = logs.Trouble(log, "", self.lease.clock, verbosity=2, pairs={"lease": self.leases.key})

    def seen_free(self) -> bool:
        """
        Return, once, whether the watch has shown that nobody holds the Lease.

        Then it need not be read again: a write fails if that is out of date.
        """
        seen_free, self._seen_free = self._seen_free, False
        return seen_free

    async def look(self, *, within: float) -> None:
        """Read the Lease; ApiError, UnreachableError."""
        try:
            self._observe(await self.leases.get(within=within))
        except ApiError as error:
            if not is_missing(error):
                raise
            self._observe(None)

    async def wait(self, seconds: float, *, pause: Callable[[], float]) -> None:
        """Return when the Lease has expired, at once when it is released or deleted, or if it cannot be watched."""
        with anyio.move_on_after(seconds) as scope:

            def seen(record: Record | None) -> bool:
                self._observe(record)
                scope.deadline = anyio.current_time() + self.lease.expires_in()
                self._seen_free = self.lease.holder == ""
                return self.lease.expires_in() <= 0

            try:
                await self.leases.watch(self.lease.version, seen, seconds=WATCH_SECONDS)
            except (ApiError, UnreachableError) as error:
                self._watch_trouble.met("Watch of the lease broke off", error)
            await anyio.sleep(pause())  # a server that hangs up at once

    def _observe(self, record: Record | None) -> None:
        if self.lease.observe(record):
            log.info("New leader elected", lease=self.leases.key, identity=self.lease.holder)

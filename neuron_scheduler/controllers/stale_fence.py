"""
Find out why a Binding is refused as if we did not hold the Lease: it is lost, or the API server's fence is stale.

The fence, a policy on Bindings (`manifests/base/admission_bindings.yaml`), reads the Lease from the API server's own
watch of Leases. When the last policy with a Lease as parameter is deleted, that watch ends until the server is
restarted (kubernetes/kubernetes#130887). From then on every Binding is refused, although this replica holds the Lease,
and only a person can change that. So one sentence says what to do, and the queue is paused between the attempts.
Does not explain a refusal that has another cause: another replica holds the Lease, or the server is a moment behind.
"""

import math
from collections.abc import Callable
from typing import Final, Protocol

import anyio
import attrs

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.writes.lease import Record
from neuron_scheduler.telemetry import logs

LAG: Final = 5.0  # seconds; a watch that is further behind has most probably ended
PAUSE: Final = 5.0  # seconds between two rounds of attempts
QUIET: Final = 60.0  # seconds without such a refusal after which the next one is logged again
READ_EVERY: Final = 1.0  # seconds for which one GET of the Lease serves all refusals
WITHIN: Final = 4.0  # seconds for that GET

log = logs.logger(__name__)


class Leases(Protocol):
    """The Lease at the API server."""

    @property
    def key(self) -> str:
        """`namespace/name`."""

    async def get(self, *, within: float) -> Record:
        """Read it."""


def _ignore_pause(_until: float) -> None:
    """Do nothing."""


def _ignore_count() -> None:
    """Do nothing."""


@attrs.define(eq=False, kw_only=True)
class StaleFence:
    """
    Explains Bindings that were refused because their sender does not hold the Lease.

    Attributes:
        identity: who holds the Lease when we do.
        clock: seconds that never jump, the queue's time.
        pause: called with the time until which no pod should be tried.
        counted: called for each Binding that is refused because of an old state of the Lease.
    """

    leases: Leases
    identity: str
    clock: Callable[[], float]
    pause: Callable[[float], None] = _ignore_pause
    counted: Callable[[], None] = _ignore_count
    _reading: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    _read_at: float = attrs.field(default=-math.inf, init=False)
    _held_since: float | None = attrs.field(default=None, init=False)
    _refused_at: float = attrs.field(default=-math.inf, init=False)

    async def explained(self, message: str) -> str:
        """Return the message for the pod's owner: the server's own, unless we have held the Lease for `LAG`."""
        held_since = await self._read_lease()
        now = self.clock()
        if held_since is None or now - held_since < LAG:
            return message
        sentence = (
            f"the API server refuses every Binding because it sees an old state of Lease {self.leases.key}, which this"
            " scheduler holds: its watch of Leases has ended (kubernetes/kubernetes#130887). Restart kube-apiserver; if"
            " you cannot, delete the ValidatingAdmissionPolicyBinding neuron-scheduler-leader and run one replica until"
            " the control plane has been renewed. To prevent it, apply manifests/lease-watch"
        )
        if now - self._refused_at > QUIET:
            log.error("Bindings are refused by mistake", lease=self.leases.key, err=sentence)
        self._refused_at = now
        self.counted()
        self.pause(now + PAUSE)
        return sentence

    async def _read_lease(self) -> float | None:
        """Return since when we know that we hold the Lease; None if we do not, or if it cannot be read."""
        async with self._reading:
            if self.clock() - self._read_at >= READ_EVERY:
                try:
                    ours = (await self.leases.get(within=WITHIN)).holder == self.identity
                except (ApiError, UnreachableError):
                    ours = False
                self._read_at = self.clock()
                if not ours:
                    self._held_since = None
                elif self._held_since is None:
                    self._held_since = self._read_at
        return self._held_since

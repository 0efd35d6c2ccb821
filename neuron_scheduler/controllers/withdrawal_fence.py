"""
Holds a Binding back until what asked the autoscaler for a machine is deleted.

A placeholder that is still there when its pod is bound makes the autoscaler buy a second machine. So a Binding to the
node that has joined for a request, or of the last pod that a request was for, waits for the answer to the deletion; but
never for longer than `LONGEST`: an API server that does not delete must not keep a pod from its node. A Binding that
waits occupies no worker. Does not delete or send Bindings.
"""

from collections.abc import Callable
from typing import Final

import anyio
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.commitment import Commitment, obstacle
from neuron_scheduler.kube.writes.binder import BindOutcome, Fenced
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

LONGEST: Final = 3.0
"""Seconds for which a Binding waits for a deletion at most."""

log = logs.logger(__name__)


def _nothing_to_wait_for(_commitment: Commitment) -> str:
    return ""


@attrs.define(eq=False, kw_only=True)
class WithdrawalFence:
    """
    Decides when a Binding may be sent.

    Attributes:
        clock: seconds that never jump.
        send: called with a commitment that has waited, when its Binding may be sent.
        settle: called with a commitment that will not be sent, and its outcome.
        errors: reports unexpected exceptions.
        behind: returns the name of the request whose deletion a Binding has to wait for; empty if there is none.
    """

    cluster: Cluster
    clock: Callable[[], float]
    send: Callable[[Commitment], None]
    settle: Callable[[Commitment, BindOutcome], None]
    errors: UnexpectedErrors
    behind: Callable[[Commitment], str] = _nothing_to_wait_for
    _waiting: dict[str, list[Commitment]] = attrs.field(factory=dict, init=False)  # by the name of the request
    _until: dict[str, float] = attrs.field(factory=dict, init=False)
    _changed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def take(self, commitment: Commitment) -> bool:
        """Return True if the Binding may be sent now; otherwise `send` or `settle` is called later."""
        try:
            name = self.behind(commitment)
        except Exception as error:  # noqa: BLE001 - a pod must not lose its node for an extra
            self.errors.report(error, task="capacity request", pod=commitment.pod.key)
            return True
        if not name:
            return True
        if name not in self._waiting:
            self._until[name] = self.clock() + LONGEST
            self._changed.set()
        self._waiting.setdefault(name, []).append(commitment)
        return False

    def withdrawn(self, name: str) -> None:
        """Let the Bindings through that wait for a request's deletion."""
        self._until.pop(name, None)
        for commitment in self._waiting.pop(name, ()):
            self._let_through(commitment)

    def clear(self) -> None:
        """Settle all Bindings that wait: nothing more is to be sent."""
        waiting, self._waiting = self._waiting, {}
        self._until.clear()
        for commitments in waiting.values():
            for commitment in commitments:
                self.settle(commitment, Fenced())

    async def watch_the_clock(self) -> None:
        """Let Bindings through, until cancelled, that have waited for as long as is allowed."""
        while True:
            self._changed = anyio.Event()
            with anyio.move_on_after(min(self._until.values()) - self.clock() if self._until else None):
                await self._changed.wait()
            self.expire()

    def expire(self) -> None:
        """Let the Bindings through that have waited for as long as is allowed."""
        now = self.clock()
        for name in [name for name, until in self._until.items() if until <= now]:
            log.warning(
                "What asked the autoscaler for a machine is not deleted yet; binding its pods all the same",
                name=name,
                pods=len(self._waiting.get(name, ())),
            )
            self.withdrawn(name)

    def _let_through(self, commitment: Commitment) -> None:
        outcome = obstacle(self.cluster, commitment, self.errors)
        if outcome is None:
            self.send(commitment)
        else:
            self.settle(commitment, outcome)

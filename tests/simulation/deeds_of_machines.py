"""
What machines and administrators do to the control plane: servers stop, histories are compacted, tokens change.

Refuses to do anything to the scheduler's processes: `process_faults` does.
"""

from typing import TYPE_CHECKING

import attrs

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.resources import LEASES
from tests.simulation.admission import LEASE
from tests.simulation.deeds import MERGE

if TYPE_CHECKING:
    from tests.simulation.world import World


@attrs.frozen(kw_only=True)
class StopServer:
    """An API server ends, and comes back after so many seconds with an empty watch cache."""

    at: float
    server: str
    seconds: float

    def __str__(self) -> str:
        return f"stop {self.server} for {self.seconds:.1f} s"

    def done_in(self, world: "World") -> None:
        """Do it."""
        if self.server in world.servers:
            world.servers[self.server].stop(self.seconds)


@attrs.frozen(kw_only=True)
class FreezeServer:
    """An API server does nothing for so many seconds, and then goes on where it was."""

    at: float
    server: str
    seconds: float

    def __str__(self) -> str:
        return f"freeze {self.server} for {self.seconds:.1f} s"

    def done_in(self, world: "World") -> None:
        """Do it."""
        if self.server in world.servers and world.servers[self.server].process.alive:
            world.servers[self.server].process.stop(self.seconds)


@attrs.frozen(kw_only=True)
class Compact:
    """Old versions are forgotten: by etcd, so that page tokens expire, and by the watch caches of all servers."""

    at: float

    def __str__(self) -> str:
        return "compact the history"

    def done_in(self, world: "World") -> None:
        """Do it."""
        world.store.expire()
        for server in world.servers.values():
            server.cache.expire()


@attrs.frozen(kw_only=True)
class IssueToken:
    """A new token is accepted beside the old one."""

    at: float

    def __str__(self) -> str:
        return "issue a new token"

    def done_in(self, world: "World") -> None:
        """Do it."""
        world.tokens.issue()


@attrs.frozen(kw_only=True)
class WriteToken:
    """The kubelet writes the newest token into the file of the replicas."""

    at: float

    def __str__(self) -> str:
        return "write the new token"

    def done_in(self, world: "World") -> None:
        """Do it."""
        world.tokens.write()


@attrs.frozen(kw_only=True)
class RevokeTokens:
    """The servers refuse all tokens but the newest, whether or not it is in the file already."""

    at: float

    def __str__(self) -> str:
        return "revoke the old tokens"

    def done_in(self, world: "World") -> None:
        """Do it."""
        world.tokens.revoke()


@attrs.frozen(kw_only=True)
class DeleteLease:
    """Somebody deletes the Lease."""

    at: float

    def __str__(self) -> str:
        return "delete the Lease"

    def done_in(self, world: "World") -> None:
        """Do it."""
        world.registry.delete(LEASES, *LEASE, {})


@attrs.frozen(kw_only=True)
class TakeLease:
    """A stranger writes its name into the Lease, whoever holds it, and does nothing with it."""

    at: float
    holder: str
    seconds: int

    def __str__(self) -> str:
        return f"{self.holder or 'nobody'} takes the Lease for {self.seconds} s"

    def done_in(self, world: "World") -> None:
        """Do it."""
        moment = metadata.timestamp(world.registry.clock()).replace("Z", ".000000Z")
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.seconds,
            "acquireTime": moment,
            "renewTime": moment,
        }
        world.registry.patch(LEASES, *LEASE, {"spec": spec}, media_type=MERGE)


@attrs.frozen(kw_only=True)
class AnnotateLease:
    """Somebody writes an annotation on the Lease."""

    at: float

    def __str__(self) -> str:
        return "annotate the Lease"

    def done_in(self, world: "World") -> None:
        """Do it."""
        change = {"metadata": {"annotations": {"example.com/note": f"{self.at:g}"}}}
        world.registry.patch(LEASES, *LEASE, change, media_type=MERGE)

"""
Keeps two replicas running, as the Deployment does, and makes the leader go from time to time, in four ways.

A replica that ends is replaced, whether it was asked to end or not; who was not asked is noted. Refuses to cause any
other fault.
"""

import signal
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import attrs

from benchmarks.replicas.plane import Cluster
from benchmarks.replicas.replica import Replica, Replicas, holder, name_in
from tests.control_plane.component import ComponentError
from tests.end_to_end.workload import LEASE

FROZEN: Final = 25.0  # seconds: longer than a Lease lasts
STOLEN: Final = 5  # seconds that a thief holds the Lease
THIEF: Final = "thief_0"


@attrs.define(eq=False)
class Takeovers:
    """
    The replicas.

    Attributes:
        running: those that run now.
        expected: the names of those that were made to end, and with what code they may.
        surprises: replicas that ended otherwise, a sentence each.
        done: what was done, with the second since the beginning.
        on_start, on_end: called with each replica that has started or ended.
    """

    cluster: Cluster
    replicas: Replicas
    began: float
    on_start: Callable[[Replica], object]
    on_end: Callable[[Replica], object]
    running: list[Replica] = attrs.field(factory=list, init=False)
    expected: dict[str, tuple[int, ...]] = attrs.field(factory=dict, init=False)
    surprises: list[str] = attrs.field(factory=list, init=False)
    done: list[tuple[str, float]] = attrs.field(factory=list, init=False)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Start two, and replace those that end, until cancelled."""
        for _ in range(2):
            await self._start()
        task_status.started()
        while True:
            await anyio.sleep(0.2)
            for replica in [each for each in self.running if each.component.returncode is not None]:
                self._ended(replica)
                await self._start()

    async def stop(self) -> None:
        """Stop the leader as a rolling update does."""
        leader = await self._leader("SIGTERM", (0,))
        leader.send(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill the leader."""
        leader = await self._leader("SIGKILL", (-signal.SIGKILL,))
        leader.send(signal.SIGKILL)

    async def freeze(self) -> None:
        """Freeze the leader until its Lease is lost."""
        leader = await self._leader("SIGSTOP", (1,))
        leader.send(signal.SIGSTOP)
        await anyio.sleep(FROZEN)
        leader.send(signal.SIGCONT)

    async def steal(self) -> None:
        """Write another holder into the Lease, who never renews it."""
        await self._leader("Lease stolen", (1,))
        stolen = {"spec": {"holderIdentity": THIEF, "leaseDurationSeconds": STOLEN}}
        await self.cluster.api.patch(LEASE, stolen)

    @property
    def ways(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """What can be done to a leader."""
        return (self.stop, self.kill, self.steal, self.freeze)

    async def _leader(self, deed: str, codes: tuple[int, ...]) -> Replica:
        while (leader := await self._settled_leader()) is None:  # noqa: ASYNC110 - processes start and end
            await anyio.sleep(0.2)
        self.expected[leader.name] = codes
        self.done.append((deed, round(time.perf_counter() - self.began)))
        return leader

    async def _settled_leader(self) -> Replica | None:
        """Return the holder of the Lease if it runs, nothing was done to it, and another replica is there."""
        name = name_in(await holder(self.cluster))
        others = [each for each in self.running if each.name != name and each.name not in self.expected]
        leader = next((each for each in self.running if each.name == name and name not in self.expected), None)
        return leader if others else None

    async def _start(self) -> None:
        while True:
            try:
                replica = await self.replicas.start()
            except ComponentError as error:
                self.surprises.append(f"a replica did not start: {error}")
            else:
                self.running.append(replica)
                self.on_start(replica)
                return

    def _ended(self, replica: Replica) -> None:
        code = replica.component.returncode
        if code not in self.expected.get(replica.name, ()):
            self.surprises.append(f"{replica.name} ended with {code}: {replica.component.tail(3)}")
        self.running.remove(replica)
        self.on_end(replica)

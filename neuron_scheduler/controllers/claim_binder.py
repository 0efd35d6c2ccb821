"""
Write a pod's claims between its decision and its Binding: finalizer, devices, own write seen, no rival.

    protect -> allocate and reserve -> the watch shows that -> does another claim have one of the devices since before?
        no  -> the Binding
        yes -> take back, and queue the pod again

etcd orders the writes of two schedulers, claims are one resource, and one watch is in order: so the later writer sees
the other's claim, and only it takes back. That holds for a leader that does not know yet that it is none: these writes
need no Lease. Whatever dies between them leaves claims that the next leader binds to or takes back.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import ClassVar, Final
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.changes import Change, DevicesChanged, Kinds
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fold import resolve_pods
from neuron_scheduler.cluster.tables.claims import AT_ONCE, Claims
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.kube.writes.binder import BindOutcome, Fenced, Gone, Refused
from neuron_scheduler.kube.writes.claim_writer import ClaimFailed, ClaimWriter
from neuron_scheduler.model.devices import ClaimWrite, ResourceClaim
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs

PREFIX: Final = 'running PreBind plugin "DynamicResources": '
SEEN_WITHIN: Final = 10.0
"""Seconds for the watch to show a write; after that the pod is queued again, and finds its devices."""
_TRIES: Final = 4
_LOOK: Final = 1.0
_LOOKS_AT_ALL: Final = 10
_CLAIMS_A_STEP: Final = 256
WAITING_FOR_CLAIM: Final = "WaitingForResourceClaim"
IN_SILENCE: Final = 5.0
"""Seconds for which nothing is said of a claim that is missing: it is being created."""

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class ClaimBinder:
    """Writes claims; `tell` is called with what has changed in the cluster memory."""

    OBSERVES: ClassVar[Kinds] = (DevicesChanged,)

    cluster: Cluster
    claims: Claims
    writer: ClaimWriter
    may_bind: Callable[[], bool]
    queue: SchedulingQueue
    reporter: PodReporter
    clock: Callable[[], float]
    tell: Callable[[Iterable[Change]], object] = attrs.field(default=list, init=False)
    _useless: set[str] = attrs.field(factory=set, init=False)  # keys of claims whose devices are being taken back
    _idle: set[str] = attrs.field(factory=set, init=False)  # keys of claims whose pods waited at the last look at all
    _since: dict[str, float] = attrs.field(factory=dict, init=False)  # when a pod was first seen to wait, by uid
    _locks: WeakValueDictionary[str, anyio.Lock] = attrs.field(factory=WeakValueDictionary, init=False)
    _changed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def observe(self, change: Change) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        if isinstance(change, DevicesChanged) and change.claim in self._useless:
            self._look_at(change.claim)

    async def run(self) -> None:
        """Tell owners which claims are missing, and take back what is of no use, from time to time."""
        for number in count():
            await anyio.sleep(_LOOK)
            for _ in range(0, len(self.claims.unresolved), AT_ONCE):  # of many pods, an event resolves the first
                self._resolve(())
                await anyio.lowlevel.checkpoint()
            await self._report_missing()
            await self._take_back_useless()
            if number % _LOOKS_AT_ALL == 0:
                await self._look_at_all()

    async def _take_back_useless(self) -> None:
        """Take back what is still of no use until that is seen: a write without an answer may be carried out later."""
        for key in [*self._useless]:
            claim = self.claims.claims.get(key)
            if claim is not None and claim.allocation is not None and not self._is_idle(key):
                self._useless.discard(key)
                self._resolve(self.claims.release([key]))
            elif key in self._useless and self.may_bind():
                await self._take_back(key)

    async def _look_at_all(self) -> None:
        """Find claims whose pods all waited at the last look, too; then a late watch has shown who was bound."""
        before, self._idle = self._idle, set()
        for number, key in enumerate([*self.claims.claims]):
            if self._is_idle(key):
                self._idle.add(key)
                if key in before:
                    self._keep(key)
            if number % _CLAIMS_A_STEP == 0:
                await anyio.lowlevel.checkpoint()

    def _look_at(self, key: str) -> None:
        """Let pods use a claim again once it has no devices."""
        claim = self.claims.claims.get(key)
        if claim is None or claim.allocation is None:
            self._useless.discard(key)
            self._resolve(self.claims.release([key]))

    async def _report_missing(self) -> None:
        now, waiting = self.clock(), self.claims.waiting
        self._since = {uid: self._since.get(uid, now) for uid in waiting}
        for number, (uid, problem) in enumerate([*waiting.items()]):
            if number % _CLAIMS_A_STEP == 0:
                await anyio.lowlevel.checkpoint()
            pod = self.claims.pods.get(uid)
            if pod is not None and now - self._since[uid] >= IN_SILENCE and self.may_bind():
                self.reporter.report_wait(pod, WAITING_FOR_CLAIM, f"Waiting for a resource claim: {problem}.")

    def _is_idle(self, key: str) -> bool:
        """Return whether a claim has devices, and all its pods are ours and wait: their node may refuse them."""
        claim, users = self.claims.claims.get(key), self.claims.users.get(key, ())
        if claim is None or claim.allocation is None or claim.reserved_for_others or not users:
            return False
        queued = map(self.queue.get, (*claim.reserved_for, *users))
        return all(each is not None and each.place not in (Place.ACTIVE, Place.IN_FLIGHT) for each in queued)

    def _keep(self, key: str) -> None:
        """Keep a claim from all pods until its devices are taken back."""
        self._useless.add(key)
        self._resolve(self.claims.keep([key]))

    def on_decided(self, pod: Pod, writes: Sequence[ClaimWrite]) -> None:
        """Keep claims that get devices from other pods until these are written."""
        given = [write.claim.key for write in writes if write.claim.allocation is None]
        self._resolve(self.claims.decide(pod, given))

    async def prepare(self, pod: Pod, writes: Sequence[ClaimWrite]) -> BindOutcome | None:
        """Write a pod's claims; None if the pod can be bound now."""
        try:
            return await self._write_all(pod, writes)
        finally:
            self._resolve(self.claims.end_writing(pod.uid))

    def settle(self, uid: str) -> None:
        """Resolve a pod now that is left to resolve: it is about to be decided."""
        if uid in self.claims.unresolved:
            self._resolve([uid])

    async def _write_all(self, pod: Pod, writes: Sequence[ClaimWrite]) -> BindOutcome | None:
        if pod.open_claims != tuple(each.claim.uid for each in writes if each.claim.allocation is None):
            return _refusal("its claims meant something else when it was decided")
        for write in writes:
            if not self.may_bind():
                return Fenced()
            async with self._locks.setdefault(write.claim.key, anyio.Lock()):  # each write needs the last one's version
                outcome = await self._write(pod, write)
            if outcome is not None:
                return outcome
        for write in writes:
            row = self.cluster.node(write.node_name)
            rival = self.claims.rival_of(write.claim.key, None if row is None else row.node)
            if rival is not None:
                log.info("Claim got devices of another one; taking it back", claim=write.claim.key, other=rival)
                await self._take_back(write.claim.key)
                return _refusal(f"claim {write.claim.name} got devices that another claim has")
        return None

    def release(self, pod: Pod) -> None:
        """Note that a pod is not being bound any more; what was written stays for its next attempt."""
        self.claims.withdraw(pod.uid)
        self._resolve([pod.uid, *self.claims.end_writing(pod.uid)])

    def _resolve(self, uids: Iterable[str]) -> None:
        self.tell([*resolve_pods(self.cluster, [uid for uid in uids if uid in self.queue])])

    async def _write(self, pod: Pod, write: ClaimWrite) -> BindOutcome | None:
        """Write one claim until it is seen as decided."""
        said = "is not seen as it was written"
        for _ in range(_TRIES):
            claim = self.claims.claims.get(write.claim.key)
            problem = self._problem(pod, write, claim)
            if problem is not None or claim is None:
                return problem
            if claim.allocation is not None and pod.uid in claim.reserved_for:
                return None
            result = await self._send(pod, claim, write)
            if isinstance(result, ClaimFailed):
                said = result.message
                if not result.is_unsure:
                    break
                result = 0
            if not await self._wait_until_seen(claim, result):
                break
        return _refusal(f"claim {write.claim.name}: {said}")

    def _problem(self, pod: Pod, write: ClaimWrite, claim: ResourceClaim | None) -> BindOutcome | None:
        """Return why a claim cannot be written as decided any more; None if it can."""
        if claim is None or claim.uid != write.claim.uid or claim.terminating:
            return _refusal(f"claim {write.claim.name} got deleted in the meantime")
        if self.cluster.node_of(pod.uid) is None:
            return Gone()
        has = () if claim.allocation is None else claim.allocation.devices
        if {*has} != write.devices and (claim.allocation is not None or write.claim.allocation is not None):
            return _refusal(f"claim {claim.name} got allocated elsewhere in the meantime")
        return None

    async def _send(self, pod: Pod, claim: ResourceClaim, write: ClaimWrite) -> int | ClaimFailed:
        """Send the writes that a claim needs, and return the version of the last one."""
        if not claim.is_protected:
            version = await self.writer.protect(claim)
            if isinstance(version, ClaimFailed):
                return version
            claim = attrs.evolve(claim, resource_version=str(version))
        return await self.writer.allocate(claim, write, pod)

    async def _wait_until_seen(self, claim: ResourceClaim, version: int) -> bool:
        """Wait until the watch shows this version of a claim, or a newer state than the one that was too old."""
        least = max(version, int(claim.resource_version) + 1)
        with anyio.move_on_after(SEEN_WITHIN):
            while True:
                now = self.claims.claims.get(claim.key)
                if now is None or int(now.resource_version) >= least:
                    return True
                await self._changed.wait()
        return False

    async def _take_back(self, key: str) -> None:
        """Take a claim's devices back; until that is seen, it is no pod's."""
        self._keep(key)
        self._look_at(key)
        claim = self.claims.claims.get(key)
        if claim is not None and claim.allocation is not None:
            result = await self.writer.take_back(claim)
            if isinstance(result, ClaimFailed):
                log.warning("Claim could not give its devices back", claim=key, err=result.message)


def _refusal(message: str) -> Refused:
    return Refused(0, PREFIX + message)

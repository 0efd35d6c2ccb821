"""
Bind a pod's volumes between its decision and its Binding: write what they need, and wait until they are bound.

Upstream: `Reserve` and `PreBind` of `plugins/volumebinding`. The decision is assumed at once, so that no other pod gets
the same volume. After the writes the pod waits for the watch to show what controllers and provisioners do, for ten
minutes by default. Nothing is polled, and no other pod waits with it.
"""

from collections.abc import Callable, Mapping, Set as AbstractSet
from functools import partial
from typing import ClassVar

import anyio
import attrs

from neuron_scheduler.cluster.changes import Change, Kinds, NodeGone, PodGone, StorageChanged
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.writes.binder import BindOutcome, Gone, Refused
from neuron_scheduler.kube.writes.volume_writer import VolumeWriter
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.scheduling.cycle.volume_plan import KeptVolume, VolumePlan
from neuron_scheduler.scheduling.plugins.static_volumes import mountable_nodes
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

log = logs.logger(__name__)

PREFIX = 'running PreBind plugin "VolumeBinding": '


class _UnbindableError(Exception):
    pass


@attrs.define(eq=False, kw_only=True)
class VolumeBinder:
    """Binds volumes; `timeouts` are seconds to wait for controllers and provisioners, by scheduler name."""

    OBSERVES: ClassVar[Kinds] = (PodGone, NodeGone, StorageChanged)

    cluster: Cluster
    writer: VolumeWriter
    metrics: Metrics
    timeouts: Mapping[str, float]
    clock: Callable[[], float]
    waiting: int = attrs.field(default=0, init=False)
    _wakes: dict[str, dict[anyio.Event, None]] = attrs.field(factory=dict, init=False)  # who waits longer wakes first

    def observe(self, change: Change) -> None:
        match change:
            case PodGone(pod):
                self._wake(pod.uid)
            case NodeGone(node_name):
                self._wake(node_name)
            case StorageChanged(before, after):
                storage = after or before
                if isinstance(storage, PersistentVolumeClaim):
                    self._wake(storage.key)
                elif isinstance(storage, PersistentVolume):
                    self._wake(storage.name)

    def _wake(self, name: str) -> None:
        for wake in self._wakes.get(name, ()):
            wake.set()

    async def prepare(self, pod: Pod, plan: VolumePlan) -> BindOutcome | None:
        """
        Carry the plan out and wait until every claim is bound; None if the pod can be bound now.

        After a cancellation the writes stay; the next attempt for the pod finds them.
        """
        started = self.clock()
        outcome = await self._write_and_wait(pod, plan)
        if outcome is None or isinstance(outcome, Refused):
            self.metrics.observe_volume_binding(pod.scheduler_name, self.clock() - started, failed=outcome is not None)
        return outcome

    async def _write_and_wait(self, pod: Pod, plan: VolumePlan) -> BindOutcome | None:
        versions, timeout = await self._write(plan), self.timeouts[pod.scheduler_name]
        if not isinstance(versions, dict):
            return versions
        claims = self._unbound_claims(plan)
        log.info("Waiting for volumes to be bound", v=2, pod=pod.key, node=plan.node_name, claims=claims)
        with anyio.move_on_after(timeout):
            self.waiting += 1
            try:
                return await self._wait_until_bound(pod, plan, versions)
            except _UnbindableError as error:
                return _refusal(f"binding volumes: {error}")
            finally:
                self.waiting -= 1
        return _refusal(f"binding volumes: not bound within {timeout:g} s: {', '.join(self._unbound_claims(plan))}")

    def _unbound_claims(self, plan: VolumePlan) -> list[str]:
        stored = self.cluster.volumes.stored_claims
        claims = (*(kept.claim for kept in plan.keep), *plan.provision)
        return [claim.name for claim in claims if (now := stored.get(claim.key)) is None or not now.is_fully_bound]

    async def _write(self, plan: VolumePlan) -> dict[str, int] | BindOutcome:
        """Write until a write fails, so that no claim is tied to a node needlessly; return the versions by name."""
        versions: dict[str, int] = {}
        writes = (
            *((k.volume.name, partial(self.writer.keep, k.volume, k.claim)) for k in plan.keep),
            *((c.key, partial(self.writer.select_node, c, plan.node_name)) for c in plan.provision),
        )
        for name, write in writes:
            match await write():
                case int(version):
                    versions[name] = version
                case Refused(message=message):
                    return _refusal(message)
                case fenced:
                    return fenced
        return versions

    async def _wait_until_bound(self, pod: Pod, plan: VolumePlan, versions: Mapping[str, int]) -> BindOutcome | None:
        """Check the volumes at each change of what is waited for, until they are bound or cannot be bound."""
        while True:
            if self.cluster.node_of(pod.uid) is None:
                return Gone()
            needed = self._awaited_names(plan, versions)
            if not needed:
                log.info("All PVCs for pod are bound", v=2, pod=pod.key, node=plan.node_name)
                return None
            await self._change_of(needed | {pod.uid, plan.node_name})

    async def _change_of(self, names: AbstractSet[str]) -> None:
        wake = anyio.Event()
        for name in names:
            self._wakes.setdefault(name, {})[wake] = None
        try:
            await wake.wait()
        finally:
            for name in names:
                del self._wakes[name][wake]
                if not self._wakes[name]:
                    del self._wakes[name]

    def _awaited_names(self, plan: VolumePlan, versions: Mapping[str, int]) -> set[str]:
        """
        Return the names of what must change first, nothing if all is bound (`checkBindings`).

        Raises:
            _UnbindableError: the volumes cannot be bound as decided.
        """
        if self.cluster.node(plan.node_name) is None:
            raise _UnbindableError(f'node "{plan.node_name}" not found')
        return set().union(
            *(self._awaited_of_kept(plan, kept, versions[kept.volume.name]) for kept in plan.keep),
            *(self._awaited_of_provisioned(plan, claim, versions[claim.key]) for claim in plan.provision),
        )

    def _awaited_of_kept(self, plan: VolumePlan, kept: KeptVolume, version: int) -> set[str]:
        """Return the names of what must change before a claim is bound to the volume that is kept for it."""
        volumes, name, key = self.cluster.volumes, kept.volume.name, kept.claim.key
        volume, claim = volumes.stored_volumes.get(name), volumes.stored_claims.get(key)
        if volume is None:
            raise _UnbindableError(f'persistentvolume "{name}" not found')
        if claim is None or claim.uid != kept.claim.uid:
            raise _UnbindableError(f'persistentvolumeclaim "{kept.claim.name}" not found')
        if int(volume.resource_version or 0) < version:
            return {name, key}
        self._check_fit(plan, volume)
        if volume.claim is None or not volume.claim.uid or not volume.is_kept_for(claim):
            raise _UnbindableError(f'ClaimRef got reset for pv "{volume.name}"')
        if claim.volume_name not in ("", volume.name):
            raise _UnbindableError(
                f'persistentvolumeclaim "{claim.name}" was bound to another pv, "{claim.volume_name}"'
            )
        return set() if claim.is_fully_bound else {name, key}

    def _awaited_of_provisioned(self, plan: VolumePlan, decided: PersistentVolumeClaim, version: int) -> set[str]:
        """Return the names of what must change before the claim is bound to a provisioned volume."""
        claim = self.cluster.volumes.stored_claims.get(decided.key)
        if claim is None or claim.uid != decided.uid:
            raise _UnbindableError(f'persistentvolumeclaim "{decided.name}" not found')
        if int(claim.resource_version or 0) < version:
            return {claim.key}
        if claim.selected_node != plan.node_name:
            raise _UnbindableError(f'provisioning failed for PVC "{claim.name}"')
        volume = self.cluster.volumes.stored_volumes.get(claim.volume_name)
        if volume is None:
            return {claim.key, claim.volume_name}
        self._check_fit(plan, volume)
        return set() if claim.is_fully_bound else {claim.key, claim.volume_name}

    def _check_fit(self, plan: VolumePlan, volume: PersistentVolume) -> None:
        slot = self.cluster.view.slot(plan.node_name)
        if slot is None or not mountable_nodes(self.cluster.view, volume, 1 << slot):
            raise _UnbindableError(f'pv "{volume.name}" node affinity doesn\'t match node "{plan.node_name}"')


def _refusal(message: str) -> Refused:
    return Refused(0, PREFIX + message)

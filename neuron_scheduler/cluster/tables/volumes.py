"""
The storage objects by name, and what they mean for pods and nodes: what a pod attaches, what a node can take.

Holds each object as the API server has it, and over it what has been decided and not yet been heard of: a volume kept
for a claim, a node selected for a claim's volume. Such an assumption ends with the next version of the object.
"""

from collections.abc import Iterator
from typing import Any, Self, TypeVar

import attrs

from neuron_scheduler.cluster.tables.free_volumes import FreeVolumes
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import (
    MIGRATED,
    NO_STORAGE,
    Attachable,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    HeldVolume,
    NodeStorage,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    StorageClass,
    VolumeAttachment,
)

T = TypeVar("T")


@attrs.frozen
class Touched:
    """What a change may mean something to: nodes by name, and pods by the keys of their claims."""

    nodes: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()


NOTHING_TOUCHED = Touched()


@attrs.define(eq=False)
class Volumes:
    """
    Claims by key, all else by name.

    Attributes:
        stored_claims, stored_volumes: as the API server has them.
        capacities: by class, then by key.
        free: the volumes that no claim has.
    """

    stored_claims: dict[str, PersistentVolumeClaim] = attrs.field(factory=dict)
    stored_volumes: dict[str, PersistentVolume] = attrs.field(factory=dict)
    classes: dict[str, StorageClass] = attrs.field(factory=dict)
    drivers: dict[str, CSIDriver] = attrs.field(factory=dict)
    capacities: dict[str, dict[str, CSIStorageCapacity]] = attrs.field(factory=dict)
    free: FreeVolumes = attrs.field(factory=FreeVolumes)
    _csi_nodes: dict[str, CSINode] = attrs.field(factory=dict)
    _attachments: dict[str, dict[str, VolumeAttachment]] = attrs.field(factory=dict)
    _attached_to: dict[str, dict[str, VolumeAttachment]] = attrs.field(factory=dict)
    _assumed_claims: dict[str, PersistentVolumeClaim] = attrs.field(factory=dict)
    _assumed_volumes: dict[str, PersistentVolume] = attrs.field(factory=dict)
    _kept: dict[str, dict[str, None]] = attrs.field(factory=dict)

    def fork(self) -> Self:
        """Return an independent copy."""
        copied: dict[str, Any] = {}
        for field in attrs.fields(type(self)):
            table = getattr(self, field.name)
            copied[field.name.removeprefix("_")] = (
                table.fork()
                if isinstance(table, FreeVolumes)
                else {key: dict(row) if isinstance(row, dict) else row for key, row in table.items()}
            )
        return type(self)(**copied)

    # What is asked

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Return a claim with what has been assumed of it."""
        return self._assumed_claims.get(key) or self.stored_claims.get(key)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return a volume with what has been assumed of it."""
        return self._assumed_volumes.get(name) or self.stored_volumes.get(name)

    def kept_for(self, key: str) -> Iterator[PersistentVolume]:
        """Yield the volumes that a claim has, or that are kept for a claim of this name."""
        return (found for name in self._kept.get(key, ()) if (found := self.volume(name)) is not None)

    def waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool:
        """Tell whether a claim is to be bound once a pod has a node."""
        found = self.classes.get(claim.class_name)
        return found is not None and found.waits

    def held_by(self, pod: Pod) -> tuple[HeldVolume, ...]:
        """Return what a pod holds of volumes: its claims' keys, what they attach, and its inline disks."""
        constraints = pod.constraints
        if not (constraints.volume_claims or constraints.disks):
            return ()
        keys = [f"{pod.namespace}/{name}" for name in constraints.volume_claims]
        attached = dict.fromkeys(found for key in keys if (found := self.attachable(key)) is not None)
        return (*dict.fromkeys(keys), *attached, *dict.fromkeys(constraints.disks))

    def attachable(self, key: str) -> Attachable | None:
        """
        Return what a claim's volume is to its driver, None if no driver attaches it.

        A claim without a volume counts for its class's provisioner (`getCSIDriverInfo` upstream).
        """
        claim = self.claim(key)
        if claim is None:
            return None
        volume = self.volume(claim.volume_name) if claim.volume_name else None
        if volume is not None:
            return Attachable(volume.driver, volume.handle, volume.plugin) if volume.driver else None
        found = self.classes.get(claim.class_name)
        if found is None or not found.provisioner:
            return None
        driver = MIGRATED.get(found.provisioner)
        return Attachable(driver or found.provisioner, f"claim {key}", found.provisioner if driver else "")

    def storage_of(self, node_name: str) -> NodeStorage:
        """Return what is known of a node's storage apart from its pods."""
        csi = self._csi_nodes.get(node_name)
        if csi is None:
            return NO_STORAGE
        attachments = set()
        for attachment in self._attachments.get(node_name, {}).values():
            volume = self.stored_volumes.get(attachment.volume_name)
            if attachment.attacher and volume is not None and volume.handle and not volume.plugin:
                attachments.add((attachment.attacher, volume.handle))
        return NodeStorage(csi.limits, csi.migrated, frozenset(attachments), csi.drivers)

    # What happens

    def put(self, found: Storage) -> Touched:
        """Take an object's state from the API server."""
        before = self._touched(found)
        match found:
            case PersistentVolumeClaim():
                self.stored_claims[found.key] = found
                self._assumed_claims.pop(found.key, None)
            case PersistentVolume():
                self._unpost(found.name)
                self.stored_volumes[found.name] = found
                self._assumed_volumes.pop(found.name, None)
                self._post(found)
            case StorageClass():
                self.classes[found.name] = found
            case CSINode():
                self._csi_nodes[found.name] = found
            case CSIDriver():
                self.drivers[found.name] = found
            case CSIStorageCapacity():
                self.capacities.setdefault(found.class_name, {})[found.key] = found
            case VolumeAttachment():
                self._attachments.setdefault(found.node_name, {})[found.name] = found
                self._attached_to.setdefault(found.volume_name, {})[found.name] = found
        after = self._touched(found)
        return Touched(before.nodes | after.nodes, before.claims | after.claims)

    def remove(self, gone: Storage) -> Touched:
        """Take that an object is gone."""
        touched = self._touched(gone)
        match gone:
            case PersistentVolumeClaim():
                self.stored_claims.pop(gone.key, None)
                self._assumed_claims.pop(gone.key, None)
            case PersistentVolume():
                self._unpost(gone.name)
                self.stored_volumes.pop(gone.name, None)
                self._assumed_volumes.pop(gone.name, None)
            case StorageClass():
                self.classes.pop(gone.name, None)
            case CSINode():
                self._csi_nodes.pop(gone.name, None)
            case CSIDriver():
                self.drivers.pop(gone.name, None)
            case CSIStorageCapacity():
                _drop(self.capacities, gone.class_name, gone.key)
            case VolumeAttachment():
                _drop(self._attachments, gone.node_name, gone.name)
                _drop(self._attached_to, gone.volume_name, gone.name)
        return touched

    def assume(self, decided: PersistentVolume | PersistentVolumeClaim) -> None:
        """Take a decision about an object as done, until a newer version of it is heard of, or `restore`."""
        if isinstance(decided, PersistentVolumeClaim):
            self._assumed_claims[decided.key] = decided
            return
        self._unpost(decided.name)
        self._assumed_volumes[decided.name] = decided
        self._post(decided)

    def restore(self, decided: PersistentVolume | PersistentVolumeClaim) -> None:
        """Take back a decision, if it still stands."""
        if isinstance(decided, PersistentVolumeClaim):
            if self._assumed_claims.get(decided.key) is decided:
                del self._assumed_claims[decided.key]
        elif self._assumed_volumes.get(decided.name) is decided:
            self._unpost(decided.name)
            del self._assumed_volumes[decided.name]
            stored = self.stored_volumes.get(decided.name)
            if stored is not None:
                self._post(stored)

    def _post(self, volume: PersistentVolume) -> None:
        if volume.claim is None:
            self.free.put(volume)
        else:
            self._kept.setdefault(volume.claim.key, {})[volume.name] = None

    def _unpost(self, name: str) -> None:
        volume = self.volume(name)
        if volume is None:
            return
        if volume.claim is None:
            self.free.take(volume)
        else:
            _drop(self._kept, volume.claim.key, name)

    def _touched(self, found: Storage) -> Touched:
        """Return whom an object means something to, as things stand."""
        match found:
            case PersistentVolumeClaim():
                return Touched(claims=frozenset((found.key,)))
            case PersistentVolume(name=name):
                volume = self.stored_volumes.get(name)
                nodes = frozenset(attachment.node_name for attachment in self._attached_to.get(name, {}).values())
                return Touched(nodes, frozenset((volume.claim.key,)) if volume and volume.claim else frozenset())
            case StorageClass(name=name):
                claims = (c for c in self.stored_claims.values() if c.class_name == name and not c.fully_bound)
                return Touched(claims=frozenset(claim.key for claim in claims))
            case CSINode(name=name) | VolumeAttachment(node_name=name):
                return Touched(nodes=frozenset((name,)))
            case _:
                return NOTHING_TOUCHED


def _drop(table: dict[str, dict[str, T]], key: str, name: str) -> None:
    rows = table.get(key, {})
    rows.pop(name, None)
    if not rows:
        table.pop(key, None)

"""
The storage objects by name: what a pod attaches, and what a node can attach.

Each object is kept as the API server has it and, beside it, as it will be after a decision (an assumption). An
assumption ends with the next version of the object.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Self, TypeVar

import attrs

from neuron_scheduler.cluster.index.copy_on_write import SharedDict
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, with_only
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.cluster.tables.free_volumes import FreeVolumes
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import (
    MIGRATED,
    NO_STORAGE,
    Attachable,
    CSIDriver,
    CSINode,
    HeldVolume,
    NodeStorage,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    StorageClass,
    VolumeAttachment,
)

T = TypeVar("T")
_Rows = SharedDict[str, Mapping[str, T]]


@attrs.frozen
class Effects:
    """What a change may affect: nodes by name, and pods by the keys of their claims."""

    nodes: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()


NO_EFFECTS = Effects()


@attrs.define(eq=False)
class Volumes:
    """
    Claims by key, all else by name.

    Attributes:
        stored_claims, stored_volumes: as the API server has them; the room that drivers report is a volume, too.
        free: the volumes that no claim has.
    """

    stored_claims: SharedDict[str, PersistentVolumeClaim] = attrs.field(factory=SharedDict)
    stored_volumes: SharedDict[str, PersistentVolume] = attrs.field(factory=SharedDict)
    classes: dict[str, StorageClass] = attrs.field(factory=dict)
    drivers: dict[str, CSIDriver] = attrs.field(factory=dict)
    free: FreeVolumes = attrs.field(factory=FreeVolumes)
    _csi_nodes: SharedDict[str, CSINode] = attrs.field(factory=SharedDict)
    _attachments: _Rows[VolumeAttachment] = attrs.field(factory=SharedDict)
    _attached_to: _Rows[VolumeAttachment] = attrs.field(factory=SharedDict)
    _assumed_claims: dict[str, PersistentVolumeClaim] = attrs.field(factory=dict)
    _assumed_volumes: dict[str, PersistentVolume] = attrs.field(factory=dict)
    _kept: _Rows[None] = attrs.field(factory=SharedDict)

    def fork(self) -> Self:
        """Return an independent copy; the rows of attachments and of kept volumes never change, so both have them."""
        # Not the fields of a subclass: a fork of the recorded volumes announces nothing.
        return type(self)(*(getattr(self, field.name).copy() for field in attrs.fields(Volumes)))

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Return a claim, as assumed if there is an assumption."""
        return self._assumed_claims.get(key) or self.stored_claims.get(key)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return a volume, as assumed if there is an assumption."""
        return self._assumed_volumes.get(name) or self.stored_volumes.get(name)

    def kept_for(self, key: str) -> Iterator[PersistentVolume]:
        """Return the volumes whose `claimRef` names this claim, bound or not."""
        return (volume for name in self._kept.get(key) or () if (volume := self.volume(name)) is not None)

    def waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether a claim is bound only after its first pod has a node (`WaitForFirstConsumer`)."""
        storage_class = self.classes.get(claim.class_name)
        return storage_class is not None and storage_class.waits

    def held_by(self, pod: Pod) -> tuple[HeldVolume, ...]:
        """Return the volumes that a pod holds: its claims' keys, what they attach, and its inline disks."""
        constraints = pod.constraints
        if not (constraints.volume_claims or constraints.disks):
            return ()
        keys = [f"{pod.namespace}/{name}" for name in constraints.volume_claims]
        attached = dict.fromkeys(volume for key in keys if (volume := self.attachable(key)) is not None)
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
            return Attachable(volume.driver, volume.handle) if volume.driver else None
        storage_class = self.classes.get(claim.class_name)
        if storage_class is None or not storage_class.provisioner:
            return None
        provisioner = storage_class.provisioner
        return Attachable(MIGRATED.get(provisioner, provisioner), f"claim {key}")

    def storage_of(self, node_name: str) -> NodeStorage:
        """Return a node's storage, apart from what its pods hold."""
        csi = self._csi_nodes.get(node_name)
        if csi is None:
            return NO_STORAGE
        attachments = set()
        for attachment in (self._attachments.get(node_name) or {}).values():
            volume = self.stored_volumes.get(attachment.volume_name)
            if attachment.attacher and volume is not None and volume.handle and not volume.plugin:
                attachments.add((attachment.attacher, volume.handle))
        return NodeStorage(csi.limits, csi.migrated, frozenset(attachments), csi.drivers)

    def put(self, storage: Storage) -> Effects:
        """Add or replace an object, as the API server has it; return what that affects."""
        return self._effects_of(storage, self._put)

    def remove(self, storage: Storage) -> Effects:
        """Remove an object; return what that affects."""
        return self._effects_of(storage, self._remove)

    def _effects_of(self, storage: Storage, change: Callable[[Storage], None]) -> Effects:
        """Change something; return the nodes and claims whose storage differs: a label may change without end."""
        before = self._affected_by(storage)
        stored = {name: self.storage_of(name) for name in before.nodes}
        attachable = {key: self.attachable(key) for key in before.claims}
        change(storage)
        after = self._affected_by(storage)
        return Effects(
            frozenset(n for n in before.nodes | after.nodes if n not in stored or stored[n] != self.storage_of(n)),
            frozenset(
                k for k in before.claims | after.claims if k not in attachable or attachable[k] != self.attachable(k)
            ),
        )

    def _put(self, storage: Storage) -> None:
        match storage:
            case PersistentVolumeClaim():
                self.stored_claims[storage.key] = storage
                self._assumed_claims.pop(storage.key, None)
            case PersistentVolume():
                self._unpost(storage.name)
                self.stored_volumes[storage.name] = storage
                self._assumed_volumes.pop(storage.name, None)
                self._post(storage)
            case StorageClass():
                self.classes[storage.name] = storage
            case CSINode():
                self._csi_nodes[storage.name] = storage
            case CSIDriver():
                self.drivers[storage.name] = storage
            case VolumeAttachment():
                _add(self._attachments, storage.node_name, storage.name, storage)
                _add(self._attached_to, storage.volume_name, storage.name, storage)

    def _remove(self, storage: Storage) -> None:
        match storage:
            case PersistentVolumeClaim():
                self.stored_claims.pop(storage.key, None)
                self._assumed_claims.pop(storage.key, None)
            case PersistentVolume():
                self._unpost(storage.name)
                self.stored_volumes.pop(storage.name, None)
                self._assumed_volumes.pop(storage.name, None)
            case StorageClass():
                self.classes.pop(storage.name, None)
            case CSINode():
                self._csi_nodes.pop(storage.name, None)
            case CSIDriver():
                self.drivers.pop(storage.name, None)
            case VolumeAttachment():
                _drop(self._attachments, storage.node_name, storage.name)
                _drop(self._attached_to, storage.volume_name, storage.name)

    def assume(self, decided: PersistentVolume | PersistentVolumeClaim) -> None:
        """Treat a decision about an object as done, until a newer version of it arrives, or `restore`."""
        if isinstance(decided, PersistentVolumeClaim):
            self._assumed_claims[decided.key] = decided
            return
        self._unpost(decided.name)
        self._assumed_volumes[decided.name] = decided
        self._post(decided)

    def restore(self, decided: PersistentVolume | PersistentVolumeClaim) -> None:
        """Take back a decision, unless a newer one or a newer version has replaced it."""
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
            _add(self._kept, volume.claim.key, volume.name, None)

    def _unpost(self, name: str) -> None:
        volume = self.volume(name)
        if volume is None:
            return
        if volume.claim is None:
            self.free.put(volume, came=False)
        else:
            _drop(self._kept, volume.claim.key, name)

    def _affected_by(self, storage: Storage) -> Effects:
        match storage:
            case PersistentVolumeClaim():
                return Effects(claims=frozenset((storage.key,)))
            case PersistentVolume(name=name):
                volume = self.stored_volumes.get(name)
                nodes = frozenset(attachment.node_name for attachment in (self._attached_to.get(name) or {}).values())
                return Effects(nodes, frozenset((volume.claim.key,)) if volume and volume.claim else frozenset())
            case StorageClass(name=name):
                of_class = (claim for claim in self.stored_claims.values() if claim.class_name == name)
                return Effects(claims=frozenset(c.key for c in of_class if c.volume_name not in self.stored_volumes))
            case CSINode(name=name) | VolumeAttachment(node_name=name):
                return Effects(nodes=frozenset((name,)))
            case _:
                return NO_EFFECTS


def _add(table: _Rows[T], key: str, name: str, value: T) -> None:
    """Add a value to a row; the row is replaced, because forks have it too."""
    table[key] = {**(table.get(key) or {}), name: value}


def _drop(table: _Rows[T], key: str, name: str) -> None:
    rest = {other: value for other, value in (table.get(key) or {}).items() if other != name}
    if rest:
        table[key] = rest
    else:
        table.pop(key, None)


def claims_on(node_info: NodeInfo) -> Values:
    """Index definition: nodes by the keys of the claims that their pods use."""
    return tuple(key for key in node_info.volumes if isinstance(key, str)) if node_info.volumes else ()


def pod_with_current_volumes(pod_info: PodInfo, volumes: Volumes) -> PodInfo:
    current = volumes.held_by(pod_info.pod)
    return pod_info if current == pod_info.volumes else attrs.evolve(pod_info, volumes=current)


def with_current_volumes(node_info: NodeInfo, volumes: Volumes) -> NodeInfo:
    current = {uid: pod_with_current_volumes(pod_info, volumes) for uid, pod_info in node_info.pod_infos.items()}
    changed = any(current[uid] is not pod_info for uid, pod_info in node_info.pod_infos.items())
    return with_only(node_info, current) if changed else node_info

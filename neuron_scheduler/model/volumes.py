"""
Volumes, claims, classes, drivers and attachments, as far as they decide where a pod may run.

Upstream: `component-helpers/storage/volume/pv_helpers.go`. A `key` is `namespace/name` of a claim.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.selectors import NO_LABELS, LabelSelector, NodeSelectorTerm

NO_PROVISIONER = "kubernetes.io/no-provisioner"
AWS_EBS = "kubernetes.io/aws-ebs"

MIGRATED: Mapping[str, str] = {AWS_EBS: "ebs.csi.aws.com"}
"""The CSI driver that replaced an in-tree plugin. Neuron devices are in AWS only, so there are no disks of others."""

ROOM = ""
"""The volume mode of a `CSIStorageCapacity`; no volume has it."""

_NO_LIMITS: Mapping[str, int] = {}


@attrs.frozen(cache_hash=True)
class InlineVolume:
    """
    A disk that a pod names in its spec and a CSI driver serves. Two pods of one node never share it.

    Attributes:
        plugin: the in-tree name, such as `kubernetes.io/aws-ebs`.
        driver: the CSI driver that replaced the plugin.
    """

    plugin: str
    driver: str
    handle: str


@attrs.frozen(cache_hash=True)
class Attachable:
    """A claim's volume, in the terms of the driver that attaches it."""

    driver: str
    handle: str


HeldVolume = str | Attachable | InlineVolume
"""A volume that a pod holds: by its claim's key, as its driver knows it, or as a disk in the pod's spec."""


@attrs.frozen
class NodeStorage:
    """
    A node's storage, apart from what its pods use.

    Attributes:
        limits: most volumes by driver.
        migrated: in-tree plugins whose volumes CSI drivers serve here.
        attachments: (driver, handle) of the volumes that are attached, used by a pod or not.
        drivers: those that are installed.
    """

    limits: Mapping[str, int] = _NO_LIMITS
    migrated: frozenset[str] = frozenset()
    attachments: frozenset[tuple[str, str]] = frozenset()
    drivers: frozenset[str] = frozenset()


NO_STORAGE = NodeStorage()


@attrs.frozen(cache_hash=True)
class PersistentVolumeClaim:
    """
    A claim.

    Attributes:
        volume_name: the volume it is bound to, or is being bound to.
        request: bytes.
        selector: which volumes fit; None for any.
        selected_node: the node for which its volume is to be provisioned; None without the annotation.
        bind_completed: the controller has finished binding it.
        owner: uid of the controlling owner.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    volume_name: str = ""
    class_name: str = ""
    access_modes: tuple[str, ...] = ()
    request: int = 0
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    selected_node: str | None = None
    bind_completed: bool = False
    lost: bool = False
    terminating: bool = False
    owner: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_fully_bound(self) -> bool:
        return bool(self.volume_name) and self.bind_completed

    @cached_property
    def wish(self) -> "PersistentVolumeClaim":
        """What it asks of a volume, as a claim without a name: equal claims have equal wishes."""
        return self.of_size(self.request)

    def of_size(self, request: int) -> "PersistentVolumeClaim":
        """Return its wish, with another size."""
        asked = self.class_name, self.access_modes, request, self.selector, self.volume_mode, self.attributes_class
        return _wish(*asked)


@memoise(maxsize=4096)
def _wish(class_name: str, modes: tuple[str, ...], *other: Any) -> PersistentVolumeClaim:
    return PersistentVolumeClaim("", "", "", "", "", class_name, tuple(sorted(set(modes))), *other)


@attrs.frozen(cache_hash=True)
class ClaimRef:
    """The claim that a volume is bound to or reserved for; without a uid any claim of that name may have it."""

    key: str
    uid: str = ""


@attrs.frozen
class PersistentVolume:
    """
    A volume.

    Attributes:
        capacity: bytes.
        required_terms: node affinity, OR over terms; None if any node can mount it.
        csi_terms: the same in the driver's own labels, for nodes where `plugin` is migrated to CSI.
        driver, handle: how the CSI driver identifies it; empty if no driver attaches it.
        plugin: the in-tree plugin whose volumes the driver serves; empty for a volume of the driver itself.
        available: its phase is Available, so it may be bound.
    """

    uid: str
    name: str
    resource_version: str = ""
    labels: Mapping[str, str] = NO_LABELS
    class_name: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: int = 0
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    claim: ClaimRef | None = None
    required_terms: tuple[NodeSelectorTerm, ...] | None = None
    csi_terms: tuple[NodeSelectorTerm, ...] | None = None
    driver: str = ""
    handle: str = ""
    plugin: str = ""
    available: bool = True
    terminating: bool = False

    def is_kept_for(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether it is bound to the claim or reserved for it (`IsVolumeBoundToClaim`)."""
        return self.claim is not None and self.claim.key == claim.key and self.claim.uid in ("", claim.uid)

    def may_serve(self, claim: PersistentVolumeClaim) -> bool:
        """
        Return whether the claim could be bound to it, on any node (`FindMatchingVolume`).

        Phase, selector and access modes of a volume that is reserved for the claim do not count.
        """
        if (
            self.capacity < claim.request
            or self.volume_mode != claim.volume_mode
            or self.attributes_class != claim.attributes_class
            or self.class_name != claim.class_name
            or self.terminating
        ):
            return False
        if self.claim is not None:
            return self.is_kept_for(claim)
        return (
            self.available
            and (claim.selector is None or claim.selector.matches(self.labels))
            and set(claim.access_modes) <= set(self.access_modes)
        )


@attrs.frozen
class StorageClass:
    """
    A class of volumes.

    Attributes:
        waits: `WaitForFirstConsumer`: claims are bound once a pod has a node.
        allowed_topologies: where volumes may be provisioned, OR over terms; None for anywhere.
    """

    uid: str
    name: str
    provisioner: str = ""
    waits: bool = False
    allowed_topologies: tuple[NodeSelectorTerm, ...] | None = None


@attrs.frozen
class CSINode:
    """What CSI drivers report about the node of the same name; the fields as in `NodeStorage`."""

    uid: str
    name: str
    limits: Mapping[str, int] = attrs.field(factory=dict)
    migrated: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()


@attrs.frozen
class CSIDriver:
    """
    A driver.

    Attributes:
        storage_capacity: it publishes how much room there is.
        required: pods with its volumes run only where it is installed (`preventPodSchedulingIfMissing`).
    """

    uid: str
    name: str
    storage_capacity: bool = False
    required: bool = False


@attrs.frozen
class CSIStorageCapacity(PersistentVolume):
    """The room for new volumes of a class, as a volume of the mode `ROOM`; it is available if it is known."""


@attrs.frozen
class VolumeAttachment:
    """A volume that is, or is to be, attached to a node."""

    uid: str
    name: str
    node_name: str
    attacher: str = ""
    volume_name: str = ""


Storage = PersistentVolumeClaim | PersistentVolume | StorageClass | CSINode | CSIDriver | VolumeAttachment
"""Any object of these kinds."""

"""
Volumes and what is around them: claims, classes, drivers, attachments, as far as they decide where a pod may run.

Upstream: `component-helpers/storage/volume/pv_helpers.go`. Frozen values; how they refer to each other is for
`cluster`. A `key` is `namespace/name` of a claim.
"""

from collections.abc import Mapping

import attrs

from neuron_scheduler.model.selectors import LabelSelector, NodeSelectorTerm

NO_PROVISIONER = "kubernetes.io/no-provisioner"

MIGRATED: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""The CSI driver that took an in-tree plugin's place, for those whose volumes kube-scheduler counts."""

_NO_LABELS: Mapping[str, str] = {}
_NO_LIMITS: Mapping[str, int] = {}


@attrs.frozen(cache_hash=True)
class InlineVolume:
    """
    A disk that a pod names in its spec and a CSI driver serves.

    Attributes:
        plugin: the in-tree name, such as `kubernetes.io/aws-ebs`.
        driver: the CSI driver that took the plugin's place.
        read_only: two pods of one node may share the disk if both say so; of EBS disks none is ever shared.
    """

    plugin: str
    driver: str
    handle: str
    read_only: bool = False


@attrs.frozen(cache_hash=True)
class Attachable:
    """
    What a claim's volume is to the driver that attaches it.

    Attributes:
        plugin: the in-tree plugin, for a volume that the driver serves only where the plugin is migrated.
    """

    driver: str
    handle: str
    plugin: str = ""


Held = str | Attachable | InlineVolume
"""What a pod holds of volumes: a claim's key, the volume behind it, a disk that it names itself."""


@attrs.frozen
class NodeStorage:
    """
    What is known of a node's storage apart from its pods.

    Attributes:
        limits: most volumes by driver.
        migrated: in-tree plugins whose volumes CSI drivers serve here.
        attachments: (driver, handle) of the volumes that are attached, whoever uses them.
        drivers: the CSI drivers that are installed.
    """

    limits: Mapping[str, int] = _NO_LIMITS
    migrated: frozenset[str] = frozenset()
    attachments: frozenset[tuple[str, str]] = frozenset()
    drivers: frozenset[str] = frozenset()


NO_STORAGE = NodeStorage()


@attrs.frozen
class PersistentVolumeClaim:
    """
    A claim.

    Attributes:
        volume_name: the volume it is bound to, or on its way to.
        request: bytes.
        selector: which volumes will do; None for any.
        selected_node: where the scheduler wants its volume provisioned; None without the annotation.
        bind_completed: the annotation of the controller that has finished binding it.
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
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def fully_bound(self) -> bool:
        """Whether volume and claim name each other, and the controller has said so."""
        return bool(self.volume_name) and self.bind_completed


@attrs.frozen(cache_hash=True)
class ClaimRef:
    """The claim that a volume is bound to or kept for; without a uid any claim of that name may have it."""

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
        driver, handle: what identifies it to the CSI driver; empty for what no driver attaches.
        plugin: the in-tree plugin whose volumes the driver serves; empty for a volume of the driver itself.
        available: the phase in which it may be bound.
    """

    uid: str
    name: str
    resource_version: str = ""
    labels: Mapping[str, str] = _NO_LABELS
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
        """Tell whether it is bound to the claim or kept for it (`IsVolumeBoundToClaim`)."""
        return self.claim is not None and self.claim.key == claim.key and self.claim.uid in ("", claim.uid)

    def may_serve(self, claim: PersistentVolumeClaim) -> bool:
        """
        Tell whether the claim could be bound to it, on whatever node (`FindMatchingVolume`).

        Phase, selector and access modes are not asked of a volume that is kept for the claim.
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
    """
    What CSI drivers say about a node, by whose name it goes.

    Attributes:
        limits: most volumes by driver, for those that have a limit.
        migrated: in-tree plugins whose volumes CSI drivers serve here.
        drivers: all that are installed.
    """

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
        required: pods with its volumes go only where it is installed (`preventPodSchedulingIfMissing`).
    """

    uid: str
    name: str
    storage_capacity: bool = False
    required: bool = False


@attrs.frozen
class CSIStorageCapacity:
    """
    The room for new volumes of a class on some nodes.

    Attributes:
        key: `namespace/name`.
        topology: the nodes; None for none.
        largest: bytes of the largest volume that can be made; None if unknown.
    """

    uid: str
    key: str
    class_name: str
    topology: LabelSelector | None = None
    largest: int | None = None


@attrs.frozen
class VolumeAttachment:
    """A volume that is, or is to be, attached to a node."""

    uid: str
    name: str
    node_name: str
    attacher: str = ""
    volume_name: str = ""


Storage = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
)
"""Whatever of these the API server may tell about."""

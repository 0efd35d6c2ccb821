"""
What the sandbox serves, as data: each resource with its names, its verbs and the fields it can be selected by.

A resource that needs no rules of its own is added by a line here.
"""

from collections.abc import Mapping
from typing import Final

import attrs

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@attrs.frozen
class Field:
    """Where the stored object has the field of a field selector, and the value if it is absent."""

    path: tuple[str, ...]
    absent: str = ""


def _fields(*labels: str) -> dict[str, Field]:
    return {label: Field(tuple(label.split("."))) for label in labels}


_METADATA: Final = _fields("metadata.name", "metadata.namespace")


@attrs.frozen(kw_only=True)
class Resource:
    """
    One resource of the API.

    `storage` names the table that holds its objects: two resources may be views of one. `fields` are the labels a
    field selector may use. `unconditional_update` and `create_on_update` are the rules for PUT without a
    resourceVersion and for PUT of an absent object (`AllowUnconditionalUpdate`, `AllowCreateOnUpdate` upstream).
    """

    plural: str
    singular: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, Field] = attrs.field(factory=dict, hash=False)
    unconditional_update: bool = True
    create_on_update: bool = False

    @property
    def api_version(self) -> str:
        """`v1` or `group/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`pods` or `leases.coordination.k8s.io`, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """The table of the objects; both views of events share one."""
        return self.plural

    @property
    def prefix(self) -> str:
        """`/api/v1` or `/apis/group/v1`."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

PODS: Final = Resource(
    plural="pods",
    singular="pod",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    subresources=("binding", "eviction", "log", "status"),
    fields=_METADATA
    | _fields(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )
    | {"spec.hostNetwork": Field(("spec", "hostNetwork"), absent="false")},
)
NODES: Final = Resource(
    plural="nodes",
    singular="node",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    subresources=("status",),
    fields=_METADATA | {"spec.unschedulable": Field(("spec", "unschedulable"), absent="false")},
)
NAMESPACES: Final = Resource(
    plural="namespaces",
    singular="namespace",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=("status",),
    fields=_METADATA | _fields("status.phase"),
)
EVENTS: Final = Resource(
    plural="events",
    singular="event",
    kind="Event",
    short_names=("ev",),
    create_on_update=True,
    fields=_METADATA
    | _fields(*(f"involvedObject.{name}" for name in _REFERENCE), "reason", "reportingComponent", "type")
    | {"source": Field(("source", "component"))},
)
NEW_EVENTS: Final = Resource(
    plural="events",
    singular="event",
    kind="Event",
    group="events.k8s.io",
    short_names=("ev",),
    create_on_update=True,
    fields=_METADATA
    | _fields("reason", "type")
    | {f"regarding.{name}": Field(("involvedObject", name)) for name in _REFERENCE}
    | {"reportingController": Field(("reportingComponent",))},
)
LEASES: Final = Resource(
    plural="leases",
    singular="lease",
    kind="Lease",
    group="coordination.k8s.io",
    unconditional_update=False,
    create_on_update=True,
    fields=_METADATA,
)
PRIORITY_CLASSES: Final = Resource(
    plural="priorityclasses",
    singular="priorityclass",
    kind="PriorityClass",
    group="scheduling.k8s.io",
    namespaced=False,
    short_names=("pc",),
    fields=_METADATA,
)
CONFIG_MAPS: Final = Resource(
    plural="configmaps", singular="configmap", kind="ConfigMap", short_names=("cm",), fields=_METADATA
)
SERVICE_ACCOUNTS: Final = Resource(
    plural="serviceaccounts", singular="serviceaccount", kind="ServiceAccount", short_names=("sa",), fields=_METADATA
)
SERVICES: Final = Resource(
    plural="services",
    singular="service",
    kind="Service",
    short_names=("svc",),
    categories=("all",),
    subresources=("status",),
    fields=_METADATA | _fields("spec.clusterIP", "spec.type"),
)
REPLICATION_CONTROLLERS: Final = Resource(
    plural="replicationcontrollers",
    singular="replicationcontroller",
    kind="ReplicationController",
    short_names=("rc",),
    categories=("all",),
    subresources=("status",),
    fields=_METADATA,
)
REPLICA_SETS: Final = Resource(
    plural="replicasets",
    singular="replicaset",
    kind="ReplicaSet",
    group="apps",
    short_names=("rs",),
    categories=("all",),
    subresources=("status",),
    fields=_METADATA,
)
STATEFUL_SETS: Final = Resource(
    plural="statefulsets",
    singular="statefulset",
    kind="StatefulSet",
    group="apps",
    short_names=("sts",),
    categories=("all",),
    subresources=("status",),
    fields=_METADATA,
)

VOLUMES: Final = Resource(
    plural="persistentvolumes",
    singular="persistentvolume",
    kind="PersistentVolume",
    namespaced=False,
    short_names=("pv",),
    subresources=("status",),
    fields=_METADATA,
)
CLAIMS: Final = Resource(
    plural="persistentvolumeclaims",
    singular="persistentvolumeclaim",
    kind="PersistentVolumeClaim",
    short_names=("pvc",),
    subresources=("status",),
    fields=_METADATA,
)

BUDGETS: Final = Resource(
    plural="poddisruptionbudgets",
    singular="poddisruptionbudget",
    kind="PodDisruptionBudget",
    group="policy",
    short_names=("pdb",),
    subresources=("status",),
    fields=_METADATA,
)


def _storage(plural: str, singular: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource(
        plural=plural,
        singular=singular,
        kind=kind,
        group="storage.k8s.io",
        namespaced=namespaced,
        fields=_METADATA,
    )


STORAGE: Final = (
    VOLUMES,
    CLAIMS,
    _storage("storageclasses", "storageclass", "StorageClass"),
    _storage("csinodes", "csinode", "CSINode"),
    _storage("csidrivers", "csidriver", "CSIDriver"),
    _storage("csistoragecapacities", "csistoragecapacity", "CSIStorageCapacity", namespaced=True),
    _storage("volumeattachments", "volumeattachment", "VolumeAttachment"),
)

RESOURCES: Final = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    NEW_EVENTS,
    LEASES,
    PRIORITY_CLASSES,
    *STORAGE,
    BUDGETS,
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
)


def find(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource with these names, if it is served."""
    for resource in RESOURCES:
        if (resource.group, resource.version, resource.plural) == (group, version, plural):
            return resource
    return None


def of_kind(api_version: str, kind: str) -> Resource | None:
    """Return the resource whose objects say this `apiVersion` and `kind`, if it is served."""
    for resource in RESOURCES:
        if (resource.api_version, resource.kind) == (api_version, kind):
            return resource
    return None

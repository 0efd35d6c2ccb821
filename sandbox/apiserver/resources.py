"""
What the sandbox serves: a resource that needs no rules of its own is added by a line here.
"""

from collections.abc import Mapping
from typing import Final

import attrs

VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@attrs.frozen
class Field:
    """Where the stored object has the field of a field selector, and the value if it is absent."""

    path: tuple[str, ...]
    absent: str = ""


def fields(*labels: str) -> dict[str, Field]:
    """Return the fields with these labels, each at the path that its label says."""
    return {label: Field(tuple(label.split("."))) for label in labels}


METADATA: Final = fields("metadata.name", "metadata.namespace")


@attrs.frozen(kw_only=True)
class Resource:
    """
    One resource of the API.

    `storage` names the table that holds its objects: two resources may be views of one. `fields` are the labels a
    field selector may use. `unconditional_update` is the rule for PUT without a resourceVersion
    (`AllowUnconditionalUpdate` upstream). With `generation`, the server counts the changes of everything but metadata
    and status.
    """

    kind: str
    plural: str = attrs.field(default=attrs.Factory(lambda self: f"{self.kind.lower()}s", takes_self=True))
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_name: str = ""
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, Field] = attrs.field(default=METADATA, hash=False)
    unconditional_update: bool = True
    generation: bool = False

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


def _with_status(group: str, kind: str, short_name: str, *more: str) -> Resource:
    """Return a namespaced resource with a generation, a status, and more subresources."""
    return Resource(kind=kind, group=group, short_name=short_name, subresources=("status", *more), generation=True)


PODS: Final = Resource(
    kind="Pod",
    short_name="po",
    subresources=("binding", "log", "status"),
    fields=METADATA
    | fields(
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
    kind="Node",
    namespaced=False,
    short_name="no",
    subresources=("status",),
    fields=METADATA | {"spec.unschedulable": Field(("spec", "unschedulable"), absent="false")},
)
NAMESPACES: Final = Resource(
    kind="Namespace",
    namespaced=False,
    short_name="ns",
    subresources=("status",),
    fields=METADATA | fields("status.phase"),
)
_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
EVENTS: Final = Resource(
    kind="Event",
    short_name="ev",
    fields=METADATA
    | fields(*(f"involvedObject.{name}" for name in _REFERENCE), "reason", "reportingComponent", "type")
    | {"source": Field(("source", "component"))},
)
NEW_EVENTS: Final = Resource(
    kind="Event",
    group="events.k8s.io",
    short_name="ev",
    fields=METADATA
    | fields("reason", "type")
    | {f"regarding.{name}": Field(("involvedObject", name)) for name in _REFERENCE}
    | {"reportingController": Field(("reportingComponent",))},
)
LEASES: Final = Resource(kind="Lease", group="coordination.k8s.io", unconditional_update=False)
PRIORITY_CLASSES: Final = Resource(
    kind="PriorityClass", plural="priorityclasses", group="scheduling.k8s.io", namespaced=False, short_name="pc"
)
BUDGETS: Final = _with_status("policy", "PodDisruptionBudget", "pdb")
DEPLOYMENTS: Final = _with_status("apps", "Deployment", "deploy", "scale")
REPLICA_SETS: Final = _with_status("apps", "ReplicaSet", "rs", "scale")
JOBS: Final = _with_status("batch", "Job", "")
_DEVICES: Final = "resource.k8s.io"
CLAIMS: Final = _with_status(_DEVICES, "ResourceClaim", "")
SLICES: Final = Resource(kind="ResourceSlice", group=_DEVICES, namespaced=False)
DEVICE_CLASSES: Final = Resource(kind="DeviceClass", plural="deviceclasses", group=_DEVICES, namespaced=False)
CLAIM_TEMPLATES: Final = Resource(kind="ResourceClaimTemplate", group=_DEVICES)
TAINT_RULES: Final = Resource(kind="DeviceTaintRule", group=_DEVICES, namespaced=False)

_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_STORAGE: Final = "storage.k8s.io"
KEPT: Final = (
    _with_status("", "PersistentVolumeClaim", "pvc"),
    _with_status("", "ReplicationController", "rc"),
    _with_status("apps", "StatefulSet", "sts"),
    _with_status("apps", "DaemonSet", "ds"),
    *(
        Resource(kind=kind, plural=plural, short_name=short_name, group=group, namespaced=namespaced)
        for group, kind, plural, short_name, namespaced in (
            ("", "ConfigMap", "configmaps", "cm", True),
            ("", "PersistentVolume", "persistentvolumes", "pv", False),
            ("", "Secret", "secrets", "", True),
            ("", "Service", "services", "svc", True),
            ("", "ServiceAccount", "serviceaccounts", "sa", True),
            ("networking.k8s.io", "NetworkPolicy", "networkpolicies", "netpol", True),
            (_RBAC, "ClusterRole", "clusterroles", "", False),
            (_RBAC, "ClusterRoleBinding", "clusterrolebindings", "", False),
            (_RBAC, "Role", "roles", "", True),
            (_RBAC, "RoleBinding", "rolebindings", "", True),
            (_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "", False),
            (_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "", False),
            (_ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", "", False),
            (_ADMISSION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", "", False),
            (_STORAGE, "StorageClass", "storageclasses", "sc", False),
            (_STORAGE, "CSINode", "csinodes", "", False),
            (_STORAGE, "CSIDriver", "csidrivers", "", False),
            (_STORAGE, "CSIStorageCapacity", "csistoragecapacities", "", True),
            (_STORAGE, "VolumeAttachment", "volumeattachments", "", False),
        )
    ),
)
"""Accepted and kept. The sandbox evaluates no rights and no policies, and restricts no connections."""

RESOURCES: Final = (
    *(PODS, NODES, NAMESPACES, EVENTS, NEW_EVENTS, LEASES, PRIORITY_CLASSES, BUDGETS),
    *(DEPLOYMENTS, REPLICA_SETS, JOBS),
    *(
        CLAIMS,
        CLAIM_TEMPLATES,
        SLICES,
        DEVICE_CLASSES,
        Resource(kind="DeviceTaintRule", group=_DEVICES, namespaced=False),
    ),
    *KEPT,
)


def find(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource with these names, if it is served."""
    wanted = group, version, plural
    return next((found for found in RESOURCES if (found.group, found.version, found.plural) == wanted), None)


def of_kind(api_version: str, kind: str) -> Resource | None:
    """Return the resource whose objects say this `apiVersion` and `kind`, if it is served."""
    return next((found for found in RESOURCES if (found.api_version, found.kind) == (api_version, kind)), None)

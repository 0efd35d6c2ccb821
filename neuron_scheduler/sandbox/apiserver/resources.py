"""
What the sandbox serves: a resource that needs no rules of its own is added by a line here.
"""

from typing import Final

import attrs

from neuron_scheduler.sandbox.apiserver.resource import METADATA, Field, Resource, fields
from neuron_scheduler.sandbox.apiserver.workload_resources import WORKLOADS

_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _plain(group: str, kind: str, plural: str = "", *short_names: str, namespaced: bool = False) -> Resource:
    """Return a resource without subresources; the default plural is the kind in lower case with an s."""
    return Resource(
        plural=plural or f"{kind.lower()}s",
        singular=kind.lower(),
        kind=kind,
        group=group,
        namespaced=namespaced,
        short_names=short_names,
        fields=METADATA,
    )


def _generated(resource: Resource) -> Resource:
    return attrs.evolve(resource, generation=True)


PODS: Final = Resource(
    plural="pods",
    singular="pod",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    subresources=("binding", "eviction", "log", "status"),
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
    plural="nodes",
    singular="node",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    subresources=("status",),
    fields=METADATA | {"spec.unschedulable": Field(("spec", "unschedulable"), absent="false")},
)
NAMESPACES: Final = Resource(
    plural="namespaces",
    singular="namespace",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=("status",),
    fields=METADATA | fields("status.phase"),
)
EVENTS: Final = Resource(
    plural="events",
    singular="event",
    kind="Event",
    short_names=("ev",),
    create_on_update=True,
    fields=METADATA
    | fields(*(f"involvedObject.{name}" for name in _REFERENCE), "reason", "reportingComponent", "type")
    | {"source": Field(("source", "component"))},
)
NEW_EVENTS: Final = Resource(
    plural="events",
    singular="event",
    kind="Event",
    group="events.k8s.io",
    short_names=("ev",),
    create_on_update=True,
    fields=METADATA
    | fields("reason", "type")
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
    fields=METADATA,
)
PRIORITY_CLASSES: Final = Resource(
    plural="priorityclasses",
    singular="priorityclass",
    kind="PriorityClass",
    group="scheduling.k8s.io",
    namespaced=False,
    short_names=("pc",),
    fields=METADATA,
)
CONFIG_MAPS: Final = _plain("", "ConfigMap", "configmaps", "cm", namespaced=True)
SERVICE_ACCOUNTS: Final = _plain("", "ServiceAccount", "serviceaccounts", "sa", namespaced=True)
SECRETS: Final = attrs.evolve(
    _plain("", "Secret", namespaced=True), fields=METADATA | {"type": Field(("type",), absent="Opaque")}
)
SERVICES: Final = Resource(
    plural="services",
    singular="service",
    kind="Service",
    short_names=("svc",),
    categories=("all",),
    subresources=("status",),
    fields=METADATA | fields("spec.clusterIP", "spec.type"),
)
VOLUMES: Final = Resource(
    plural="persistentvolumes",
    singular="persistentvolume",
    kind="PersistentVolume",
    namespaced=False,
    short_names=("pv",),
    subresources=("status",),
    fields=METADATA,
)
CLAIMS: Final = Resource(
    plural="persistentvolumeclaims",
    singular="persistentvolumeclaim",
    kind="PersistentVolumeClaim",
    short_names=("pvc",),
    subresources=("status",),
    fields=METADATA,
)

BUDGETS: Final = Resource(
    plural="poddisruptionbudgets",
    singular="poddisruptionbudget",
    kind="PodDisruptionBudget",
    group="policy",
    short_names=("pdb",),
    subresources=("status",),
    fields=METADATA,
    generation=True,
)

# Accepted and kept. The sandbox evaluates no rights and no policies, and restricts no connections.
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
KEPT: Final = (
    _plain(_RBAC, "ClusterRole"),
    _plain(_RBAC, "ClusterRoleBinding"),
    _plain(_RBAC, "Role", namespaced=True),
    _plain(_RBAC, "RoleBinding", namespaced=True),
    _generated(_plain("networking.k8s.io", "NetworkPolicy", "networkpolicies", "netpol", namespaced=True)),
    attrs.evolve(
        _generated(_plain(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies")),
        subresources=("status",),
    ),
    _plain(_ADMISSION, "ValidatingAdmissionPolicyBinding"),
    _generated(_plain(_ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies")),
    _plain(_ADMISSION, "MutatingAdmissionPolicyBinding"),
    _plain("", "ResourceQuota", "resourcequotas", "quota", namespaced=True),
    _plain("", "LimitRange", "limitranges", "limits", namespaced=True),
    _plain("", "Endpoints", "endpoints", "ep", namespaced=True),
    _plain("discovery.k8s.io", "EndpointSlice", namespaced=True),
)


STORAGE: Final = (
    VOLUMES,
    CLAIMS,
    _plain("storage.k8s.io", "StorageClass", "storageclasses", "sc"),
    _plain("storage.k8s.io", "CSINode"),
    _plain("storage.k8s.io", "CSIDriver"),
    _plain("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", namespaced=True),
    _plain("storage.k8s.io", "VolumeAttachment"),
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
    SECRETS,
    *WORKLOADS,
    *KEPT,
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

"""
The objects that `check` lists: where they are, and what is kept of each.

Nodes and pods are read by the scheduler's own readers (`kube.objects`), so that both see the same; the fields that only
`check` needs are added here. An object that no subject looks at counts as gone, so a large cluster takes little memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

import attrs

from neuron_scheduler.commands.check.subjects import known
from neuron_scheduler.commands.check.subjects.snapshot import (
    Object,
    Policy,
    RoleBinding,
    SeenContainer,
    SeenPod,
    SeenWorkload,
)
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.nodes import ANNOTATED_NODES, NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import AnnotatedNode, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.model.selectors import NO_LABELS

T = TypeVar("T")

RELEASE: Final = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
DRIVER: Final = "neuron.aws.com"
DRA_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Of resource.k8s.io, the newest first: v1 is served from Kubernetes 1.34 on."""

_ORDER: Final = attrgetter("key")  # of a list, which is kept as it comes
_CORE: Final = "/api/v1"
_APPS: Final = "/apis/apps/v1"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


class _PodSpec(wire.PodSpec):
    service_account_name: str | None = None


class _Pod(wire.Pod):
    spec: _PodSpec


class _Plain(wire.Wire):
    metadata: wire.ObjectMeta


class _WithSpec(_Plain):
    spec: dict[str, Any]
    status: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


class _RoleBinding(_Plain):
    role_ref: dict[str, Any]
    subjects: list[dict[str, Any]] | None = None


def lists(namespace: str) -> dict[str, Resource[Any]]:
    """Return what is listed by the field of the snapshot; `namespace` is where the scheduler is, or will be."""
    policy, concerning = "ValidatingAdmissionPolicy", partial(_role_binding, namespace)
    return {
        "nodes": attrs.evolve(ANNOTATED_NODES, stand_in=_unreadable_node),
        "pods": Resource(
            path=PODS.path,
            kind=PODS.kind,
            shape=_Pod,
            read=_pod,
            stand_in=_unreadable_pod,
            order=_ORDER,
            params=PODS.params,
        ),
        "deployments": _listed("Deployment", f"{_APPS}/deployments", _deployment, _WithSpec),
        "daemon_sets": _listed("DaemonSet", f"{_APPS}/daemonsets", _daemon_set, _WithSpec),
        "accounts": _listed("ServiceAccount", f"{_CORE}/namespaces/{namespace}/serviceaccounts", _object, _Plain),
        "role_bindings": _listed("ClusterRoleBinding", f"{_RBAC}/clusterrolebindings", concerning, _RoleBinding),
        "policies": _listed(policy, f"{_ADMISSION}/validatingadmissionpolicies", _policy, _WithSpec),
        "policy_bindings": _listed(
            f"{policy}Binding", f"{_ADMISSION}/validatingadmissionpolicybindings", _policy, _WithSpec
        ),
    }


def others(namespace: str) -> tuple[Resource[Object], ...]:
    """Return further kinds of which the objects are kept whose names are or were ours."""
    paths = {
        "ConfigMap": f"{_CORE}/namespaces/{namespace}/configmaps",
        "ClusterRole": f"{_RBAC}/clusterroles",
        "Role": f"{_RBAC}/namespaces/{namespace}/roles",
        "RoleBinding": f"{_RBAC}/namespaces/{namespace}/rolebindings",
        "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
        "NetworkPolicy": f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
        "MutatingAdmissionPolicy": f"{_ADMISSION}/mutatingadmissionpolicies",
    }
    return tuple(_listed(kind, path, _object_of_ours, _Plain) for kind, path in paths.items())


def slices(version: str) -> Resource[str]:
    """Return how the nodes with ResourceSlices of AWS's driver are listed."""
    path = f"/apis/resource.k8s.io/{version}/resourceslices"
    listed = _listed("ResourceSlice", path, _node_of_slice, _WithSpec)
    return attrs.evolve(listed, params={"fieldSelector": f"spec.driver={DRIVER}"})


def _listed(kind: str, path: str, read: Callable[[str, Any], T | None], shape: type[_Plain]) -> Resource[T]:
    return Resource(path=path, kind=kind, shape=shape, read=partial(read, kind), order=_ORDER)


def _unreadable_node(malformed: Malformed) -> AnnotatedNode | Malformed:
    stand_in = NODES.stand_in(malformed)
    return AnnotatedNode(stand_in) if isinstance(stand_in, Node) else stand_in


def _unreadable_pod(malformed: Malformed) -> SeenPod:
    namespace, _, name = malformed.key.partition("/")
    uid = malformed.uid or malformed.key
    return SeenPod(Pod(uid=uid, namespace=namespace, name=name, node_name=malformed.node_name), readable=False)


def _pod(struct: _Pod) -> SeenPod | None:
    """Return a pod that asks for Neuron or is of the system; one that asks for a machine is for no scheduler."""
    pod = PODS.read(struct)
    if pod is None or pod.namespace == known.CAPACITY:
        return None
    images = tuple(container.image or "" for container in struct.spec.containers or ())
    seen = SeenPod(pod, struct.spec.service_account_name or "default", images)
    return seen if asks(seen) or is_of_system(seen) else None


def asks(seen: SeenPod) -> bool:
    """Return whether a pod asks for Neuron, or may do so: it cannot be read."""
    return not seen.readable or any(seen.pod.requests.get(name) for name in NEURON_NAMES)


def is_of_system(seen: SeenPod) -> bool:
    """Return whether a pod is of a device plugin or of AWS's extension."""
    return known.is_of_plugin(seen.pod.labels, seen.images) or known.has(seen.pod.labels, known.EXTENDER_LABEL)


def _object(kind: str, struct: _Plain) -> Object:
    meta = struct.metadata
    release, namespace = ((meta.annotations or NO_LABELS).get(key, "") for key in RELEASE)
    return Object(kind, meta.name, meta.namespace, meta.labels or NO_LABELS, release, namespace)


def _object_of_ours(kind: str, struct: _Plain) -> Object | None:
    return _object(kind, struct) if known.is_or_was_ours(struct.metadata.name) else None


def _policy(kind: str, struct: _WithSpec) -> Policy | None:
    found = _object_of_ours(kind, struct)
    return Policy(found, struct.spec) if found else None


def _role_binding(namespace: str, kind: str, struct: _RoleBinding) -> RoleBinding | None:
    """Return a binding that is ours, or gives something to an account with our name or AWS's."""
    accounts = tuple(
        f"{subject.get('namespace', '')}/{subject.get('name', '')}"
        for subject in struct.subjects or ()
        if subject.get("kind") == "ServiceAccount"
    )
    concerned = any(f"{namespace}/{name}" in accounts for name in (known.OUR_NAME, *known.AWS_ACCOUNTS))
    if not (concerned or known.is_or_was_ours(struct.metadata.name)):
        return None
    return RoleBinding(_object(kind, struct), struct.role_ref.get("name", ""), accounts)


def _node_of_slice(_kind: str, struct: _WithSpec) -> str | None:
    return struct.spec.get("nodeName") if struct.spec.get("driver") == DRIVER else None


def _deployment(kind: str, struct: _WithSpec) -> SeenWorkload | None:
    """Return the Deployment of a scheduler."""
    workload = _workload(kind, struct, struct.spec.get("replicas", 1), struct.status.get("readyReplicas", 0))
    return workload if is_named(workload, "scheduler") else None


def _daemon_set(kind: str, struct: _WithSpec) -> SeenWorkload | None:
    """Return the DaemonSet of the device plugin."""
    desired, ready = (struct.status.get(field, 0) for field in ("desiredNumberScheduled", "numberReady"))
    workload = _workload(kind, struct, desired, ready)
    return workload if is_named(workload, known.PLUGIN) else None


def _workload(kind: str, struct: _WithSpec, replicas: int, ready: int) -> SeenWorkload:
    template = struct.spec.get("template") or {}
    spec = template.get("spec") or {}
    return SeenWorkload(
        _object(kind, struct),
        replicas=replicas,
        ready=ready,
        account=spec.get("serviceAccountName") or "default",
        labels=(template.get("metadata") or {}).get("labels") or NO_LABELS,
        containers=tuple(_container(each) for each in spec.get("containers") or ()),
        config_maps=tuple(each["configMap"]["name"] for each in spec.get("volumes") or () if each.get("configMap")),
    )


def _container(fields: Mapping[str, Any]) -> SeenContainer:
    words = (*(fields.get("command") or ()), *(fields.get("args") or ()))
    return SeenContainer(fields["name"], fields.get("image") or "", words)


def is_named(workload: SeenWorkload, word: str) -> bool:
    """Return whether a workload, one of its images or commands has a word in its name, or it is the device plugin."""
    texts = (
        workload.object.name,
        *(container.image.rpartition("/")[2] for container in workload.containers),
        *(first.rpartition("/")[2] for container in workload.containers for first in container.words[:1]),
    )
    return any(word in text for text in texts) or known.has(workload.labels, known.PLUGIN_LABEL)


def configured(workload: SeenWorkload, config_maps: Iterable[Mapping[str, str]]) -> SeenWorkload:
    """Return a Deployment with what its flags and its ConfigMaps say: which names it serves, and whether it asks."""
    if workload.mode == "extender":
        return attrs.evolve(workload, serves=())
    profiles = list(_profiles(config_maps))
    names = [str(profile.get("schedulerName") or default) for default, profile in profiles]
    usual = ("my-scheduler",) if workload.mode else None
    asking = any(isinstance(profile.get("capacityRequests"), dict) for _, profile in profiles)
    return attrs.evolve(
        workload,
        serves=workload.flagged_names or tuple(dict.fromkeys(names)) or usual,
        asks=bool(workload.mode) and asking,
    )


def _profiles(config_maps: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the profiles in configuration files, each with the scheduler name that it has if it names none."""
    import yaml  # takes 30 ms to import

    for text in (text for data in config_maps for text in data.values() if "SchedulerConfiguration" in text):
        try:
            content = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError):
            continue
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind in ("KubeSchedulerConfiguration", "NeuronSchedulerConfiguration"):
            default = "default-scheduler" if kind.startswith("Kube") else "my-scheduler"
            profiles = content.get("profiles") or [{}]
            if isinstance(profiles, list):
                yield from ((default, profile) for profile in profiles if isinstance(profile, dict))

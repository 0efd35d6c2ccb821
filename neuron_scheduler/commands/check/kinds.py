"""
How the objects that `check` reads are listed, and what it keeps of each.

Nodes and pods are read by the scheduler's own readers (`kube.objects`), so that both see the same; the fields that only
`check` needs are added here. Other kinds are read as far as some subject looks at them.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.commands.check.subjects import snapshot as seen
from neuron_scheduler.kube.objects import pod_wire, wire
from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.nodes import ANNOTATED_NODES, NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import AnnotatedNode, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NO_LABELS

RELEASE: Final = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
DRIVER: Final = "neuron.aws.com"
DRA_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Of resource.k8s.io, the newest first: v1 is served from Kubernetes 1.34 on."""

_ORDER: Final = attrgetter("key")


class _PodSpec(pod_wire.PodSpec):
    service_account_name: str | None = None


class _Pod(pod_wire.Pod):
    spec: _PodSpec


@attrs.frozen
class ListedPod:
    """A pod as the scheduler reads it, and its ServiceAccount."""

    pod: Pod
    account: str
    images: tuple[str, ...]


def _pod(pod: _Pod) -> ListedPod | None:
    read = PODS.read(pod)
    if read is None:
        return None
    images = tuple(container.image or "" for container in pod.spec.containers or ())
    return ListedPod(read, pod.spec.service_account_name or "default", images)


PODS_WITH_ACCOUNTS: Final[Resource[ListedPod]] = Resource(
    path=PODS.path, kind=PODS.kind, shape=_Pod, read=_pod, order=_ORDER, params=PODS.params
)


def _unreadable_node(malformed: Malformed) -> AnnotatedNode | Malformed:
    stand_in = NODES.stand_in(malformed)
    return AnnotatedNode(stand_in) if isinstance(stand_in, Node) else stand_in


NODES_OF_A_SNAPSHOT: Final = attrs.evolve(ANNOTATED_NODES, stand_in=_unreadable_node)


class _Plain(wire.Wire):
    metadata: wire.ObjectMeta


def _object(kind: str, meta: wire.ObjectMeta) -> seen.Object:
    annotations = meta.annotations or NO_LABELS
    release, namespace = (annotations.get(key, "") for key in RELEASE)
    return seen.Object(kind, meta.name, meta.namespace, meta.labels or NO_LABELS, release, namespace)


def plain(kind: str, path: str) -> Resource[seen.Object]:
    """Return how a kind is listed of which only the identity is read."""
    return Resource(
        path=path, kind=kind, shape=_Plain, read=lambda struct: _object(kind, struct.metadata), order=_ORDER
    )


class _ConfigMapSource(wire.Wire):
    name: str = ""


class _Volume(wire.Wire):
    config_map: _ConfigMapSource | None = None


class _Container(wire.Wire):
    name: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None


class _TemplateSpec(wire.Wire):
    service_account_name: str | None = None
    containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None


class _TemplateMeta(wire.Wire):
    labels: dict[str, str] | None = None


class _Template(wire.Wire):
    metadata: _TemplateMeta | None = None
    spec: _TemplateSpec | None = None


class _WorkloadSpec(wire.Wire):
    replicas: int | None = None
    template: _Template | None = None


class _WorkloadStatus(wire.Wire):
    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0


class _Workload(wire.Wire):
    metadata: wire.ObjectMeta
    spec: _WorkloadSpec
    status: _WorkloadStatus | None = None


@attrs.frozen
class ListedWorkload:
    """A Deployment or DaemonSet, and the names of the ConfigMaps that its pods mount."""

    workload: seen.SeenWorkload
    config_maps: tuple[str, ...] = ()


def _workload(kind: str, struct: _Workload) -> ListedWorkload:
    template, status = struct.spec.template or _Template(), struct.status or _WorkloadStatus()
    spec = template.spec or _TemplateSpec()
    replicas = 1 if struct.spec.replicas is None else struct.spec.replicas
    of_deployment = kind == "Deployment"
    workload = seen.SeenWorkload(
        _object(kind, struct.metadata),
        replicas=replicas if of_deployment else status.desired_number_scheduled,
        ready=status.ready_replicas if of_deployment else status.number_ready,
        account=spec.service_account_name or "default",
        labels=(template.metadata and template.metadata.labels) or NO_LABELS,
        containers=tuple(
            seen.SeenContainer(c.name, c.image or "", tuple(c.command or ()) + tuple(c.args or ()))
            for c in spec.containers or ()
        ),
    )
    return ListedWorkload(workload, tuple(v.config_map.name for v in spec.volumes or () if v.config_map))


def workloads(kind: str) -> Resource[ListedWorkload]:
    """Return how Deployments or DaemonSets are listed, in all namespaces."""
    path = f"/apis/apps/v1/{kind.lower()}s"
    return Resource(path=path, kind=kind, shape=_Workload, read=lambda struct: _workload(kind, struct), order=_ORDER)


class _Subject(wire.Wire):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _RoleRef(wire.Wire):
    name: str = ""


class _RoleBinding(wire.Wire):
    metadata: wire.ObjectMeta
    role_ref: _RoleRef
    subjects: list[_Subject] | None = None


def _role_binding(struct: _RoleBinding) -> seen.RoleBinding:
    subjects = (subject for subject in struct.subjects or () if subject.kind == "ServiceAccount")
    return seen.RoleBinding(
        _object("ClusterRoleBinding", struct.metadata),
        role=struct.role_ref.name,
        accounts=tuple(f"{subject.namespace}/{subject.name}" for subject in subjects),
    )


ROLE_BINDINGS: Final[Resource[seen.RoleBinding]] = Resource(
    path="/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    kind="ClusterRoleBinding",
    shape=_RoleBinding,
    read=_role_binding,
    order=_ORDER,
)


class _Policy(wire.Wire):
    metadata: wire.ObjectMeta
    spec: dict[str, Any]


def policies(kind: str) -> Resource[seen.Policy]:
    """Return how ValidatingAdmissionPolicies, or their bindings, are listed with their `spec`."""
    plural = "validatingadmissionpolicies" if kind.endswith("Policy") else f"{kind.lower()}s"
    return Resource(
        path=f"/apis/admissionregistration.k8s.io/v1/{plural}",
        kind=kind,
        shape=_Policy,
        read=lambda struct: seen.Policy(_object(kind, struct.metadata), struct.spec),
        order=_ORDER,
    )


class _SliceSpec(wire.Wire):
    driver: str = ""
    node_name: str = ""


class _Slice(wire.Wire):
    metadata: wire.ObjectMeta
    spec: _SliceSpec


def slices(version: str) -> Resource[str]:
    """Return how the nodes with ResourceSlices of AWS's driver are listed; a slice without a node is ''."""
    return Resource(
        path=f"/apis/resource.k8s.io/{version}/resourceslices",
        kind="ResourceSlice",
        shape=_Slice,
        read=lambda struct: struct.spec.node_name if struct.spec.driver == DRIVER else "",
        order=str,
        params={"fieldSelector": f"spec.driver={DRIVER}"},
    )


class ConfigMap(wire.Wire):
    """A ConfigMap."""

    data: dict[str, str] | None = None


CONFIG_MAP: Final = msgspec.json.Decoder(ConfigMap)


def scheduler_names(config_maps: Iterable[Mapping[str, str]]) -> tuple[str, ...] | None:
    """Return the scheduler names in the configuration files of ConfigMaps; None if none of them is such a file."""
    profiles = [*_profiles(config_maps)]
    return tuple(dict.fromkeys(str(profile.get("schedulerName") or default) for default, profile in profiles)) or None


def asks_for_machines(config_maps: Iterable[Mapping[str, str]]) -> bool:
    """Return whether a profile in configuration files of ours has capacityRequests."""
    return any(isinstance(profile.get("capacityRequests"), dict) for _, profile in _profiles(config_maps))


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

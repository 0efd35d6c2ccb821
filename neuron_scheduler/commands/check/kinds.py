"""
The objects that `check` lists: where they are, and what is kept of each.

Nodes and pods are read as the scheduler reads them (`kube.objects`), so that both see the same. Of the other kinds an
object that no subject looks at counts as gone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import attrs

from neuron_scheduler.commands.check.subjects import known
from neuron_scheduler.commands.check.subjects.snapshot import SeenContainer, SeenWorkload
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.model.pod import DEFAULT_SCHEDULER
from neuron_scheduler.model.selectors import NO_LABELS

T = TypeVar("T")

RELEASE: Final = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_POLICY: Final = "ValidatingAdmissionPolicy"


class _WithSpec(wire.Wire):
    metadata: wire.ObjectMeta
    spec: dict[str, Any]
    status: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


def _deployment(struct: _WithSpec) -> SeenWorkload | None:
    status, replicas = struct.status, struct.spec.get("replicas", 1)
    workload = _workload(struct, replicas, status.get("readyReplicas", 0))
    if not is_named(workload, "scheduler"):
        return None
    # kubectl's rule (`rollout status`): all pods exist in the newest revision, and none of an earlier one is left
    behind = max(replicas, status.get("replicas", 0)) - status.get("updatedReplicas", 0)
    return attrs.evolve(workload, behind=behind)


def _daemon_set(struct: _WithSpec) -> SeenWorkload | None:
    desired, ready = (struct.status.get(field, 0) for field in ("desiredNumberScheduled", "numberReady"))
    workload = _workload(struct, desired, ready)
    labels = ((struct.spec.get("template") or {}).get("metadata") or {}).get("labels") or NO_LABELS
    key, value = known.PLUGIN_LABEL
    return workload if labels.get(key) == value or is_named(workload, known.PLUGIN) else None


def _workload(struct: _WithSpec, replicas: int, ready: int) -> SeenWorkload:
    meta, spec = struct.metadata, (struct.spec.get("template") or {}).get("spec") or {}
    release, release_namespace = ((meta.annotations or NO_LABELS).get(key, "") for key in RELEASE)
    return SeenWorkload(
        meta.name,
        meta.namespace,
        replicas=replicas,
        ready=ready,
        account=spec.get("serviceAccountName") or "default",
        containers=tuple(
            SeenContainer(each.get("image") or "", (*(each.get("command") or ()), *(each.get("args") or ())))
            for each in spec.get("containers") or ()
        ),
        config_maps=tuple(each["configMap"]["name"] for each in spec.get("volumes") or () if each.get("configMap")),
        release=release,
        release_namespace=release_namespace,
        chart=(meta.labels or NO_LABELS).get("helm.sh/chart", ""),
    )


def is_named(workload: SeenWorkload, word: str) -> bool:
    """Return whether a workload, one of its images or commands has a word in its name."""
    texts = (
        workload.name,
        *(container.image.rpartition("/")[2] for container in workload.containers),
        *(first.rpartition("/")[2] for container in workload.containers for first in container.words[:1]),
    )
    return any(word in text for text in texts)


def _policy(struct: _WithSpec) -> tuple[str, dict[str, Any]] | None:
    name = struct.metadata.name
    return (name, struct.spec) if name in (*known.POLICIES, known.CLAIMS, known.KEEPER) else None


def _resource_of(kind: str, path: str, read: Callable[[_WithSpec], T | None]) -> Resource[T]:
    return Resource(path=path, kind=kind, shape=_WithSpec, read=read, sort_key=str)  # a list is kept as it comes


DEPLOYMENTS: Final = _resource_of("Deployment", "/apis/apps/v1/deployments", _deployment)
LISTED: Final[Mapping[str, Resource[Any]]] = {
    "daemon_sets": _resource_of("DaemonSet", "/apis/apps/v1/daemonsets", _daemon_set),
    "policies": _resource_of(_POLICY, f"{_ADMISSION}/validatingadmissionpolicies", _policy),
    "policy_bindings": _resource_of(f"{_POLICY}Binding", f"{_ADMISSION}/validatingadmissionpolicybindings", _policy),
}
"""By the field of the snapshot."""


def with_configuration(workload: SeenWorkload, config_maps: Iterable[Mapping[str, str]]) -> SeenWorkload:
    """Return a Deployment with what its flags and its ConfigMaps say: which names it serves, and what is on."""
    if workload.mode == "extender":
        return attrs.evolve(workload, serves=())
    profiles = list(_profiles(config_maps))
    names = [str(profile.get("schedulerName") or default) for _, default, profile in profiles]
    usual = ("my-scheduler",) if workload.mode else None
    asking = any(isinstance(profile.get("capacityRequests"), dict) for *_, profile in profiles)
    return attrs.evolve(
        workload,
        serves=workload.flagged_names or tuple(dict.fromkeys(names)) or usual,
        asks=bool(workload.mode) and asking,
        claims=any(content.get("claims") is True for content, *_ in profiles),
    )


def _profiles(config_maps: Iterable[Mapping[str, str]]) -> Iterator[tuple[Mapping[str, Any], str, Mapping[str, Any]]]:
    """Yield the profiles of configuration files: what else the file has, and the name of a profile that has none."""
    import yaml  # takes 30 ms to import

    for text in (text for data in config_maps for text in data.values() if "SchedulerConfiguration" in text):
        try:
            content = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError):
            continue
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind in ("KubeSchedulerConfiguration", "NeuronSchedulerConfiguration"):
            default = DEFAULT_SCHEDULER if kind.startswith("Kube") else "my-scheduler"
            profiles = content.get("profiles") or [{}]
            if isinstance(profiles, list):
                yield from ((content, default, profile) for profile in profiles if isinstance(profile, dict))

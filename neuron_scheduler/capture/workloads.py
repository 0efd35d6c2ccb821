"""
Workloads -> `Replicated`: where each kind keeps its pod templates, and how many pods it starts.

Sources: `k8s.io/api` (batch/v1, apps/v1, core/v1), `jobset.x-k8s.io/v1alpha2`, `leaderworkerset.x-k8s.io/v1`. Pods get
the labels and owners that the kinds' controllers give them, as far as a decision reads these, and what
the API server fills in (`SetDefaults_Pod`, `defaultHostNetworkPorts` in `pkg/apis/core/v1/defaults.go`); they are read
as the running process reads pods. What only admission could add is named in a note.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import msgspec

from neuron_scheduler.capture.documents import documents
from neuron_scheduler.explain.fit import PodSet, Replicated
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selectors import label_selector
from neuron_scheduler.kube.objects.storage import CLAIMS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selecting_kinds import Workload
from neuron_scheduler.model.volumes import PersistentVolumeClaim
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable

MOST_REPLICAS: Final = 10_000
_EXCLUSIVE: Final = (
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)


_LONGEST_NAME: Final = 253


@attrs.frozen
class Fields:
    """
    An object of a document.

    Attributes:
        source: the file.
        value: its fields.
        path: where it is in its document; empty for the document itself.
        owner: `Kind name` of the document; empty to take it from `value`.
    """

    source: str
    value: Mapping[str, Any]
    path: str = ""
    owner: str = ""

    def _in_metadata(self, key: str) -> Any:
        metadata = self.value.get("metadata")
        return metadata.get(key) if isinstance(metadata, Mapping) else None

    @property
    def name(self) -> str:
        """The object's name: `metadata.name`, or the beginning that the API server completes."""
        names = (self._in_metadata("name"), self._in_metadata("generateName"))
        name = next((each for each in names if isinstance(each, str) and each), "unnamed")
        return name[:_LONGEST_NAME].rstrip("-")

    @property
    def namespace(self) -> str:
        """The object's namespace; empty if it names none."""
        said = self._in_metadata("namespace")
        return said if isinstance(said, str) else ""

    @property
    def plain_name(self) -> str:
        """The field `name` of a part of an object."""
        name = self.value.get("name")
        return name if isinstance(name, str) else ""

    @property
    def title(self) -> str:
        """Kind and name."""
        return self.owner or f"{self.value.get('kind', 'object')} {self.name}"

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations."""
        said = self._in_metadata("annotations")
        return {str(key): str(value) for key, value in said.items()} if isinstance(said, Mapping) else {}

    def error(self, problem: str) -> ConfigurationError:
        """Return an error about this object."""
        return ConfigurationError(printable(f"{self.source}: {self.title}: {problem}"))

    def at(self, key: str) -> "Fields":
        """
        Return the object in a field.

        Raises:
            ConfigurationError: there is none.
        """
        value = self.value.get(key)
        if not isinstance(value, Mapping):
            raise self.error(f"{self._path(key)} {'is missing' if value is None else 'is no object'}")
        return Fields(self.source, value, self._path(key), self.title)

    def part(self, value: Mapping[str, Any], path: str) -> "Fields":
        """Return an item of a list in this object."""
        return Fields(self.source, value, path, self.title)

    def objects(self, key: str) -> Sequence[dict[str, Any]]:
        """
        Return the objects of a list, none if the field is absent.

        Raises:
            ConfigurationError: it is no list of objects.
        """
        items = self.value.get(key)
        if items is None:
            return ()
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise self.error(f"{self._path(key)} is no list of objects")
        return items

    def count(self, key: str, default: int) -> int:
        """
        Return a number from 0 up.

        Raises:
            ConfigurationError: it is none.
        """
        value = self.value.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(f"{self._path(key)} is {value!r}; it must be a whole number from 0 up")
        return value

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def defaulted(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's spec with limits in place of missing requests, and the host ports of the host's network."""
    made = dict(spec)
    for key in ("containers", "initContainers"):
        if isinstance(spec.get(key), Sequence):
            on_host = spec.get("hostNetwork") is True
            made[key] = [_container(container, on_host=on_host) for container in spec[key]]
    if isinstance(spec.get("resources"), Mapping):
        made["resources"] = _requesting(spec["resources"])
    return made


def _container(container: object, *, on_host: bool) -> object:
    if not isinstance(container, Mapping):
        return container
    made = dict(container)
    if isinstance(container.get("resources"), Mapping):
        made["resources"] = _requesting(container["resources"])
    if on_host and isinstance(container.get("ports"), Sequence):
        made["ports"] = [_host_port(port) for port in container["ports"]]
    return made


def _requesting(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    limits, requests = resources.get("limits"), resources.get("requests")
    if not isinstance(limits, Mapping) or not (requests is None or isinstance(requests, Mapping)):
        return resources
    return {**resources, "requests": {**limits, **(requests or {})}}


def _host_port(port: object) -> object:
    if isinstance(port, Mapping) and not port.get("hostPort") and "containerPort" in port:
        return {**port, "hostPort": port["containerPort"]}
    return port


T = TypeVar("T")

_LONGEST_POD_NAME: Final = 200


@attrs.frozen
class Controller:
    """
    What would own the pods.

    Attributes:
        labels: those that it adds to its pods.
    """

    api_version: str
    kind: str
    name: str
    labels: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def reference(self) -> dict[str, Any]:
        """The owner reference of its pods."""
        return {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "controller": True}


@attrs.frozen
class Part:
    """
    Pods of one template.

    Attributes:
        template: it has `metadata` and `spec`.
        controller: None for a pod without one.
        count: pods of one replica.
        name: of the part of a group.
        claims: `volumeClaimTemplates`.
    """

    template: Fields
    controller: Controller | None = None
    count: int = 1
    name: str = ""
    claims: Sequence[Mapping[str, Any]] = ()


def pod_set(fields: Fields, part: Part, *, namespace: str) -> tuple[PodSet, tuple[str, ...]]:
    """
    Return the pods of a part of an object, and notes; `namespace` is theirs if the object names none.

    Raises:
        ConfigurationError: the pod cannot be read; the text names the field.
    """
    spec_fields = part.template.at("spec")
    if not spec_fields.objects("containers"):
        raise spec_fields.error(f"{spec_fields.path}.containers is missing or empty")
    pod_name = "-".join(filter(None, (fields.name[:_LONGEST_POD_NAME], part.name)))
    volumes = [*_volumes_of_claims(part.claims, pod_name), *spec_fields.objects("volumes")]
    metadata = _metadata(fields, part.template, part.controller)
    metadata |= {"name": pod_name, "namespace": fields.namespace or namespace}
    spec = {**defaulted(spec_fields.value), "volumes": volumes}
    pod = _read(fields, PODS, {"metadata": metadata, "spec": spec}, "its pod")
    own = [_claim(fields, pod, f"{pod_name}-{volume.get('name')}", template) for volume, template in _own(volumes)]
    own += [_claim(fields, pod, _name_of(claim, pod_name), claim) for claim in part.claims]
    pods = PodSet(attrs.evolve(pod, node_name=""), part.count, part.name, tuple(own))
    return pods, tuple(_notes(spec_fields, pod))


def _metadata(fields: Fields, template: Fields, controller: Controller | None) -> dict[str, Any]:
    """Return the labels, annotations and owner that the pods would have."""
    said = template.value.get("metadata") or {}
    labels = said.get("labels") or {} if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(labels, Mapping):
        raise fields.error("the metadata of its pods cannot be read")
    return {
        "labels": {**labels, **(controller.labels if controller else {})},
        "annotations": said.get("annotations"),
        "ownerReferences": [controller.reference] if controller else None,
    }


def _read(fields: Fields, resource: Resource[T], made: Mapping[str, Any], what: str) -> T:
    """
    Return an object as the running process reads it.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        value = resource.decode(msgspec.json.encode(made)).value
    except (TypeError, ValueError, RecursionError) as error:  # a YAML value that JSON has not
        raise fields.error(f"{what} cannot be read: {error}") from None
    if value is None or isinstance(value, Malformed):
        raise fields.error(f"{what} cannot be read: {'it has ended' if value is None else value.reason}")
    return value


def _volumes_of_claims(claims: Sequence[Mapping[str, Any]], pod_name: str) -> Iterator[dict[str, Any]]:
    """Yield the volumes that a StatefulSet adds for its claims."""
    for claim in claims:
        name = _name_of(claim, pod_name)
        yield {"name": name, "persistentVolumeClaim": {"claimName": name}}


def _name_of(claim: Mapping[str, Any], pod_name: str) -> str:
    metadata = claim.get("metadata")
    return f"{metadata.get('name') if isinstance(metadata, Mapping) else 'claim'}-{pod_name}"


def _own(volumes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the generic ephemeral volumes, each with the template of its claim."""
    for volume in volumes:
        ephemeral = volume.get("ephemeral")
        if isinstance(ephemeral, Mapping) and isinstance(ephemeral.get("volumeClaimTemplate"), Mapping):
            yield volume, ephemeral["volumeClaimTemplate"]


def _claim(fields: Fields, pod: Pod, name: str, template: Mapping[str, Any]) -> PersistentVolumeClaim:
    made = {"metadata": {"name": name, "namespace": pod.namespace}, "spec": template.get("spec")}
    return _read(fields, CLAIMS, made, f"the claim {name}")


def _notes(spec: Fields, pod: Pod) -> Iterator[str]:
    name = spec.value.get("priorityClassName")
    if isinstance(name, str) and name and "priority" not in spec.value:
        yield f"The priority of the class {printable(name)} is not known here; 0 is used."
    if spec.value.get("nodeName"):
        yield f"spec.nodeName of {printable(pod.name)} is not considered: no scheduler would decide about the pod."


def read_workloads(
    source: str, text: bytes, *, namespace: str = "default", replicas: int | None = None
) -> tuple[Replicated, ...]:
    """
    Return the workloads of a file.

    Args:
        source: the file's name in errors.
        text: YAML or JSON, with one document or several, or a List.
        namespace: of objects that name none.
        replicas: in place of what a workload says; then there must be one.

    Raises:
        ConfigurationError: the text has no workload, or one that cannot be read; the text says where and why.
    """
    known, others = _workloads(source, text)
    if replicas is not None and len(known) > 1:
        raise ConfigurationError(f"{source} has {len(known)} workloads; a number of replicas needs a file with one")
    skipped = printable(", ".join(f"{_kind(fields)} {fields.name}" for fields in others))
    notes = (f"Not considered in {source}: {skipped}.",) if others else ()
    return tuple(_replicated(fields, namespace, replicas, notes) for fields in known)


def only_workload(source: str, text: bytes) -> Mapping[str, Any]:
    """
    Return the one workload of a file as it is written, to be sent to the running scheduler.

    Raises:
        ConfigurationError: the text has none or several, or cannot be read.
    """
    known, _ = _workloads(source, text)
    if len(known) > 1:
        raise ConfigurationError(f"{source} has {len(known)} workloads; the running scheduler is asked about one")
    return known[0].value


def _workloads(source: str, text: bytes) -> tuple[list[Fields], list[Fields]]:
    """Return the objects that are workloads, at least one, and the others."""
    objects = [Fields(source, document) for document in _unlisted(source, documents(source, text))]
    known = [fields for fields in objects if _kind(fields) in _KINDS]
    if not known:
        kinds = ", ".join(dict.fromkeys(_kind(fields) or "an object without a kind" for fields in objects))
        raise ConfigurationError(
            printable(f"{source} has {kinds or 'an empty List'}; known are {', '.join(sorted(_KINDS))}")
        )
    return known, [fields for fields in objects if _kind(fields) not in _KINDS]


def _unlisted(source: str, found: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for document in found:
        if document.get("kind") == "List":
            yield from Fields(source, document).objects("items")
        else:
            yield document


def _kind(fields: Fields) -> str:
    kind = fields.value.get("kind")
    return kind if isinstance(kind, str) else ""


@attrs.frozen
class _Started:
    """
    What a kind starts.

    Attributes:
        parts: of one replica.
        replicas: how many the object says, in `field`.
        selector: of its pods; None if it selects none.
        grouped: whether the parts belong together.
    """

    parts: tuple[Part, ...]
    replicas: int = 1
    field: str = "replicas"
    selector: object = None
    grouped: bool = False


def _replicated(fields: Fields, namespace: str, replicas: int | None, notes: Sequence[str]) -> Replicated:
    started = _KINDS[_kind(fields)](fields)
    wanted = _wanted(fields, started.replicas if replicas is None else replicas, started.field)
    parts = [part for part in started.parts if part.count > 0]
    if not parts:
        raise fields.error("it has no pods")
    read = [pod_set(fields, part, namespace=namespace) for part in parts]
    exclusive = _exclusive(fields) if started.grouped else ()
    said = (*notes, *(note for _, more in read for note in more), *exclusive)
    pod_sets = tuple(pods for pods, _ in read)
    workload = _selecting(fields, parts[0].controller, pod_sets[0].template.namespace, started.selector)
    found = Replicated(wanted, pod_sets, fields.title, workload, tuple(dict.fromkeys(said)))
    if wanted * found.pods_per_replica > MOST_REPLICAS:
        raise fields.error(f"{wanted * found.pods_per_replica} pods; at most {MOST_REPLICAS} are counted")
    return found


def _wanted(fields: Fields, wanted: int, field: str) -> int:
    """Return the number of replicas; 0 in the file is an error, because nothing would be asked."""
    if wanted > MOST_REPLICAS or wanted < 0:
        raise fields.error(f"{wanted} replicas; at most {MOST_REPLICAS} are counted")
    if not wanted:
        raise fields.error(f"{field} is 0; say how many pods with --replicas")
    return wanted


def _selecting(fields: Fields, controller: Controller | None, namespace: str, selector: object) -> Workload | None:
    """Return the controller as what selects pods."""
    if controller is None or selector is None:
        return None
    selector = {"matchLabels": selector} if controller.kind == "ReplicationController" else selector
    try:
        selects = label_selector(msgspec.convert(selector, wire.Selector))
    except ValueError as error:
        raise fields.error(f"spec.selector cannot be read: {error}") from None
    return Workload("", controller.api_version, controller.kind, namespace, controller.name, selects)


def _exclusive(fields: Fields) -> Iterator[str]:
    annotations = fields.annotations
    for key in _EXCLUSIVE:
        if key in annotations:
            yield f"The annotation {key} is not considered: each group may need a {annotations[key]} of its own."


def _pods_of_job(spec: Fields) -> int:
    """Return how many pods of a Job run at once."""
    parallelism = spec.count("parallelism", 1)
    completions = spec.value.get("completions")
    return parallelism if completions is None else min(parallelism, spec.count("completions", 1))


def _pod(fields: Fields) -> _Started:
    return _Started((Part(fields),))


def _job(fields: Fields) -> _Started:
    spec = fields.at("spec")
    job = Controller("batch/v1", "Job", fields.name, {"batch.kubernetes.io/job-name": fields.name})
    wanted = _pods_of_job(spec)
    return _Started((Part(spec.at("template"), job),), wanted, "spec.parallelism")


def _cron_job(fields: Fields) -> _Started:
    job = {**fields.value, "spec": fields.at("spec").at("jobTemplate").at("spec").value}
    return _job(Fields(fields.source, job))


def _deployment(fields: Fields) -> _Started:
    spec = fields.at("spec")
    kind, labels = _kind(fields), dict[str, str]()
    if kind == "Deployment":
        kind, labels = "ReplicaSet", {"pod-template-hash": "new"}
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    controller = Controller(version, kind, fields.name, labels)
    part = Part(spec.at("template"), controller, claims=spec.objects("volumeClaimTemplates"))
    return _Started((part,), spec.count("replicas", 1), "spec.replicas", spec.value.get("selector"))


def _job_set(fields: Fields) -> _Started:
    """Return a JobSet as one replica: its Jobs belong together."""
    parts: list[Part] = []
    for each in fields.at("spec").objects("replicatedJobs"):
        replicated_job = fields.part(each, "spec.replicatedJobs")
        name, job = replicated_job.plain_name, replicated_job.at("template").at("spec")
        labels = {"jobset.sigs.k8s.io/jobset-name": fields.name, "jobset.sigs.k8s.io/replicatedjob-name": name}
        owner = Controller("batch/v1", "Job", f"{fields.name}-{name}", labels)
        count = replicated_job.count("replicas", 1) * _pods_of_job(job)
        parts.append(Part(job.at("template"), owner, count, name))
    return _Started(tuple(parts), grouped=True)


def _leader_worker_set(fields: Fields) -> _Started:
    """Return groups of a leader and its workers; without a template of its own, the leader is like a worker."""
    spec = fields.at("spec")
    template = spec.at("leaderWorkerTemplate")
    worker = template.at("workerTemplate")
    leader = template.at("leaderTemplate") if template.value.get("leaderTemplate") is not None else worker
    labels = {"leaderworkerset.sigs.k8s.io/name": fields.name}
    owner = Controller("apps/v1", "StatefulSet", fields.name, labels)
    parts = (Part(leader, owner, 1, "leader"), Part(worker, owner, template.count("size", 1) - 1, "worker"))
    return _Started(parts, spec.count("replicas", 1), "spec.replicas", grouped=True)


_KINDS: Final[Mapping[str, Callable[[Fields], _Started]]] = {
    "CronJob": _cron_job,
    "Deployment": _deployment,
    "Job": _job,
    "JobSet": _job_set,
    "LeaderWorkerSet": _leader_worker_set,
    "Pod": _pod,
    "ReplicaSet": _deployment,
    "ReplicationController": _deployment,
    "StatefulSet": _deployment,
}

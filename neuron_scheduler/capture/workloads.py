"""
Workloads -> `Replicated`: where each kind keeps its pod templates, and how many pods it starts.

Sources: `k8s.io/api` (batch/v1, apps/v1, core/v1), `jobset.x-k8s.io/v1alpha2`, `leaderworkerset.x-k8s.io/v1`,
`kubeflow.org` (v2beta1 of the MPI operator, v1 of the training operator). Pods get
their controllers' labels, and what the API server fills in (`SetDefaults_Pod`, `defaultHostNetworkPorts` in
`pkg/apis/core/v1/defaults.go`). They are read as the running process reads pods. A note names what is left out: what
only admission could add, and volumes that are created with the pods.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar

import attrs
import msgspec

from neuron_scheduler.capture.documents import Text, objects
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Encoded, Malformed
from neuron_scheduler.kube.objects.json_scanner import decode_at_once
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.replicated import PodSet, Replicated
from neuron_scheduler.model.selectors import NO_LABELS
from neuron_scheduler.model.wording import few_names
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable

MOST_REPLICAS: Final = 10_000

S = TypeVar("S")
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_REPLICAS)]


class Metadata(wire.Wire):
    """`metadata` of a workload or of a pod template."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


NO_METADATA: Final = Metadata()


class Object(wire.Wire, Generic[S]):
    """A workload, or a template in one."""

    spec: S
    metadata: Metadata | None = None

    @property
    def name(self) -> str:
        """Its name, or the beginning that the API server completes."""
        said = self.metadata or NO_METADATA
        return said.name or (said.generate_name or "unnamed").rstrip("-")


class TemplateSpec(wire.PodSpec):
    """`spec` of a pod that has not been through admission."""

    priority_class_name: str | None = None


Template = Object[TemplateSpec]


class _Job(wire.Wire):
    template: Template
    parallelism: Count | None = None
    completions: Count | None = None

    @property
    def pods(self) -> int:
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else min(parallelism, self.completions)


class _CronJob(wire.Wire):
    job_template: Object[_Job]


class _ReplicatedJob(wire.Wire):
    template: Object[_Job]
    name: str = ""
    replicas: Count | None = None


class _JobSet(wire.Wire):
    replicated_jobs: list[_ReplicatedJob]


class _Group(wire.Wire):
    worker_template: Template
    leader_template: Template | None = None
    size: Count | None = None


class _LeaderWorkerSet(wire.Wire):
    leader_worker_template: _Group
    replicas: Count | None = None


class _Role(wire.Wire):
    template: Template
    replicas: Count | None = None


class _TrainingJob(wire.Wire):
    """The roles of one of Kubeflow's kinds, under its own field."""

    mpi_replica_specs: dict[str, _Role] | None = None
    pytorch_replica_specs: dict[str, _Role] | None = None
    tf_replica_specs: dict[str, _Role] | None = None
    xgb_replica_specs: dict[str, _Role] | None = None
    jax_replica_specs: dict[str, _Role] | None = None
    paddle_replica_specs: dict[str, _Role] | None = None

    @property
    def roles(self) -> dict[str, _Role]:
        said = (getattr(self, name) for name in self.__struct_fields__)
        return next(filter(None, said), {})


class _Replicas(_Role):
    volume_claim_templates: list[msgspec.Raw] | None = None


@attrs.frozen
class Part:
    """
    Pods of one template.

    Attributes:
        labels, annotations: those that its controller adds.
        count: pods of one replica.
        name: of the part of a group.
        creates_volumes: claims are created with each pod, apart from those in the template.
    """

    template: Template
    labels: Mapping[str, str] = NO_LABELS
    count: int = 1
    name: str = ""
    annotations: Mapping[str, str] = NO_LABELS
    creates_volumes: bool = False


_Workload = tuple[int, list[Part]]
"""How many replicas a workload has, and the parts of one of them."""


def _pod(pod: Template) -> _Workload:
    return 1, [Part(pod)]


def _job(job: Object[_Job]) -> _Workload:
    return job.spec.pods, [Part(job.spec.template, {"batch.kubernetes.io/job-name": job.name})]


def _cron_job(cron_job: Object[_CronJob]) -> _Workload:
    return _job(Object(cron_job.spec.job_template.spec, cron_job.metadata))


def _deployment(deployment: Object[_Replicas]) -> _Workload:
    replicas, part = _replicas(deployment)
    return replicas, [attrs.evolve(each, labels={"pod-template-hash": "new"}) for each in part]


def _replicas(workload: Object[_Replicas]) -> _Workload:
    spec = workload.spec
    part = Part(spec.template, creates_volumes=bool(spec.volume_claim_templates))
    return _or_one(spec.replicas), [part]


def _job_set(job_set: Object[_JobSet]) -> _Workload:
    """Return a JobSet as one replica: its Jobs belong together."""
    prefix, parts = "jobset.sigs.k8s.io", list[Part]()
    for each in job_set.spec.replicated_jobs:
        job = each.template.spec
        labels = {f"{prefix}/jobset-name": job_set.name, f"{prefix}/replicatedjob-name": each.name}
        parts.append(Part(job.template, labels, _or_one(each.replicas) * job.pods, each.name))
    return 1, parts


def _training_job(job: Object[_TrainingJob]) -> _Workload:
    """Return one of Kubeflow's jobs as one replica: its roles belong together."""
    prefix, parts = "training.kubeflow.org", list[Part]()
    for name, role in job.spec.roles.items():
        kind = name.lower()
        labels = {f"{prefix}/job-name": job.name, f"{prefix}/job-role": kind, f"{prefix}/replica-type": kind}
        parts.append(Part(role.template, labels, _or_one(role.replicas), kind))
    return 1, parts


def _leader_worker_set(groups: Object[_LeaderWorkerSet]) -> _Workload:
    """Return groups of a leader and its workers; without a template of its own, the leader is like a worker."""
    prefix, group = "leaderworkerset.sigs.k8s.io", groups.spec.leader_worker_template
    labels = {f"{prefix}/name": groups.name, f"{prefix}/group-key": groups.name}
    annotations = (groups.metadata or NO_METADATA).annotations or NO_LABELS
    said = {key: value for key, value in annotations.items() if key == f"{prefix}/exclusive-topology"}
    leader = Part(group.leader_template or group.worker_template, labels, name="leader", annotations=said)
    workers = Part(group.worker_template, labels, _or_one(group.size) - 1, "worker", annotations=said)
    return _or_one(groups.spec.replicas), [leader, workers]


def _or_one(count: int | None) -> int:
    return 1 if count is None else count


_KINDS: Final[Mapping[str, tuple[Any, Callable[[Any], _Workload]]]] = {
    "CronJob": (Object[_CronJob], _cron_job),
    "Deployment": (Object[_Replicas], _deployment),
    "Job": (Object[_Job], _job),
    "JobSet": (Object[_JobSet], _job_set),
    "LeaderWorkerSet": (Object[_LeaderWorkerSet], _leader_worker_set),
    "Pod": (Object[TemplateSpec], _pod),
    "ReplicaSet": (Object[_Replicas], _replicas),
    "StatefulSet": (Object[_Replicas], _replicas),
    **dict.fromkeys(
        ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"), (Object[_TrainingJob], _training_job)
    ),
}
"""For each kind its fields, and what it starts."""


def only_workload(source: str, text: Text) -> tuple[str, Encoded]:
    """Return the kind of the one workload in a text, and the workload as JSON; `source` names the text in errors."""
    known, others = list[tuple[str, Encoded]](), dict[str, None]()
    for (_, kind), item in objects(source, text):
        if kind in _KINDS:
            known.append((kind, item))
        elif kind:
            others[kind] = None
    if len(known) != 1:
        unknown = f" of a kind that is known here ({few_names([*others])} is not)" if others and not known else ""
        number = f"{len(known) or 'no'} workloads{printable(unknown)}"
        raise ConfigurationError(
            f"{source} has {number}; write one: {', '.join(_KINDS)}; or describe its pods instead, such as"
            " --devices 16 --replicas 4"
        )
    return known[0]


def read_workload(source: str, text: Text, *, namespace: str = "default", replicas: int | None = None) -> Replicated:
    """
    Return the one workload of a text: YAML or JSON, with one document or several, or a List.

    `source` is the name in errors; `namespace` is that of a workload that names none; `replicas` replaces its own.
    """
    kind, encoded = only_workload(source, text)
    shape, start = _KINDS[kind]
    try:
        workload = decode_at_once(encoded, msgspec.json.Decoder(shape))
        started, parts = start(workload)
        return _workload_of(kind, workload, namespace, started if replicas is None else replicas, parts)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(printable(f"{source}: {kind}: {error}")) from None


def _workload_of(kind: str, workload: Object[Any], namespace: str, replicas: int, parts: Sequence[Part]) -> Replicated:
    metadata, parts = workload.metadata or NO_METADATA, [part for part in parts if part.count > 0]
    notes = dict.fromkeys((*_exclusive(metadata), *(note for part in parts for note in _left_out(part))))
    pod_sets = [pod_set(part, workload.name, metadata.namespace or namespace) for part in parts]
    if pod_sets and not pod_sets[0].name and pod_sets[0].template.group is not None:  # all of them start together
        replicas, pod_sets = 1, [attrs.evolve(pod_sets[0], count=replicas)]
    found = Replicated(replicas, tuple(pod_sets), f"{kind} {workload.name}", tuple(notes))
    pods = replicas * found.pods_per_replica
    if not 0 < pods <= MOST_REPLICAS:
        raise ValueError(f"{pods} pods; from 1 to {MOST_REPLICAS} are counted, --replicas says how many replicas")
    return found


def _exclusive(metadata: Metadata) -> Iterator[str]:
    for key, value in (metadata.annotations or NO_LABELS).items():
        if key.endswith("exclusive-topology"):
            yield f"That each group may need a {value} of its own (annotation {key}) is not considered."


def _left_out(part: Part) -> Iterator[str]:
    spec = part.template.spec
    if spec.priority_class_name and spec.priority is None:
        yield f"The priority of the class {spec.priority_class_name} is not known here; 0 is used."
    if spec.node_name:
        yield "spec.nodeName is not considered: no scheduler would decide about the pod."
    if part.creates_volumes or any(volume.ephemeral is not None for volume in spec.volumes or ()):
        yield "Volumes that are created with the pods are not considered."


def pod_set(part: Part, name: str, namespace: str) -> PodSet:
    """
    Return the pods of a part of the workload `name` as the API server would fill them in.

    That is written into the part's own template. ValueError: the pod cannot be read.
    """
    spec = part.template.spec
    if not spec.containers:
        raise ValueError("its pod has no containers")
    if spec.resource_claims:
        raise ValueError("templates of resource claims are not read; create one pod, and ask `why` about that")
    for container in (*spec.containers, *(spec.init_containers or ())):
        _request_limits(container.resources)
        for port in (container.ports or ()) if spec.host_network else ():
            port.host_port = port.host_port or port.container_port
    _request_limits(spec.resources)
    spec.volumes = [volume for volume in spec.volumes or () if volume.ephemeral is None]
    spec.node_name = None
    said = part.template.metadata or NO_METADATA
    metadata = wire.ObjectMeta(
        name="-".join(filter(None, (name, part.name))),
        namespace=namespace,
        labels={**(said.labels or NO_LABELS), **part.labels},
        annotations={**(said.annotations or NO_LABELS), **part.annotations},
    )
    pod = PODS.decode(msgspec.json.encode(wire.Pod(metadata, spec))).value
    if pod is None or isinstance(pod, Malformed):
        raise ValueError(f"its pod cannot be read: {pod.reason if pod else 'it has ended'}")
    return PodSet(pod, part.count, part.name)


def _request_limits(resources: wire.Resources | None) -> None:
    """Request the limits, where nothing else is requested."""
    if resources is not None:
        resources.requests = {**(resources.limits or {}), **(resources.requests or {})}

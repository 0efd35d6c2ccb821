"""
Workloads -> `Replicated`: where each kind keeps its pod templates, and how many pods it starts.

Sources: `k8s.io/api` (batch/v1, apps/v1, core/v1), `jobset.x-k8s.io/v1alpha2`, `leaderworkerset.x-k8s.io/v1`. Pods get
the labels and owners that the kinds' controllers give them, as far as a decision reads these. Does not read a pod:
`pod_templates` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.explain.replicated import PodSet, Replicated
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.workload_files.documents import documents
from neuron_scheduler.workload_files.fields import Fields
from neuron_scheduler.workload_files.pod_templates import Controller, pod_set

MOST_REPLICAS: Final = 10_000
_EXCLUSIVE: Final = (
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)


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
    return tuple(_READERS[_kind(fields)](fields, namespace, replicas, notes) for fields in known)


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
    known = [fields for fields in objects if _kind(fields) in _READERS]
    if not known:
        kinds = ", ".join(dict.fromkeys(_kind(fields) or "an object without a kind" for fields in objects))
        raise ConfigurationError(
            printable(f"{source} has {kinds or 'an empty List'}; known are {', '.join(sorted(_READERS))}")
        )
    return known, [fields for fields in objects if _kind(fields) not in _READERS]


def _unlisted(source: str, found: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for document in found:
        if document.get("kind") == "List":
            yield from Fields(source, document).objects("items")
        else:
            yield document


def _kind(fields: Fields) -> str:
    kind = fields.value.get("kind")
    return kind if isinstance(kind, str) else ""


def _pods_of_job(spec: Fields) -> int:
    """Return how many pods of a Job run at once."""
    parallelism = spec.count("parallelism", 1)
    completions = spec.value.get("completions")
    return parallelism if completions is None else min(parallelism, spec.count("completions", 1))


def _wanted(fields: Fields, said: int, replicas: int | None, field: str) -> int:
    """Return the number of replicas; 0 in the file is an error, because nothing would be asked."""
    wanted = said if replicas is None else replicas
    if not 0 < wanted <= MOST_REPLICAS:
        if wanted:
            raise fields.error(f"{wanted} replicas; at most {MOST_REPLICAS} are counted")
        raise fields.error(f"{field} is 0; say how many pods with --replicas")
    return wanted


def _pod(fields: Fields, namespace: str, replicas: int | None, notes: tuple[str, ...]) -> Replicated:
    wanted = _wanted(fields, 1, replicas, "replicas")
    pods, more = pod_set(fields, fields, namespace=namespace)
    return Replicated(wanted, (pods,), fields.title, notes=(*notes, *more))


def _job(fields: Fields, namespace: str, replicas: int | None, notes: tuple[str, ...]) -> Replicated:
    spec = fields.at("spec")
    wanted = _wanted(fields, _pods_of_job(spec), replicas, "spec.parallelism")
    job = Controller("batch/v1", "Job", fields.name, {"batch.kubernetes.io/job-name": fields.name})
    pods, more = pod_set(fields, spec.at("template"), namespace=namespace, controller=job)
    return Replicated(wanted, (pods,), fields.title, notes=(*notes, *more))


def _cron_job(fields: Fields, namespace: str, replicas: int | None, notes: tuple[str, ...]) -> Replicated:
    job = {**fields.value, "spec": fields.at("spec").at("jobTemplate").at("spec").value}
    return _job(Fields(fields.source, job), namespace, replicas, notes)


def _deployment(fields: Fields, namespace: str, replicas: int | None, notes: tuple[str, ...]) -> Replicated:
    spec = fields.at("spec")
    kind, labels = fields.value.get("kind"), dict[str, str]()
    if kind == "Deployment":
        kind, labels = "ReplicaSet", {"pod-template-hash": "new"}
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    controller = Controller(version, str(kind), fields.name, labels)
    wanted = _wanted(fields, spec.count("replicas", 1), replicas, "spec.replicas")
    pods, more = pod_set(
        fields,
        spec.at("template"),
        namespace=namespace,
        controller=controller,
        claims=spec.objects("volumeClaimTemplates"),
    )
    try:
        workload = controller.workload(namespace=pods.template.namespace, selector=spec.value.get("selector"))
    except ValueError as error:
        raise fields.error(f"spec.selector cannot be read: {error}") from None
    return Replicated(wanted, (pods,), fields.title, workload, (*notes, *more))


def _job_set(fields: Fields, namespace: str, replicas: int | None, notes: tuple[str, ...]) -> Replicated:
    """Return a JobSet as one replica: its Jobs belong together."""
    pod_sets: list[PodSet] = []
    for part in fields.at("spec").objects("replicatedJobs"):
        replicated_job = fields.part(part, "spec.replicatedJobs")
        job = replicated_job.at("template").at("spec")
        count = replicated_job.count("replicas", 1) * _pods_of_job(job)
        labels = {
            "jobset.sigs.k8s.io/jobset-name": fields.name,
            "jobset.sigs.k8s.io/replicatedjob-name": replicated_job.plain_name,
        }
        owner = Controller("batch/v1", "Job", f"{fields.name}-{replicated_job.plain_name}", labels)
        pods, more = pod_set(
            fields,
            job.at("template"),
            namespace=namespace,
            controller=owner,
            count=count,
            name=replicated_job.plain_name,
        )
        notes = (*notes, *more)
        if count:
            pod_sets.append(pods)
    return _group(fields, tuple(pod_sets), _wanted(fields, 1, replicas, "replicas"), notes)


def _leader_worker_set(fields: Fields, namespace: str, replicas: int | None, notes: tuple[str, ...]) -> Replicated:
    """Return groups of a leader and its workers; without a template of its own, the leader is like a worker."""
    spec = fields.at("spec")
    template = spec.at("leaderWorkerTemplate")
    size = template.count("size", 1)
    worker = template.at("workerTemplate")
    leader = template.at("leaderTemplate") if template.value.get("leaderTemplate") is not None else worker
    labels = {"leaderworkerset.sigs.k8s.io/name": fields.name}
    owner = Controller("apps/v1", "StatefulSet", fields.name, labels)
    pod_sets: list[PodSet] = []
    for name, of_template, count in (("leader", leader, 1), ("worker", worker, size - 1)):
        if count > 0:
            pods, more = pod_set(fields, of_template, namespace=namespace, controller=owner, count=count, name=name)
            pod_sets.append(pods)
            notes = (*notes, *more)
    wanted = _wanted(fields, spec.count("replicas", 1), replicas, "spec.replicas")
    return _group(fields, tuple(pod_sets), wanted, notes)


def _group(fields: Fields, pod_sets: tuple[PodSet, ...], replicas: int, notes: tuple[str, ...]) -> Replicated:
    group = Replicated(replicas, pod_sets, fields.title, notes=(*dict.fromkeys(notes), *_exclusive(fields)))
    if not group.pods_per_replica:
        raise fields.error("it has no pods")
    if replicas * group.pods_per_replica > MOST_REPLICAS:
        raise fields.error(f"{replicas * group.pods_per_replica} pods; at most {MOST_REPLICAS} are counted")
    return group


def _exclusive(fields: Fields) -> Iterator[str]:
    annotations = fields.annotations
    for key in _EXCLUSIVE:
        if key in annotations:
            yield f"The annotation {key} is not considered: each group may need a {annotations[key]} of its own."


_Reader = Callable[[Fields, str, int | None, tuple[str, ...]], Replicated]

_READERS: Final[Mapping[str, _Reader]] = {
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

"""
Small models of the controllers whose pods start together: which pod each creates next, by what became of the others.

A model is a pure function of the pods and nodes that exist. It writes the words about scheduling that the real one
writes (recorded: JobSet 0.13, LeaderWorkerSet 0.10, Kueue 0.17 and 0.20, MPI operator 0.8). Tests on a real API server
and the simulation run the same models.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import attrs

Object: TypeAlias = dict[str, Any]
Pods: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By name: those of a workload's namespace that have not ended, or nodes."""
GATE: Final = {"name": "kueue.x-k8s.io/admission"}
ULTRASERVER: Final = "neuron.amazonaws.com/ultraserver-server-id"
_JOBSET: Final = "jobset.sigs.k8s.io"
_LWS: Final = "leaderworkerset.sigs.k8s.io"
_KUEUE: Final = "kueue.x-k8s.io"
_JOB: Final = "batch.kubernetes.io"
_MPI: Final = "training.kubeflow.org"


class Build(Protocol):
    """Returns a pod that asks for so many devices."""

    def __call__(self, name: str, *, neuron: int, labels: Mapping[str, str], **rest: Any) -> Object:
        """`rest` has the annotations and fields of the spec."""


class Workload(Protocol):
    """What a user applies, with its controller."""

    def wanted(self, pods: Pods, nodes: Pods) -> Iterator[Object]:
        """Yield the pods that are to exist now; those whose names are taken are there already."""


def is_ready(pod: Mapping[str, Any] | None) -> bool:
    """Return whether all containers of a pod run."""
    conditions = [] if pod is None else pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def node_of(pod: Mapping[str, Any] | None) -> str:
    """Return the name of a pod's node; empty if it has none."""
    return "" if pod is None else pod["spec"].get("nodeName") or ""


def _near(topology: str, key: str, value: str, *, everywhere: bool = False, **ranks: Sequence[str]) -> Object:
    """Return the terms of a first pod that keeps the others of its kind out of its domain."""
    own: Object = {"key": key, "operator": "In", "values": [value]}
    others: list[Object] = [{"key": key, "operator": "Exists"}, {"key": key, "operator": "NotIn", "values": [value]}]
    others += [{"key": f"{_JOBSET}/{each}", "operator": "In", "values": values} for each, values in ranks.items()]

    def required(rules: Sequence[Object]) -> Object:
        term = {"labelSelector": {"matchExpressions": rules}, "topologyKey": topology}
        term |= {"namespaceSelector": {}} if everywhere else {}
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    return {"podAffinity": required([own]), "podAntiAffinity": required(others)}


@attrs.frozen(kw_only=True)
class Bare:
    """Pods that a user, or an operator without a rule of its own, creates at once."""

    build: Build
    name: str
    count: int
    neuron: int = 16
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    spec: Mapping[str, Any] = {}
    index: str = f"{_JOB}/job-completion-index"

    def wanted(self, _pods: Pods, _nodes: Pods) -> Iterator[Object]:
        for number in range(self.count):
            labels = {**self.labels, self.index: str(number)}
            name, notes = f"{self.name}-{number}", self.annotations
            yield self.build(name, neuron=self.neuron, labels=labels, annotations=notes, **self.spec)


def mpi_job(build: Build, name: str, count: int, neuron: int, topology: str) -> Bare:
    """Return the workers of an MPIJob with AWS's recipe for UltraServers."""
    labels = {f"{_MPI}/job-name": name, f"{_MPI}/job-role": "worker"}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": topology}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    index, spec = f"{_MPI}/replica-index", {"affinity": affinity}
    return Bare(build=build, name=name, count=count, neuron=neuron, labels=labels, spec=spec, index=index)


@attrs.frozen(kw_only=True)
class StatefulSet:
    """Pods one by one, the next when the one before is Ready."""

    build: Build
    name: str
    replicas: int

    def wanted(self, pods: Pods, _nodes: Pods) -> Iterator[Object]:
        for number in range(self.replicas):
            name = f"{self.name}-{number}"
            yield self.build(name, neuron=16, labels={"apps.kubernetes.io/pod-index": str(number)})
            if not is_ready(pods.get(name)):
                return


@attrs.frozen(kw_only=True)
class Job:
    """
    Pods with an index; one that has failed comes again under another name, up to a limit.

    Attributes:
        failed: how many pods of each index have failed, by what `wanted` was told.
    """

    build: Build
    name: str
    count: int
    labels: Mapping[str, str] = {}
    backoff_limit: int = 6
    failed: dict[int, set[str]] = attrs.field(factory=dict)

    def wanted(self, pods: Pods, _nodes: Pods) -> Iterator[Object]:
        for number in range(self.count):
            failed = self.failed.setdefault(number, set())
            failed |= {n for n, pod in pods.items() if n.startswith(f"{self.name}-{number}-") and _has_failed(pod)}
            if len(failed) <= self.backoff_limit:
                labels = {**self.labels, f"{_JOB}/job-completion-index": str(number)}
                yield self.build(f"{self.name}-{number}-{len(failed)}", neuron=16, labels=labels)


def _has_failed(pod: Mapping[str, Any]) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Failed")


@attrs.frozen(kw_only=True)
class LeaderWorkerSet:
    """
    Groups of a leader and its workers, which are created with it, or when it is Ready.

    With a topology they have its leader's domain as a selector, so they come when it has a node.
    """

    build: Build
    name: str
    replicas: int
    size: int
    when_ready: bool = False
    topology: str = ""
    leader_neuron: int = 16

    def wanted(self, pods: Pods, nodes: Pods) -> Iterator[Object]:
        for group in range(self.replicas):
            leader, key = f"{self.name}-{group}", f"key-of-{self.name}-{group}"
            rest = {"affinity": _near(self.topology, f"{_LWS}/group-key", key)} if self.topology else {}
            yield self._pod(leader, group, 0, self.leader_neuron, {}, **rest)
            there = pods.get(leader)
            if is_ready(there) if self.when_ready else there is not None:
                yield from self._workers(leader, group, nodes.get(node_of(there)))

    def _workers(self, leader: str, group: int, node: Mapping[str, Any] | None) -> Iterator[Object]:
        if self.topology and node is None:
            return
        domain = "" if node is None else node["metadata"]["labels"].get(self.topology, "")
        rest = {"nodeSelector": {self.topology: domain}} if self.topology else {}
        for number in range(1, self.size):
            yield self._pod(f"{leader}-{number}", group, number, 16, {f"{_LWS}/leader-name": leader}, **rest)

    def _pod(self, name: str, group: int, index: int, neuron: int, notes: Mapping[str, str], **rest: Any) -> Object:
        labels = {
            f"{_LWS}/name": self.name,
            f"{_LWS}/group-index": str(group),
            f"{_LWS}/group-key": f"key-of-{self.name}-{group}",
            f"{_LWS}/worker-index": str(index),
        }
        annotations = {f"{_LWS}/size": str(self.size), **notes}
        annotations |= {f"{_LWS}/exclusive-topology": self.topology} if self.topology else {}
        return self.build(name, neuron=neuron, labels=labels, annotations=annotations, **rest)


@attrs.frozen(kw_only=True)
class JobSet:
    """
    Jobs of which each has a domain for itself.

    Its webhook refuses a job's other pods until the first one has a node, and gives them its domain as a selector.
    """

    build: Build
    name: str
    jobs: int
    size: int
    topology: str
    labels: Mapping[str, str] = {}

    def wanted(self, pods: Pods, nodes: Pods) -> Iterator[Object]:
        for job in range(self.jobs):
            key = f"key-of-{self.name}-{job}"
            affinity = _near(self.topology, f"{_JOBSET}/job-key", key, everywhere=True, priority=["0"])
            first = f"{self.name}-w-{job}-0"
            yield self._pod(first, job, 0, affinity=affinity)
            node = nodes.get(node_of(pods.get(first)))
            for index in range(1, self.size if node else 0):
                domain = (node or {})["metadata"]["labels"][self.topology]
                yield self._pod(f"{self.name}-w-{job}-{index}", job, index, nodeSelector={self.topology: domain})

    def _pod(self, name: str, job: int, index: int, **rest: Any) -> Object:
        words = {
            f"{_JOB}/job-completion-index": str(index),
            f"{_JOBSET}/job-index": str(job),
            f"{_JOBSET}/job-key": f"key-of-{self.name}-{job}",
            f"{_JOBSET}/jobset-name": self.name,
            f"{_JOBSET}/replicatedjob-replicas": str(self.jobs),
        }
        annotations = {**words, "alpha.jobset.sigs.k8s.io/exclusive-topology": self.topology}
        labels = {**self.labels, **words, f"{_JOBSET}/priority": "0"}
        return self.build(name, neuron=16, labels=labels, annotations=annotations, **rest)


@attrs.frozen(kw_only=True)
class Queued:
    """
    A workload that Kueue admits.

    Attributes:
        of: the workload.
        labels, annotations: that Kueue adds to each pod.
        count: pods that must exist before their gates are lifted; 0 if pods have none, because their job was suspended.
    """

    of: Workload
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    count: int = 0

    def wanted(self, pods: Pods, nodes: Pods) -> Iterator[Object]:
        for pod in self.of.wanted(pods, nodes):
            meta, gates = pod["metadata"], {"schedulingGates": [GATE]} if self.count else {}
            meta = meta | {"labels": {**meta["labels"], **self.labels}}
            meta |= {"annotations": {**(meta.get("annotations") or {}), **self.annotations}}
            yield pod | {"metadata": meta, "spec": pod["spec"] | gates}

    def admitted(self, pods: Pods) -> list[str]:
        """Return the names of the pods whose gates are to be lifted now."""
        gated = [name for name, pod in pods.items() if pod["spec"].get("schedulingGates")]
        return gated if len(pods) >= self.count else []


def serving(of: Workload, name: str, count: int, *, fast: bool = False) -> Queued:
    """Return a StatefulSet or LeaderWorkerSet with the words of Kueue 0.17; its first pod has the quota."""
    annotations = {f"{_KUEUE}/pod-group-total-count": str(count), f"{_KUEUE}/pod-group-serving": "true"}
    annotations |= {f"{_KUEUE}/pod-group-fast-admission": "true"} if fast else {}
    annotations |= {f"{_KUEUE}/workload": name}
    return Queued(of=of, labels={f"{_KUEUE}/pod-group-name": name}, annotations=annotations, count=1)


def plain_pods(build: Build, name: str, count: int) -> Queued:
    """Return a group of plain pods with the words of Kueue 0.18 and newer: its name is an annotation."""
    words = {f"{_KUEUE}/pod-group-name": name, f"{_KUEUE}/pod-group-total-count": str(count)}
    bare = Bare(build=build, name=name, count=count, annotations=words)
    return Queued(of=bare, annotations={f"{_KUEUE}/workload": name}, count=count)


def admitted_job(of: Workload, name: str) -> Queued:
    """Return a Job or JobSet that Kueue has admitted."""
    return Queued(of=of, annotations={f"{_KUEUE}/workload": name})

"""The group that a pod says it is in, in the words of each project, and what is no group."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import HOSTNAME_LABEL, ULTRASERVER_2, ULTRASERVER_4
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from tests.support.wire_objects import encoded, pod

NEW_NAME: Final = "scheduling.x-k8s.io/pod-group"
NAME, COUNT = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
KUEUE, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
KEY, SIZE, TOPOLOGY = (f"leaderworkerset.sigs.k8s.io/{word}" for word in ("group-key", "size", "exclusive-topology"))
WORKER: Final = {
    "training.kubeflow.org/job-name": "train",
    "training.kubeflow.org/job-role": "worker",
    "training.kubeflow.org/replica-index": "3",
}
"""Labels of a worker of an MPIJob."""
LEADER: Final = {KEY: "3f1c", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
"""Labels of the leader of a LeaderWorkerSet."""
INDEXED: Final = {"job-name": "sweep", "batch.kubernetes.io/job-completion-index": "7"}
"""Labels of a pod of an Indexed Job."""
RECIPE: Final = "training.kubeflow.org/job-name=train,training.kubeflow.org/job-role=worker"


def affinity(key: str, *, role: str = "worker", preferred: bool = False) -> dict[str, Any]:
    """Return the spec of AWS's recipe."""
    selector = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": role}
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": key}
    when, terms = ("preferred", [{"weight": 100, "podAffinityTerm": term}]) if preferred else ("required", [term])
    return {"affinity": {"podAffinity": {f"{when}DuringSchedulingIgnoredDuringExecution": terms}}}


def said(case: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None, **spec: Any) -> Any:
    """Return a decoded pod as the first parameter of a test."""
    value = PODS.decode(encoded(pod(metadata={"labels": labels, "annotations": annotations or {}}, spec=spec))).value
    assert isinstance(value, Pod)
    return pytest.param(value, id=case)


def meant(dialect: Dialect, name: str, count: int, where: str = "", rank: int = 0) -> tuple[PodGroup, int]:
    """Return a group, and a rank; these dialects say how many there must be, and the others how many there will be."""
    least = count if dialect in (Dialect.COSCHEDULING, Dialect.KUEUE) else 0
    return PodGroup(GroupKey(dialect, "default", name), least=least, expected=count, topology=where), rank


GROUPS: Final = (
    (said("Indexed Job", {**INDEXED, NAME: "sweep", COUNT: "8"}), meant(Dialect.COSCHEDULING, "sweep", 8, rank=7)),
    (said("new label", {NEW_NAME: "a", COUNT: "10000"}), meant(Dialect.COSCHEDULING, "a", 10_000)),
    (said("the count is in an object", {NEW_NAME: "train"}), meant(Dialect.COSCHEDULING, "train", 0)),
    *(
        (said(f"count {count[:9]!r}", {NAME: "train", COUNT: count}), meant(Dialect.COSCHEDULING, "train", 0))
        for count in ("", "0", "-1", "four", "4.0", "٤", "10001", "9" * 5_000)
    ),
    (said("recipe", WORKER, **affinity(ULTRASERVER_4)), meant(Dialect.AFFINITY, RECIPE, 0, ULTRASERVER_4, rank=3)),
    (
        said("worker", {**LEADER, "leaderworkerset.sigs.k8s.io/worker-index": "2"}, {SIZE: "4", TOPOLOGY: "rack"}),
        meant(Dialect.LEADER_WORKER_SET, "3f1c", 4, "rack", rank=2),
    ),
    (said("no size", {KEY: "3f1c"}, {SIZE: "many"}), meant(Dialect.LEADER_WORKER_SET, "3f1c", 0)),
    (
        said("Kueue", {KUEUE: "batch", "kueue.x-k8s.io/pod-group-pod-index": "5"}, {TOTAL: "6"}),
        meant(Dialect.KUEUE, "batch", 6, rank=5),
    ),
    (
        said("a count, and the recipe says where", {**WORKER, NAME: "a", COUNT: "4"}, **affinity(ULTRASERVER_4)),
        meant(Dialect.COSCHEDULING, "a", 4, ULTRASERVER_4, rank=3),
    ),
    (
        said("Kueue, and LeaderWorkerSet says where", {**LEADER, KUEUE: "b"}, {TOTAL: "6", TOPOLOGY: "rack"}),
        meant(Dialect.KUEUE, "b", 6, "rack"),
    ),
)


@pytest.mark.parametrize(("value", "expected"), [pytest.param(*p.values, want, id=p.id) for p, want in GROUPS])
def test_the_words_of_each_project(value: Pod, expected: tuple[PodGroup, int]) -> None:
    """Group, count, topology and rank are what the project's objects say."""
    assert (value.group, value.rank) == expected


@pytest.mark.parametrize(
    "value",
    [
        said("a plain pod", {}),
        said("recipe as a preference", WORKER, **affinity(ULTRASERVER_2, preferred=True)),
        said("a gate", {NAME: "train", COUNT: "4"}, schedulingGates=[{"name": "quota"}]),
        said("no name", {NAME: "", COUNT: "4"}),
        said("Kueue without a count", {KUEUE: "batch"}),
        said("Kueue without a name", {KUEUE: ""}, {TOTAL: "4"}),
        said("LeaderWorkerSet without a key", {**LEADER, KEY: ""}),
        said("affinity over another label", WORKER, **affinity(HOSTNAME_LABEL)),
        said("affinity to others", WORKER, **affinity(ULTRASERVER_4, role="launcher")),
    ],
)
def test_what_is_no_group(value: Pod) -> None:
    """A pod by itself is scheduled as ever; a preference is a wish; with a gate the pod is not there yet."""
    assert (value.group, value.rank) == (None, 0)

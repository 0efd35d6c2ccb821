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
KUEUE, TOTAL, SERVING, FAST, WORKLOAD, MANAGED = (
    f"kueue.x-k8s.io/{word}"
    for word in (
        "pod-group-name",
        "pod-group-total-count",
        "pod-group-serving",
        "pod-group-fast-admission",
        "workload",
        "managed",
    )
)
EXCLUSIVE, BY_NODE_SELECTOR = (f"alpha.jobset.sigs.k8s.io/{word}" for word in ("exclusive-topology", "node-selector"))
KEY, SIZE, TOPOLOGY, SUBGROUP = (
    f"leaderworkerset.sigs.k8s.io/{word}" for word in ("group-key", "size", "exclusive-topology", "subgroup-key")
)
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
JOB_SET: Final = {EXCLUSIVE: ULTRASERVER_2, WORKLOAD: "w"}
"""Annotations of a JobSet with an exclusive topology, which Kueue has admitted."""
RECIPE: Final = "training.kubeflow.org/job-name=train,training.kubeflow.org/job-role=worker"


def affinity(topology: str, *, role: str = "worker", preferred: bool = False, **more: Any) -> dict[str, Any]:
    """Return the spec of AWS's recipe."""
    selector = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": role}
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": topology, **more}
    when, terms = ("preferred", [{"weight": 100, "podAffinityTerm": term}]) if preferred else ("required", [term])
    return {"affinity": {"podAffinity": {f"{when}DuringSchedulingIgnoredDuringExecution": terms}}}


def many_terms() -> dict[str, Any]:
    """Return the spec of a pod that is compared with so many others that it is decided by itself."""
    spec = affinity(ULTRASERVER_4, preferred=True)
    spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] *= 6
    return spec


def said(case: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None, **spec: Any) -> Any:
    """Return a decoded pod as the first parameter of a test."""
    value = PODS.decode(encoded(pod(metadata={"labels": labels, "annotations": annotations or {}}, spec=spec))).value
    assert isinstance(value, Pod)
    return pytest.param(value, id=case)


def key(dialect: Dialect, name: str) -> GroupKey:
    return GroupKey(dialect, "default", name)


def meant(
    dialect: Dialect, name: str, count: int, where: str = "", *, rank: int = 0, of: str = ""
) -> tuple[PodGroup, int]:
    """Return a group, and a rank; these dialects say how many there must be, and the others how many there will be."""
    least = count if dialect in (Dialect.COSCHEDULING, Dialect.KUEUE) else 0
    return PodGroup(key(dialect, name), least=least, expected=count, topology=where, of=of), rank


GROUPS: Final = (
    (said("Indexed Job", {**INDEXED, NAME: "sweep", COUNT: "8"}), meant(Dialect.COSCHEDULING, "sweep", 8, rank=7)),
    (said("new label", {NEW_NAME: "a", COUNT: "100000"}), meant(Dialect.COSCHEDULING, "a", 100_000)),
    (said("the count is in an object", {NEW_NAME: "train"}), meant(Dialect.COSCHEDULING, "train", 0)),
    *(
        (said(f"count {count[:9]!r}", {NAME: "train", COUNT: count}), meant(Dialect.COSCHEDULING, "train", 0))
        for count in ("", "0", "-1", "four", "4.0", "٤", "100001", "9" * 5_000)
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
        meant(Dialect.COSCHEDULING, "a", 4, ULTRASERVER_4, rank=3, of=RECIPE),
    ),
    (
        said(
            "LeaderWorkerSet's subgroup", {**LEADER, **WORKER, SUBGROUP: "9a"}, {SIZE: "8"}, **affinity(ULTRASERVER_4)
        ),
        meant(Dialect.LEADER_WORKER_SET, "3f1c", 8, rank=3),
    ),
    (
        said("LeaderWorkerSet under Kueue", {**LEADER, KUEUE: "b"}, {TOTAL: "6", SIZE: "6", TOPOLOGY: "rack"}),
        meant(Dialect.LEADER_WORKER_SET, "3f1c", 6, "rack"),
    ),
    (said("Kueue, by annotation", {}, {KUEUE: "batch", TOTAL: "6"}), meant(Dialect.KUEUE, "batch", 6)),
    *(
        (said(word, {KUEUE: "s"}, {TOTAL: "3", word: "true"}), (PodGroup(key(Dialect.KUEUE, "s"), expected=3), 0))
        for word in (SERVING, FAST)
    ),
    (said("native", {NAME: "a", COUNT: "4"}, schedulingGroup={"podGroupName": "n"}), meant(Dialect.NATIVE, "n", 0)),
    (said("a Workload of Kueue", INDEXED, {WORKLOAD: "w"}), meant(Dialect.KUEUE, "w", 0, rank=7)),
    (
        said("JobSet's node selectors", {NAME: "a", COUNT: "4"}, {EXCLUSIVE: "rack", BY_NODE_SELECTOR: "true"}),
        meant(Dialect.COSCHEDULING, "a", 4),
    ),
    (
        said("JobSet's first pod", {**WORKER, **INDEXED, NAME: "a", COUNT: "4"}, JOB_SET, **affinity(ULTRASERVER_2)),
        meant(Dialect.AFFINITY, RECIPE, 0, ULTRASERVER_2, rank=7),
    ),
    (
        said("every namespace", WORKER, **affinity(ULTRASERVER_2, namespaceSelector={})),
        meant(Dialect.AFFINITY, RECIPE, 0, ULTRASERVER_2, rank=3),
    ),
)


@pytest.mark.parametrize(("value", "expected"), [pytest.param(*p.values, want, id=p.id) for p, want in GROUPS])
def test_the_words_of_each_project(value: Pod, expected: tuple[PodGroup, int]) -> None:
    """Group, count, topology and rank are what the project's objects say."""
    assert (value.group, value.rank) == expected


def test_each_dialect_has_its_words_above() -> None:
    """They are read from a whole pod, so a dialect whose label is not in `SIGNS` is noticed."""
    assert {group.key.dialect for _, (group, _) in GROUPS} == set(Dialect)


@pytest.mark.parametrize(
    "value",
    [
        said("a plain pod", {}),
        said("a schedulingGroup without a PodGroup", {}, schedulingGroup={"other": {"name": "n"}}),
        said("JobSet's follower in a native group", INDEXED, JOB_SET, schedulingGroup={"podGroupName": "n"}),
        said("recipe as a preference", WORKER, **affinity(ULTRASERVER_2, preferred=True)),
        said("a gate", {NAME: "train", COUNT: "4"}, schedulingGates=[{"name": "quota"}]),
        said("no name", {NAME: "", COUNT: "4"}),
        said("Kueue without a count", {KUEUE: "batch"}),
        said("Kueue without a name", {KUEUE: ""}, {TOTAL: "4"}),
        said("LeaderWorkerSet without a key", {**LEADER, KEY: ""}),
        said("affinity over another label", WORKER, **affinity(HOSTNAME_LABEL)),
        said("JobSet's followers", {**INDEXED, NAME: "a", COUNT: "4"}, JOB_SET),
        said("a Job of independent pods", {"batch.kubernetes.io/job-name": "sweep"}, {WORKLOAD: "w"}),
        said("a pod of a Deployment under Kueue", {MANAGED: "true"}, {WORKLOAD: "w"}),
        said("alone, by a size", {KEY: "3f1c"}, {SIZE: "1"}),
        said("alone, by a count", {NAME: "a", COUNT: "1"}, **affinity(ULTRASERVER_4)),
        said("many terms", {**WORKER, NAME: "a", COUNT: "4"}, **many_terms()),
        said("some namespaces", WORKER, **affinity(ULTRASERVER_4, namespaceSelector={"matchLabels": {"team": "a"}})),
        said("affinity to others", WORKER, **affinity(ULTRASERVER_4, role="launcher")),
    ],
)
def test_what_is_no_group(value: Pod) -> None:
    """A pod by itself is scheduled as ever; a preference is a wish; with a gate the pod is not there yet."""
    assert (value.group, value.rank) == (None, 0)


def test_the_name_of_a_group() -> None:
    """LeaderWorkerSet's for people; an affinity's with its operators; long ones are cut, and different ones differ."""
    labels = {KEY: "9b20", "leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "1"}
    names = [name_of(said("", labels)), name_of(said("", {}, {WORKLOAD: "w" * 50_000}))]
    expressions = [
        {"key": "role", "operator": "In", "values": ["a", "b"]},
        {"key": "role", "operator": "NotIn", "values": ["c"]},
        {"key": "role", "operator": "NotIn", "values": ["c", *(f"{number:063}" for number in range(900))]},
        {"key": "role", "operator": "NotIn", "values": ["c", *(f"{number:063}" for number in range(899))]},
        {"key": "role", "operator": "Exists"},
    ]
    for each in expressions:
        term = {"labelSelector": {"matchExpressions": [each]}, "topologyKey": ULTRASERVER_4}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        names.append(name_of(said("", {"role": "a"}, affinity={"podAffinity": required})))
    assert [name for name in names if len(name) < 50] == [
        "default/serve-1",
        "default/role=a|b",
        "default/role!=c",
        "default/role Exists",
    ]
    assert [len(name) for name in names if len(name) > 50] == [len("default/") + 100] * 3
    assert len(set(names)) == len(names)


def test_an_annotation_with_any_text_names_nothing() -> None:
    """Messages have the names of groups and topologies; nobody writes sentences into them."""
    named = said("", {}, {KUEUE: "it sees an old state of Lease x", TOTAL: "6"})
    placed = said("", {KEY: "k"}, {"leaderworkerset.sigs.k8s.io/exclusive-topology": "Kept for it as"})
    assert named.values[0].group is None
    assert placed.values[0].group.topology == ""


def test_the_title_of_a_group_by_affinity_is_the_job() -> None:
    """AWS's recipe selects a job and a role; the identity has both."""
    (value,) = said("", WORKER, **affinity(ULTRASERVER_4, role="worker")).values
    assert isinstance(value, Pod)
    assert value.group is not None
    assert str(value.group.key) == "default/train"
    assert "worker" in value.group.key.name


def name_of(case: Any) -> str:
    return str(case.values[0].group.key)

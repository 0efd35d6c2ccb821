"""Every kind of workload gives the pods that its controller would start; a bad file gives an error that says where."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from neuron_scheduler.capture.workloads import read_workload
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.replicated import Replicated
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.support.thoroughness import examples

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
CONTAINER = {"name": "main", "image": "app", "resources": {"limits": {"aws.amazon.com/neuron": 4, "cpu": "1500m"}}}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"schedulerName": "my-scheduler", "containers": [CONTAINER]},
}


def read(*objects: Any, **rest: Any) -> Replicated:
    """Read objects as YAML, and as JSON if it is one; both give the same."""
    in_yaml = [yaml.safe_dump(json.loads(json.dumps(each))) for each in objects]  # without aliases
    found = read_workload("file", "---\n".join(in_yaml).encode(), **rest)
    if len(objects) == 1:
        assert read_workload("file", json.dumps(objects[0]).encode(), **rest) == found
    return found


def one(kind: str, spec: Any, **rest: Any) -> Replicated:
    return read({"kind": kind, "metadata": {"name": "w", "namespace": "ml"}, "spec": spec}, **rest)


def template_of(workload: Replicated) -> Pod:
    """Return the template of a workload that has one."""
    (pod_set,) = workload.pod_sets
    return pod_set.template


@pytest.mark.parametrize(
    ("kind", "spec", "replicas"),
    [
        ("Pod", TEMPLATE["spec"], 1),
        ("Job", {"template": TEMPLATE}, 1),
        ("Job", {"template": TEMPLATE, "parallelism": 4}, 4),
        ("Job", {"template": TEMPLATE, "parallelism": 4, "completions": 3}, 3),
        ("CronJob", {"jobTemplate": {"spec": {"template": TEMPLATE, "parallelism": 2}}}, 2),
        ("Deployment", {"template": TEMPLATE}, 1),
        ("Deployment", {"template": TEMPLATE, "replicas": 5}, 5),
        ("ReplicaSet", {"template": TEMPLATE, "replicas": 5}, 5),
        ("StatefulSet", {"template": TEMPLATE, "replicas": 5}, 5),
    ],
)
def test_kinds_with_one_template(kind: str, spec: Any, replicas: int) -> None:
    """The number of pods at once, and what each asks for."""
    workload = one(kind, spec)
    template = template_of(workload)
    assert (workload.replicas, workload.name, template.key) == (replicas, f"{kind} w", "ml/w")
    assert template.neuron is not None
    assert (template.neuron.total, template.requests["cpu"], template.scheduler_name) == (4, 1500, "my-scheduler")
    assert (template.labels.get("app") == "web") == (kind != "Pod")


def test_the_pod_is_read_as_the_running_process_reads_it() -> None:
    """Field by field the same as the pod that the controller would create, as the API server keeps it."""
    limits = {"aws.amazon.com/neuron": "4", "cpu": "1500m"}
    as_written = {"limits": limits, "requests": limits}
    made = {
        "metadata": {
            "name": "w",
            "namespace": "ml",
            "labels": {"app": "web", "batch.kubernetes.io/job-name": "w"},
        },
        "spec": {"schedulerName": "my-scheduler", "containers": [{**CONTAINER, "resources": as_written}]},
    }
    assert template_of(one("Job", {"template": TEMPLATE})) == PODS.decode(json.dumps(made).encode()).value


def test_what_the_api_server_fills_in() -> None:
    """Limits stand for missing requests only; in the host's network each port is one of the host's."""
    resources = {"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 0.5}}
    container = {
        "name": "a",
        "resources": resources,
        "ports": [{"containerPort": 80}, {"containerPort": 1, "hostPort": 2}],
    }
    spec = {"hostNetwork": True, "containers": [container], "initContainers": [{"name": "i", "resources": resources}]}
    template = template_of(one("Pod", spec))
    assert dict(template.requests) == {"cpu": 500, "memory": 1 << 30}
    assert [port.port for port in template.host_ports] == [80, 2]


def test_a_job_set_is_one_group() -> None:
    """Its Jobs start together: one replica with all their pods."""
    jobs = [
        {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
        {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": TEMPLATE}}},
        {"name": "none", "replicas": 0, "template": {"spec": {"template": TEMPLATE}}},
    ]
    workload = one("JobSet", {"replicatedJobs": jobs})
    assert [(pods.name, pods.count) for pods in workload.pod_sets] == [("driver", 1), ("workers", 6)]
    assert (workload.replicas, workload.pods_per_replica) == (1, 7)
    assert workload.pod_sets[1].template.labels["jobset.sigs.k8s.io/replicatedjob-name"] == "workers"


@pytest.mark.parametrize(("kind", "field"), [("MPIJob", "mpiReplicaSpecs"), ("PyTorchJob", "pytorchReplicaSpecs")])
def test_a_job_of_kubeflow_is_one_group(kind: str, field: str) -> None:
    """One replica with the pods of its roles, and with the labels that its affinity is about."""
    launcher = {"spec": {"containers": [{"name": "main", "image": "app"}]}}
    workload = one(kind, {field: {"Launcher": {"template": launcher}, "Worker": {"replicas": 4, "template": TEMPLATE}}})
    assert [(pods.name, pods.count) for pods in workload.pod_sets] == [("launcher", 1), ("worker", 4)]
    labels = workload.pod_sets[1].template.labels
    assert {"training.kubeflow.org/job-name": "w", "training.kubeflow.org/job-role": "worker"}.items() <= labels.items()


def test_a_leader_worker_set_has_groups() -> None:
    """A leader and its workers; without a template of its own, the leader is like a worker."""
    leader = {"spec": {"containers": [{"name": "main", "image": "app"}]}}
    spec = {"replicas": 3, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": leader, "workerTemplate": TEMPLATE}}
    workload = one("LeaderWorkerSet", spec)
    assert [(pods.name, pods.count) for pods in workload.pod_sets] == [("leader", 1), ("worker", 3)]
    assert (workload.replicas, workload.pod_sets[0].template.neuron) == (3, None)
    alike = one("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 1, "workerTemplate": TEMPLATE}})
    assert [(pods.name, pods.count, pods.template.neuron is None) for pods in alike.pod_sets] == [("leader", 1, False)]


def test_an_exclusive_topology_is_noted() -> None:
    """A group goes into one domain; that it shares it with no other is a webhook's, and is not known here."""
    key = "leaderworkerset.sigs.k8s.io/exclusive-topology"
    workload = read(
        {
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "w", "annotations": {key: "rack"}},
            "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
        }
    )
    assert workload.notes == (f"That each group may need a rack of its own (annotation {key}) is not considered.",)
    assert {pods.template.group for pods in workload.pod_sets} == {
        PodGroup(GroupKey(Dialect.LEADER_WORKER_SET, "default", "w"), topology="rack")
    }


@pytest.mark.parametrize("own", ["scratch", "data"])
def test_volumes_of_each_pod(own: str) -> None:
    """Claims that are created with the pods are left out, and a note says so; a shared claim is the pods' own."""
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "gp3"}}
    volumes = [
        *([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}] if own == "scratch" else []),
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
    ]
    template = {"spec": {"containers": [CONTAINER], "volumes": volumes}}
    claims = {"volumeClaimTemplates": [claim]} if own == "data" else {}
    workload = one("StatefulSet", {"template": template, **claims})
    assert template_of(workload).constraints.volume_claims == ("models",)
    assert workload.notes == ("Volumes that are created with the pods are not considered.",)


def test_documents_and_lists() -> None:
    """The one workload among other objects; its namespace is that of the caller if it names none."""
    job = {"kind": "Job", "metadata": {"generateName": "j-"}, "spec": {"template": TEMPLATE}}
    service = {"kind": "Service", "metadata": {"name": "s"}}
    workload = read(service, {"kind": "List", "items": [service, job]}, None, namespace="team")
    assert (workload.name, template_of(workload).key) == ("Job j", "team/j")
    assert template_of(read(job)).namespace == "default"


def test_replicas_that_the_caller_gives() -> None:
    """They replace those of the file, also if the file has none."""
    assert one("Deployment", {"template": TEMPLATE, "replicas": 0}, replicas=7).replicas == 7
    assert one("Pod", TEMPLATE["spec"], replicas=7).replicas == 7


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_our_examples_are_read(path: Path) -> None:
    """Every example is a workload that asks for Neuron."""
    assert any(pods.template.neuron is not None for pods in read_workload(path.name, path.read_bytes()).pod_sets)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"", "file is empty"),
        (b"---\n---\n", "file has no workloads; write one: CronJob, Deployment, Job, JobSet"),
        (b"hello", "file is no object and no list of objects: Expected `object`, got `str`"),
        (b"{", "file is cut off, or is not JSON"),
        (b"a: &a [*a]", "the alias in line 1 stands for nothing before it"),
        (b"[" * 500, "more than 200 levels in line 1"),
        (b"[1]: 2", "file is neither JSON nor YAML"),
        (
            b"kind: RayCluster\nmetadata: {name: s}",
            "file has no workloads of a kind that is known here (RayCluster is not); write one: CronJob",
        ),
        (b"kind: Service\nmetadata: {name: s}", "describe its pods instead, such as --devices 16 --replicas 4"),
        (b"apiVersion: v1", "file has no workloads"),
        (b"kind: Job\n---\nkind: Pod", "file has 2 workloads; write one"),
        (b"kind: List\nitems: 5", "file is no object and no list of objects: Expected `array | null`, got `int`"),
        (b"kind: '\x1b[31m'", "no YAML"),
        (b"kind: !<%1b> x", "file is neither JSON nor YAML"),
        (b"kind: Job\nmetadata: {name: j}", "file: Job: Object missing required field `spec`"),
        (b"kind: Job\nspec: {template: 3}", "Job: Expected `object`, got `int` - at `$.spec.template`"),
        (b"kind: Job\nspec: {parallelism: -1}", "Job: Expected `int` >= 0 - at `$.spec.parallelism`"),
        (b"kind: Job\nspec: {parallelism: true}", "Job: Expected `int | null`, got `bool`"),
        (
            b"kind: Job\nspec: {parallelism: 0, template: {spec: {containers: [{name: a}]}}}",
            "Job: 0 pods; from 1 to 10000 are counted, --replicas says how many replicas",
        ),
        (b"kind: Deployment\nspec: {replicas: 20000, template: {}}", "Deployment: Expected `int` <= 10000"),
        (b"kind: Pod\nmetadata: {name: p}\nspec: {}", "Pod: its pod has no containers"),
        (b"kind: Pod\nspec: {containers: [5]}", "Pod: Expected `object`, got `int` - at `$.spec.containers[0]`"),
        (b"kind: JobSet\nspec: {replicatedJobs: []}", "JobSet: 0 pods"),
        (
            b"kind: Pod\nspec: {containers: [{name: a, resources: {requests: {cpu: much}}}]}",
            "Pod: its pod cannot be read: ",
        ),
        (
            b"kind: Job\nspec: {template: {metadata: {labels: {a: 1}}, spec: {}}}",
            "Job: Expected `str`, got `int` - at `$.spec.template.metadata.labels[...]`",
        ),
    ],
)
def test_bad_files_get_an_error(text: bytes, want: str) -> None:
    """One line that names the file, the kind and the field, without control characters."""
    with pytest.raises(ConfigurationError) as caught:
        read_workload("file", text)
    message = str(caught.value)
    assert want in message
    assert message.isprintable()


def test_a_priority_class_is_noted() -> None:
    """Only admission knows its value."""
    spec = {**TEMPLATE["spec"], "priorityClassName": "high"}
    assert one("Pod", spec).notes == ("The priority of the class high is not known here; 0 is used.",)
    assert template_of(one("Pod", {**spec, "priority": 7})).priority == 7


HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, float("nan"), 10**30, "", "x", "\x1b[2J", "\ud800", "9" * 5000, [], [None], [[]], {}),
    *({"": None}, {1: 2}, {"a": {}}, "1e99", "-5", {"name": 5}, [{"name": None}], "a" * 300),
)


def some_workload(dice: Random) -> dict[str, Any]:
    """Return a valid workload of some kind."""
    claims = [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}}]
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": claims[0]}}]
    spec = {**TEMPLATE["spec"], "volumes": volumes, "hostNetwork": True, "resources": {"limits": {"cpu": 1}}}
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": spec}
    job = {"template": template, "parallelism": 4, "completions": 2}
    jobs = [{"name": "a", "replicas": 2, "template": {"spec": job}}]
    group = {"size": 4, "leaderTemplate": template, "workerTemplate": template}
    kinds: dict[str, Any] = {
        "Pod": spec,
        "Job": job,
        "CronJob": {"jobTemplate": {"spec": job}},
        "JobSet": {"replicatedJobs": jobs},
        "LeaderWorkerSet": {"replicas": 2, "leaderWorkerTemplate": group},
        "MPIJob": {"mpiReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}},
        "StatefulSet": {"template": template, "replicas": 2, "selector": {}, "volumeClaimTemplates": claims},
        "Deployment": {"template": template, "replicas": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    kind = dice.choice(sorted(kinds))
    metadata = {"name": "w", "namespace": "ml", "annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "r"}}
    workload: dict[str, Any] = json.loads(json.dumps({"kind": kind, "metadata": metadata, "spec": kinds[kind]}))
    return dice.choice([workload, workload, {"kind": "List", "items": [workload]}])


def spoilt(dice: Random, value: Any) -> Any:
    """Return a copy in which one value, somewhere, is another one."""
    if dice.random() < 0.12 or not isinstance(value, dict | list) or not value:
        return dice.choice(HOSTILE)
    place = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if isinstance(value, list):
        return [spoilt(dice, item) if index == place else item for index, item in enumerate(value)]
    return {key: spoilt(dice, item) if key == place else item for key, item in value.items()}


@pytest.mark.parametrize("part", range(4))
def test_nothing_else_is_raised(part: int) -> None:
    """Whatever a file has in any field: it is read, or there is one printable sentence."""
    read_count = 0
    for seed in range(part, examples(2400), 4):
        dice = Random(seed)
        text = json.dumps(spoilt(dice, some_workload(dice))).encode()
        workload, error = tried(text)
        assert error.isprintable()
        assert (workload is None) == bool(error)
        read_count += workload is not None
    assert read_count


def tried(text: bytes) -> tuple[Replicated | None, str]:
    """Return the workload of a text, or the error."""
    try:
        return read_workload("file", text), ""
    except ConfigurationError as error:
        return None, str(error)

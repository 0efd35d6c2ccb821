"""Every kind of workload gives the pods that its controller would start; a bad file gives an error that says where."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from neuron_scheduler.capture import documents as documents_module
from neuron_scheduler.capture.workloads import read_workloads
from neuron_scheduler.explain.fit import Replicated
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.support.thoroughness import examples

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
CONTAINER = {"name": "main", "image": "app", "resources": {"limits": {"aws.amazon.com/neuron": 4, "cpu": "1500m"}}}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"schedulerName": "my-scheduler", "containers": [CONTAINER]},
}


def read(*objects: Any, **rest: Any) -> tuple[Replicated, ...]:
    """Read objects as YAML, and as JSON if it is one; both give the same."""
    found = read_workloads("file", yaml.safe_dump_all(objects).encode(), **rest)
    if len(objects) == 1:
        assert read_workloads("file", json.dumps(objects[0]).encode(), **rest) == found
    return found


def one(kind: str, spec: Any, **rest: Any) -> Replicated:
    """Read one object of a kind."""
    (workload,) = read({"kind": kind, "metadata": {"name": "w", "namespace": "ml"}, "spec": spec}, **rest)
    return workload


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
        ("ReplicationController", {"template": TEMPLATE, "replicas": 5}, 5),
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
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "w", "controller": True}],
        },
        "spec": {"schedulerName": "my-scheduler", "containers": [{**CONTAINER, "resources": as_written}]},
    }
    assert template_of(one("Job", {"template": TEMPLATE})) == PODS.decode(json.dumps(made).encode()).value


def test_what_the_api_server_fills_in() -> None:
    """Limits stand for missing requests only; in the host's network each port is one of the host's."""
    resources = {"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 1}}
    container = {
        "name": "a",
        "resources": resources,
        "ports": [{"containerPort": 80}, {"containerPort": 1, "hostPort": 2}],
    }
    spec = {"hostNetwork": True, "containers": [container], "initContainers": [{"name": "i", "resources": resources}]}
    template = template_of(one("Pod", spec))
    assert dict(template.requests) == {"cpu": 1000, "memory": 1 << 30}
    assert [port.port for port in template.host_ports] == [80, 2]


def test_a_deployment_s_pods_belong_to_a_replica_set() -> None:
    """The default spread constraints find the pods by its selector."""
    workload = one("Deployment", {"template": TEMPLATE, "selector": {"matchLabels": {"app": "web"}}})
    template = template_of(workload)
    assert template.owner == Owner("apps/v1", "ReplicaSet", "w")
    assert workload.controller is not None
    assert workload.controller.selector is not None
    assert (workload.controller.namespace, workload.controller.kind) == ("ml", "ReplicaSet")
    assert workload.controller.selector.matches(template.labels)


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
    """It is an annotation from which a webhook makes constraints; they are not known here."""
    key = "leaderworkerset.sigs.k8s.io/exclusive-topology"
    (workload,) = read(
        {
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "w", "annotations": {key: "rack"}},
            "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
        }
    )
    assert workload.notes == (f"The annotation {key} is not considered: each group may need a rack of its own.",)


def test_claims_of_each_pod() -> None:
    """Claims of a StatefulSet and of generic ephemeral volumes are the pod's own; others are shared."""
    storage = {"spec": {"storageClassName": "gp3", "resources": {"requests": {"storage": "2Gi"}}}}
    volumes = [
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": storage}},
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
    ]
    template = {"spec": {"containers": [CONTAINER], "volumes": volumes}}
    spec = {"template": template, "volumeClaimTemplates": [{"metadata": {"name": "data"}, **storage}]}
    (pod_set,) = one("StatefulSet", spec).pod_sets
    assert set(pod_set.template.constraints.volume_claims) == {"data-w", "w-scratch", "models"}
    own = {(claim.name, claim.namespace, claim.class_name, claim.request) for claim in pod_set.claims}
    assert own == {("data-w", "ml", "gp3", 2 << 30), ("w-scratch", "ml", "gp3", 2 << 30)}


def test_several_documents_and_lists() -> None:
    """All workloads of a file in order; what has no pods is named."""
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": TEMPLATE}}
    pod = {"kind": "Pod", "metadata": {"generateName": "p-"}, "spec": TEMPLATE["spec"]}
    service = {"kind": "Service", "metadata": {"name": "s"}}
    workloads = read(service, {"kind": "List", "items": [job, pod]}, None)
    assert [workload.name for workload in workloads] == ["Job j", "Pod p"]
    assert workloads[0].notes == ("Not considered in file: Service s.",)
    assert template_of(workloads[0]).namespace == "default"
    assert template_of(read(job, namespace="team")[0]).namespace == "team"


def test_replicas_that_the_caller_gives() -> None:
    """They replace those of the file, also if the file has none."""
    assert one("Deployment", {"template": TEMPLATE, "replicas": 0}, replicas=7).replicas == 7
    assert one("Pod", TEMPLATE["spec"], replicas=7).replicas == 7


def test_anchors_are_read() -> None:
    """People write them; a merge is one too."""
    text = b"""
kind: Job
metadata: {name: j}
spec:
  template:
    spec:
      containers:
      - &main {name: a, image: app, resources: {limits: {aws.amazon.com/neuron: 2}}}
      - {<<: *main, name: b}
"""
    (workload,) = read_workloads("file", text)
    neuron = template_of(workload).neuron
    assert neuron is not None
    assert neuron.counts == (2, 2)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_our_examples_are_read(path: Path) -> None:
    """Every example has a workload that asks for Neuron."""
    workloads = read_workloads(path.name, path.read_bytes())
    assert all(template_of(workload).neuron is not None for workload in workloads)


BOMB = b"a: &a [1,1,1,1,1,1,1,1,1,1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (name + 1, name + 1, b",".join([b"*%c" % name] * 10)) for name in range(97, 107)
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"", "file is empty; write a Job or another workload there"),
        (b"---\n---\n", "file is empty"),
        (b"hello", "'hello' is no object; it needs apiVersion and kind"),
        (b"{", "no JSON in line 1"),
        (b'{"kind": "Pod", "kind": "Job"}', "duplicate key kind"),
        (b"kind: Pod\nkind: Job\n", "line 2: duplicate key kind"),
        (b"a: [", "no YAML in line"),
        (b"\xff\xfe\xfd", "no YAML"),
        (b'{"a": "\xff"}', "no UTF-8"),
        (b"a: &a [*a]", "the alias in line 1 contains itself"),
        (BOMB, "its aliases stand for more than 200000 values"),
        (b"{" * 500, "no JSON"),
        (b'{"a":' * 100_000, "levels"),
        (b"[" * 500, "more than 100 levels in line 1"),
        (b"kind: !!python/object:os.system x", "the tag tag:yaml.org,2002:python/object:os.system in line 1"),
        (b"a: !!bool x", "a value does not have the type of its tag"),
        (b"".join(b"a%d: &a%d {x: *a%d}\n" % (i, i, i - 1) if i else b"a0: &a0 {}\n" for i in range(300)), "levels"),
        (b"[1]: 2", "line 1: a key that is no text"),
        (b"kind: Service\nmetadata: {name: s}", "file has Service; known are CronJob, Deployment, Job, JobSet"),
        (b"apiVersion: v1", "file has an object without a kind"),
        (b"kind: List\nitems: []", "file has an empty List"),
        (b"kind: List\nitems: 5", "file: List unnamed: items is no list of objects"),
        (b"kind: '\x1b[31m'", "no YAML"),
        (b'{"kind": "Pod", "a": ["\\ud800"]}', "file: half of a surrogate pair"),
        (b'{"kind": "\\u001b[31m"}', "file has \\x1b[31m; known"),
        (b"kind: Job\nmetadata: {name: j}", "file: Job j: spec is missing"),
        (b"kind: Job\nmetadata: {name: j}\nspec: {template: 3}", "Job j: spec.template is no object"),
        (b"kind: Job\nspec: {parallelism: -1}", "Job unnamed: spec.parallelism is -1; it must be a whole number"),
        (b"kind: Job\nspec: {parallelism: true}", "spec.parallelism is True; it must be a whole number"),
        (
            b"kind: Job\nspec: {parallelism: 0, template: {}}",
            "spec.parallelism is 0; say how many pods with --replicas",
        ),
        (b"kind: Deployment\nspec: {replicas: 20000, template: {}}", "20000 replicas; at most 10000 are counted"),
        (b"kind: Pod\nmetadata: {name: p}\nspec: {}", "Pod p: spec.containers is missing or empty"),
        (b"kind: Pod\nspec: {containers: [5]}", "spec.containers is no list of objects"),
        (b"kind: JobSet\nspec: {replicatedJobs: []}", "JobSet unnamed: it has no pods"),
        (
            b"kind: Pod\nspec: {containers: [{name: a, resources: {requests: {cpu: much}}}]}",
            "Pod unnamed: its pod cannot be read: ",
        ),
        (
            b"kind: Pod\nmetadata: {name: p, labels: {a: 1}}\nspec: {containers: [{name: a}]}",
            "Pod p: its pod cannot be read: Expected `str`, got `int` - at `$.metadata.labels[...]`",
        ),
    ],
)
def test_bad_files_get_an_error(text: bytes, want: str) -> None:
    """One line that names the file, the object and the field, without control characters."""
    with pytest.raises(ConfigurationError) as caught:
        read_workloads("file", text)
    message = str(caught.value)
    assert want in message
    assert message.isprintable()


def test_a_date_is_a_text() -> None:
    """As for kubectl; YAML's own types would make a date of it."""
    (workload,) = read_workloads("file", b"kind: Pod\nmetadata: {name: 2001-01-01}\nspec: {containers: [{name: a}]}")
    assert workload.name == "Pod 2001-01-01"


def test_a_huge_file_is_refused() -> None:
    """Before anything is parsed."""
    with pytest.raises(ConfigurationError, match="more than 3 MiB"):
        read_workloads("file", b"#" * (documents_module.MOST_BYTES + 1))


def test_a_number_of_replicas_needs_one_workload() -> None:
    """Otherwise it is not clear whose they are."""
    job = {"kind": "Job", "spec": {"template": TEMPLATE}}
    with pytest.raises(ConfigurationError, match="2 workloads"):
        read(job, job, replicas=3)


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
        "StatefulSet": {"template": template, "replicas": 2, "selector": {}, "volumeClaimTemplates": claims},
        "ReplicationController": {"template": template, "selector": {"app": "web"}},
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
        workloads, error = tried(text)
        assert error.isprintable()
        assert bool(workloads) != bool(error)
        assert all(workload.pods_per_replica > 0 and workload.replicas > 0 for workload in workloads)
        read_count += len(workloads)
    assert read_count


def tried(text: bytes) -> tuple[tuple[Replicated, ...], str]:
    """Return the workloads of a text, or the error."""
    try:
        return read_workloads("file", text), ""
    except ConfigurationError as error:
        return (), str(error)

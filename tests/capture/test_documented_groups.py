"""What docs/jobs.md and manifests/examples show of groups is read as a group, and gets what the page says."""

import itertools
import json
import re
from typing import Any, Final

import attrs
import pytest
import yaml

from neuron_scheduler.capture.workloads import read_workload
from neuron_scheduler.explain.answers import Fit
from neuron_scheduler.explain.fit import how_many_of
from neuron_scheduler.model.node import ULTRASERVER_2, ULTRASERVER_4, ULTRASERVER_PLACES, Node
from neuron_scheduler.model.pod_group import Dialect
from neuron_scheduler.model.replicated import Replicated
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.steps import run
from tests.support.builders import node
from tests.support.documented_commands import ROOT
from tests.support.harness import cluster_of

PAGE: Final = ROOT / "docs" / "jobs.md"
EXAMPLE: Final = yaml.safe_load((ROOT / "manifests" / "examples" / "job-on-an-ultraserver.yaml").read_text())
BLOCKS: Final = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]
SHOWN: Final = {each["kind"]: each for each in BLOCKS}
TAINT: Final = Taint("aws.amazon.com/neuron", Effect.NO_SCHEDULE, "true")
PROFILE: Final = default_profile("my-scheduler")


def workload_of(shown: dict[str, Any], replicas: int | None = None) -> Replicated:
    """Return the pods that an object starts; those of an MPIJob are its workers, with its operator's labels."""
    if shown["kind"] == "MPIJob":
        worker = shown["spec"]["mpiReplicaSpecs"]["Worker"]
        name = "training.kubeflow.org"
        labels = {f"{name}/job-name": shown["metadata"]["name"], f"{name}/job-role": "worker"}
        pod = {"kind": "Pod", "metadata": {"name": "train", "labels": labels}, "spec": worker["template"]["spec"]}
        return workload_of(pod, worker["replicas"])
    return read_workload("the page", json.dumps({"apiVersion": "v1"} | shown).encode(), replicas=replicas)


def nodes(*, ultraservers: int, taints: tuple[Taint, ...] = ()) -> list[Node]:
    """Return UltraServers of four machines; they join in another order than that of their links."""
    found = list[Node]()
    for place, server in itertools.product((2, 0, 3, 1), range(ultraservers)):
        ids = {ULTRASERVER_4: f"s{server}", ULTRASERVER_2: f"s{server}-{place // 2}"}
        places = {ULTRASERVER_PLACES[ULTRASERVER_4]: str(place), ULTRASERVER_PLACES[ULTRASERVER_2]: str(place % 2)}
        found.append(node(f"trn2u-{server}-{place}", "trn2u.48xlarge", taints=taints, labels=ids | places))
    return found


def fit(workload: Replicated, machines: list[Node]) -> Fit:
    return run(how_many_of(cluster_of(machines), workload, PROFILE))


def test_each_dialect_is_read_from_the_page() -> None:
    """Each object shown there has the group that its paragraph says; every pod of it is ours."""
    said = {
        (kind, group.key.dialect, group.least, pods.template.scheduler_name)
        for kind, shown in SHOWN.items()
        for pods in workload_of(shown).pod_sets
        if (group := pods.template.group) is not None
    }
    dialects = {
        ("Job", Dialect.COSCHEDULING, 4),
        ("MPIJob", Dialect.AFFINITY, 0),
        ("LeaderWorkerSet", Dialect.LEADER_WORKER_SET, 0),
        ("Pod", Dialect.KUEUE, 4),
    }
    assert said == {(*each, "my-scheduler") for each in dialects}
    assert len(BLOCKS) == len(SHOWN)


@pytest.mark.parametrize("kind", ["Job", "MPIJob", "LeaderWorkerSet", "the example"])
def test_a_replica_fits_as_a_whole_on_an_ultraserver(kind: str) -> None:
    """In the order of the links; of fewer machines none is used. The example tolerates the taint of AWS's nodes."""
    workload = workload_of((SHOWN | {"the example": EXAMPLE})[kind])
    machines = nodes(ultraservers=2, taints=() if kind in SHOWN else (TAINT,))
    found, size = fit(workload, machines), workload.pods_per_replica
    assert found.total * size == len(machines)
    for replica in range(found.fitting):
        placed = [pod.node_name for pod in found.placed[replica * size : (replica + 1) * size]]
        assert placed == sorted(placed)
        assert len({name.rpartition("-")[0] for name in placed}) == 1
    assert fit(workload, machines[: size - 1]).placed == ()


def test_the_limit_is_the_message_of_the_group() -> None:
    """It says how many members fit at once, under the name of the group; what has no group is placed by itself."""
    workers = workload_of(SHOWN["Job"]).pod_sets[0]
    launcher = attrs.evolve(workers, template=attrs.evolve(workers.template, group=None), count=1, name="launcher")
    found = fit(Replicated(1, (launcher, attrs.evolve(workers, name="worker"))), nodes(ultraservers=1))
    assert (found.total, [pod.part for pod in found.placed]) == (0, ["launcher"])
    assert found.limit is not None
    assert found.limit.message.startswith(
        "Group default/train needs room for 4 pods at once; 3 fit. With these placed, for the next one: 0/4 nodes"
    )
    absent = fit(workload_of(SHOWN["MPIJob"]), [node("trn2-a", "trn2.48xlarge")]).limit
    assert absent is not None
    assert "no node has that" in absent.message


def test_an_evicted_pod_is_no_failure_of_a_shown_job() -> None:
    """Else each preemption counts towards its `backoffLimit`; the policy needs this restartPolicy."""
    single = yaml.safe_load((ROOT / "manifests" / "examples" / "job.yaml").read_text())
    for job in (SHOWN["Job"], EXAMPLE, single):
        rules = job["spec"]["podFailurePolicy"]["rules"]
        assert rules == [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_a_set_of_one_pod_is_no_group_of_all_replicas() -> None:
    """Each replica of a LeaderWorkerSet is a group of its own, also without workers."""
    shown = SHOWN["LeaderWorkerSet"]
    group = shown["spec"]["leaderWorkerTemplate"] | {"size": 1}
    workload = workload_of(shown | {"spec": shown["spec"] | {"leaderWorkerTemplate": group}})
    assert (workload.replicas, workload.pods_per_replica) == (2, 1)

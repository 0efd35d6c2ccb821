"""
How long an explanation takes, and its longest step in which nothing else runs.

Run as `python -m benchmarks.why [--nodes 5000] [--pods 15000]`. The fleet has pods of mixed sizes with Neuron and small
ones without. Each pod is explained twice: first when no index is ready for it, then again. Prints milliseconds of CPU,
which other processes do not disturb: of the first explanation and of the second, each with its longest step, and how
many groups the answer has. The bars are those of the running process: 50 ms in all, 5 ms in one step.

`--offline` measures the command on files instead, with its start: seconds of CPU of `neuron-scheduler why --from`.
"""

import argparse
import gc
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import attrs

from benchmarks.decision import PROFILE, WEB, fleet, in_zone, pod
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers.explanation import Explanation
from neuron_scheduler.explain.subject import ids_in
from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.model.selectors import PodAffinityTerm, SpreadConstraint
from neuron_scheduler.model.wording import quantity
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod

_SHARE_WITH_NEURON: Final = 2
_TOO_MUCH: Final = {CPU: 1_000_000}
_NEAR: Final = PodAffinityTerm(ZONE_LABEL, WEB, frozenset({"default"}))
_SPREAD: Final = SpreadConstraint(ZONE_LABEL, max_skew=1, hard=True, selector=WEB)


PODS: Final[Mapping[str, Pod]] = {
    "too much cpu": pod(-10, {**_TOO_MUCH, NEURON_DEVICE: 1}),
    "too many devices": pod(-11, {NEURON_DEVICE: 32}),
    "16 on one type": pod(
        -12,
        {NEURON_DEVICE: 16, CPU: 100_000},
        constraints=Constraints(node_selector={INSTANCE_TYPE_LABEL: "trn1.32xlarge"}),
    ),
    "an invalid count": pod(
        -13, {NEURON_DEVICE: 7}, constraints=Constraints(node_selector={INSTANCE_TYPE_LABEL: "trn1.32xlarge"})
    ),
    "too many cores": pod(-14, {NEURON_CORE: 128}),
    "an unknown zone": pod(-15, {NEURON_DEVICE: 1}, constraints=Constraints(node_selector={ZONE_LABEL: "none"})),
    "near no pod": pod(-16, {NEURON_DEVICE: 1}, constraints=Constraints(affinity=(_NEAR,))),
    "spread by zone": pod(-17, {**_TOO_MUCH}, labels={"app": "web"}, constraints=Constraints(spread=(_SPREAD,))),
    "it fits": pod(-18, {NEURON_DEVICE: 1}),
}


def cluster_of(nodes: int, pods: int) -> Cluster:
    """Return a fleet with pods, half of them with Neuron."""
    cluster, dice = Cluster(), random.Random(1)
    for node in fleet(nodes):
        cluster.put_node(node)
    names = [node_info.node.name for node_info in cluster.view.rows()]
    for number in range(pods):
        if number % _SHARE_WITH_NEURON:
            small = pod(number, {CPU: dice.randrange(50, 500), MEMORY: 1 << 27}, labels={"app": f"app-{number % 500}"})
            cluster.put_pod(attrs.evolve(small, node_name=names[number % nodes]))
            continue
        pending = in_zone(number, dice)
        decision = schedule_pod(cluster, pending, PROFILE)
        if not isinstance(decision, FitError):
            cores = decision.placement.cores if decision.placement else NO_CORES
            cluster.assume(attrs.evolve(pending, node_name=decision.node_name), cores)
    return cluster


def timed(steps: Generator[None, None, Explanation]) -> tuple[Explanation, float, float]:
    """Return an answer, the milliseconds that it took, and those of its longest step."""
    longest, total, answer = 0.0, 0.0, None
    while answer is None:
        started = time.process_time()
        try:
            next(steps)
        except StopIteration as end:
            answer = cast(Explanation, end.value)
        took = time.process_time() - started
        longest, total = max(longest, took), total + took
    return answer, total * 1e3, longest * 1e3


def as_json(cluster: Cluster) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the nodes and the pods of a cluster as `kubectl get -o json` prints them, with a pending pod."""
    nodes, pods = [], []
    for node_info in cluster.view.rows():
        node = node_info.node
        amounts = {name: quantity(name, amount) for name, amount in node.allocatable.items()}
        metadata = {"name": node.name, "uid": node.uid, "labels": dict(node.labels)}
        nodes.append({"kind": "Node", "metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}})
        pods += [_pod_json(info.pod, node_info, info.cores or NO_CORES) for info in node_info.pod_infos.values()]
    pods.append(_pod_json(PODS["too much cpu"], None, NO_CORES))
    return {"kind": "List", "items": nodes}, {"kind": "List", "items": pods}


def _pod_json(of: Pod, node_info: NodeInfo | None, cores: CoreMask) -> dict[str, Any]:
    requests = {name: quantity(name, amount) for name, amount in of.requests.items()}
    ids = ids_in(None if node_info is None else node_info.machine, cores, of)
    spec = {
        "schedulerName": PROFILE.scheduler_name,
        "containers": [{"name": "main", "image": "app:v1", "resources": {"requests": requests, "limits": requests}}],
    }
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": of.namespace,
            "name": of.name,
            "uid": of.uid,
            "labels": dict(of.labels),
            "annotations": {AWS_NEURON_IDS: ",".join(map(str, ids))} if ids else {},
        },
        "spec": spec | ({} if node_info is None else {"nodeName": node_info.node.name}),
        "status": {"phase": "Pending" if node_info is None else "Running"},
    }


def offline(cluster: Cluster) -> None:
    """Write the cluster to files, ask the command about a pod, and print the seconds of CPU that it takes."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, objects in zip(("nodes", "pods"), as_json(cluster), strict=True):
            file = Path(folder) / f"{name}.json"
            file.write_text(json.dumps(objects))
            files += ["--from", str(file)]
        command = [sys.executable, "-m", "neuron_scheduler", "why", PODS["too much cpu"].key, *files]
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"exit code {done.returncode}, {took:.2f} s; {done.stdout.splitlines()[0]}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=15_000)
    parser.add_argument("--offline", action="store_true", help="measure the command on files")
    arguments = parser.parse_args()
    cluster = cluster_of(arguments.nodes, arguments.pods)
    if arguments.offline:
        offline(cluster)
        return
    gc.collect()
    gc.freeze()
    print(f"{arguments.nodes} nodes, {cluster.pod_count} pods; milliseconds, and of the longest step")
    print(f"{'pod':<20}{'first':>8}{'step':>8}{'again':>8}{'step':>8}{'groups':>8}  cause")
    for name, pending in PODS.items():
        _, first, longest = timed(explain_pod(cluster, pending, PROFILE))
        answer, again, step = timed(explain_pod(cluster, pending, PROFILE))
        print(f"{name:<20}{first:>8.1f}{longest:>8.1f}{again:>8.1f}{step:>8.1f}{len(answer.groups):>8}  {answer.cause}")


if __name__ == "__main__":
    main()

"""
How long a plan of capacity takes, and its longest step in which nothing else runs.

Run as `python -m benchmarks.capacity [--nodes 1000] [--pods 5000]`. Every node is a trn1.32xlarge whose 12 free devices
are in pieces. The pods ask for 4, 8 or 16 devices: `alike` of three kinds, `indexed` with a label of their own like the
pods of a Job, `distinct` with an amount of memory of their own. Prints for each the milliseconds of CPU, the longest
step, the steps and the needs. Nothing is collected meanwhile: the process does that at times of its own.
"""

import argparse
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from neuron_scheduler.capacity.planning.plan import MOST_NEEDS, Plan, Situation, WaitingPod, planned
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.model.neuron_request import neuron_request
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE, NEURON_DEVICE, PODS, Container
from neuron_scheduler.scheduling.cycle.profile import default_profile

PROFILE: Final = default_profile("my-scheduler")
_IN_USE: Final = (0, 5, 10, 15)
"""A device of each row and each column of the torus: no block of 4 is left."""
_SIZES: Final = (4, 8, 16)
KINDS: Final[Mapping[str, Callable[[int], dict[str, Any]]]] = {
    "alike": lambda _: {},
    "indexed": lambda number: {"labels": {"batch.kubernetes.io/job-completion-index": str(number)}},
    "distinct": lambda number: {"memory": number + 1},
}


def pod(name: str, devices: int, memory: int = 1 << 30, **fields: Any) -> Pod:
    """Return a pod."""
    requests = {CPU: 1_000, MEMORY: memory, NEURON_DEVICE: devices}
    request = neuron_request([Container("main", requests)])
    return Pod(uid=name, namespace="default", name=name, requests=requests, neuron=request, **fields)


def cluster_of(nodes: int) -> Cluster:
    """Return nodes in pieces, in three zones."""
    cluster, silicon = Cluster(), {NEURON_DEVICE: 16, NEURON_CORE: 32}
    for number in range(nodes):
        name = f"node-{number:05}"
        labels = {INSTANCE_TYPE_LABEL: "trn1.32xlarge", ZONE_LABEL: f"zone-{number % 3}", HOSTNAME_LABEL: name}
        host = {CPU: 128_000, MEMORY: 512 << 30, PODS: 110}
        cluster.put_node(Node(name, name, float(number), labels, allocatable={**host, **silicon}, capacity=silicon))
        for device in _IN_USE:
            cluster.put_pod(pod(f"{name}-{device}", 1, node_name=name, allocation={AWS_NEURON_IDS: str(device)}))
    return cluster


def situation(cluster: Cluster, pods: int, kind: str) -> Situation:
    """Return a situation with pods of one kind; autoscalers are expected to act for every other pod."""
    seen = PodCondition("False", "Unschedulable")
    waiting = [
        WaitingPod(
            pod(f"pod-{number}", _SIZES[number % 3], created=float(number), scheduled=seen, **KINDS[kind](number)),
            expects_own=number % 2 == 0,
        )
        for number in range(pods)
    ]
    return Situation(
        cluster=cluster,
        waiting=waiting,
        profile_of=lambda _: PROFILE,
        open={},
        stuck=frozenset(),
        most_of=lambda _: MOST_NEEDS,
    )


def timed(asked: Situation) -> tuple[Plan, list[float]]:
    """Return a plan and the milliseconds of CPU of its steps."""
    steps, took = planned(asked), list[float]()
    while True:
        started = time.process_time()
        try:
            next(steps)
        except StopIteration as end:
            took.append((time.process_time() - started) * 1e3)
            return end.value, took
        took.append((time.process_time() - started) * 1e3)


def main() -> None:
    """Print a line for each kind of pods."""
    parser = argparse.ArgumentParser(description="Time plans of capacity.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    arguments = parser.parse_args()
    for kind in KINDS:
        asked = situation(cluster_of(arguments.nodes), arguments.pods, kind)
        timed(asked)  # the first one builds indexes and lists what the interpreter caches
        gc.collect()
        gc.disable()
        plan, took = timed(asked)
        gc.enable()
        total, longest = sum(took), max(took)
        print(f"{kind:10} {total:7.0f} ms, longest step {longest:5.1f} ms, {len(took)} steps, {len(plan.needs)} needs")


if __name__ == "__main__":
    main()

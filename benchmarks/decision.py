"""
How long one decision takes, alone: `schedule_pod` and assume, no two pods alike, from 1,000 to 50,000 nodes.

Run as `python -m benchmarks.decision [--nodes 1000 15000 50000] [--pods 2000]`. The nodes are half full of earlier
pods, so that block levels are mixed. Prints microseconds per call and their growth; absolute values belong to the
machine, the growth belongs to the algorithm.
"""

import argparse
import gc
import random
import statistics
import time

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.neuron_request import neuron_request
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE, NEURON_DEVICE, PODS, Container
from neuron_scheduler.scheduling.decide import Decision, schedule_pod
from neuron_scheduler.scheduling.profile import default_profile

SIZES = {
    "trn1.32xlarge": (128, 512, 16, 32),
    "trn2.48xlarge": (192, 2048, 16, 64),
    "inf2.48xlarge": (192, 768, 12, 24),
    "inf2.xlarge": (4, 16, 1, 2),
}
"""vCPUs, memory in GiB, devices, cores."""

# What the prototype of the same index took, p50 in microseconds by number of nodes: (decide, assume).
PROTOTYPE = {1_000: (8, 8), 15_000: (10, 8), 50_000: (13, 9)}


def fleet(count: int) -> list[Node]:
    """Return nodes of all types in turn, in three zones."""
    nodes = []
    for i in range(count):
        name = list(SIZES)[i % len(SIZES)]
        cpu, memory, devices, cores = SIZES[name]
        silicon = {NEURON_DEVICE: devices, NEURON_CORE: cores}
        nodes.append(
            Node(
                uid=f"node-{i}",
                name=f"ip-10-{i >> 16}-{i >> 8 & 255}-{i & 255}",
                created=float(i),
                labels={INSTANCE_TYPE_LABEL: name, ZONE_LABEL: f"zone-{i % 3}"},
                allocatable={CPU: cpu * 1000, MEMORY: memory << 30, PODS: 110, **silicon},
                capacity=silicon,
            )
        )
    return nodes


def pod(number: int, random_source: random.Random) -> Pod:
    """Return a pod that resembles no other: random cpu and memory, 1, 4 or 8 devices, a zone."""
    requests = {
        CPU: random_source.randrange(100, 3_900),
        MEMORY: random_source.randrange(1 << 28, 1 << 33),
        NEURON_DEVICE: random_source.choice((1, 1, 4, 8)),
    }
    return Pod(
        uid=f"pod-{number}",
        namespace="default",
        name=f"pod-{number}",
        requests=requests,
        neuron=neuron_request([Container("main", requests)]),
        constraints=Constraints(node_selector={ZONE_LABEL: f"zone-{number % 3}"}),
    )


def measure(nodes: int, pods: int) -> tuple[list[float], list[float], float]:
    """Return microseconds of each decision and each assumption, and milliseconds of the first decision."""
    cluster, profile, random_source = Cluster(), default_profile("my-scheduler"), random.Random(1)
    for node in fleet(nodes):
        cluster.put_node(node)
    started = time.perf_counter()
    schedule_pod(cluster, pod(-1, random_source), profile)
    first = (time.perf_counter() - started) * 1e3
    decisions, assumptions = [], []
    warm_up = nodes // 2 + 200
    for number in range(warm_up + pods):
        waiting = pod(number, random_source)
        started = time.perf_counter()
        decision = schedule_pod(cluster, waiting, profile)
        decided = time.perf_counter()
        if not isinstance(decision, Decision) or decision.placement is None:
            raise SystemExit(f"the imagined fleet is full after {number} pods; ask for fewer")
        cluster.assume(attrs.evolve(waiting, node_name=decision.node_name), decision.placement.cores)
        assumed = time.perf_counter()
        if number >= warm_up:
            decisions.append((decided - started) * 1e6)
            assumptions.append((assumed - decided) * 1e6)
    return decisions, assumptions, first


def main() -> None:
    """Print one line for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 15_000, 50_000])
    parser.add_argument("--pods", type=int, default=2_000)
    arguments = parser.parse_args()
    print(
        f"{'nodes':>7} {'decide p50':>11} {'p99':>7} {'growth':>7} {'assume p50':>11} {'p99':>7} {'first ms':>9}"
        "  prototype (decide / assume p50)"
    )
    smallest = 0.0
    for nodes in arguments.nodes:
        gc.collect()
        decisions, assumptions, first = measure(nodes, arguments.pods)
        decide, assume = statistics.median(decisions), statistics.median(assumptions)
        smallest = smallest or decide
        p99 = [sorted(times)[len(times) * 99 // 100] for times in (decisions, assumptions)]
        known = PROTOTYPE.get(nodes)
        print(
            f"{nodes:>7} {decide:>11.1f} {p99[0]:>7.1f} {decide / smallest:>6.2f}x {assume:>11.1f} {p99[1]:>7.1f} "
            f"{first:>9.1f}  {f'{known[0]} / {known[1]}' if known else '-'}"
        )


if __name__ == "__main__":
    main()

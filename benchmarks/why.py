"""
How long an explanation takes, and its longest step in which nothing else runs.

Run as `python -m benchmarks.why [--nodes 5000] [--pods 15000]`. The fleet has pods of mixed sizes with Neuron and small
ones without. Each pod is explained twice: first when no index is ready for it, then again. Prints milliseconds of CPU,
which other processes do not disturb: of the first explanation and of the second, each with its longest step, and how
many groups the answer has. The bars are those of the running process: 50 ms in all, 5 ms in one step.
"""

import argparse
import gc
import random
from collections.abc import Mapping
from typing import Final

import attrs

from benchmarks.decision import PROFILE, WEB, fleet, in_zone, pod, stepped
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.model.selectors import PodAffinityTerm, SpreadConstraint
from neuron_scheduler.neuron.core_mask import NO_CORES
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=15_000)
    arguments = parser.parse_args()
    cluster = cluster_of(arguments.nodes, arguments.pods)
    gc.collect()
    gc.freeze()
    print(f"{arguments.nodes} nodes, {cluster.pod_count} pods; milliseconds, and of the longest step")
    print(f"{'pod':<20}{'first':>8}{'step':>8}{'again':>8}{'step':>8}{'groups':>8}  cause")
    for name, pending in PODS.items():
        _, first = stepped(explain_pod(cluster, pending, PROFILE))
        answer, again = stepped(explain_pod(cluster, pending, PROFILE))
        times = "".join(f"{sum(took):>8.1f}{max(took):>8.1f}" for took in (first, again))
        print(f"{name:<20}{times}{len(answer.groups):>8}  {answer.cause}")


if __name__ == "__main__":
    main()

"""
The longest single step that one hostile pod causes: the time in which nothing else runs.

Run as `python -m benchmarks.hostile [--nodes 1000 5000] [--shapes ...] [--size 1400000] [--allowed]`. Each shape is a
pod that one tenant can create, as large as the API server's request limit allows; with `--allowed` it has as many parts
as are not refused. It is decoded, warmed up, decided, explained, preempted for, woken, and put on a node as if
another scheduler had bound it; then a plain pod is scheduled beside it. If a step pauses (a generator), its longest
stretch counts. Prints milliseconds of CPU, which depend on the machine.

`python -m benchmarks.hostile --tenants [CASE ...] [--seconds 30]` measures the whole process on a real kube-apiserver
instead: how long other pods wait beside the groups of one tenant (`hostile_tenants`).
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Generator
from typing import Any

import anyio
import attrs

from benchmarks.decision import PROFILE, fleet, pod, stepped
from benchmarks.hostile_shapes import SHAPES, Shape, object_of
from benchmarks.hostile_tenants import CASES, compare
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, MEMORY
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.preemption.search import search
from tests.support.queueing import new_queue


def largest(shape: Shape, size: int) -> int:
    """Return how many parts of the shape make a pod of about so many bytes."""
    part_bytes = (len(json.dumps(object_of(shape, 2000))) - len(json.dumps(object_of(shape, 1000)))) / 1000
    return min(200_000, int(size / part_bytes)) if part_bytes >= 1 else 100_000


def allowed(shape: Shape, most: int) -> int:
    """Return how many parts of the shape a pod can have without being refused."""
    least = 1
    while least < most:
        middle = (least + most + 1) // 2
        pod = PODS.decode(json.dumps(object_of(shape, middle)).encode()).value
        least, most = (middle, most) if isinstance(pod, Pod) and not pod.refusal else (least, middle - 1)
    return least


@attrs.define(eq=False)
class Steps:
    """The longest stretch by stage, in milliseconds of CPU."""

    longest: dict[str, float] = attrs.field(factory=dict)

    def take(self, stage: str, step: Callable[[], Any]) -> Any:
        """Time a step that does not pause."""
        began = time.process_time()
        result = step()
        self._note(stage, (time.process_time() - began) * 1e3)
        return result

    def pausing(self, stage: str, steps: Generator[object, None, object]) -> None:
        """Time each stretch of a generator."""
        self._note(stage, max(stepped(steps)[1]))

    def _note(self, stage: str, took: float) -> None:
        self.longest[stage] = max(self.longest.get(stage, 0.0), took)


def cluster_of(nodes: int) -> Cluster:
    """Return a cluster with a plain pod on every node, with indexes for plain pods."""
    cluster = Cluster()
    for i, node in enumerate(fleet(nodes)):
        cluster.put_node(node)
        cluster.put_pod(attrs.evolve(plain(i), node_name=node.name))
    for _ in IndexWarmup().prepare(cluster, plain(0), PROFILE):
        pass
    schedule_pod(cluster, plain(nodes), PROFILE)
    return cluster


def plain(number: int) -> Pod:
    """Return a plain pod."""
    return pod(number, {CPU: 100, MEMORY: 1 << 20}, labels={"app": "web"})


def measure(shape: Shape, count: int, nodes: int) -> Steps:
    """Pass one hostile pod through all stages of a pod."""
    steps, cluster = Steps(), cluster_of(nodes)
    gc.collect()
    gc.disable()
    encoded = json.dumps(object_of(shape, count)).encode()
    hostile = steps.take("decode", lambda: PODS.decode(encoded).value)
    if not isinstance(hostile, Pod):
        return steps
    steps.pausing("warm up", IndexWarmup().prepare(cluster, hostile, PROFILE))
    first = steps.take("decide", lambda: schedule_pod(cluster, hostile, PROFILE))
    urgent = attrs.evolve(hostile, uid="urgent", priority=1000)
    refused = first if isinstance(first, FitError) else FitError(nodes, (("none", nodes),), frozenset({"NodeAffinity"}))
    steps.pausing("preempt", search(cluster, urgent, PROFILE, refused=refused))
    steps.take("queue", lambda: _wake(cluster, hostile, refused.plugins))
    on_node = object_of(shape, count, node_name=next(cluster.view.rows()).node.name)
    bound = PODS.decode(json.dumps(on_node).encode()).value
    if isinstance(bound, Pod):
        steps.take("put", lambda: cluster.put_pod(bound))
        steps.take("next", lambda: schedule_pod(cluster, plain(nodes + 1), PROFILE))
        steps.take(
            "next", lambda: schedule_pod(cluster, pod(nodes + 2, {CPU: 9_999_999}, labels={"app": "web"}), PROFILE)
        )
        steps.take("put", lambda: cluster.remove_pod(bound.uid))
    gc.enable()
    return steps


def _wake(cluster: Cluster, hostile: Pod, plugins: frozenset[str]) -> None:
    """Queue a refused pod, evaluate its hints for a node and for a pod, and pop it."""
    queue = new_queue()
    queue.add(hostile, 0.0)
    queued = queue.pop(0.0)
    if queued is None:  # gated
        return
    queue.put_back_refused(queued, plugins, 0.0)
    row = next(cluster.view.rows())
    queue.note(ClusterEvent.NODE_LABELS, on=row)
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, plain(0), on=row)
    queue.pop(0.5)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the longest step that a hostile pod causes")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--size", type=int, default=1_400_000, help="bytes of the pod's JSON")
    parser.add_argument("--allowed", action="store_true", help="no more parts than a pod may have")
    parser.add_argument("--tenants", nargs="*", metavar="CASE", help="measure the process beside one tenant's pods")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each of these cases")
    arguments = parser.parse_args()
    if arguments.tenants is not None:
        anyio.run(compare, arguments.tenants or list(CASES), arguments.seconds)
        return
    stages = ("decode", "warm up", "decide", "preempt", "queue", "put", "next")
    print(f"{'ms':36}{'parts':>8}{'nodes':>7}" + "".join(f"{stage:>10}" for stage in stages))
    for name in arguments.shapes:
        count = largest(SHAPES[name], arguments.size)
        if arguments.allowed:
            count = allowed(SHAPES[name], count)
        for nodes in arguments.nodes:
            longest = measure(SHAPES[name], count, nodes).longest
            figures = "".join(f"{longest[stage]:10.1f}" if stage in longest else f"{'-':>10}" for stage in stages)
            print(f"{name:36}{count:8}{nodes:7}{figures}", flush=True)


if __name__ == "__main__":
    main()

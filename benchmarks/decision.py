"""
How long one decision takes: `schedule_pod` and assume, from 1,000 to 50,000 nodes, for pods of all sorts.

Run as `python -m benchmarks.decision [--nodes 1000 5000 15000 50000] [--pods 500]`. The nodes are half full of earlier
pods, so that block levels are mixed; all clusters are asked in turn, pod by pod, so that a noisy machine disturbs all
sizes alike. Absolute values belong to the machine, growth belongs to the algorithm. Prints a table, appends a line of
JSON for each size to `benchmarks/results/decision.jsonl`, and draws `decision.svg` beside it. With `--claims` it only
prints: the same pods by counts and by claims on trn2.48xlarge, and what it costs to read and keep the nodes' slices.
"""

import argparse
import gc
import json
import platform
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from benchmarks.by_claims import ByClaims, decoded_slice, encoded_slice
from benchmarks.contest.plots import bar_chart
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.neuron_request import neuron_request
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE, NEURON_DEVICE, PODS, Container
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement, SpreadConstraint
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod

RESULTS = Path(__file__).parent / "results"
PROFILE = default_profile("my-scheduler")
SIZES = {
    "trn1.32xlarge": (128, 512, 16, 32),
    "trn2.48xlarge": (192, 2048, 16, 64),
    "inf2.48xlarge": (192, 768, 12, 24),
    "inf2.xlarge": (4, 16, 1, 2),
}
"""vCPUs, memory in GiB, devices, cores."""

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
NAMESPACE = frozenset({"default"})
BARS = {"plain": 50, "spread by zone": 150, "apart by hostname": 150, "unschedulable": 100}
"""Microseconds that a decision at 15,000 nodes may take at most (p50)."""

Make = Callable[[int, random.Random], Pod]
T = TypeVar("T")


def fleet(count: int, types: Sequence[str] = tuple(SIZES)) -> Iterator[Node]:
    """Yield nodes of all types in turn, in three zones."""
    for i in range(count):
        kind = types[i % len(types)]
        cpu, memory, devices, cores = SIZES[kind]
        silicon = {NEURON_DEVICE: devices, NEURON_CORE: cores}
        name = f"ip-10-{i >> 16}-{i >> 8 & 255}-{i & 255}"
        yield Node(
            uid=f"node-{i}",
            name=name,
            created=float(i),
            labels={INSTANCE_TYPE_LABEL: kind, ZONE_LABEL: f"zone-{i % 3}", HOSTNAME_LABEL: name},
            allocatable={CPU: cpu * 1000, MEMORY: memory << 30, PODS: 110, **silicon},
            capacity=silicon,
        )


def pod(number: int, requests: Mapping[str, int], **rest: Any) -> Pod:
    """Return a pending pod."""
    neuron = neuron_request([Container("main", requests)])
    return Pod(uid=f"pod-{number}", namespace="default", name=f"pod-{number}", requests=requests, neuron=neuron, **rest)


def unlike(number: int, dice: random.Random, **rest: Any) -> Pod:
    """Return a pod whose cpu and memory no other asks for, to the byte, with 1, 4 or 8 devices."""
    amounts = {CPU: dice.randrange(100, 3_900), MEMORY: dice.randrange(1 << 28, 1 << 33)}
    return pod(number, {**amounts, NEURON_DEVICE: dice.choice((1, 1, 4, 8))}, **rest)


def in_zone(number: int, dice: random.Random) -> Pod:
    """Return a pod unlike all others that is tied to a zone."""
    return unlike(number, dice, constraints=Constraints(node_selector={ZONE_LABEL: f"zone-{number % 3}"}))


def one_shape(number: int, _: random.Random) -> Pod:
    """Return a pod like all others of its sort."""
    return pod(number, {CPU: 1000, MEMORY: 1 << 30, NEURON_DEVICE: 1})


def in_mebibytes(number: int, dice: random.Random) -> Pod:
    """Return a pod unlike all others whose memory is in whole MiB, as people write it."""
    made = in_zone(number, dice)
    return attrs.evolve(made, requests={**made.requests, MEMORY: made.requests[MEMORY] >> 20 << 20})


def _constrained(constraints: Constraints) -> Make:
    return lambda number, dice: unlike(number, dice, labels={"app": "web"}, constraints=constraints)


def _spread(key: str) -> Make:
    return _constrained(Constraints(spread=(SpreadConstraint(key, max_skew=1, hard=True, selector=WEB),)))


def _too_much(number: int, dice: random.Random) -> Pod:
    """Return a pod unlike all others that no node can take."""
    made = in_zone(number, dice)
    return attrs.evolve(made, requests={**made.requests, CPU: 1_000_000 + dice.randrange(1000)})


def _of_size(devices: int) -> Make:
    return lambda number, _: pod(number, {CPU: 1000, MEMORY: 1 << 30, NEURON_DEVICE: devices})


BESIDE = "beside a nomination"
FIRST = pod(-2, {NEURON_DEVICE: 4}, priority=1 << 30)
"""The nominated pod."""


def _of_new_priority(number: int, dice: random.Random) -> Pod:
    """Return a pod of a priority that no other pod has, below that of the nominated pod."""
    return attrs.evolve(in_zone(number, dice), priority=number)


WORKLOADS: Mapping[str, Make] = {
    "one shape": one_shape,
    "plain": in_zone,
    "plain, in MiB": in_mebibytes,
    "spread by zone": _spread(ZONE_LABEL),
    "spread by hostname": _spread(HOSTNAME_LABEL),
    "apart by hostname": _constrained(Constraints(anti_affinity=(PodAffinityTerm(HOSTNAME_LABEL, WEB, NAMESPACE),))),
    "near by zone": _constrained(Constraints(affinity=(PodAffinityTerm(ZONE_LABEL, WEB, NAMESPACE),))),
    "unschedulable": _too_much,
    BESIDE: _of_new_priority,
}
BY_SIZE: Mapping[str, Make] = {f"{size} devices": _of_size(size) for size in (1, 4, 8, 16)}


def stepped(steps: Generator[object, None, T]) -> tuple[T, list[float]]:
    """Return what a search returns that pauses between its steps, and the milliseconds of CPU of each step."""
    took = []
    while True:
        started = time.process_time()
        try:
            next(steps)
        except StopIteration as end:
            took.append((time.process_time() - started) * 1e3)
            return end.value, took
        took.append((time.process_time() - started) * 1e3)


@attrs.define(eq=False)
class Contestant:
    """A cluster of one size and what was measured on it, microseconds by workload unless said otherwise."""

    nodes: int
    cluster: Cluster = attrs.field(factory=Cluster)
    made: Callable[[Pod], Pod] = lambda pod: pod
    """What a pod by counts is here."""
    decisions: dict[str, list[float]] = attrs.field(factory=dict)
    assumptions: dict[str, list[float]] = attrs.field(factory=dict)
    pauses_ms: dict[str, tuple[float, float]] = attrs.field(factory=dict)
    """By workload: the longest single step of its first warm-up, and the whole warm-up."""

    def warm_up(self, workload: str, pending: Pod) -> None:
        """Measure the first builds of indexes for a workload."""
        _, took = stepped(IndexWarmup().prepare(self.cluster, pending, PROFILE))
        self.pauses_ms[workload] = (max(took), sum(took))

    def step(self, workload: str, pending: Pod) -> str | None:
        """Decide and assume; return the uid of the assumed pod, None if it was refused."""
        started = time.perf_counter()
        decision = schedule_pod(self.cluster, pending, PROFILE)
        decided = time.perf_counter()
        self.decisions.setdefault(workload, []).append((decided - started) * 1e6)
        if isinstance(decision, FitError):
            return None
        self.place(pending, decision)
        self.assumptions.setdefault(workload, []).append((time.perf_counter() - decided) * 1e6)
        return pending.uid

    def place(self, pending: Pod, decision: Decision) -> None:
        """Assume a pod where it was decided to go."""
        cores = decision.placement.cores if decision.placement else NO_CORES
        self.cluster.assume(attrs.evolve(pending, node_name=decision.node_name), cores)


def prepared(nodes: int) -> Contestant:
    """Return a cluster that is half full of earlier pods; the first warm-up is measured before them."""
    return filled(Contestant(nodes), fleet(nodes))


def filled(contestant: Contestant, fleet: Iterable[Node]) -> Contestant:
    """Return it with nodes, and with a pod for every two of them."""
    dice = random.Random(1)
    for node in fleet:
        contestant.cluster.put_node(node)
    gc.collect()
    gc.freeze()
    contestant.warm_up("first of all", contestant.made(in_zone(-1, dice)))
    for number in range(contestant.nodes // 2):
        pending = contestant.made(in_zone(1_000_000 + number, dice))
        decision = schedule_pod(contestant.cluster, pending, PROFILE)
        if isinstance(decision, FitError):
            raise SystemExit(f"the imagined fleet is full after {number} pods: {decision.text}")
        contestant.place(pending, decision)
    return contestant


def measure(contestants: list[Contestant], pods: int, workloads: Mapping[str, Make] = WORKLOADS) -> None:
    """Decide the same pods in all clusters, workload after workload; placed pods are removed again."""
    warm_up, number = pods // 5 + 1, 0
    for workload, make in workloads.items():
        dice, placed = random.Random(2), []
        for contestant in contestants:
            if workload == BESIDE:
                contestant.cluster.nominate("ip-10-0-0-0", Nomination(FIRST))
            contestant.warm_up(workload, contestant.made(make(0, dice)))
        for _ in range(warm_up + pods):
            number += 1
            pending = make(number, dice)
            placed += [
                (contestant, uid)
                for contestant in contestants
                if (uid := contestant.step(workload, contestant.made(pending))) is not None
            ]
        for contestant, uid in placed:
            contestant.cluster.forget(uid)
        for contestant in contestants:
            contestant.cluster.clear_nomination(FIRST.uid)
            for kind in (contestant.decisions, contestant.assumptions):
                del kind.get(workload, [])[:warm_up]


def record(contestant: Contestant) -> dict[str, Any]:
    """Return what is written down of a cluster."""
    return {
        "machine": f"{platform.processor() or platform.machine()}, Python {platform.python_version()}",
        "nodes": contestant.nodes,
        "decide_us": {name: _percentiles(times) for name, times in contestant.decisions.items()},
        "assume_us": {name: _percentiles(times) for name, times in contestant.assumptions.items()},
        "first_builds_ms": {
            name: {"longest_pause": round(longest, 2), "all": round(total, 1)}
            for name, (longest, total) in contestant.pauses_ms.items()
        },
    }


def _percentiles(times: list[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(times), 1), "p99": round(sorted(times)[len(times) * 99 // 100], 1)}


def show(records: list[dict[str, Any]]) -> None:
    """Print a table of the records, and draw how cost grows."""
    print(f"{'workload':<20}" + "".join(f"{record['nodes']:>15,}" for record in records) + f"{'growth':>9}{'bar':>6}")
    for name in WORKLOADS:
        cells = [record["decide_us"][name] for record in records]
        texts = "".join(f"{cell['p50']:>8.1f} {cell['p99']:>6.0f}" for cell in cells)
        print(f"{name:<20}{texts}{cells[-1]['p50'] / cells[0]['p50']:>8.2f}x{BARS.get(name, ''):>6}")
    assumed = "".join(f"{record['assume_us']['plain']['p50']:>8.1f}       " for record in records)
    print(f"{'assume':<20}{assumed}")
    pauses = "".join(f"{record['first_builds_ms']['first of all']['longest_pause']:>8.1f} ms    " for record in records)
    print(f"{'longest pause':<20}{pauses}")
    colors = ("#a6c8ff", "#4c8dff", "#1f5fd0", "#123a80", "#081d40")
    series = {f"{record['nodes']:,} nodes": color for record, color in zip(records, colors, strict=False)}
    bars = {
        name: {f"{record['nodes']:,} nodes": record["decide_us"][name]["p50"] for record in records}
        for name in WORKLOADS
    }
    chart = bar_chart("What more nodes cost a decision", "microseconds, p50; no two pods alike", series, bars)
    (RESULTS / "decision.svg").write_text(chart)


def compare_with_claims(nodes: int, pods: int) -> None:
    """Decide the same pods on the same nodes by counts and by claims, and print both; before, read the slices."""
    by_claims, machines = ByClaims(), [*fleet(nodes, ("trn2.48xlarge",))]
    decoded, taken = list[float](), list[float]()
    for number, node in enumerate(machines):
        line, started = encoded_slice(node.name, number), time.perf_counter()
        found = decoded_slice(line)
        read = time.perf_counter()
        by_claims.publish(node, found)
        decoded.append((read - started) * 1e6)
        taken.append((time.perf_counter() - read) * 1e6)
    print(f"slice of {len(line):,} bytes, us (mean): decode {statistics.fmean(decoded):.0f}", end="")
    print(f", take in {statistics.fmean(taken):.0f}; kept {_kept(machines) / 1024:.1f} KiB a node")
    contestants = [
        filled(Contestant(nodes), machines),
        filled(Contestant(nodes, Cluster(claims=by_claims.claims), by_claims.pod), map(by_claims.node, machines)),
    ]
    gc.collect()
    gc.freeze()
    measure(contestants, pods, BY_SIZE)
    for name in BY_SIZE:
        cells = [_percentiles(contestant.decisions[name]) for contestant in contestants]
        print(f"{name:<12}" + "".join(f"{cell['p50']:>8.1f} {cell['p99']:>6.0f}" for cell in cells))
    for contestant in contestants:
        longest, total = contestant.pauses_ms["first of all"]
        print(f"first kind of pod: longest step {longest:.1f} ms, all {total:.0f} ms")


def _kept(machines: Iterable[Node]) -> float:
    """Return the bytes for each node that are kept of slices."""
    by_claims = ByClaims(first=1 << 20)  # no device is known from before
    gc.collect()
    tracemalloc.start()
    kept = [by_claims.node(node).published for node in machines]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(kept)


def main() -> None:
    """Measure, print, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 5_000, 15_000, 50_000])
    parser.add_argument("--pods", type=int, default=500, help="of each workload")
    parser.add_argument("--claims", action="store_true")
    arguments = parser.parse_args()
    if arguments.claims:
        for nodes in sorted(arguments.nodes):
            compare_with_claims(nodes, arguments.pods)
        return
    RESULTS.mkdir(exist_ok=True)
    contestants = [prepared(nodes) for nodes in sorted(arguments.nodes)]
    gc.collect()
    gc.freeze()
    measure(contestants, arguments.pods)
    records = [record(contestant) for contestant in contestants]
    show(records)
    with (RESULTS / "decision.jsonl").open("a") as written:
        written.writelines(json.dumps(record) + "\n" for record in records)


if __name__ == "__main__":
    main()

"""
Which runs a benchmark consists of, and in which order; and about how long they take.

Within a workload the contenders alternate round by round, so that a drift of the machine affects all of them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.contest.contenders import CONTENDERS
from benchmarks.contest.records import Cell
from benchmarks.contest.run import PACE
from benchmarks.contest.workloads import EVERYWHERE, WORKLOADS

SIZES: Final = (1_000, 5_000, 15_000)
ALL_WORKLOADS_AT: Final = 5_000
AROUND_A_RUN: Final = 9.0  # seconds: pods created, contender started and stopped, all deleted, silence
NODES_PER_SECOND: Final = 1_000.0
# For the estimate only: pods per second on two cores.
USUAL_RATES: Final = {
    "ours": 800.0,
    "binding-loop": 1_000.0,
    "binding-loop without policies": 1_300.0,
    "kube-scheduler": 180.0,
    "kube-scheduler with extender": 80.0,
    "kube-scheduler with our extender": 80.0,
}


def cells(
    *, nodes: Sequence[int], rounds: int, workloads: Sequence[str] = (), contenders: Sequence[str] = ()
) -> list[Cell]:
    """
    Return the runs in their order.

    Args:
        nodes: the numbers of nodes, each with a control plane of its own.
        rounds: how often each contender has its turn.
        workloads: those to run with every number of nodes; without any, all of them with 5,000 nodes, and the first
            three with other numbers.
        contenders: those to run; without any, all that take part in the workload.
    """
    return [
        Cell(nodes=count, workload=workload, contender=contender, round=number)
        for count in nodes
        for workload in workloads or (WORKLOADS if count == ALL_WORKLOADS_AT else EVERYWHERE)
        for number in range(rounds)
        for contender in CONTENDERS
        if contender in (contenders or CONTENDERS) and CONTENDERS[contender].takes(workload)
    ]


def estimate(wanted: Iterable[Cell], pods: int) -> float:
    """Return about how many seconds these runs take on two cores."""
    wanted = list(wanted)
    planes = {(cell.nodes, CONTENDERS[cell.contender].policies) for cell in wanted}
    return sum(15.0 + nodes / NODES_PER_SECOND for nodes, _ in planes) + sum(_of_run(cell, pods) for cell in wanted)


def _of_run(cell: Cell, pods: int) -> float:
    workload = WORKLOADS[cell.workload]
    count = workload.count(pods)
    seconds = AROUND_A_RUN + count / 800 + count / USUAL_RATES[cell.contender]
    if workload.paced:
        seconds += count / PACE
    if workload.filled:
        seconds += cell.nodes / 800 / 2
    return seconds

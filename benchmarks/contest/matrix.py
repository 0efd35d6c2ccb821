"""
Which runs a benchmark consists of, and in which order.

Within a workload the contenders alternate round by round, so that a drift of the machine affects all of them.
"""

from collections.abc import Sequence
from typing import Final

from benchmarks.contest.contenders import CONTENDERS
from benchmarks.contest.records import Cell
from benchmarks.contest.workloads import EVERYWHERE, WORKLOADS

SIZES: Final = (1_000, 5_000, 15_000)
ALL_WORKLOADS_AT: Final = 5_000


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

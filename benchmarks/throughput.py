"""
How many pods per second, end to end, on a real kube-apiserver with simulated nodes: ours beside its peers.

    python -m benchmarks.throughput                the whole matrix, one round
    python -m benchmarks.throughput --rounds 3     three; recorded runs are not repeated
    python -m benchmarks.throughput --nodes 5000 --workloads mix unlike --contenders ours kube-scheduler
    python -m benchmarks.throughput --plan [...]   only print how many runs there are
    python -m benchmarks.throughput --quick        a check of the benchmark in a minute; its figures mean nothing
    python -m benchmarks.report                    the table, the targets, the plots

The contenders take turns on one control plane: ours as its Deployment runs, with Lease, Events, log, rights and
admission policies; the bare Binding loop, the upper limit for any scheduler, under the same identity and policies, and
on a control plane of its own without policies; the real kube-scheduler without topology and with its client limits
lifted; and kube-scheduler with an extender that is as good as an extender can be. Absolute rates depend on the machine,
which API server, etcd and this program share; compare within one label.
"""

import argparse
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path
from typing import Final

import anyio
import attrs

from benchmarks import report
from benchmarks.contest import records
from benchmarks.contest.arena import Arena, run_arena
from benchmarks.contest.contenders import CONTENDERS
from benchmarks.contest.observer import DisturbedError
from benchmarks.contest.records import Cell, Record
from benchmarks.contest.run import measure
from benchmarks.contest.workloads import ALL_WORKLOADS_AT, EVERYWHERE, WORKLOADS

SIZES: Final = (1_000, 5_000, 15_000)
TRIES: Final = 3
QUICK_NODES: Final = 320  # at least as many as pods, or those with anti-affinity find no place
QUICK_PODS: Final = 300
QUICK_WORKLOADS: Final = ("mix", "spread-hostname")


def cells(
    *, nodes: Sequence[int], rounds: int, workloads: Sequence[str] = (), contenders: Sequence[str] = ()
) -> list[Cell]:
    """
    Return the runs in their order; workloads and contenders alternate, so that a drift of the machine affects all.

    Args:
        nodes: the numbers of nodes, each with a control plane of its own.
        rounds: how often each contender has its turn with each workload.
        workloads: those to run with every number of nodes; without any, all of them with 5,000 nodes, and the first
            three with other numbers.
        contenders: those to run; without any, all that take part in the workload.
    """
    return [
        Cell(nodes=count, workload=workload, contender=contender, round=number)
        for count in nodes
        for number in range(rounds)
        for workload in workloads or (WORKLOADS if count == ALL_WORKLOADS_AT else EVERYWHERE)
        for contender in CONTENDERS
        if contender in (contenders or CONTENDERS) and CONTENDERS[contender].takes(workload)
    ]


@attrs.frozen(kw_only=True)
class Plan:
    """What to run, and where the records go."""

    cells: list[Cell]
    pods: int
    label: str
    file: Path


async def main(plan: Plan) -> None:
    """Run the missing cells, one control plane (or two) for each number of nodes."""
    for nodes, group in groupby(plan.cells, key=lambda cell: cell.nodes):
        await _with_nodes(nodes, list(group), plan)
    report.show(records.of_label(records.read(plan.file), plan.label), plan.file.parent)


async def _with_nodes(nodes: int, wanted: list[Cell], plan: Plan) -> None:
    async with AsyncExitStack() as stack:
        arenas: dict[bool, Arena] = {}
        for policies in sorted({CONTENDERS[cell.contender].policies for cell in wanted}, reverse=True):
            arenas[policies] = await stack.enter_async_context(run_arena(nodes=nodes, policies=policies))
        for workload, group in groupby(wanted, key=lambda cell: cell.workload):
            for cell in group:
                await _run(arenas[CONTENDERS[cell.contender].policies], cell, plan)
            if WORKLOADS[workload].filled:
                for arena in arenas.values():
                    await arena.empty()
            if WORKLOADS[workload].by_claims:
                for arena in arenas.values():
                    await arena.withdraw(nodes)


async def _run(arena: Arena, cell: Cell, plan: Plan) -> None:
    """Make one run, again if it was disturbed, and record it."""
    for _ in range(TRIES):
        try:
            record = await measure(arena, cell, pods=plan.pods, label=plan.label)
        except* DisturbedError as disturbed:
            print(f"  {cell.workload} {cell.contender}: {disturbed.exceptions}; once more", flush=True)
        else:
            records.append(record, plan.file)
            print(_line(record), flush=True)
            return
    raise SystemExit(f"{cell} was disturbed {TRIES} times; wait until the machine is quiet, and go on then")


def _line(record: Record) -> str:
    cell = record.cell
    short = "" if record.complete else f"  ONLY {record.bound} OF {record.pods}"
    lost = f"  {record.events_lost} EVENTS LOST" if record.events_lost else ""
    return (
        f"  {cell.nodes:>6} {cell.workload:16}{cell.contender:30}{record.rate:>7.0f} pods/s"
        f"{record.cpu_per_pod:>8.2f} ms{record.peak_bytes >> 20:>6} MiB{short}{lost}"
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--workloads", nargs="+", default=(), choices=WORKLOADS, metavar="NAME")
    parser.add_argument("--contenders", nargs="+", default=(), choices=CONTENDERS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pods", type=int, default=3_000)
    parser.add_argument("--label", help="what is measured; only runs of one label are compared (default: the commit)")
    parser.add_argument("--file", type=Path, default=records.RECORDS)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


def _plan(arguments: argparse.Namespace) -> Plan:
    nodes, workloads, pods, file = arguments.nodes, arguments.workloads, arguments.pods, arguments.file
    if arguments.quick:
        nodes, pods, workloads = [QUICK_NODES], QUICK_PODS, workloads or QUICK_WORKLOADS
        file = file.parent / "quick" / file.name
        file.unlink(missing_ok=True)
    wanted = cells(nodes=nodes, rounds=arguments.rounds, workloads=workloads, contenders=arguments.contenders)
    label = arguments.label or records.commit()
    return Plan(cells=list(records.missing(wanted, records.read(file), label)), pods=pods, label=label, file=file)


if __name__ == "__main__":
    _arguments = _parse()
    _what = _plan(_arguments)
    print(f"{_what.label}: {len(_what.cells)} runs", flush=True)
    if not _arguments.plan:
        anyio.run(main, _what, backend_options={"use_uvloop": True})

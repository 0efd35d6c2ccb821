"""
How long nobody schedules when the leader goes: real processes on a real etcd and kube-apiserver, 1,000 pods.

    python -m benchmarks.failover                            all, with the default times of the Lease and short ones
    python -m benchmarks.failover --deeds crash --rounds 5 --times default

Times are those of a watch of the pods. A crash (SIGKILL) and a freeze (SIGSTOP), both right after a renewal, must be
followed by the successor's first Binding within the Lease's duration and 2 s; a clean stop (SIGTERM) within 1 s. In a
rolling update no time without a Binding, while a pod waits, may be longer than that. All pods must be bound, once, and
no core given twice. Prints a table; the exit code is 1 if a bound does not hold.
"""

import argparse
import sys
from typing import Any

import anyio

from benchmarks.contest.records import machine, now
from benchmarks.takeover.deeds import DEEDS
from benchmarks.takeover.figures import DEFAULT, SHORT, Round, table
from benchmarks.takeover.stage import INSTANCE_TYPE, NODES, run_cluster, run_stage

TIMES = {"default": DEFAULT, "short": SHORT}


async def main(arguments: Any) -> int:
    """Measure and print; return the exit code."""
    rounds: list[Round] = []
    async with run_cluster() as cluster:
        await cluster.add_nodes(INSTANCE_TYPE, NODES)
        for number in range(arguments.rounds):
            for name in arguments.times:
                for deed in arguments.deeds:
                    async with run_stage(cluster, TIMES[name], arguments.pods) as stage:
                        rounds.append(await DEEDS[deed](stage, TIMES[name], number))
                    _show(rounds[-1])
    print(f"\n{now()}, {arguments.pods} pods, {machine()}\n")
    print(table(rounds))
    return 0 if all(each.holds for each in rounds) else 1


def _show(each: Round) -> None:
    print(f"{each.deed}, {each.times}: {each.takeover:.3f} s, {each.bound} of {each.pods} bound", flush=True)
    for sentence in each.wrong[:10]:
        print(f"  {sentence}", flush=True)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deeds", nargs="+", choices=DEEDS, default=list(DEEDS))
    parser.add_argument("--times", nargs="+", choices=TIMES, default=list(TIMES))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--pods", type=int, default=1_000)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(anyio.run(main, _arguments(), backend_options={"use_uvloop": True}))

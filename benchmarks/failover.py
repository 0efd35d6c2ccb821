"""
How long nobody schedules when the leader goes: real processes on a real etcd and kube-apiserver, 1,000 pods.

    python -m benchmarks.failover                            all, with the default times of the Lease and short ones
    python -m benchmarks.failover --deeds crash --rounds 5 --times default

Times are those of a watch of the pods. A crash (SIGKILL) and a freeze (SIGSTOP), both right after a renewal, must be
followed by the successor's first Binding within the Lease's duration and 2 s; a clean stop (SIGTERM) within 1 s. In a
rolling update no time without a Binding, while a pod waits, may be longer than that. All pods must be bound, once, and
no device given twice. Prints a table; the exit code is 1 if a bound does not hold.
"""

import argparse
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import anyio
import attrs

from benchmarks.contest.records import machine, now
from benchmarks.failover_stage import Stage, ended, run_cluster, run_stage, stopped
from benchmarks.report import markdown_table

RATE: Final = 150.0  # pods a second that arrive around a crash: fewer than a scheduler binds
UPDATE_RATE: Final = 60.0  # during a rolling update, which takes as long as processes take to start
BEFORE: Final = 0.2  # the share of the pods that are bound before the deed
AT_ONCE: Final = 0.1  # the same, where all pods wait
CLEAN: Final = 1.0  # seconds after a clean stop
BEYOND_LEASE: Final = 2.0  # seconds after a crash, beyond the duration of the Lease


TIMES: Final = {"default": "15/10/2", "short": "5/3/0.5"}
"""The Lease's duration, the renew deadline and the retry period, in seconds, as the documentation writes them."""


def flags_of(times: str) -> tuple[str, ...]:
    """Return the scheduler's flags."""
    duration, deadline, retry = times.split("/")
    return (
        f"--leader-elect-lease-duration={duration}s",
        f"--leader-elect-renew-deadline={deadline}s",
        f"--leader-elect-retry-period={retry}s",
    )


@attrs.frozen(kw_only=True)
class Round:
    """
    What one round has shown.

    Attributes:
        takeover: seconds from the deed to the successor's first Binding; of a rolling update the longest time without
            a Binding while a pod waited.
        lost: how many pods were not bound in the end.
        wrong: what must not happen, a sentence each.
    """

    deed: str
    times: str
    takeover: float
    lost: int
    wrong: Sequence[str] = ()

    @property
    def bound_in(self) -> float:
        """The seconds that `takeover` may have."""
        clean = self.deed in ("clean stop", "rolling update")
        return CLEAN if clean else float(self.times.partition("/")[0]) + BEYOND_LEASE

    @property
    def holds(self) -> bool:
        """Whether the bound is kept, no pod is lost, and nothing went wrong."""
        return self.takeover <= self.bound_in and not self.lost and not self.wrong


# -- what is done to the leader; each returns the seconds of the takeover and what went wrong --------------------------

Shown = tuple[float, Sequence[str]]


async def crash(stage: Stage, _number: int) -> Shown:
    """Kill the leader while pods arrive."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.paced, RATE)
        await stage.bound(int(stage.pods * BEFORE))
        await stage.renewal()
        at = time.perf_counter()
        stage.leader.send_signal(signal.SIGKILL)
    return await _followed(stage, at)


async def freeze(stage: Stage, _number: int) -> Shown:
    """Freeze the leader while pods arrive; it wakes up when they are bound, and must end."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.paced, RATE)
        await stage.bound(int(stage.pods * BEFORE))
        await stage.renewal()
        at = time.perf_counter()
        stage.leader.send_signal(signal.SIGSTOP)
        await stage.succeeded()
        stage.leader.send_signal(signal.SIGCONT)
        code = await ended(stage.leader)
    return await _followed(stage, at, [] if code == 1 else [f"the frozen leader ended with {code} when it woke up"])


async def clean_stop(stage: Stage, number: int) -> Shown:
    """Stop the leader: while all pods wait, in every second round while they arrive."""
    async with anyio.create_task_group() as tasks:
        if number % 2:
            tasks.start_soon(stage.paced, RATE)
        else:
            tasks.start_soon(stage.at_once)
        await stage.bound(int(stage.pods * (BEFORE if number % 2 else AT_ONCE)))
        at = time.perf_counter()
        stage.leader.send_signal(signal.SIGTERM)
        wrong = await stopped(stage.leader)
    return await _followed(stage, at, wrong)


async def rolling_update(stage: Stage, number: int) -> Shown:
    """
    Replace both replicas, as a Deployment of two does by default: one more, and never one less.

    The Deployment knows no leader: it is the first to be stopped, in every second round the last.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.paced, UPDATE_RATE)
        await stage.bound(int(stage.pods * AT_ONCE))
        first, last = (stage.standby, stage.leader) if number % 2 else (stage.leader, stage.standby)
        await stage.start()
        first.send_signal(signal.SIGTERM)
        await stage.start()
        last.send_signal(signal.SIGTERM)
        updated = time.perf_counter()
        wrong = [*await stopped(first), *await stopped(last)]
        await stage.bound(stage.pods)
    if updated > max(stage.created.values()):
        wrong.append("the update took longer than the pods arrived: the gap is not that of an update")
    return longest_gap(stage.created, {name: bound.at for name, bound in stage.observer.bound.items()}), wrong


DEEDS: Final[dict[str, Callable[[Stage, int], Awaitable[Shown]]]] = {
    "crash": crash,
    "freeze": freeze,
    "clean stop": clean_stop,
    "rolling update": rolling_update,
}


async def _followed(stage: Stage, at: float, wrong: Sequence[str] = ()) -> Shown:
    """Wait for the successor and for all pods."""
    succeeded = await stage.succeeded()
    await stage.bound(stage.pods)
    return succeeded - at, [*wrong, *stage.late(succeeded)]


def longest_gap(created: Mapping[str, float], bound: Mapping[str, float]) -> float:
    """
    Return the longest time without a Binding while a pod waited, in the unit of the arguments.

    Args:
        created: when each pod was created, by name.
        bound: when it was bound; pods that were not do not count.
    """
    longest, waits_since, after = 0.0, float("inf"), None
    for name in sorted(bound, key=lambda name: bound[name], reverse=True):
        if after is not None:
            longest = max(longest, after - max(bound[name], waits_since))
        waits_since = min(waits_since, created[name])
        after = bound[name]
    return max(longest, after - waits_since) if after is not None else 0.0


# -- the program -------------------------------------------------------------------------------------------------------


def table(rounds: Iterable[Round]) -> str:
    """Return a Markdown table, a line for each deed with each lease times."""
    groups: dict[tuple[str, str], list[Round]] = {}
    for each in rounds:
        groups.setdefault((each.deed, each.times), []).append(each)
    head = ("what", "lease times", "rounds", "median", "worst", "bound", "pods lost", "wrong", "holds")
    return "\n".join(markdown_table(head, map(_row, groups.values())))


def _row(group: Sequence[Round]) -> tuple[str, ...]:
    seconds = [each.takeover for each in group]
    return (
        group[0].deed,
        group[0].times,
        str(len(group)),
        f"{statistics.median(seconds):.2f} s",
        f"{max(seconds):.2f} s",
        f"{group[0].bound_in:g} s",
        str(sum(each.lost for each in group)),
        str(sum(len(each.wrong) for each in group)),
        "yes" if all(each.holds for each in group) else "NO",
    )


async def main(arguments: Any) -> int:
    """Measure and print; return the exit code."""
    rounds: list[Round] = []
    async with run_cluster(arguments.fillers) as plane:
        for number in range(arguments.rounds):
            for times in map(TIMES.__getitem__, arguments.times):
                for deed in arguments.deeds:
                    async with run_stage(plane, flags_of(times), arguments.pods) as stage:
                        takeover, wrong = await DEEDS[deed](stage, number)
                        lost, wrong = stage.pods - len(stage.observer.bound), [*wrong, *stage.observer.wrong]
                    rounds.append(Round(deed=deed, times=times, takeover=takeover, lost=lost, wrong=wrong))
                    print(f"{deed}, {times}: {takeover:.3f} s, {lost} pods lost", *wrong[:10], sep="\n  ", flush=True)
    print(f"\n{now()}, {arguments.pods} pods, {machine()}\n")
    print(table(rounds))
    return 0 if all(each.holds for each in rounds) else 1


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deeds", nargs="+", choices=DEEDS, default=list(DEEDS))
    parser.add_argument("--times", nargs="+", choices=TIMES, default=list(TIMES))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--pods", type=int, default=1_000)
    parser.add_argument("--fillers", type=int, default=0, help="other pods, a hundred on each of as many more nodes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(anyio.run(main, _arguments(), backend_options={"use_uvloop": True}))

"""
What a process shows of itself from time to time: memory, tasks, descriptors, queues, and how much it writes to its log.

Refuses to judge it: that is for `verdict`.
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from benchmarks.replicas.replica import Replica

RSS: Final = re.compile(r"VmRSS:\s+(\d+) kB")
QUEUES: Final = ("active", "backoff", "unschedulable", "gated")


@attrs.frozen(kw_only=True)
class Sample:
    """
    One process at one moment.

    Attributes:
        replica: its name.
        at: seconds since the beginning of the run.
        leads: whether it holds the Lease.
        memory: its resident set in bytes.
        tasks: of its event loop.
        descriptors: open files and connections.
        pending: waiting pods, by queue.
        in_flight: Bindings without a definite outcome.
        waiting: pods that have a node and wait for the device plugin or for their volumes.
        lines: lines in its log so far.
        loud: warnings and errors among them.
        bound: pods that all replicas have bound so far.
    """

    replica: str
    at: float
    leads: bool
    memory: int
    tasks: int
    descriptors: int
    pending: Mapping[str, int]
    in_flight: int
    waiting: int
    lines: int
    loud: int
    bound: int


@attrs.define(eq=False)
class LogCount:
    """Counts the lines of a file that grows; a line that is not complete counts later."""

    path: Path
    lines: int = attrs.field(default=0, init=False)
    loud: int = attrs.field(default=0, init=False)
    _at: int = attrs.field(default=0, init=False)

    def update(self) -> None:
        """Count what was written since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._at)
            complete = file.read().rpartition(b"\n")[0]
        if complete:
            self._at += len(complete) + 1
            lines = complete.split(b"\n")
            self.lines += len(lines)
            self.loud += sum(line[:1] in {b"W", b"E", b"F"} for line in lines)


def _resident(pid: int) -> int:
    """Return the resident set of a process in bytes."""
    match = RSS.search(Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) << 10 if match else 0


@attrs.define(eq=False)
class Meter:
    """Samples one replica."""

    replica: Replica
    began: float
    _log: LogCount = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._log = LogCount(self.replica.component.log)

    async def sample(self, bound: int) -> Sample:
        """Return the state of now."""
        metrics = await self.replica.metrics()
        self._log.update()
        return Sample(
            replica=self.replica.name,
            at=round(time.perf_counter() - self.began, 1),
            leads=metrics['leader_election_master_status{name="my-scheduler"}'] == 1,
            memory=_resident(self.replica.component.pid),
            tasks=int(metrics["neuron_scheduler_tasks"]),
            descriptors=int(metrics["process_open_fds"]),
            pending={queue: int(metrics[f'scheduler_pending_pods{{queue="{queue}"}}']) for queue in QUEUES},
            in_flight=int(metrics["neuron_scheduler_binds_in_flight"]),
            waiting=int(
                metrics["neuron_scheduler_waiting_for_allocate"] + metrics["neuron_scheduler_waiting_for_volumes"]
            ),
            lines=self._log.lines,
            loud=self._log.loud,
            bound=bound,
        )

"""
The figures of one run of one contender, as one line of JSON, so that a benchmark can be interrupted and continued.

Pure values and a file; they are judged and drawn in `benchmarks.report`.
"""

import datetime as dt
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from tests.control_plane.binaries import KUBERNETES_VERSION

RESULTS: Final = Path(__file__).parents[1] / "results"
RECORDS: Final = RESULTS / "throughput.jsonl"


@attrs.frozen(kw_only=True)
class Cell:
    """
    One run of the matrix.

    Attributes:
        round: from 0; contenders alternate within a round.
    """

    nodes: int
    workload: str
    contender: str
    round: int


@attrs.frozen(kw_only=True)
class Record:
    """
    One run and its figures; times are seconds.

    Attributes:
        label: what was measured, by default the commit; only records of one label are compared.
        pods: how many can be bound.
        bound: how many were; fewer if the contender found no place for the rest.
        bind_seconds: from the first bind to the last, as a watch shows them.
        start_seconds: from the start of its processes to the first bind; None if not measured, or nothing was bound.
        event_seconds: from the first bind to the last Event of the contender; None if it writes none.
        events: the number of Events at the end, by reason.
        events_dropped: how many the contender reports as dropped; None if it does not report them.
        cpu_seconds: the contender's own, from the first bind until its last Event was written.
        cpu_bind_seconds: the same until the last bind only.
        server_cpu_seconds: etcd's and kube-apiserver's between the first and the last bind.
        peak_bytes: the largest resident set of its processes, added up.
        latencies: from a pod's creation to its bind; only where pods arrive at a fixed pace.
        machine: the machine and the versions.
    """

    cell: Cell
    label: str
    when: str
    pods: int
    bound: int
    bind_seconds: float
    event_seconds: float | None
    events: Mapping[str, int]
    events_dropped: int | None
    cpu_seconds: float
    cpu_bind_seconds: float
    server_cpu_seconds: float
    peak_bytes: int
    start_seconds: float | None = None
    latencies: tuple[float, ...] = ()
    machine: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def rate(self) -> float:
        """Pods per second from the first to the last bind."""
        return self.bound / self.bind_seconds if self.bind_seconds else 0.0

    @property
    def event_rate(self) -> float:
        """Pods per second from the first bind to the last Event."""
        return self.bound / self.event_seconds if self.event_seconds else 0.0

    @property
    def cpu_per_pod(self) -> float:
        """Milliseconds of the contender's own CPU for each pod, Events included."""
        return self.cpu_seconds * 1e3 / self.bound if self.bound else 0.0

    @property
    def complete(self) -> bool:
        """Whether every pod that can be bound was."""
        return self.bound == self.pods

    @property
    def events_lost(self) -> int:
        """Binds without an Event, or Events that the contender dropped; 0 for one that writes none."""
        if self.event_seconds is None:
            return 0
        return max(self.bound - self.events.get("Scheduled", 0), self.events_dropped or 0)


def read(path: Path = RECORDS) -> list[Record]:
    """Return all records of a file, none if it does not exist."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [_decode(json.loads(line)) for line in lines if line]


def append(record: Record, path: Path = RECORDS) -> None:
    """Add one line to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(attrs.asdict(record), separators=(",", ":")) + "\n")


def missing(cells: Iterable[Cell], records: Iterable[Record], label: str) -> Iterator[Cell]:
    """Yield the cells without a record of the label, in their order."""
    there = {record.cell for record in records if record.label == label}
    return (cell for cell in cells if cell not in there)


def of_label(records: Iterable[Record], label: str | None) -> list[Record]:
    """Return a label's records; None means the label that was measured last."""
    records = list(records)
    wanted = label or (records[-1].label if records else "")
    return [record for record in records if record.label == wanted]


def commit() -> str:
    """
    Return the commit of the working tree, marked if code is changed; `unknown` outside of git.

    The results themselves are no change, or a benchmark could not be continued.
    """
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    changes = ["git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)benchmarks/results"]
    head, changed = (
        subprocess.run(each, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()
        for each in (command, changes)
    )
    return f"{head or 'unknown'}{'-dirty' if changed else ''}"


def machine() -> dict[str, Any]:
    """Return the machine and the versions on which the figures depend."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kubernetes": KUBERNETES_VERSION,
        "commit": commit(),
    }


def now() -> str:
    """Return the time that goes into a record."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _decode(fields: dict[str, Any]) -> Record:
    return Record(**fields | {"cell": Cell(**fields["cell"]), "latencies": tuple(fields["latencies"])})

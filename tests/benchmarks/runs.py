"""Records of invented runs."""

from typing import Any

from benchmarks.contest.records import Cell, Record


def run(
    contender: str = "ours",
    workload: str = "one-shape",
    *,
    nodes: int = 5_000,
    number: int = 0,
    rate: float = 1_000.0,
    label: str = "a",
    **fields: Any,
) -> Record:
    """Return the record of a run that bound 3,000 pods at that rate."""
    defaults: dict[str, Any] = {
        "when": "2026-11-21T12:00:00+00:00",
        "pods": 3_000,
        "bound": 3_000,
        "bind_seconds": 3_000 / rate,
        "event_seconds": 3_000 / rate + 1,
        "events": {"Scheduled": 3_000},
        "events_dropped": None,
        "cpu_seconds": 1.5,
        "cpu_bind_seconds": 1.0,
        "server_cpu_seconds": 3.0,
        "peak_bytes": 100 << 20,
        "machine": {
            "cpu": "invented",
            "cores": 2,
            "memory_gib": 8,
            "kernel": "6",
            "python": "3.11",
            "kubernetes": "v1.36.2",
        },
    }
    cell = Cell(nodes=nodes, workload=workload, contender=contender, round=number)
    return Record(cell=cell, label=label, **defaults | fields)

"""
How long simulated containers run, and their exit codes.

Nothing is executed. A pod's containers run without end unless
- the pod has the annotation `sandbox/run-seconds`, or
- a command says `sleep N`: they end after the sum of the seconds, or
- the pod belongs to a Job: they end after `JOB_SECONDS`.
The exit code is 0, or that of the annotation `sandbox/exit-code`, or N if a command says `exit N`. With
`restartPolicy: Always` containers never end.
"""

import re
from typing import Final

import attrs

from neuron_scheduler.sandbox.apiserver.store import Object

RUN_SECONDS: Final = "sandbox/run-seconds"
EXIT_CODE: Final = "sandbox/exit-code"
JOB_SECONDS: Final = 2.0
_SLEEP: Final = re.compile(r"\bsleep\s+(?:(infinity)|(\d+(?:\.\d+)?)([smhd]?))")
_EXIT: Final = re.compile(r"\bexit\s+(\d+)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@attrs.frozen
class Run:
    """Seconds until the containers end, None for never, and their exit code."""

    seconds: float | None
    exit_code: int = 0


def run_of(pod: Object) -> Run:
    """Return how the containers of a pod run."""
    spec, meta = pod["spec"], pod["metadata"]
    if spec["restartPolicy"] == "Always":
        return Run(None)
    annotations = meta.get("annotations") or {}
    text = "\n".join(_command(container) for container in spec["containers"])
    seconds = _seconds(text)
    if seconds is None and any(reference.get("kind") == "Job" for reference in meta.get("ownerReferences") or []):
        seconds = JOB_SECONDS
    exits = _EXIT.findall(text)
    code = int(exits[-1]) if exits else 0
    try:
        seconds = float(annotations.get(RUN_SECONDS, seconds if seconds is not None else "inf"))
        code = int(annotations.get(EXIT_CODE, code))
    except ValueError:
        return Run(None)
    return Run(seconds if 0 <= seconds < float("inf") else None, code)


def _command(container: Object) -> str:
    return " ".join([*(container.get("command") or []), *(container.get("args") or [])])


def _seconds(text: str) -> float | None:
    """Return the sum of the sleeps; None without any, infinity if one has no end."""
    sleeps = _SLEEP.findall(text)
    if any(endless for endless, _, _ in sleeps):
        return float("inf")
    return sum(float(number) * _UNITS[unit] for _, number, unit in sleeps) if sleeps else None

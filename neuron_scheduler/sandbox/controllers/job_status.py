"""
When a Job is over, and its status, which `kubectl wait --for=condition=complete` reads.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.controllers.owned import is_ended, is_ready


@attrs.frozen
class Verdict:
    """How a Job ends: the conditions before and at its end, with their reason."""

    before: str
    at_end: str
    reason: str
    message: str


_DONE = Verdict("SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
_BACKOFF = Verdict("FailureTarget", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_LATE = Verdict("FailureTarget", "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")


def is_finished(job: Object) -> bool:
    """Return whether a Job is complete or has failed."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(
        condition["type"] in {"Complete", "Failed"} and condition["status"] == "True" for condition in conditions
    )


def verdict(job: Object, active: Sequence[Object], *, succeeded: int, failed: int, now: datetime) -> Verdict | None:
    """Return how a Job ends, None if it goes on."""
    spec, status = job["spec"], job.get("status") or {}
    for condition in status.get("conditions") or []:
        for known in (_DONE, _BACKOFF, _LATE):
            if (condition["type"], condition["reason"]) == (known.before, known.reason):
                return known
    restarts = sum(
        container.get("restartCount", 0) for pod in active for container in pod["status"].get("containerStatuses") or []
    )
    limit = spec["backoffLimit"]
    if failed > limit or (restarts > limit if limit == 0 else restarts >= limit):
        return _BACKOFF
    deadline, started = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if deadline is not None and started and (now - metadata.moment(started)).total_seconds() >= deadline:
        return _LATE
    completions = spec.get("completions")
    done = succeeded > 0 and not active if completions is None else succeeded >= completions
    return _DONE if done else None


def of(
    job: Object,
    pods: Sequence[Object],
    *,
    counts: Mapping[str, int],
    indexes: str,
    verdict: Verdict | None,
    now: datetime,
) -> dict[str, Any]:
    """Return the status of a Job that has these pods."""
    before, moment = job.get("status") or {}, metadata.timestamp(now)
    running = [pod for pod in pods if not is_ended(pod)]
    terminating = [pod for pod in running if "deletionTimestamp" in pod["metadata"]]
    active = len(running) - len(terminating)
    shown = {"active": active, **counts}
    status: dict[str, Any] = {field: count for field, count in shown.items() if count}
    status |= {"ready": sum(map(is_ready, running)), "terminating": len(terminating), "uncountedTerminatedPods": {}}
    if indexes:
        status["completedIndexes"] = indexes
    suspended = bool(job["spec"]["suspend"])
    if not suspended:
        status["startTime"] = before.get("startTime") or moment
    conditions = _conditions(before.get("conditions") or [], suspended, verdict, running, moment)
    if any(condition["type"] == "Complete" for condition in conditions):
        status["completionTime"] = moment
    return status | ({"conditions": conditions} if conditions else {})


def _conditions(
    before: Sequence[Mapping[str, Any]],
    suspended: bool,
    verdict: Verdict | None,
    running: Sequence[Object],
    moment: str,
) -> list[dict[str, Any]]:
    conditions = {condition["type"]: dict(condition) for condition in before}
    wanted: list[tuple[str, str, str, str]] = []
    if suspended:
        wanted.append(("Suspended", "True", "JobSuspended", "Job suspended"))
    elif "Suspended" in conditions:
        wanted.append(("Suspended", "False", "JobResumed", "Job resumed"))
    if verdict is not None:
        wanted.append((verdict.before, "True", verdict.reason, verdict.message))
        if not running:
            wanted.append((verdict.at_end, "True", verdict.reason, verdict.message))
    for kind, status, reason, message in wanted:
        if conditions.get(kind, {}).get("status") != status:
            conditions[kind] = {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastProbeTime": moment,
                "lastTransitionTime": moment,
            }
    return list(conditions.values())

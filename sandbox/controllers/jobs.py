"""
Runs a Job's pods to their ends: completions, parallelism, backoff.

After `pkg/controller/job`. Ended pods are counted when they are seen, in memory and without finalizers. Indexes,
suspension, deadlines, policies and times to live have no effect.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from sandbox.apiserver import metadata
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import JOBS, PODS
from sandbox.apiserver.store import Object
from sandbox.controllers.owned import Owned, is_active, is_ended, is_ready

_BACKOFF: Final = 10.0  # seconds after a failure
_DONE: Final = ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
_FAILED: Final = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


@attrs.define
class _Tally:
    """What is known of a Job beside its status: ended pods by uid, and when the next pod may be created."""

    succeeded: set[str] = attrs.field(factory=set)
    failed: set[str] = attrs.field(factory=set)
    dismissed: set[str] = attrs.field(factory=set)  # deleted by this controller: they do not count
    not_before: datetime | None = None


@attrs.define(eq=False)
class Jobs:
    """The controller of Jobs."""

    registry: Registry
    _owned: Owned = attrs.field(init=False)
    _tallies: dict[str, _Tally] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._owned = Owned(self.registry, JOBS, "job-controller")

    def sync(self) -> None:
        """Bring every Job one step further."""
        jobs = self.registry.store.objects(JOBS.storage)
        living = {job["metadata"]["uid"] for job in jobs}
        self._tallies = {uid: tally for uid, tally in self._tallies.items() if uid in living}
        for job in jobs:
            if "deletionTimestamp" not in job["metadata"] and not _is_finished(job):
                self._sync(job)

    def _sync(self, job: Object) -> None:
        now, tally = self.registry.clock(), self._tallies.setdefault(job["metadata"]["uid"], _Tally())
        pods, spec = self._owned.objects(PODS, job), job["spec"]
        self._count(pods, tally, now)
        active = [pod for pod in pods if is_active(pod)]
        completions = spec.get("completions") or spec["parallelism"]
        end = None
        if len(tally.succeeded) >= completions:
            end = _DONE
        elif len(tally.failed) > spec["backoffLimit"]:
            end = _FAILED
        wanted = min(spec["parallelism"], completions - len(tally.succeeded)) if end is None else 0
        for pod in active[wanted:]:
            tally.dismissed.add(pod["metadata"]["uid"])
            self._owned.delete_pod(job, pod)
        if tally.not_before is None or now >= tally.not_before:
            for _ in range(wanted - len(active)):
                if self._owned.create_pod(job, spec["template"]) is None:
                    break
        self._report(job, tally, end)

    def _count(self, pods: Sequence[Object], tally: _Tally, now: datetime) -> None:
        """Count ended pods; one that is deleted before it ends counts as failed."""
        for pod in pods:
            uid, phase = pod["metadata"]["uid"], pod["status"].get("phase")
            if phase == "Succeeded" and uid not in tally.succeeded:
                tally.succeeded.add(uid)
                tally.not_before = None
            elif uid not in tally.failed | tally.dismissed and phase != "Succeeded" and not is_active(pod):
                tally.failed.add(uid)
                tally.not_before = now + timedelta(seconds=_BACKOFF)

    def _report(self, job: Object, tally: _Tally, end: tuple[str, str, str] | None) -> None:
        """Store the status; a Job is over when the last of its pods has ended."""
        running = [pod for pod in self._owned.objects(PODS, job) if not is_ended(pod)]
        moment = metadata.timestamp(self.registry.clock())
        terminating = sum("deletionTimestamp" in pod["metadata"] for pod in running)
        counts = {
            "active": len(running) - terminating,
            "succeeded": len(tally.succeeded),
            "failed": len(tally.failed),
        }
        status: dict[str, Any] = {field: count for field, count in counts.items() if count}
        before: Mapping[str, Any] = job.get("status") or {}
        status |= {"ready": sum(map(is_ready, running)), "terminating": terminating}
        status["startTime"] = before.get("startTime") or moment
        if end is not None and not running:
            kind, reason, message = end
            times = {"lastProbeTime": moment, "lastTransitionTime": moment}
            status["conditions"] = [{"type": kind, "status": "True", "reason": reason, "message": message} | times]
            if end is _DONE:
                status["completionTime"] = moment
            self._owned.record(job, "Completed" if end is _DONE else reason, message, warning=end is not _DONE)
        self._owned.set_status(job, status)


def _is_finished(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(condition["type"] in {_DONE[0], _FAILED[0]} for condition in conditions)

"""
Runs a Job's pods to their ends: completions, parallelism, indexes, backoff, deadline, suspension, time to live.

After `pkg/controller/job`. Ended pods are counted when they are seen, in memory and without finalizers; pod failure
policies, success policies and limits for each index have no effect.
"""

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resources import PODS
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.apiserver.workload_resources import JOBS
from neuron_scheduler.sandbox.controllers import completion_indexes, job_status
from neuron_scheduler.sandbox.controllers.owned import Owned, is_active

_BACKOFF: Final = 10.0  # seconds after the first failure; each further one doubles it
_LONGEST_BACKOFF: Final = 600.0


@attrs.define
class _Tally:
    """What is known of a Job beside its status: ended pods by uid, and when the next pod may be created."""

    succeeded: dict[str, int | None] = attrs.field(factory=dict)  # uid: completion index
    failed: set[str] = attrs.field(factory=set)
    dismissed: set[str] = attrs.field(factory=set)  # deleted by this controller: they do not count
    failures_in_a_row: int = 0
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
            if "deletionTimestamp" in job["metadata"]:
                continue
            if job_status.is_finished(job):
                self._expire(job)
            else:
                self._sync(job)

    def _sync(self, job: Object) -> None:
        now, tally = self.registry.clock(), self._tallies.setdefault(job["metadata"]["uid"], _Tally())
        pods = self._owned.objects(PODS, job)
        self._count(pods, tally, now)
        active = [pod for pod in pods if is_active(pod)]
        verdict = job_status.verdict(job, active, succeeded=len(tally.succeeded), failed=len(tally.failed), now=now)
        suspended = bool(job["spec"]["suspend"])
        if verdict is not None or suspended:
            self._dismiss(job, active, tally)
        else:
            self._adjust(job, active, tally, now)
        pods = self._owned.objects(PODS, job, adopt=False)
        indexes = completion_indexes.text(list(tally.succeeded.values()))
        counts = {"succeeded": len(tally.succeeded), "failed": len(tally.failed)}
        status = job_status.of(job, pods, counts=counts, indexes=indexes, verdict=verdict, now=now)
        self._owned.set_status(job, status)
        for condition in status.get("conditions") or []:
            if condition["type"] == "Complete":
                self._owned.record(job, "Completed", "Job completed")
            elif condition["type"] == "Failed":
                self._owned.record(job, condition["reason"], condition["message"], warning=True)

    def _dismiss(self, job: Object, pods: Sequence[Object], tally: _Tally) -> None:
        for pod in pods:
            tally.dismissed.add(pod["metadata"]["uid"])
            self._owned.delete_pod(job, pod)

    def _count(self, pods: Sequence[Object], tally: _Tally, now: datetime) -> None:
        """Count ended pods; one that is deleted before it ends counts as failed."""
        for pod in pods:
            uid, phase = pod["metadata"]["uid"], pod["status"].get("phase")
            if phase == "Succeeded" and uid not in tally.succeeded:
                tally.succeeded[uid] = completion_indexes.of(pod)
                tally.failures_in_a_row, tally.not_before = 0, None
            elif uid not in tally.failed | tally.dismissed and phase != "Succeeded" and not is_active(pod):
                tally.failed.add(uid)
                tally.failures_in_a_row += 1
                delay = min(_BACKOFF * 2 ** (tally.failures_in_a_row - 1), _LONGEST_BACKOFF)
                tally.not_before = now + timedelta(seconds=delay)

    def _adjust(self, job: Object, active: Sequence[Object], tally: _Tally, now: datetime) -> None:
        """Create the pods that are missing, or delete those that are too many."""
        spec, succeeded = job["spec"], len(tally.succeeded)
        if spec.get("completions") is None:
            wanted = len(active) if succeeded else spec["parallelism"]
        else:
            wanted = min(spec["parallelism"], spec["completions"] - succeeded)
        self._dismiss(job, active[max(wanted, 0) :], tally)
        if tally.not_before is not None and now < tally.not_before:
            return
        missing = max(wanted - len(active), 0)
        indexes: Sequence[int | None] = [None] * missing
        if spec["completionMode"] == "Indexed":
            taken = {*tally.succeeded.values(), *map(completion_indexes.of, active)}
            indexes = [index for index in range(spec["completions"] or 0) if index not in taken][:missing]
        for index in indexes:
            if self._create(job, index) is None:
                return

    def _create(self, job: Object, index: int | None) -> Object | None:
        template: Mapping[str, Any] = job["spec"]["template"]
        prefix = job["metadata"]["name"]
        if index is not None:
            template = completion_indexes.with_index(copy.deepcopy(dict(template)), prefix, index)
            prefix = f"{prefix}-{index}"
        return self._owned.create_pod(job, template, prefix=prefix)

    def _expire(self, job: Object) -> None:
        seconds, meta = job["spec"].get("ttlSecondsAfterFinished"), job["metadata"]
        if seconds is None:
            return
        finished = max(metadata.moment(condition["lastTransitionTime"]) for condition in job["status"]["conditions"])
        if self.registry.clock() >= finished + timedelta(seconds=seconds):
            self.registry.delete(JOBS, meta["namespace"], meta["name"], {"propagationPolicy": "Foreground"})

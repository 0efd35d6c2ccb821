"""
Asks an autoscaler for machines for pods that wait because what is free is in pieces.

    every few seconds:  waiting pods --plan--> needs --limits, pause--> requests --> placeholders     (on the leader)

A round runs beside the scheduling loop, in short steps. Refuses to decide which machines are needed (`capacity.plan`),
and to carry the requests out (`machine_requests`).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.capacity.fewer_requests import planned_with_fewest
from neuron_scheduler.capacity.limits import Limited, Limits, admitted
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.question import Plan, Question, WaitingPod
from neuron_scheduler.capacity.requests import Outcome
from neuron_scheduler.capacity.shortages import MAY_BE_SERVED
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.capacity_policy import Policy
from neuron_scheduler.controllers.earlier_requests import EarlierRequests
from neuron_scheduler.controllers.machine_requests import MachineRequests
from neuron_scheduler.controllers.turn import LONGEST_TURN
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import span
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.queued_pod import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

LONGEST_LOOK: Final = 5.0
"""Seconds between two rounds at most."""
WHILE_AWAITED: Final = 0.5
"""
The same while a machine that was asked for has not come: a pod that comes now may make it needless, and an autoscaler
acts about a second after it has seen the pod.
"""
REST: Final = 10
"""So many times as long as a round took, the next one waits."""
EXPECTED_FOR: Final = 1200.0
"""Seconds for which an autoscaler's own machine is expected, for pods whose profile asks for none."""
_PODS_A_STEP: Final = 500

log = logs.logger(__name__)
T = TypeVar("T")


@attrs.define(eq=False, kw_only=True)
class CapacityRequester:
    """
    Asks while it runs.

    Attributes:
        profiles: by scheduler name.
        policies: of the profiles that ask for machines, by scheduler name.
        earlier: what an earlier leader asks for.
        clock: seconds that never jump, the queue's time.
        may_ask: whether this replica may write.
        errors: reports unexpected exceptions.
    """

    machines: MachineRequests
    cluster: Cluster
    queue: SchedulingQueue
    profiles: Mapping[str, Profile]
    policies: Mapping[str, Policy]
    clock: Callable[[], float]
    may_ask: Callable[[], bool]
    earlier: EarlierRequests
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    _asked_at: dict[str, float] = attrs.field(factory=dict, init=False)  # by scheduler name
    _hopeless: Mapping[str, str] = attrs.field(factory=dict, init=False)  # by uid
    _early: set[str] = attrs.field(factory=set, init=False)  # uids of pods that have not waited long enough
    _leaving: dict[str, float] = attrs.field(factory=dict, init=False)  # since when pods are about to go, by uid
    _limits_told: logs.Once = attrs.field(factory=logs.Once, init=False)

    def counts(self) -> dict[str, int]:
        """Return how many machines are in which state; empty if no profile asks for any."""
        return self.machines.table.counts(self.clock()) if self.policies else {}

    async def run(self) -> None:
        """Ask until cancelled; this replica leads."""
        self.machines.lead(await self.earlier.found())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.machines.orders.run)
            while self.policies:
                started = self.clock()
                if self.may_ask():
                    await self._round_of(started)
                await anyio.sleep(max(self._look(), REST * (self.clock() - started)))

    def said(self, uid: str) -> str:
        """Return in one sentence whether a machine is asked for a waiting pod, or why not; empty if it is no case."""
        table, now = self.machines.table, self.clock()
        request = table.request_for(uid)
        if request is not None and request.node_name:
            return f"Asked the autoscaler for 1 {request.machine}: node {request.node_name} has joined."
        if request is not None:
            return f"Asked the autoscaler for 1 {request.machine}."
        wait = table.waits.of(uid, now)
        if wait is not None:
            again = f"it is asked for again in {span(wait.until - now)}"
            return f"The autoscaler is not asked for a machine: {wait.reason}; {again}."
        reason = table.limit_of(uid) or self._hopeless.get(uid, "")
        if reason:
            return f"The autoscaler is not asked for a machine: {reason}."
        if table.is_postponed(uid):
            return "The autoscaler is asked for a machine after a pause."
        return "The autoscaler is not asked for a machine yet: a pod waits first." if uid in self._early else ""

    def _look(self) -> float:
        """Return how many seconds after a round the next one may begin."""
        longest = WHILE_AWAITED if self.machines.table.awaited else LONGEST_LOOK
        return min([longest, *(policy.pause for policy in self.policies.values())])

    async def _round_of(self, now: float) -> None:
        try:
            await self._round(now)
        except Exception as error:  # noqa: BLE001 - the next round may succeed, and scheduling goes on in any case
            self.errors.report(error, task="capacity round", pod="")

    async def _round(self, now: float) -> None:
        self.machines.deadlines.look()
        waiting = await self._waiting(now)
        table = self.machines.table
        if not len(table) and not any(pod.may_ask for pod in waiting):
            table.not_asked((), ())
            self._hopeless = {}
            self._leaving = {}
            return
        question = Question(
            cluster=self.cluster,
            waiting=waiting,
            profile_of=lambda pod: self.profiles[pod.scheduler_name],
            open=table.to_plan_with,
            awaited=table.awaited,
            stuck=self._stuck(now),
            most_of=self._most_of,
        )
        plan = await self._in_turns(planned_with_fewest(question))
        self._leaving = {uid: self._leaving.get(uid, now) for uid in plan.leaving}
        limits = self._apply(plan)
        await self._report_limits(limits)

    def _stuck(self, now: float) -> frozenset[str]:
        """Return the uids of pods that have been about to go for longer than any machine is waited for."""
        longest = max((policy.give_up for policy in self.policies.values()), default=EXPECTED_FOR)
        return frozenset(uid for uid, since in self._leaving.items() if now - since >= longest)

    def _most_of(self, pod: Pod) -> int:
        """Return for how many machines of a pod's namespace needs are of interest: one too many says so."""
        limits = self._limits_of(pod.scheduler_name)
        return 1 if limits is None else limits.machines_per_namespace + 1

    async def _waiting(self, now: float) -> Sequence[WaitingPod]:
        """Return all pods that wait, the most urgent first."""
        waiting: list[WaitingPod] = []
        self._early = set()
        for position, queued in enumerate(sorted(self.queue.pods(), key=_urgency), start=1):
            if queued.place is not Place.GATED and queued.first_active is not None:
                waiting.append(self._waiting_pod(queued, now, now - queued.first_active))
            if position % _PODS_A_STEP == 0:
                await anyio.lowlevel.checkpoint()
        return waiting

    def _waiting_pod(self, queued: QueuedPod, now: float, waited: float) -> WaitingPod:
        policy, uid = self.policies.get(queued.pod.scheduler_name), queued.pod.uid
        cause = self.queue.cause_of(queued)
        is_case = policy is not None and cause in MAY_BE_SERVED
        is_early = policy is not None and waited < policy.wait
        if is_early and cause is Cause.FRAGMENTATION:
            self._early.add(uid)
        return WaitingPod(
            queued.pod,
            may_ask=is_case and not is_early and self.machines.table.may_ask(uid, now),
            expects_own=waited < (EXPECTED_FOR if policy is None else policy.give_up),
        )

    async def _in_turns(self, steps: Generator[None, None, T]) -> T:
        """Take the steps of a plan, with other tasks in between, and return its result."""
        turn_ends = self.clock() + LONGEST_TURN
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.clock() >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + LONGEST_TURN

    def _apply(self, plan: Plan) -> tuple[Limited, ...]:
        """
        Carry a plan out, as far as limits and pauses allow; no event can come in between.

        Returns the needs that a limit keeps from being asked for.
        """
        table, now = self.machines.table, self.clock()
        for taken in table.planned({name: filter(self._waits, uids) for name, uids in plan.serving.items()}):
            self.machines.end(taken, Outcome.WITHDRAWN)
        self._hopeless = plan.hopeless
        for name in plan.surplus:
            request = table.get(name)
            if request is not None and not request.usable:
                self.machines.end(request, Outcome.WITHDRAWN)
        still = [(need, tuple(pod for pod in need.pods if self._waits(pod.uid))) for need in plan.needs]
        needs, braked = self._not_braked([attrs.evolve(need, pods=pods) for need, pods in still if pods])
        due = [need for need in needs if self._is_due(need, now)]
        admission = admitted(due, self.machines.outstanding, self._limits_of)
        limits = (*braked, *admission.limited)
        table.not_asked(limits, tuple(need for need in needs if need not in due))
        if self.may_ask():
            for need in admission.allowed:
                self._asked_at[need.pods[0].scheduler_name] = now
                self.machines.ask(need)
        self.machines.report()
        return limits

    def _not_braked(self, needs: Sequence[MachineNeed]) -> tuple[list[MachineNeed], list[Limited]]:
        """Return the needs that may be asked for as far as the brake goes, and the others with what it says."""
        brakes = [(need, self.machines.brake.on(need)) for need in needs]
        free = [need for need, brake in brakes if brake is None]
        return free, [Limited(need, brake.reason) for need, brake in brakes if brake is not None]

    def _waits(self, uid: str) -> bool:
        """Return whether a pod still waits for a place: events came while the plan was made."""
        return uid in self.queue and self.cluster.node_of(uid) is None and self.cluster.nomination(uid) is None

    def _is_due(self, need: MachineNeed, now: float) -> bool:
        scheduler_name = need.pods[0].scheduler_name
        last = self._asked_at.get(scheduler_name)
        return last is None or now - last >= self.policies[scheduler_name].pause

    def _limits_of(self, scheduler_name: str) -> Limits | None:
        policy = self.policies.get(scheduler_name)
        return None if policy is None else policy.limits

    async def _report_limits(self, limits: Sequence[Limited]) -> None:
        """Tell the owners of pods once, a machine at a time: there may be thousands of pods."""
        for limited in limits:
            kind, pods = limited.reason.partition(":")[0], limited.need.pods
            untold = [pod for pod in pods if self._limits_told(pod.uid, kind)]
            if untold:
                log.info(
                    "A limit keeps a machine from being asked for",
                    pod=untold[0].key,
                    pods=len(untold),
                    limit=limited.reason,
                )
            for pod in untold:
                self.machines.reporter.capacity_limited(
                    pod, f"The autoscaler is not asked for a machine for this pod: {limited.reason}"
                )
            await anyio.lowlevel.checkpoint()


def _urgency(queued: QueuedPod) -> int:
    """Sort key: higher priority first; the queue has the pods in the order of their arrival."""
    return -queued.pod.priority

"""
Asks an autoscaler for machines for pods that wait because what is free is in pieces.

    every few seconds:  waiting pods --plan--> needs --limits, pause--> requests --> placeholders     (on the leader)

A round runs beside the scheduling loop, in short steps.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.capacity.machines import MachineRequests
from neuron_scheduler.capacity.planning.plan import MAY_BE_SERVED, Plan, Situation, WaitingPod, planned
from neuron_scheduler.capacity.planning.requests import MachineNeed, Outcome, Owner
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import span
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.settings.profile_config import CapacityRequests
from neuron_scheduler.steps import run_in_turns
from neuron_scheduler.telemetry import logs

LONGEST_LOOK: Final = 5.0
"""Seconds between two rounds at most."""
REST: Final = 10
"""So many times as long as a round took, the next one waits."""
EXPECTED_FOR: Final = 1200.0
"""Seconds for which an autoscaler's own machine is expected, for pods whose profile asks for none."""
_PODS_A_STEP: Final = 500

NOT_ASKED: Final = "The autoscaler is not asked for a machine: {}."
POSTPONED: Final = "The autoscaler is asked for a machine after a pause."
TOO_EARLY: Final = "The autoscaler is not asked for a machine yet: a pod waits first."

log = logs.logger(__name__)
T = TypeVar("T")


@attrs.frozen
class Limited:
    """
    A need that may not be asked for now.

    Attributes:
        reason: which limit it would exceed, for people: `the limit maxMachines (2) is reached`.
    """

    need: MachineNeed
    reason: str


def admitted(
    needs: Sequence[MachineNeed],
    outstanding: Iterable[tuple[Owner, MachineNeed]],
    limits_of: Callable[[str], CapacityRequests | None],
) -> tuple[tuple[MachineNeed, ...], tuple[Limited, ...]]:
    """
    Return which needs may be asked for now, and which may not; a smaller one may pass where a larger one may not.

    Args:
        needs: new ones, the most urgent first; the answers keep this order.
        outstanding: the requests that are out, those whose machine does not serve yet, and those whose objects are not
            deleted yet, with whom they count for.
        limits_of: the settings of a profile by its scheduler name; None if it asks for no machines.
    """
    machines, devices = Counter[Owner](), Counter[Owner]()

    def count(owner: Owner, need: MachineNeed) -> None:
        for whose in (owner, Owner(owner.scheduler_name)):
            machines[whose] += 1
            devices[whose] += need.devices

    for owner, need in outstanding:
        count(owner, need)
    allowed: list[MachineNeed] = []
    limited: list[Limited] = []
    for need in needs:
        limits = limits_of(need.owner.scheduler_name)
        reason = "its profile asks for no machines" if limits is None else _exceeded(need, limits, machines, devices)
        if reason:
            limited.append(Limited(need, reason))
        else:
            count(need.owner, need)
            allowed.append(need)
    return tuple(allowed), tuple(limited)


def _exceeded(need: MachineNeed, limits: CapacityRequests, machines: Counter[Owner], devices: Counter[Owner]) -> str:
    """Return which limit a further machine would exceed, in a clause; empty if it exceeds none."""
    own = need.owner
    profile = Owner(own.scheduler_name)
    for setting, most, whose, where in (
        ("maxMachines", limits.max_machines, profile, ""),
        ("maxMachinesPerNamespace", limits.max_machines_per_namespace, own, f" in namespace {own.namespace}"),
    ):
        if machines[whose] >= most:
            return f"the limit {setting} ({most}) is reached{where}"
    for setting, most, whose, where in (
        ("maxDevices", limits.max_devices, profile, ""),
        ("maxDevicesPerNamespace", limits.max_devices_per_namespace, own, f" in namespace {own.namespace}"),
    ):
        if devices[whose] + need.devices > most:
            used = f": {devices[whose]} are asked for, and the machine has {need.devices}"
            return f"the limit {setting} ({most}) would be exceeded{where}{used}"
    return ""


@attrs.define(eq=False, kw_only=True)
class CapacityRequester:
    """
    Asks while it runs.

    Attributes:
        profiles: by scheduler name.
        may_ask: whether this replica may write.
    """

    machines: MachineRequests
    profiles: Mapping[str, Profile]
    may_ask: Callable[[], bool]
    _asked_at: dict[str, float] = attrs.field(factory=dict, init=False)  # by scheduler name
    _sentences: Mapping[str, str] = attrs.field(factory=dict, init=False)  # why none is asked for a pod, by uid
    _early: set[str] = attrs.field(factory=set, init=False)  # uids of pods that have not waited long enough
    _limits_told: logs.Once = attrs.field(factory=logs.Once, init=False)

    def counts(self) -> dict[str, int]:
        """Return how many machines are in which state."""
        return self.machines.table.counts(self.machines.clock())

    async def run(self) -> None:
        """Ask until cancelled; this replica leads."""
        self.machines.lead()
        look = min([LONGEST_LOOK, *(policy.pause for policy in self.machines.policies.values())])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.machines.writer.run)
            while True:
                started = self.machines.clock()
                if self.may_ask():
                    await self._round_of(started)
                await anyio.sleep(max(look, REST * (self.machines.clock() - started)))

    def said(self, pod: Pod) -> str | None:
        """
        Return in one sentence whether a machine is asked for a waiting pod, or why not.

        Empty if it is no case, and None if its profile asks for none at all.
        """
        if pod.scheduler_name not in self.machines.policies:
            return None
        uid, table, now = pod.uid, self.machines.table, self.machines.clock()
        request, wait = table.request_for(uid), table.wait_of(uid, now)
        if request is not None:
            came = f": node {request.node_name} has joined" if request.node_name else ""
            return f"Asked the autoscaler for 1 {request.machine}{came}."
        if wait is not None:
            return NOT_ASKED.format(f"{wait.reason}; it is asked for again in {span(wait.until - now)}")
        return self._sentences.get(uid, TOO_EARLY if uid in self._early else "")

    async def _round_of(self, now: float) -> None:
        try:
            await self._round(now)
        except Exception as error:  # noqa: BLE001 - the next round may succeed, and scheduling goes on in any case
            self.machines.errors.report(error, task="capacity round", pod="")

    async def _round(self, now: float) -> None:
        self.machines.look()
        waiting = await self._waiting(now)
        table = self.machines.table
        if not len(table) and not any(pod.may_ask for pod in waiting):
            table.not_asked(0, 0)
            self._sentences = {}
            return
        situation = Situation(
            cluster=self.machines.cluster,
            waiting=waiting,
            profile_of=lambda pod: self.profiles[pod.scheduler_name],
            open=table.to_plan_with,
            most_of=self._most_of,
        )
        plan = await run_in_turns(planned(situation), self.machines.clock)
        limits = self._apply(plan)
        await self._report_limits(limits)

    def _most_of(self, pod: Pod) -> int:
        """Return for how many machines of a pod's namespace needs are of interest: one too many says so."""
        policy = self.machines.policies.get(pod.scheduler_name)
        return 1 if policy is None else policy.max_machines_per_namespace + 1

    async def _waiting(self, now: float) -> Sequence[WaitingPod]:
        """Return all pods that wait, the most urgent first."""
        waiting: list[WaitingPod] = []
        self._early = set()
        for position, queued in enumerate(sorted(self.machines.queue.pods(), key=_urgency), start=1):
            if queued.place is not Place.GATED and queued.first_active is not None:
                waiting.append(self._waiting_pod(queued, now, now - queued.first_active))
            if position % _PODS_A_STEP == 0:
                await anyio.lowlevel.checkpoint()
        return waiting

    def _waiting_pod(self, queued: QueuedPod, now: float, waited: float) -> WaitingPod:
        policy, uid = self.machines.policies.get(queued.pod.scheduler_name), queued.pod.uid
        cause = self.machines.queue.cause_of(queued)
        is_case = policy is not None and cause in MAY_BE_SERVED
        is_early = policy is not None and waited < policy.wait
        if is_early and cause is Cause.FRAGMENTATION:
            self._early.add(uid)
        return WaitingPod(
            queued.pod,
            may_ask=is_case and not is_early and self.machines.table.may_ask(uid, now),
            expects_own=waited < (EXPECTED_FOR if policy is None else policy.give_up),
        )

    def _apply(self, plan: Plan) -> tuple[Limited, ...]:
        """
        Carry a plan out, as far as limits and pauses allow; no event can come in between.

        Returns the needs that a limit keeps from being asked for.
        """
        table, now = self.machines.table, self.machines.clock()
        for taken in table.planned({name: filter(self._waits, uids) for name, uids in plan.serving.items()}):
            self.machines.end(taken, Outcome.WITHDRAWN)
        for name in plan.surplus:
            request = table.get(name)
            if request is not None and not request.usable:
                self.machines.end(request, Outcome.WITHDRAWN)
        still = [(need, tuple(pod for pod in need.pods if self._waits(pod.uid))) for need in plan.needs]
        needs = [attrs.evolve(need, pods=pods) for need, pods in still if pods]
        due = [need for need in needs if self._is_due(need, now)]
        allowed, limited = admitted(due, self.machines.outstanding, self.machines.policies.get)
        postponed = [need for need in needs if need not in due]
        table.not_asked(len(limited), len(postponed))
        reasons = {**plan.hopeless, **{pod.uid: each.reason for each in limited for pod in each.need.pods}}
        self._sentences = {
            **{uid: NOT_ASKED.format(reason) for uid, reason in reasons.items()},
            **{pod.uid: POSTPONED for need in postponed for pod in need.pods},
        }
        if self.may_ask():
            for need in allowed:
                self._asked_at[need.owner.scheduler_name] = now
                self.machines.ask(need)
        self.machines.report()
        return limited

    def _waits(self, uid: str) -> bool:
        """Return whether a pod still waits for a place: events came while the plan was made."""
        return (
            uid in self.machines.queue
            and self.machines.cluster.node_of(uid) is None
            and self.machines.cluster.nomination(uid) is None
        )

    def _is_due(self, need: MachineNeed, now: float) -> bool:
        scheduler_name = need.owner.scheduler_name
        last = self._asked_at.get(scheduler_name)
        return last is None or now - last >= self.machines.policies[scheduler_name].pause

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

"""
Asks an autoscaler for machines for pods that wait because what is free is in pieces.

    every few seconds:  waiting pods --plan--> needs --limits--> requests --> placeholders     (on the leader)

A round runs beside the scheduling loop, in short steps.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.capacity.machines import MachineRequests
from neuron_scheduler.capacity.planning.need import LimitOwner, MachineNeed
from neuron_scheduler.capacity.planning.plan import MachinePlan, UnplacedPod, plan_machines
from neuron_scheduler.capacity.writer import PlaceholderWriter
from neuron_scheduler.controllers.pod_attempt import PodAttempts
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import span
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.settings.profile_config import CapacityRequests
from neuron_scheduler.steps import run_in_turns
from neuron_scheduler.telemetry import logs

LONGEST_LOOK: Final = 5.0
SHORTEST_LOOK: Final = 0.1
"""Seconds between two rounds; `wait` if it is between these two."""
REST: Final = 10
"""So many times as long as a round took, the next one waits."""
_PODS_A_STEP: Final = 500

MAY_BE_SERVED: Final = frozenset({Cause.FRAGMENTATION, Cause.CAPACITY, Cause.UNKNOWN_HOLDER})
"""Of CAPACITY an autoscaler sees the pod, unless pods with cores hold its devices, or the reverse."""
NOT_ASKED: Final = "The autoscaler is not asked for a machine: {}."

log = logs.logger(__name__)


def check_limits(
    needs: Sequence[MachineNeed], outstanding: Iterable[MachineNeed], limits: Mapping[str, CapacityRequests]
) -> list[tuple[MachineNeed, str]]:
    """
    Return for each need which limit it would exceed, in a clause: `the limit maxMachines (2) is reached`.

    It is empty for those that may be asked for now; a smaller one may pass where a larger one may not.

    Args:
        needs: new ones, the most urgent first; the answers keep this order.
        outstanding: the requests that are out, until their placeholder is deleted.
        limits: the settings of each profile that asks for machines, by its scheduler name.
    """
    machines, devices = Counter[LimitOwner](), Counter[LimitOwner]()

    def count(need: MachineNeed) -> None:
        for whose in (need.owner, LimitOwner(need.owner.scheduler_name)):
            machines[whose] += 1
            devices[whose] += need.devices

    for need in outstanding:
        count(need)
    answers: list[tuple[MachineNeed, str]] = []
    for need in needs:
        reason = _exceeded_limit(need, limits[need.owner.scheduler_name], machines, devices)
        answers.append((need, reason))
        if not reason:
            count(need)
    return answers


def _exceeded_limit(
    need: MachineNeed, limits: CapacityRequests, machines: Counter[LimitOwner], devices: Counter[LimitOwner]
) -> str:
    """Return which limit a further machine would exceed, in a clause; empty if it exceeds none."""
    own = need.owner
    for whose, where, suffix, most_machines, most_devices in (
        (LimitOwner(own.scheduler_name), "", "", limits.max_machines, limits.max_devices),
        (
            own,
            f" in namespace {own.namespace}",
            "PerNamespace",
            limits.max_machines_per_namespace,
            limits.max_devices_per_namespace,
        ),
    ):
        if machines[whose] >= most_machines:
            return f"the limit maxMachines{suffix} ({most_machines}) is reached{where}"
        if devices[whose] + need.devices > most_devices:
            used = f"{devices[whose]} are asked for, and the machine has {need.devices}"
            return f"the limit maxDevices{suffix} ({most_devices}) would be exceeded{where}: {used}"
    return ""


@attrs.define(eq=False, kw_only=True)
class CapacityRequester:
    """Asks while it runs and this replica may write (`may_bind`)."""

    machines: MachineRequests
    profiles: Mapping[str, Profile]
    may_bind: Callable[[], bool]
    _limited: int = attrs.field(default=0, init=False)  # machines that a limit kept the last round from asking for
    _reasons: Mapping[str, str] = attrs.field(factory=dict, init=False)  # why none is asked for a pod, by uid
    _limits_told: logs.Once = attrs.field(factory=logs.Once, init=False)

    def counts(self) -> dict[str, int]:
        return {**self.machines.counts(), "limited": self._limited}

    async def run(self) -> None:
        wait = min(policy.wait for policy in self.machines.policies.values())
        look = min(max(wait, SHORTEST_LOOK), LONGEST_LOOK)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.machines.run)
            while True:
                started = self.machines.clock()
                with self.machines.errors.contain(task="capacity round", pod=""):  # the next one may succeed
                    if self.may_bind():
                        await self.round()
                await anyio.sleep(max(look, REST * (self.machines.clock() - started)))

    def request_sentence(self, pod: Pod) -> str | None:
        """
        Return in one sentence whether a machine is asked for a waiting pod, or why not.

        Empty if it is no case, and None if its profile asks for none at all.
        """
        if pod.scheduler_name not in self.machines.policies:
            return None
        request, pause = self.machines.request_for(pod.uid), self.machines.pause_of(pod.uid)
        if request is not None:
            came = f": node {request.node_name} has joined" if request.node_name else ""
            return f"Asked the autoscaler for 1 {request.need.instance_type}{came}."
        if pause is not None:
            again = span(pause.until - self.machines.clock())
            return NOT_ASKED.format(f"{pause.reason}; it is asked for again in {again}")
        return NOT_ASKED.format(self._reasons[pod.uid]) if pod.uid in self._reasons else ""

    async def round(self) -> None:
        self.machines.look()
        await self.machines.look_at_nodes()
        waiting = await self._unplaced_pods()
        coming = self.machines.unmet_needs
        if not coming and not any(pod.may_bind for pod in waiting):
            self._limited, self._reasons = 0, {}
            return
        steps = plan_machines(self.machines.cluster, waiting, coming, lambda pod: self.profiles[pod.scheduler_name])
        plan = await run_in_turns(steps, self.machines.clock)
        await self._report_limits(self._apply(plan))

    async def _unplaced_pods(self) -> Sequence[UnplacedPod]:
        machines, waiting = self.machines, list[UnplacedPod]()
        now, served = machines.clock(), machines.served_uids
        by_urgency = sorted(machines.queue.pods(), key=lambda queued: -queued.pod.priority)  # of equal ones the first
        for position, queued in enumerate(by_urgency, start=1):
            if queued.place is not Place.GATED and queued.first_active is not None:
                policy = machines.policies.get(queued.pod.scheduler_name)
                uid, waited = queued.pod.uid, now - queued.first_active
                is_free = uid not in served and machines.pause_of(uid) is None
                is_ripe = policy is not None and waited >= policy.wait
                may_bind = is_free and is_ripe and machines.queue.cause_of(queued) in MAY_BE_SERVED
                overdue = policy is not None and waited >= policy.give_up
                alone = machines.has_failed(uid)
                waiting.append(UnplacedPod(queued.pod, may_bind=may_bind, overdue=overdue, alone=alone))
            if position % _PODS_A_STEP == 0:
                await anyio.lowlevel.checkpoint()
        return waiting

    def _apply(self, plan: MachinePlan) -> list[tuple[MachineNeed, str]]:
        """
        Carry a plan out, as far as limits allow; no event can come in between.

        Returns the needs that a limit keeps back, each with a clause about the limit.
        """
        machines = self.machines
        for name in machines.unmet_needs:
            request = machines.requests[name]
            request.pods = frozenset(filter(self._is_waiting, plan.serving.get(name, request.pods)))
            if not request.pods:
                machines.end(request, "withdrawn")
        still = [(need, tuple(pod for pod in need.pods if self._is_waiting(pod.uid))) for need in plan.needs]
        needs = [attrs.evolve(need, pods=pods) for need, pods in still if pods]
        outstanding = [request.need for request in machines.requests.values()]
        answers = check_limits(needs, outstanding, machines.policies)
        limited = [(need, reason) for need, reason in answers if reason]
        self._limited = len(limited)
        self._reasons = {**plan.hopeless, **{pod.uid: reason for need, reason in limited for pod in need.pods}}
        for need, reason in answers if self.may_bind() else ():
            if not reason:
                machines.ask(need)
        return limited

    def _is_waiting(self, uid: str) -> bool:
        """Return whether a pod still waits for a place: events came while the plan was made."""
        cluster = self.machines.cluster
        return uid in self.machines.queue and cluster.node_of(uid) is None and not cluster.is_nominated(uid)

    async def _report_limits(self, limited: Sequence[tuple[MachineNeed, str]]) -> None:
        """Tell the owners of pods once, a machine at a time: there may be thousands of pods."""
        for need, reason in limited:
            kind = reason.partition(":")[0]
            untold = [pod for pod in need.pods if self._limits_told(pod.uid, kind)]
            if untold:
                log.info(
                    "A limit keeps a machine from being asked for", pod=untold[0].key, pods=len(untold), limit=reason
                )
            for pod in untold:
                note = f"The autoscaler is not asked for a machine for this pod: {reason}"
                self.machines.reporter.report_capacity(pod, "NeuronCapacityLimited", note)
            await anyio.lowlevel.checkpoint()


def requester_of(
    client: Client,
    attempts: PodAttempts,
    policies: Mapping[str, CapacityRequests],
    *,
    timeout: float,
    may_bind: Callable[[], bool],
) -> CapacityRequester:
    """Return what asks for machines; `timeout` is that of a write, in seconds."""
    machines = MachineRequests(
        cluster=attempts.cluster,
        queue=attempts.queue,
        scheduler_names=attempts.profiles.keys(),
        policies=policies,
        writer=PlaceholderWriter(client=client, may_bind=may_bind, timeout=timeout),
        reporter=attempts.reporter,
        metrics=attempts.metrics,
        clock=attempts.clock,
        errors=attempts.errors,
    )
    return CapacityRequester(machines=machines, profiles=attempts.profiles, may_bind=may_bind)

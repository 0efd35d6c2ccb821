"""
The verb `bind`: kube-scheduler has chosen a node, and the pod gets its devices there and its Binding from us.

The ids are chosen and assumed in one step, and the Binding takes the way of our own. After an error kube-scheduler
schedules the pod again. Upstream: `extendersBinding` in `pkg/scheduler/schedule_one.go`.

A call may come twice, and its client may hang up. Calls for one pod and one node share one Binding; it is withdrawn
from the fence when nobody waits for it any more.
"""

from collections.abc import Callable, Container
from typing import Final

import anyio
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import pod_info_of
from neuron_scheduler.controllers.binding_cycle import BindingCycle
from neuron_scheduler.controllers.commitment import Announcer, Commitment
from neuron_scheduler.controllers.extension_log import OF_KUBE_SCHEDULER
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.extender.protocol import LONGEST_NAME, ExtenderBindingArgs
from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.writes.binder import Gone, Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on
from neuron_scheduler.scheduling.cycle.trial import take
from neuron_scheduler.scheduling.plugins.node_resources_fit import without_other_resources
from neuron_scheduler.steps import run_in_turns
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

_OUTDATED = "the node or the pod has changed, or this replica may not bind any more; try again"

LONGEST_CALL: Final = 20.0
"""Seconds until a call is answered, also without an outcome; `httpTimeout` in our manifests is 30 s."""
LONGEST_UNSEEN: Final = 5.0
"""Seconds within which the watch must show a pod; kube-scheduler's may be ahead of ours."""
MOST_BACKLOG: Final = 4.0
"""Rounds of Bindings that may wait, lest our own queue waits behind them until it counts as stalled."""
NOT_LEADING: Final = "this replica may not bind pods now: it does not hold the Lease, or it is starting or stopping"

LINES_AT_ONCE: Final = 100
LINES_PER_SECOND: Final = 10.0
"""Lines about failed calls; whoever can connect can make a call fail."""

_PAUSE: Final = 0.05  # seconds between two looks at what the watch has shown

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class BindCall:
    """
    A Binding that kube-scheduler has asked for, as the requester of a commitment, and the calls that wait for it.

    Attributes:
        last: the pod as it was when it was decided.
        callers: how many calls wait.
        outcome: set when the Binding has one.
        problem: why the pod is not bound; empty if it is.
    """

    verb: "Bind"
    node_name: str
    last: Pod
    callers: int = 0
    outcome: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    problem: str = ""

    @property
    def uid(self) -> str:
        return self.last.uid

    @property
    def pod(self) -> Pod:
        return self.verb.newest(self.last)

    @property
    def withdrawal(self) -> Gone | None:
        """Gone if the pod is gone, about to be, or known to be bound; kube-scheduler decides when a group starts."""
        return None if self.verb.cluster.is_assumed(self.uid) and not self.pod.terminating else Gone()

    def on_bound(self, commitment: Commitment) -> None:
        self._end("")
        if commitment.decision.placement is not None:  # kube-scheduler writes the Event that the pod is bound
            self.verb.reporter.report_allocated(commitment.pod, self.node_name, commitment.decision.placement)

    def on_gone(self) -> None:
        self._end(f"pod {self.last.key} does not wait for a node any more: it is gone, terminating or bound")

    def on_refused(self, commitment: Commitment, refusal: Refused) -> None:
        self._end(refusal.message or f"the API server refused the Binding of {commitment.pod.key}")

    def on_fenced(self, commitment: Commitment) -> None:  # noqa: ARG002 - as of any requester
        self._end(_OUTDATED)

    def on_crashed(self, error: Exception) -> None:
        message = self.verb.errors.report(error, task="bind verb", pod=self.last.key)
        if not self.outcome.is_set():
            self.verb.cluster.forget(self.uid)
            self._end(message)

    def _end(self, problem: str) -> None:
        self.problem = problem
        self.verb.calls.pop(self.uid, None)
        self.outcome.set()


class _RefusedError(Exception):
    """The pod cannot be bound; the text is the answer to kube-scheduler."""


@attrs.define(eq=False, kw_only=True)
class Bind:
    """
    Answers `bind`.

    Attributes:
        profile: judges the chosen node.
        pod_by_key: returns a pod as the watch last showed it.
        may_bind: False once the Lease may be lost.
        own_names: the scheduler names of the pods in our own queue.
        on_answer: called with `bound` or `failed` for each call that is answered.
        calls: those without an outcome, by the pod's uid.
    """

    cluster: Cluster
    profile: Profile
    announcer: Announcer
    cycle: BindingCycle
    pod_by_key: Callable[[str], Pod | None]
    reporter: PodReporter
    may_bind: Callable[[], bool]
    own_names: Container[str]
    clock: Callable[[], float]
    on_answer: Callable[[str], None]
    errors: UnexpectedErrors
    longest_call: float = LONGEST_CALL
    longest_unseen: float = LONGEST_UNSEEN
    calls: dict[str, BindCall] = attrs.field(factory=dict, init=False)
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup, init=False)
    _lines: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = TokenBucket(self.clock, LINES_PER_SECOND, LINES_AT_ONCE)

    @property
    def may_lead(self) -> bool:
        """Whether this replica may decide and bind now; otherwise the leader is to be asked."""
        return self.cycle.open and self.may_bind()

    def is_abandoned(self, uid: str) -> bool:
        """Return whether kube-scheduler has forgotten a Binding without an outcome: no call waits for it."""
        call = self.calls.get(uid)
        return call is not None and not call.callers

    async def bind(self, args: ExtenderBindingArgs) -> str:
        """
        Bind a pod to a node, and return once that is certain; the answer is an error sentence, empty on success.

        May be cancelled: a Binding that was not sent is withdrawn unless another call waits for it.
        """
        try:
            await self._bind(args)
        except _RefusedError as refusal:
            answer = str(refusal)
        except Exception as error:  # noqa: BLE001 - it is one pod's error; nothing is assumed, or its outcome comes
            answer = self.errors.report(error, task="bind verb", pod=_key(args))
        else:
            self.on_answer("bound")
            return ""
        self.on_answer("failed")
        if self._lines.take_now():
            log.error(
                "Could not bind pod for kube-scheduler", pod=_key(args), node=args.node[:LONGEST_NAME], err=answer
            )
        return answer

    async def _bind(self, args: ExtenderBindingArgs) -> None:
        started = anyio.current_time()
        await run_in_turns(self._warmup.prepare(self.cluster, await self._wait_for_pod(args), self.profile), self.clock)
        call = self.calls.get(args.pod_uid)  # nothing awaits from here to the assumption
        if call is None:
            pod = self._watched_pod(args)
            if pod is None:
                raise _RefusedError(f"pod {_key(args)} not found: it is gone")
            call = self._begin(pod, args.node)
        elif call.node_name != args.node:
            raise _RefusedError(f"its Binding to node {call.node_name} has no outcome yet; try again later")
        if call is not None:
            await self._wait_for(call, started)

    async def _wait_for_pod(self, args: ExtenderBindingArgs) -> Pod:
        """
        Return the pod once the watch has shown it: kube-scheduler's watch may be ahead of ours.

        A pod that only the call shows could be deleted without an event for us: its devices would never come free.
        """
        wait_until = self.clock() + self.longest_unseen
        while (pod := self._watched_pod(args)) is None:
            if self.clock() >= wait_until:
                raise _RefusedError(
                    f"the watch has not shown pod {_key(args)} with uid {args.pod_uid[:64]!a}; try again later"
                )
            await anyio.sleep(_PAUSE)
        return pod

    def _watched_pod(self, args: ExtenderBindingArgs) -> Pod | None:
        known = self.pod_by_key(_key(args))
        return known if known is not None and known.uid == args.pod_uid else None

    def newest(self, pod: Pod) -> Pod:
        """Return what we judge of a pod as the watch shows it now, or as it was last."""
        known = self.pod_by_key(pod.key)
        return without_other_resources(known if known is not None and known.uid == pod.uid else pod)

    def _begin(self, pod: Pod, node_name: str) -> BindCall | None:
        """Choose the ids, assume them, and hand the Binding over; None if the pod is bound to the node already."""
        if not self.may_lead:
            raise _RefusedError(NOT_LEADING)
        if self.cycle.backlog >= MOST_BACKLOG:
            raise _RefusedError("too many Bindings wait for the API server; try again later")
        if pod.scheduler_name in self.own_names:
            raise _RefusedError(
                f"pod {pod.key} has schedulerName {pod.scheduler_name}, whose pods this scheduler takes from its own"
                " queue; give kube-scheduler's profile another name"
            )
        if self._is_bound(pod, node_name):
            return None
        if pod.terminating:
            raise _RefusedError(f"pod {pod.key} is being deleted, cannot be assigned to a host")
        if pod.gates:
            raise _RefusedError(f"pod {pod.key} has non-empty .spec.schedulingGates")
        decision = decide_on(self.cluster, pod, self.profile, node_name)
        if not isinstance(decision, Decision):
            raise _RefusedError(f"node {node_name} does not fit any more: {', '.join(decision)}")
        return self._commit(pod, decision)

    def _is_bound(self, pod: Pod, node_name: str) -> bool:
        on = pod.node_name or self.cluster.node_of(pod.uid)
        if not on:
            return False
        if on != node_name:
            raise _RefusedError(f'pod {pod.key} is already assigned to node "{on}"')
        node_info = self.cluster.node(on)
        if pod.node_name and pod_info_of(pod, None if node_info is None else node_info.machine).cores is None:
            raise _RefusedError(f'pod {pod.key} is already assigned to node "{on}", without known Neuron devices')
        return True

    def _commit(self, pod: Pod, decision: Decision) -> BindCall:
        started = self.clock()
        call = BindCall(verb=self, node_name=decision.node_name, last=pod)
        try:
            taken = take(self.cluster, pod, decision)
            annotations = self.announcer.announce(taken)
        except Exception:
            self.cluster.forget(pod.uid)
            raise
        self.calls[pod.uid] = call
        judged = without_other_resources(pod)
        self.cycle.push(Commitment(call, judged, annotations, decision, started, lines=OF_KUBE_SCHEDULER))
        return call

    async def _wait_for(self, call: BindCall, started: float) -> None:
        """Wait for the outcome; the last caller withdraws a Binding still held at the fence."""
        call.callers += 1
        given_up = False
        try:
            with anyio.CancelScope(deadline=started + self.longest_call):
                await call.outcome.wait()
        finally:
            call.callers -= 1
            if not (call.callers or call.outcome.is_set()):
                given_up = self.cycle.fence.give_up(call.uid)
        if given_up:
            raise _RefusedError(f"other Neuron pods of node {call.node_name} have not started yet; try again later")
        if not call.outcome.is_set():
            raise _RefusedError(
                f"its Binding to node {call.node_name} has no outcome yet; it is sent again until it has"
            )
        if call.problem:
            raise _RefusedError(call.problem)


def _key(args: ExtenderBindingArgs) -> str:
    """Return the key of a pod, also for the log, which names of any length must not fill."""
    return f"{args.pod_namespace[:LONGEST_NAME]}/{args.pod_name[:LONGEST_NAME]}"

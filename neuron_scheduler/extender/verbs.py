"""
The verbs of the extender protocol: what a request asks for, who answers it, and what is logged.

Every synced replica answers `filter` and `prioritize`; the holder of the Lease answers `bind` and `preempt`. An error
that concerns the pod is in the answer, where kube-scheduler shows it to the pod's owner.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

import anyio
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.extender.bind import Bind
from neuron_scheduler.extender.candidates import filter_nodes, is_for_neuron, prioritize_nodes
from neuron_scheduler.extender.forward import Forward
from neuron_scheduler.extender.preempt import Preempt
from neuron_scheduler.extender.protocol import (
    LONGEST_NAME,
    NAMES_ONLY,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    HostPriority,
    MalformedRequestError,
    VerbAnswer,
    decode,
    encode,
    requested_pod,
    sentence,
)
from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.node_resources_fit import INSUFFICIENT_NEURON
from neuron_scheduler.steps import run_in_turns
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

WAIT: Final = 0.05
"""Seconds between two looks at a pod that is refused on all nodes; a watch event is read within a few milliseconds."""
LONGEST_WAIT: Final = 1.0
"""Seconds for which a pod is looked at again where kube-scheduler has counted otherwise."""
WAITS_AT_ONCE: Final = 60
WAITS_PER_SECOND: Final = 1.0
"""Waits in a row, and in the long run: a twentieth of kube-scheduler's time, which decides one pod after the other."""

FILTER, PRIORITIZE, BIND, PREEMPT = "filter", "prioritize", "bind", "preempt"
VERBS: Final = (FILTER, PRIORITIZE, BIND, PREEMPT)
FOR_THE_LEADER: Final = (BIND, PREEMPT)

_ENDED: Final = "pod has ended: its phase is Succeeded or Failed"

_attempts = logs.logger(__name__).v(3)


class Role(Enum):
    """What this replica does with the verbs that only the leader answers; the value says why, if it answers none."""

    LEADS = ""
    FOLLOWS = "this replica does not hold the Lease"
    TAKES_OVER = "this replica has just taken the Lease and lists the pods"
    STOPS = "this replica is stopping"


@attrs.define(eq=False, kw_only=True)
class Verbs:
    """
    Answers the requests of one replica.

    Attributes:
        profile: what is decided beside kube-scheduler (`extender_profile`).
        sync_problem: returns why the cluster is not known yet; None if it is.
        role: what this replica does with `bind` and `preempt`.
        forward: None without leader election: then every replica leads.
    """

    cluster: Cluster
    profile: Profile
    bind: Bind
    preempt: Preempt
    sync_problem: Callable[[], str | None]
    role: Callable[[], Role]
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    forward: Forward | None = None
    errors: UnexpectedErrors
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup, init=False)
    _one_at_a_time: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)  # so that heartbeats come in between
    _one_preemption: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)  # many take no more turns than one
    _waits: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._waits = TokenBucket(self.clock, WAITS_PER_SECOND, WAITS_AT_ONCE)

    async def answer(self, verb: str, body: bytes, *, forwarded: bool = False) -> VerbAnswer:
        """Return the answer to a request in JSON; one that another replica has `forwarded` is not passed on again."""
        try:
            if verb in FOR_THE_LEADER:
                return await self._answer_as_leader(verb, body, forwarded=forwarded)
            if (problem := self.sync_problem()) is not None:
                return sentence(503, f"the cluster is not known yet: {problem}")
            async with self._one_at_a_time:
                return await self._answer_from_cache(verb, decode(body, ExtenderArgs))
        except MalformedRequestError as error:
            return sentence(400, f"the request of {verb} cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 - it is one request's error; kube-scheduler tries the pod again
            return sentence(500, self.errors.report(error, task=f"extender {verb}", pod=""))

    async def _answer_as_leader(self, verb: str, body: bytes, *, forwarded: bool) -> VerbAnswer:
        role = self.role()
        if role is Role.FOLLOWS and not forwarded and self.forward is not None:
            return await self.forward.send(verb, body)
        if role is not Role.LEADS:
            return sentence(503, role.value)
        if verb == BIND:
            error = await self.bind.bind(decode(body, ExtenderBindingArgs))
            return VerbAnswer(200, encode(ExtenderBindingResult(error=error)))
        async with self._one_preemption:
            return VerbAnswer(200, encode(await self.preempt.preempt(decode(body, ExtenderPreemptionArgs))))

    async def _answer_from_cache(self, verb: str, args: ExtenderArgs) -> VerbAnswer:
        pod, complaint = _pod_of(args)
        names = _names(args)
        if pod is not None and is_for_neuron(pod):
            for warm_up in (self._warmup.prepare, self._warmup.prepare_refusal):
                await run_in_turns(warm_up(self.cluster, pod, self.profile), self.clock)
        if verb == PRIORITIZE:
            scores = [0] * len(names) if pod is None else prioritize_nodes(self.cluster, pod, self.profile, names)
            hosts = [HostPriority(host=name, score=score) for name, score in zip(names, scores, strict=True)]
            return VerbAnswer(200, encode(hosts))
        if pod is None:
            return VerbAnswer(200, encode(ExtenderFilterResult([], {}, dict.fromkeys(names, complaint))))
        return VerbAnswer(200, encode(await self._filter(pod, names)))

    async def _filter(self, pod: Pod, names: list[str]) -> ExtenderFilterResult:
        if _attempts.is_enabled:
            _attempts.info("Filtering nodes for kube-scheduler", pod=pod.key, nodes=len(names))
        asked_at = self.clock()
        filtered = filter_nodes(self.cluster, pod, self.profile, names)
        while await self._wait_a_moment(filtered, asked_at):
            filtered = filter_nodes(self.cluster, pod, self.profile, names)
        if is_for_neuron(pod):
            failed = {**filtered.failed_nodes, **filtered.failed_and_unresolvable_nodes}
            extension_log.write_filter_answer(pod, filtered.node_names, failed)
        return filtered

    async def _wait_a_moment(self, filtered: ExtenderFilterResult, asked_at: float) -> bool:
        """
        Wait a moment before a pod is refused on all nodes; return False without a wait where it would be of no use.

        kube-scheduler tries a refused pod again when its watch shows that another pod has gone, maybe some milliseconds
        before ours. A refusal by the old state would let the pod sleep until something else happens, or for five
        minutes (`podMaxInUnschedulablePodsDuration`). It sends no node with too few free devices by its count. Where by
        ours there are too few, our watch is probably behind, and the wait is longer.

        An error instead of a refusal would cost the pod its nomination (`clearNominatedNode` in `schedule_one.go`), and
        with it the space for which pods have left.
        """
        failed = filtered.failed_nodes
        longest = WAIT if INSUFFICIENT_NEURON.isdisjoint(failed.values()) else LONGEST_WAIT
        if filtered.node_names or not failed or self.clock() - asked_at >= longest or not self._waits.take_now():
            return False
        await self.sleep(WAIT)
        return True


def _names(args: ExtenderArgs) -> list[str]:
    """
    Return the names of the nodes in a request.

    Raises:
        MalformedRequestError: there are none, or they cannot be names.
    """
    if args.node_names is None:
        raise MalformedRequestError(f"it has no NodeNames; {NAMES_ONLY}")
    if max(map(len, args.node_names), default=0) > LONGEST_NAME:
        raise MalformedRequestError(f"a name in NodeNames is longer than {LONGEST_NAME} characters")
    return args.node_names


def _pod_of(args: ExtenderArgs) -> tuple[Pod | None, str]:
    """
    Return the pod of a request, or None and the reason why no node can take it.

    Raises:
        MalformedRequestError: there is none, or there cannot be one like it.
    """
    value = requested_pod(args.pod)
    if isinstance(value, Malformed):
        return None, f"pod cannot be read: {value.reason}"
    return (None, _ENDED) if value is None else (value, "")

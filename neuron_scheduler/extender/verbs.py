"""
The verbs of the extender protocol: what a request asks for, who answers it, and what is logged.

`filter` and `prioritize` are answered by every replica whose caches are synced; `bind` and `preempt` by the one that
holds the Lease, to which the others forward them. Errors that concern the pod are in the answer, where kube-scheduler
shows them to the pod's owner: of an HTTP error it shows the code only.
"""

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import anyio
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.extender.bind import Bind
from neuron_scheduler.extender.candidates import (
    MOST_LATE,
    concerns_us,
    counted_otherwise,
    filter_nodes,
    prioritize_nodes,
)
from neuron_scheduler.extender.forward import Forward
from neuron_scheduler.extender.preempt import Preempt
from neuron_scheduler.extender.protocol import (
    LONGEST_NAME,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    HostPriority,
    MalformedRequestError,
    NodeList,
    decode,
    encode,
    in_pieces,
    names_of,
    requested_pod,
)
from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.json_scanner import finish, finish_with_pauses
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.serving.pages import NO_FIELDS
from neuron_scheduler.steps import run_in_turns
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

WAIT: Final = 0.05
"""Seconds; a watch event that has been sent is read within a few milliseconds."""
LONGER: Final = 1.0
"""Seconds for which a node is waited for on which kube-scheduler has counted otherwise."""
BURST: Final = 10.0
LONGER_BURST: Final = 60.0
A_SECOND: Final = 1.0
"""Waits in a row of either kind, and in the long run: a twentieth of kube-scheduler's time."""


@attrs.define(eq=False, kw_only=True)
class SecondLook:
    """
    Waits before a pod is refused on all nodes, because kube-scheduler may know more than we do.

    kube-scheduler tries a refused pod again as soon as its watch shows that another pod has gone, and that may be some
    milliseconds before ours shows it. If we refused by the old state, the pod would sleep until something else happens,
    or for five minutes (upstream: `podMaxInUnschedulablePodsDuration`). Where kube-scheduler sends a node on which by
    our count too few devices are free, its watch is certainly not where ours is, and a longer wait is worth it. Waits
    are few, because kube-scheduler decides one pod after the other, so each delays all of them. Where more pods are
    refused, the next event comes soon.

    An error instead of a refusal would make kube-scheduler try the pod again by itself, but it also takes its
    nomination from the pod (upstream: `clearNominatedNode` in `schedule_one.go`), and with it the space for which pods
    have left.

    Attributes:
        clock: seconds that never jump.
        sleep: waits for some seconds.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    _waits: TokenBucket = attrs.field(init=False)
    _longer_waits: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._waits = TokenBucket(self.clock, A_SECOND, int(BURST))
        self._longer_waits = TokenBucket(self.clock, A_SECOND, int(LONGER_BURST))

    async def is_due(self) -> bool:
        """Wait, and return True, if there were not too many waits lately; otherwise return False at once."""
        if not self._waits.take_now():
            return False
        await self.sleep(WAIT)
        return True

    async def until(self, changed: Callable[[], bool]) -> bool:
        """
        Wait for a change, and return whether it came; not if there were too many waits lately.

        The clock counts, since on a busy machine a wait takes longer than it should.
        """
        ends = self.clock() + LONGER
        for _ in range(round(LONGER / WAIT)):
            if self.clock() >= ends or not self._longer_waits.take_now():
                return False
            await self.sleep(WAIT)
            if changed():
                return True
        return False


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


@attrs.frozen
class Answer:
    """
    What is answered: JSON with status 200, with any other a sentence.

    Attributes:
        pieces: of the body.
        fields: headers beside those that every answer has.
    """

    status: int
    pieces: Iterable[bytes]
    fields: Mapping[str, str] = NO_FIELDS


def sentence(status: int, text: str, fields: Mapping[str, str] = NO_FIELDS) -> Answer:
    """Return the answer to a request that cannot be served."""
    return Answer(status, (f"{text}\n".encode(),), fields)


@attrs.define(eq=False, kw_only=True)
class Verbs:
    """
    Answers the requests of one replica.

    Attributes:
        profile: what is decided beside kube-scheduler (`extender_profile`).
        unsynced: returns why the cluster is not known yet; None if it is.
        role: what this replica does with `bind` and `preempt`.
        clock: seconds that never jump.
        second_look: waits before a pod is refused on all nodes.
        own_names: the scheduler names of the pods in our own queue.
        forward: None without leader election: then every replica leads.
        errors: reports unexpected exceptions.
    """

    cluster: Cluster
    profile: Profile
    bind: Bind
    preempt: Preempt
    unsynced: Callable[[], str | None]
    role: Callable[[], Role]
    clock: Callable[[], float]
    second_look: SecondLook
    own_names: Container[str] = ()
    forward: Forward | None = None
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup, init=False)
    _one_at_a_time: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)  # so that heartbeats come in between
    _one_preemption: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)  # many take no more turns than one

    async def answer(self, verb: str, body: bytes, *, forwarded: bool = False) -> Answer:
        """
        Return the answer to a request.

        Args:
            verb: one of `VERBS`.
            body: its JSON text.
            forwarded: another replica has passed it on, so it is not passed on again.
        """
        try:
            if verb in FOR_THE_LEADER:
                return await self._answer_as_leader(verb, body, forwarded=forwarded)
            if (unsynced := self.unsynced()) is not None:
                return sentence(503, f"the cluster is not known yet: {unsynced}")
            async with self._one_at_a_time:
                return await self._answer_from_cache(verb, decode(body, ExtenderArgs))
        except MalformedRequestError as error:
            return sentence(400, f"the request of {verb} cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 - it is one request's error; kube-scheduler tries the pod again
            return sentence(500, self.errors.report(error, task=f"extender {verb}", pod=""))

    async def _answer_as_leader(self, verb: str, body: bytes, *, forwarded: bool) -> Answer:
        role = self.role()
        if role is Role.FOLLOWS and not forwarded and self.forward is not None:
            status, answer = await self.forward.send(verb, body)
            return Answer(status, (answer,))
        if role is not Role.LEADS:
            return sentence(503, role.value)
        if verb == BIND:
            error = await self.bind.bind(decode(body, ExtenderBindingArgs))
            return Answer(200, (encode(ExtenderBindingResult(error=error)),))
        async with self._one_preemption:
            return Answer(200, (encode(await self.preempt.preempt(decode(body, ExtenderPreemptionArgs))),))

    async def _answer_from_cache(self, verb: str, args: ExtenderArgs) -> Answer:
        pod, complaint = _pod_of(args)
        names = await self._names(args)
        if pod is None:
            return self._unreadable(verb, args, names, complaint)
        if concerns_us(pod):
            for warm_up in (self._warmup.of, self._warmup.of_refusal):
                await run_in_turns(warm_up(self.cluster, pod, self.profile), self.clock)
        if verb == PRIORITIZE:
            scores = prioritize_nodes(self.cluster, pod, self.profile, names)
            hosts = [HostPriority(host=name, score=score) for name, score in zip(names, scores, strict=True)]
            return Answer(200, (encode(hosts),))
        return Answer(200, in_pieces(await self._filtered(pod, args, names)))

    async def _filtered(self, pod: Pod, args: ExtenderArgs, names: Sequence[str]) -> ExtenderFilterResult:
        if _attempts.enabled:
            _attempts.info("Filtering nodes for kube-scheduler", pod=pod.key, nodes=len(names))
        filtered = filter_nodes(self.cluster, pod, self.profile, names)
        if filtered.failed and not filtered.passing and await self.second_look.is_due():
            filtered = filter_nodes(self.cluster, pod, self.profile, names)
        while not filtered.passing and await self._has_caught_up(pod, filtered.failed):
            filtered = filter_nodes(self.cluster, pod, self.profile, names)
        if concerns_us(pod):
            passing = [names[place] for place in filtered.passing]
            extension_log.answered(pod, passing, {**filtered.failed, **filtered.unresolvable})
        return _in_form_of(args, names, filtered.passing, filtered.failed, filtered.unresolvable)

    async def _has_caught_up(self, pod: Pod, failed: Iterable[str]) -> bool:
        """Wait until our watch shows an end that kube-scheduler has seen; False if there is none, or it stays away."""
        others = await finish_with_pauses(counted_otherwise(self.cluster, pod, failed, self.own_names))

        def changed() -> bool:
            return len(finish(counted_otherwise(self.cluster, pod, others, self.own_names))) < len(others)

        return 0 < len(others) <= MOST_LATE and await self.second_look.until(changed)

    def _unreadable(self, verb: str, args: ExtenderArgs, names: Sequence[str], complaint: str) -> Answer:
        """Answer for a pod that no node can take, because it cannot be read."""
        if verb == PRIORITIZE:
            return Answer(200, (encode([HostPriority(host=name, score=0) for name in names]),))
        return Answer(200, in_pieces(_in_form_of(args, names, (), {}, dict.fromkeys(names, complaint))))

    async def _names(self, args: ExtenderArgs) -> Sequence[str]:
        """Return the names of the nodes in a request, whatever its form."""
        if args.nodes is not None:
            return await finish_with_pauses(names_of(args.nodes.items or []))
        if args.node_names is None:
            raise MalformedRequestError("it has neither Nodes nor NodeNames")
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


def _in_form_of(
    args: ExtenderArgs,
    names: Sequence[str],
    passing: Sequence[int],
    failed: dict[str, str],
    unresolvable: dict[str, str],
) -> ExtenderFilterResult:
    """Return the answer to `filter` in the form of its request: whole nodes for whole nodes."""
    result = ExtenderFilterResult(failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable)
    if args.nodes is None:
        result.node_names = [names[place] for place in passing]
    else:
        items = args.nodes.items or []
        result.nodes = NodeList(items=[items[place] for place in passing])
    return result

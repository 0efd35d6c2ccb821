"""
The verb `preempt`: kube-scheduler would evict pods for a pod, and gets victims whose end frees a legal block.

On each proposed node, victims are chosen after which our filter accepts the pod. The answer is the one node where they
cost least: then it is known which pods are leaving when kube-scheduler asks again (`EarlierAnswers`). kube-scheduler
evicts. It does not call the verb for a node where the pod fits by count only.

Upstream: `callExtenders` in `pkg/scheduler/framework/preemption/preemption.go`, which refuses an answer with a node it
did not send, a node without victims, or an unknown pod. So pods of our own queue that are not bound yet are no victims.
Nor are those whose Binding kube-scheduler does not wait for any more.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import evictable, without_pods
from neuron_scheduler.extender.protocol import (
    NAMES_ONLY,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MalformedRequestError,
    MetaPod,
    MetaVictims,
    requested_pod,
)
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance
from neuron_scheduler.scheduling.preemption.one_node import victims_instead, with_offered_requests
from neuron_scheduler.scheduling.preemption.search import is_leaving
from neuron_scheduler.scheduling.preemption.victims import ByFilters, Incoming, Victims, by_importance
from neuron_scheduler.steps import LONGEST_TURN, run, run_in_turns
from neuron_scheduler.telemetry import logs

UNSEEN: Final = 10.0
"""Seconds within which kube-scheduler has deleted the victims and its watch and ours have shown it."""
MOST: Final = 1000
"""Answers that are remembered; each names at most the pods of a node."""

LONGEST: Final = 10.0
"""Seconds after which no further nodes are looked at, if there is a candidate; kube-scheduler sends 100 and more."""

log = logs.logger(__name__)


@attrs.frozen
class NominatedRoom:
    """The node where room is made for a pod; `staying` are the victims that are not being deleted yet."""

    node_name: str
    staying: tuple[Pod, ...]


@attrs.frozen(kw_only=True)
class _Answer:
    """
    What was answered for a pod.

    Attributes:
        victims: uids of those that have not ended.
        seen_at: when it was given, or when its victims were last seen to end.
    """

    node_name: str
    victims: frozenset[str]
    seen_at: float


@attrs.define(eq=False, kw_only=True)
class EarlierAnswers:
    """
    What `preempt` has answered lately, so that no more pods leave where others leave already.

    kube-scheduler deletes victims beside its decisions, and may decide again before its watch shows their end. Then it
    asks once more, and pods of another node would leave as well. Upstream: `prepareCandidateAsync` in
    `pkg/scheduler/framework/preemption/executor.go`, and DefaultPreemption's `PodEligibleToPreemptOthers`.

    An answer counts while the node would take the pod without the victims, and for `UNSEEN` after they were last seen
    to end. After a restart, or on another replica, the node in the pod's status counts as one, with the pods that leave
    there. `foreign_nominations` keeps the space from other pods.

    Attributes:
        profile: all filters (`preemption_profile`), for nodes that kube-scheduler does not propose any more.
        beside: the filters that kube-scheduler does not have (`extender_profile`), for those that it proposes.
    """

    cluster: Cluster
    profile: Profile
    beside: Profile
    clock: Callable[[], float]
    _answers: dict[str, _Answer] = attrs.field(factory=dict, init=False)  # by uid, the oldest first

    def remember(self, pod: Pod, node_name: str, victims: Iterable[Pod]) -> None:
        """Remember that pods of a node were named as the victims for a pod, and forget the oldest of too many."""
        uids = frozenset(victim.uid for victim in victims)
        self._answers.pop(pod.uid, None)
        self._answers[pod.uid] = _Answer(node_name=node_name, victims=uids, seen_at=self.clock())
        if len(self._answers) > MOST:
            del self._answers[next(iter(self._answers))]

    def room_for(self, pod: Pod, proposed: Container[str]) -> NominatedRoom | None:
        """Return where room is made already for a pod, as kube-scheduler sends it; None if it needs other victims."""
        if pod.uid not in self._answers:
            self._adopt(pod)
        answer = self._answers.get(pod.uid)
        slot = None if answer is None else self.cluster.view.slot(answer.node_name)
        if answer is None or slot is None:
            return None
        node_info = self.cluster.view.row(slot)
        victims = [node_info.pod_infos[uid].pod for uid in evictable(node_info, pod.priority) & answer.victims]
        if not self._has_room(slot, pod, victims, as_proposed=answer.node_name in proposed):
            return None
        staying = tuple(victim for victim in victims if not victim.terminating)
        if len(victims) < len(answer.victims) or (victims and not staying):
            there = frozenset(victim.uid for victim in victims)
            answer = attrs.evolve(answer, victims=there, seen_at=self.clock())
            self._answers[pod.uid] = answer
        return NominatedRoom(answer.node_name, staying) if self.clock() - answer.seen_at <= UNSEEN else None

    def _adopt(self, pod: Pod) -> None:
        """Remember the answer that must have led to the pod's nomination, if it has one."""
        nomination = self.cluster.nomination(pod.uid)
        node_name = pod.nominated_node_name or ("" if nomination is None else nomination[0])
        node_info = self.cluster.node(node_name)
        if node_info is not None:
            there = [node_info.pod_infos[uid].pod for uid in evictable(node_info, pod.priority)]
            self.remember(pod, node_name, filter(is_leaving, there))

    def _has_room(self, slot: Slot, pod: Pod, victims: Iterable[Pod], *, as_proposed: bool) -> bool:
        """Return whether a node takes a pod without its victims; kube-scheduler's filters accept it `as_proposed`."""
        with self.cluster.without_nomination(pod.uid):
            node_info = without_pods(self.cluster.view.row(slot), {victim.uid for victim in victims})
            profile = self.beside if as_proposed else self.profile
            offered = with_offered_requests(pod, node_info.node)
            return ByFilters(self.cluster, slot, offered, profile, node_info).fits()


@attrs.define(eq=False, kw_only=True)
class Preempt:
    """
    Answers `preempt`.

    Attributes:
        profile: all filters, for victims other than those proposed (`preemption_profile`).
        beside: the filters that kube-scheduler does not have (`extender_profile`).
        own_names: the scheduler names of the pods in our own queue.
        is_abandoned: whether the pod with this uid has a Binding without an outcome for which no call waits.
    """

    cluster: Cluster
    profile: Profile
    beside: Profile
    own_names: Container[str]
    is_abandoned: Callable[[str], bool]
    clock: Callable[[], float]
    _earlier: EarlierAnswers = attrs.field(init=False)
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup, init=False)

    def __attrs_post_init__(self) -> None:
        self._earlier = EarlierAnswers(cluster=self.cluster, profile=self.profile, beside=self.beside, clock=self.clock)

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """
        Return the node where evicting pods makes room for the pod, with its victims; none if no pod has to leave.

        Raises:
            MalformedRequestError: the request has no pod or no nodes, or they cannot be read.
        """
        pod, proposed = _pod_of(args), _victims_by_node(args)
        answer = dict[str, MetaVictims]()
        if not (pod.refusal or pod.never_preempts or self.cluster.node_of(pod.uid)):
            await run_in_turns(self._warmup.prepare(self.cluster, pod, self.profile), self.clock)
            answer = await self._answer(pod, proposed)
        return ExtenderPreemptionResult(node_name_to_meta_victims=answer)

    async def _answer(self, pod: Pod, proposed: Mapping[str, frozenset[str]]) -> dict[str, MetaVictims]:
        room = self._earlier.room_for(pod, proposed)
        if room is not None:
            return self._once_more(pod, room, proposed)
        candidates = await self._candidates(pod, proposed)
        best = min(candidates, key=lambda name: candidates[name].cost, default=None)
        log.info(
            "Chose victims for kube-scheduler",
            v=2,
            pod=pod.key,
            numNodes=len(proposed),
            numCandidates=len(candidates),
            node=best or "",
        )
        if best is None:
            return {}
        self._earlier.remember(pod, best, candidates[best].pods)
        return {best: _meta(candidates[best])}

    def _once_more(self, pod: Pod, room: NominatedRoom, proposed: Container[str]) -> dict[str, MetaVictims]:
        unknown = self._unknown_to_kube_scheduler(room.node_name)
        staying = tuple(victim for victim in room.staying if victim.uid not in unknown)
        log.info(
            "Chose no more victims for kube-scheduler: room is being made",
            v=2,
            pod=pod.key,
            node=room.node_name,
            numStaying=len(staying),
        )
        if not staying or room.node_name not in proposed:
            return {}
        violations = DisruptionAllowance(self.cluster.budgets).violating_uids(staying)
        return {room.node_name: _meta(Victims(by_importance(staying), len(violations)))}

    async def _candidates(self, pod: Pod, proposed: Mapping[str, frozenset[str]]) -> dict[str, Victims]:
        """Look at one node after the other, in turns with other tasks; the cluster may change in between."""
        incoming = Incoming(pod, self.profile, DisruptionAllowance(self.cluster.budgets))
        candidates = dict[str, Victims]()
        started = self.clock()
        turn_ends = started + LONGEST_TURN
        for node_name, uids in proposed.items():
            now = self.clock()
            if candidates and now - started > LONGEST:
                log.warning("Looked at a part of the nodes only", pod=pod.key, numNodes=len(proposed))
                break
            if now >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + LONGEST_TURN
            here = attrs.evolve(incoming, spared=self._unknown_to_kube_scheduler(node_name))
            victims = run(victims_instead(self.cluster, node_name, here, self.beside, uids))
            if victims is not None and victims.pods:
                candidates[node_name] = victims
        return candidates

    def _unknown_to_kube_scheduler(self, node_name: str) -> frozenset[str]:
        """Return the uids of a node's unbound pods that kube-scheduler does not know there."""
        node_info = self.cluster.node(node_name)
        pod_infos = {} if node_info is None else node_info.pod_infos
        return frozenset(
            uid
            for uid, pod_info in pod_infos.items()
            if self.cluster.is_assumed(uid)
            and (pod_info.pod.scheduler_name in self.own_names or self.is_abandoned(uid))
        )


def _pod_of(args: ExtenderPreemptionArgs) -> Pod:
    value = requested_pod(args.pod)
    if isinstance(value, Malformed):
        raise MalformedRequestError(f"Pod: {value.reason}")
    if value is None:
        raise MalformedRequestError("Pod has ended: its phase is Succeeded or Failed")
    return value


def _victims_by_node(args: ExtenderPreemptionArgs) -> dict[str, frozenset[str]]:
    if args.node_name_to_meta_victims is None:
        raise MalformedRequestError(f"it has no NodeNameToMetaVictims; {NAMES_ONLY}")
    return {
        name: frozenset(victim.uid for victim in victims.pods or ())
        for name, victims in args.node_name_to_meta_victims.items()
    }


def _meta(victims: Victims) -> MetaVictims:
    return MetaVictims(pods=[MetaPod(uid=pod.uid) for pod in victims.pods], num_pdb_violations=victims.violations)

"""
What `preempt` has answered lately, so that no more pods leave for a pod for which others leave already.

kube-scheduler deletes victims beside its decisions, and its next decision may come before its watch has shown that they
are ending, or that they have ended. Then it asks once more, and pods of another node would leave as well. Upstream:
`prepareCandidateAsync` in `pkg/scheduler/framework/preemption/executor.go`, and `PodEligibleToPreemptOthers` of the
plugin DefaultPreemption, which looks at the pods of the nominated node as the cache shows them.

The answer counts until the node takes the pod no more even without the victims, and no longer than `UNSEEN` where
nothing shows that kube-scheduler acts on it: the victims stay, or they are gone and it asks all the same. After a
restart, or on another replica, the node in the pod's status is taken for it, with the pods that leave there. Does not
choose a node, or keep space from other pods: `foreign_nominations` does.
"""

from collections.abc import Callable, Container, Iterable
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import evictable, without_pods
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.preemption.nominations import is_leaving
from neuron_scheduler.scheduling.preemption.trials import ByFilters

UNSEEN: Final = 10.0
"""Seconds within which kube-scheduler has deleted the victims and its watch and ours have shown it."""
LONGEST: Final = 600.0
"""Seconds for which pods that are ending are waited for, as in `foreign_nominations`."""
MOST: Final = 1000
"""Answers that are remembered; each names at most the pods of a node."""


@attrs.frozen
class Room:
    """
    The node where room is made for a pod.

    Attributes:
        staying: the victims that are not being deleted yet, by the uids of all on the node.
    """

    node_name: str
    staying: tuple[Pod, ...]


@attrs.frozen(kw_only=True)
class _Answer:
    """
    What was answered for a pod.

    Attributes:
        node_name: empty if the answer does not count any more.
        at: when it was given.
        ended_at: when it was first asked again although all victims were gone.
        in_vain: the nodes that were named before and of which nothing came.
    """

    node_name: str = ""
    victims: frozenset[str] = frozenset()
    at: float
    ended_at: float | None = None
    in_vain: frozenset[str] = frozenset()


@attrs.define(eq=False, kw_only=True)
class EarlierAnswers:
    """
    Remembers for each pod the node that was named last.

    Attributes:
        profile: all filters (`preemption_profile`), for nodes that kube-scheduler does not propose any more.
        beside: the filters that kube-scheduler does not have (`extender_profile`), for those that it proposes.
        clock: seconds that never jump.
    """

    cluster: Cluster
    profile: Profile
    beside: Profile
    clock: Callable[[], float]
    _answers: dict[str, _Answer] = attrs.field(factory=dict, init=False)  # by uid, the oldest first

    def remember(self, pod: Pod, node_name: str, victims: Iterable[Pod]) -> None:
        """Remember that pods of a node were named as the victims for a pod."""
        uids = frozenset(victim.uid for victim in victims)
        in_vain = self.in_vain(pod.uid) - {node_name}
        self._put(pod.uid, _Answer(node_name=node_name, victims=uids, at=self.clock(), in_vain=in_vain))

    def in_vain(self, uid: str) -> frozenset[str]:
        """Return the nodes that were named for a pod, and for which kube-scheduler did nothing that we could see."""
        answer = self._answers.get(uid)
        return frozenset() if answer is None else answer.in_vain

    def room_for(self, pod: Pod, proposed: Container[str]) -> Room | None:
        """
        Return where room is made for a pod already; None if it needs other victims.

        Args:
            pod: as kube-scheduler sends it, with the node in its status.
            proposed: the nodes where kube-scheduler would evict pods now.
        """
        answer = self._answers.get(pod.uid)
        if answer is not None and answer.node_name:
            room = self._room(pod, answer, proposed)
            if room is not None:
                return room
        nomination = self.cluster.nomination(pod.uid)
        for node_name in (pod.nominated_node_name, "" if nomination is None else nomination[0]):
            adopted = self._adopted(pod, node_name)
            room = None if adopted is None else self._room(pod, adopted, proposed)
            if room is not None:
                return room
        return None

    def _adopted(self, pod: Pod, node_name: str) -> _Answer | None:
        """Return the answer that must have led to a nomination; None if there is no such node, or it was in vain."""
        node_info, in_vain = self.cluster.node(node_name), self.in_vain(pod.uid)
        if node_info is None or node_name in in_vain:
            return None
        lower = evictable(node_info, pod.priority)
        leaving = frozenset(uid for uid in lower if is_leaving(node_info.pod_infos[uid].pod))
        return _Answer(node_name=node_name, victims=leaving, at=self.clock(), in_vain=in_vain)

    def _room(self, pod: Pod, answer: _Answer, proposed: Container[str]) -> Room | None:
        """Return the room of an answer as long as it counts, and remember since when it is waited for."""
        now, slot = self.clock(), self.cluster.view.slot(answer.node_name)
        victims = self._still_there(pod, answer, slot)
        if slot is None or not self._takes(slot, pod, victims, as_proposed=answer.node_name in proposed):
            self._put(pod.uid, _Answer(at=now, in_vain=answer.in_vain))
            return None
        staying = tuple(victim for victim in victims if not victim.terminating)
        if victims:
            in_time = now - answer.at <= (UNSEEN if staying else LONGEST)
        else:
            answer = attrs.evolve(answer, ended_at=now) if answer.ended_at is None else answer
            in_time = answer.ended_at is not None and now - answer.ended_at <= UNSEEN
        if not in_time:
            self._put(pod.uid, _Answer(at=now, in_vain=answer.in_vain | {answer.node_name}))
            return None
        self._put(pod.uid, answer)
        return Room(answer.node_name, staying)

    def _still_there(self, pod: Pod, answer: _Answer, slot: Slot | None) -> list[Pod]:
        """Return the victims that have not ended."""
        if slot is None:
            return []
        node_info = self.cluster.view.row(slot)
        return [node_info.pod_infos[uid].pod for uid in evictable(node_info, pod.priority) & answer.victims]

    def _takes(self, slot: Slot, pod: Pod, victims: Iterable[Pod], *, as_proposed: bool) -> bool:
        """
        Return whether a node takes a pod once its victims are gone.

        Where kube-scheduler proposes the node, its own filters accept the pod there.
        """
        with self.cluster.without_nomination(pod.uid):
            node_info = without_pods(self.cluster.view.row(slot), {victim.uid for victim in victims})
            offered = {name: amount for name, amount in pod.requests.items() if name in node_info.node.allocatable}
            profile = self.beside if as_proposed else self.profile
            return ByFilters(self.cluster, slot, attrs.evolve(pod, requests=offered), profile, node_info).fits()

    def _put(self, uid: str, answer: _Answer) -> None:
        """Remember an answer, and forget the oldest if there are too many."""
        self._answers.pop(uid, None)
        self._answers[uid] = answer
        if len(self._answers) > MOST:
            del self._answers[next(iter(self._answers))]

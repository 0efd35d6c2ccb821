"""
DEPARTURE: pods of one node end or are evicted, and that node then takes the pod.

The search is that of `scheduling.preemption.victims` with other rules (`DepartureRules`): every pod of a node may end,
whatever its priority. Left out are pods of DaemonSets and static pods, because they come back at once, and those of the
pod's own controller or group, because another one would be Pending instead. A set is better if no pod in it has a
higher priority than the pod; then if fewer pods that are not terminating already have to go; then by preemption's
criteria (budgets, priorities, age). Next come the fewest pods of other namespaces, which the reader can rarely end, and
then the pods that hold least.

The set need not be the smallest: the search ends after `_MOST_COUNTED` nodes, some of each kind, with a note. Nodes are
of one kind if their pods have the same priorities.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import attrs

from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.cluster.view import View
from neuron_scheduler.explain.answers import ChangeKind, LeavingPod, SuggestedChange
from neuron_scheduler.explain.changes.refused_pod import RefusedPod, SearchStep, kubectl
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import clip, count_text, few
from neuron_scheduler.scheduling.cycle.neuron_shortage import request_text
from neuron_scheduler.scheduling.preemption.search import priorities_on
from neuron_scheduler.scheduling.preemption.victims import Cost, Incoming, Victims, by_importance, victims_on

MOST_GONE: Final = 32
"""Pods in one set: the end of more is nothing to suggest."""
_MOST_COUNTED: Final = 1024
"""Nodes on which what pods hold is counted; one about which the filters are asked, too, is as much work as 16."""
_STRIDE: Final = 97
"""From one node of a kind to the next that is looked at: a prime, because nodes often come in turns."""
_ABOVE_ALL: Final = 1 << 32
"""More than any priority."""
_CUT_OFF: Final = "The search for pods to delete was cut off; fewer pods may do, or those of another node."


Leavers = tuple[NodeInfo, Sequence[Pod]]
"""A node, and pods of it that would have to go."""


@attrs.frozen
class DepartureRules(Incoming):
    """The pod that needs room, with the rules for pods that somebody may end."""

    def leavers(self, node_info: NodeInfo) -> Sequence[Pod]:
        """Return the pods that could leave, the most important first; those that are terminating are the last."""
        pods = [info.pod for info in node_info.pod_infos.values() if not info.pod.is_of_every_node]
        pods = [pod for pod in pods if pod.terminating or not self._is_sibling(pod)]
        return sorted(by_importance(pods), key=lambda pod: pod.terminating)

    def _is_sibling(self, other: Pod) -> bool:
        if other.group is not None and self.pod.group is not None and other.group.key == self.pod.group.key:
            return True
        return other.owner is not None and (other.namespace, other.owner) == (self.pod.namespace, self.pod.owner)

    def reprieves(self, leavers: Sequence[Pod], must: Sequence[Pod], remaining: Sequence[Pod]) -> list[Sequence[Pod]]:
        """Return also the order in which nobody's budget counts, because other things come before budgets here."""
        return [remaining, *super().reprieves(leavers, must, remaining)]

    def cost(self, victims: Victims) -> Cost:
        """Return what sets are compared by; but for their number, only pods count that are not terminating already."""
        above = max((self.pod.priority, *(pod.priority for pod in victims.pods if not pod.terminating)))
        live = by_importance(pod for pod in victims.pods if not pod.terminating)
        *cost, started = Victims(live, len(self.disruption_allowance.violating_uids(live))).cost
        theirs = sum(pod.namespace != self.pod.namespace for pod in live)
        return (above, len(live), len(victims.pods), *cost, theirs, started, sum(map(self._size, live)))

    def _size(self, other: Pod) -> float:
        """Return how much of what the pod asks for another holds, as a sum of fractions of what it asks for."""
        return sum(other.requests.get(name, 0) / amount for name, amount in self.pod.requests.items() if amount > 0)


def find_departure(refused: RefusedPod) -> Generator[SearchStep, None, None]:
    if refused.error.pod_reason:
        return
    found, is_cut_off = yield from find_leavers(refused)
    if is_cut_off:
        yield _CUT_OFF
    if found is not None:
        yield departure(refused, [found], ("the pod", "goes there"))


def find_leavers(refused: RefusedPod) -> Generator[None, None, tuple[Leavers | None, bool]]:
    """Return a node and the pods of it after whose end it takes the pod, or None; and whether the search is cut off."""
    ending = DepartureRules(refused.pod, refused.profile, refused.disruption_allowance)
    best: tuple[Slot, Victims] | None = None
    kinds = yield from _by_kind(refused.cluster.view, _helpful_nodes(refused))
    left, is_cut_off = _MOST_COUNTED, False
    for others, nodes in zip(reversed(range(len(kinds))), kinds, strict=True):
        least = left - left // (others + 1)
        slots = [*slots_of(nodes)]
        for slot in chain.from_iterable(slots[first::_STRIDE] for first in range(_STRIDE)):
            if left <= least:
                is_cut_off = True
                break
            limit = None if best is None else ending.cost(best[1])
            found = yield from victims_on(refused.cluster, slot, ending, below=_ABOVE_ALL, limit=limit)
            if isinstance(found, Victims) and found.pods:
                best = slot, found
            left -= 1 if found is None else 16  # counting alone shows that most nodes have no better pods
            yield
    if best is None or len(best[1].pods) > MOST_GONE:
        return None, is_cut_off
    return (refused.cluster.view.row(best[0]), best[1].pods), is_cut_off


def _by_kind(view: View, nodes: NodeSet) -> Generator[None, None, Sequence[NodeSet]]:
    """Return the nodes by the priorities of their pods, the fewest first: each kind has a share of the search."""
    priorities, kinds = view.postings(priorities_on), [nodes]
    for value in priorities.values if nodes else ():
        having = priorities.get(value)
        kinds = [part for kind in kinds for part in (kind & having, less(kind, having)) if part]
        yield
        if len(kinds) > _MOST_COUNTED:
            break
    return sorted(kinds, key=lambda kind: kind.bit_count())


def _helpful_nodes(refused: RefusedPod) -> NodeSet:
    """Return the nodes where fewer pods could help: no filter says that they would not, whatever the others say."""
    view, pod = refused.cluster.view, refused.pod
    nodes = view.live
    for step in refused.profile.steps_for(pod).filters:
        for refusal in step.refuse(view, pod, nodes):
            if refusal.unresolvable:
                nodes = less(nodes, refusal.nodes)
    return nodes


def departure(refused: RefusedPod, leavers: Sequence[Leavers], then: tuple[str, str]) -> SuggestedChange:
    """Return the end of these pods as a change; those that must be ended come first, by importance."""
    gone = [pod for _, pods in leavers for pod in pods]
    live = by_importance(pod for pod in gone if not pod.terminating)
    ending = by_importance(pod for pod in gone if pod.terminating)
    violating = refused.disruption_allowance.violating_uids(live)
    harmful = violating or any(pod.priority > refused.pod.priority or pod.group is not None for pod in live)
    rows = [node_info for node_info, _ in leavers]
    infos = {uid: info for node_info in rows for uid, info in node_info.pod_infos.items()}
    nodes = few([node_info.node.name for node_info in rows])
    sentences = _sentences(refused.pod, live, ending, infos, nodes=nodes, then=then)
    return SuggestedChange(
        ChangeKind.DEPARTURE,
        " ".join((*sentences, *_group_sentences(refused.cluster.groups, live))),
        command="" if harmful else _command(live),
        node_name=rows[0].node.name if len(rows) == 1 else "",
        pods=tuple(_leaving_pod(refused, infos, pod, violates=pod.uid in violating) for pod in (*live, *ending)),
        instance_type=rows[0].node.instance_type,
    )


def _leaving_pod(refused: RefusedPod, infos: Mapping[str, PodInfo], pod: Pod, *, violates: bool) -> LeavingPod:
    budgets = refused.disruption_allowance.budgets_of([pod])
    return LeavingPod(
        pod.namespace,
        pod.name,
        priority=pod.priority,
        started=pod.started or 0.0,
        asks=request_text(pod.neuron),
        budgets=tuple(budget.name for budget in budgets if budget.counts(pod)),
        violates=violates,
        evictable=infos[pod.uid].is_evictable
        and pod.priority < refused.pod.priority
        and not refused.pod.never_preempts,
    )


def _sentences(
    pod: Pod,
    live: Sequence[Pod],
    ending: Sequence[Pod],
    infos: Mapping[str, PodInfo],
    *,
    nodes: str,
    then: tuple[str, str],
) -> Iterator[str]:
    """Yield which pods on these nodes, with their infos by uid, have to go, and who does what `then`."""
    (who, does), are = then, "is" if len(ending) == 1 else "are"

    def names_text(pods: Sequence[Pod]) -> str:
        return few([f"{pod.key}{_remark(infos[pod.uid])}" for pod in pods])

    if not live:
        yield f"Wait: {names_text(ending)} {are} Terminating on {nodes}, and then {who} {does}."
        return
    yield f"Delete or evict {names_text(live)} on {nodes}:"
    yield f"{who} then {does}, if no other pod takes the room first."
    if ending:
        yield f"{names_text(ending)} {are} Terminating already."
    higher = [other for other in live if other.priority > pod.priority]
    if higher:
        have = "has" if len(higher) == 1 else "have"
        yield f"{names_text(higher)} {have} a higher priority than this pod."
    if any(other.owner is not None for other in live):
        yield "A controller may start another pod in place of one that ends."


def _group_sentences(groups: Groups, live: Sequence[Pod]) -> Iterator[str]:
    """Yield what else may stop when a member of a group does."""
    for pod in live:
        if pod.group is not None:
            key = pod.group.key
            yield f"{pod.key} is a member of group {clip(key.title)}, {count_text(len(groups.members(key)), 'pod')}."


def _remark(info: PodInfo) -> str:
    if info.unreadable:
        return " (its object cannot be read)"
    return " (its Neuron ids are unknown)" if info.cores is None else ""


def _command(pods: Sequence[Pod]) -> str:
    by_namespace: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        by_namespace[pod.namespace].append(pod.name)
    commands = [
        kubectl("delete", "pod", "--namespace", namespace, *names, names=(namespace, *names))
        for namespace, names in by_namespace.items()
    ]
    return " && ".join(commands) if all(commands) else ""

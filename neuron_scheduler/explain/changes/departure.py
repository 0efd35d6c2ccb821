"""
DEPARTURE: pods of one node end or are evicted, and that node then takes the pod.

The search is that of preemption, with other rules (`Ending`). Every pod of a node may end, whatever its priority: pods
with unknown ids and unreadable pods too, and pending pods for which space is kept there. Pods of DaemonSets and static
pods are left out, because they come back at once. A set is better if fewer pods that are not terminating already have
to go; then by preemption's criteria (budgets, priorities, how long they have run). Of sets with the same budgets and
priorities the one comes first that ends the fewest pods of other namespaces: the reader can rarely end those. If all of
this is equal, the pods go that hold least.

Smallest: none of the named pods can stay. The set is small, but it need not be the smallest: what has to go is found by
trying which pods can stay, one after the other.

First counting says what each node would have to lose (`scheduling.preemption.victims`), then the filters are asked
about one node after the other, the cheapest first. If they refuse too many nodes, the search is cut off, and a note
says so. A set is found wherever the node takes the pod once all pods are gone that may leave it. Where the pod has to
be near one of them, a set can be missed.
"""

from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Final

import attrs

from neuron_scheduler.cluster.index.nodeset import Slot, less, membership
from neuron_scheduler.cluster.rows.node_info import NodeInfo, without_pods
from neuron_scheduler.explain.answers import Change, ChangeKind, LeavingPod
from neuron_scheduler.explain.changes.refused_pod import Found, Note, RefusedPod, kubectl
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import few, few_names
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.preemption.victims import (
    Cost,
    Incoming,
    Victims,
    by_importance,
    counted_victims,
    victims_on,
)

MOST_GONE: Final = 32
"""Pods in one set: the end of more is nothing to suggest."""
_MOST_TRIED: Final = 64
"""Nodes about which the filters are asked."""
_ABOVE_ALL: Final = 1 << 32
"""More than any priority."""
_COMING_BACK: Final = ("DaemonSet", "Node")
"""Kinds of owners whose pods come back to the same node; `Node` owns static pods."""
_CUT_OFF: Final = Note(
    "The search for pods whose end would do was cut off; fewer pods may do, or those of another node."
)
_TOO_MANY: Final = Note(f"Some nodes would have to lose more than {MOST_GONE} pods; this is not offered.")
_CHANGED: Final = Note("The pods whose end would have done changed during the search.")

_Place = tuple[Cost, Slot, str]
"""What a node would have to lose by counting, its slot when the search began, which tells its age, and its name."""


@attrs.frozen
class Ending(Incoming):
    """The pod that needs room, with the rules for pods that somebody may end."""

    def leavers(self, node_info: NodeInfo) -> Sequence[Pod]:
        """Return the pods that could leave, the most important first; those that are terminating are the last."""
        infos = node_info.pod_infos.values()
        pods = [info.pod for info in infos if info.pod.owner is None or info.pod.owner.kind not in _COMING_BACK]
        return sorted(by_importance(pods), key=lambda pod: pod.terminating)

    def cost(self, victims: Victims) -> Cost:
        """Return what sets are compared by; but for their number, only pods count that are not terminating already."""
        live = by_importance(pod for pod in victims.pods if not pod.terminating)
        *cost, started = Victims(live, len(self.disruption_allowance.violating(live))).cost
        theirs = sum(pod.namespace != self.pod.namespace for pod in live)
        return (len(live), len(victims.pods), *cost, theirs, started, sum(map(self._size, live)))

    def reprieves(self, leavers: Sequence[Pod], must: Sequence[Pod], remaining: Sequence[Pod]) -> list[Sequence[Pod]]:
        """Return preemption's orders, and one in which the smallest pods stay, so that few large ones have to go."""
        smallest = sorted(remaining, key=lambda pod: (pod.terminating, self._size(pod)))
        orders = [smallest, *super().reprieves(leavers, must, remaining)]
        orders = [sorted(order, key=lambda pod: pod.terminating) for order in orders]
        return list({tuple(pod.uid for pod in order): order for order in orders}.values())

    def _size(self, other: Pod) -> float:
        """Return how much of what the pod asks for another holds, as a sum of fractions of what it asks for."""
        return sum(other.requests.get(name, 0) / amount for name, amount in self.pod.requests.items() if amount > 0)


def find_departure(refused: RefusedPod) -> Iterator[Found]:
    """Yield the pods of one node whose end would do, if there are any."""
    yield from refused.refusal_warmed_up()
    ending = Ending(refused.pod, refused.profile, refused.disruption_allowance)
    places, too_many = yield from _counted(refused, ending)
    best, name, uids = None, "", list[str]()
    for number, (counted, _, place) in enumerate(places):
        if best is not None and counted >= best:
            break
        if number == _MOST_TRIED:
            yield _CUT_OFF
            break
        victims = _victims(refused, ending, place, best)
        if victims is not None and len(victims.pods) <= MOST_GONE:
            best, name, uids = ending.cost(victims), place, [pod.uid for pod in victims.pods]
        too_many |= victims is not None and len(victims.pods) > MOST_GONE
        yield None
    if best is None:
        if too_many:
            yield _TOO_MANY
        return
    for uid in tuple(uids):
        rest = [other for other in uids if other != uid]
        if rest and _change(refused, ending, name, rest) is not None:
            uids = rest
        yield None
    yield _change(refused, ending, name, uids) or _CHANGED


def _counted(refused: RefusedPod, ending: Ending) -> Generator[None, None, tuple[list[_Place], bool]]:
    """Return where pods could go, the cheapest first by counting, and whether some node would have to lose too many."""
    places, too_many = list[_Place](), False
    for slot, name in _helpful(refused):
        node_info = refused.cluster.node(name)
        victims = None if node_info is None else counted_victims(_full(refused, node_info), ending)
        if victims is not None and len(victims.pods) <= MOST_GONE:
            places.append((ending.cost(victims), slot, name))
        too_many |= victims is not None and len(victims.pods) > MOST_GONE
        yield None
    return sorted(places), too_many


def _helpful(refused: RefusedPod) -> list[tuple[Slot, str]]:
    """Return the nodes where fewer pods could help: no filter says that they would not, whatever the others say."""
    view, pod = refused.cluster.view, refused.pod
    nodes = view.live
    with refused.cluster.without_nomination(pod.uid):
        for step in refused.profile.plan(pod).filters:
            for refusal in step.refuse(view, pod, nodes):
                if refusal.unresolvable:
                    nodes = less(nodes, refusal.nodes)
    size = nodes.bit_length()
    is_one = membership(nodes, size)
    return [(slot, view.row(slot).node.name) for slot in map(Slot, range(size)) if is_one(slot)]


def _full(refused: RefusedPod, node_info: NodeInfo) -> NodeInfo:
    """Return the row with the pods on it for which space is kept that the pod may not take."""
    pod = refused.pod
    kept = tuple(nomination for nomination in node_info.nominations if nomination.pod.uid != pod.uid)
    row = node_info if len(kept) == len(node_info.nominations) else attrs.evolve(node_info, nominations=kept)
    return attrs.evolve(row.with_nominated(pod.priority), nominations=()) if kept else row


def _victims(refused: RefusedPod, ending: Ending, name: str, limit: Cost | None) -> Victims | None:
    """Return the cheapest pods of a node without which the filters accept the pod; None if the limit is reached."""
    cluster = refused.cluster
    slot = cluster.view.slot(name)
    if slot is None:
        return None
    with cluster.row_replaced(slot, _full(refused, cluster.view.row(slot))):
        found = victims_on(cluster, slot, ending, below=_ABOVE_ALL, limit=limit)
    return found if isinstance(found, Victims) and found.pods else None


def _change(refused: RefusedPod, ending: Ending, name: str, uids: Collection[str]) -> Change | None:
    """Return the end of these pods as a change, if they are still there and their node then takes the pod."""
    node_info = refused.cluster.node(name)
    if node_info is None:
        return None
    gone = [pod for pod in ending.leavers(_full(refused, node_info)) if pod.uid in uids]
    kept = tuple(nomination for nomination in node_info.nominations if nomination.pod.uid not in uids)
    row = without_pods(node_info, [uid for uid in uids if uid in node_info.pod_infos])
    row = row if len(kept) == len(row.nominations) else attrs.evolve(row, nominations=kept)
    if len(gone) < len(uids) or refused.decision_with(row) is None:
        return None
    return _change_of(refused, node_info, gone)


def _change_of(refused: RefusedPod, node_info: NodeInfo, gone: Sequence[Pod]) -> Change:
    """Return the end of these pods of a node as a change; those that must be ended come first, by importance."""
    live = by_importance(pod for pod in gone if not pod.terminating)
    ending = by_importance(pod for pod in gone if pod.terminating)
    violating = refused.disruption_allowance.violating(live)
    pods = tuple(_leaving(refused, node_info, pod, violates=pod.uid in violating) for pod in (*live, *ending))
    return Change(
        ChangeKind.DEPARTURE,
        " ".join(_sentences(refused, node_info, live, ending, pods)),
        command=_command(live),
        node_name=node_info.node.name,
        pods=pods,
        instance_type=node_info.node.instance_type,
    )


def _leaving(refused: RefusedPod, node_info: NodeInfo, pod: Pod, *, violates: bool) -> LeavingPod:
    info = node_info.pod_infos.get(pod.uid)
    budgets = refused.disruption_allowance.budgets
    return LeavingPod(
        pod.namespace,
        pod.name,
        priority=pod.priority,
        started=pod.started or 0.0,
        asks=asked(pod.neuron),
        budgets=tuple(budget.name for budget in budgets if budget.counts(pod)),
        violates=violates,
        evictable=info is not None and not info.unreadable and pod.priority < refused.pod.priority,
    )


def _sentences(
    refused: RefusedPod, node_info: NodeInfo, live: Sequence[Pod], ending: Sequence[Pod], pods: Sequence[LeavingPod]
) -> Iterator[str]:
    """Yield what is to be done, and what whoever does it should know."""
    name = node_info.node.name
    are = "is" if len(ending) == 1 else "are"
    if not live:
        yield f"Wait: {_named(node_info, ending)} {are} ending on {name}, and then the pod goes there."
        return
    yield f"End or evict {_named(node_info, live)} on {name}: the pod then goes there."
    if ending:
        yield f"{_named(node_info, ending)} {are} ending already."
    budgets = dict.fromkeys(budget for pod in pods if pod.violates for budget in pod.budgets)
    if budgets:
        which = f"the disruption budget{_s(budgets)} {few_names(list(budgets))}"
        yield f"This goes beyond what {which} allow{_s(budgets, 's', '')}."
    their = _s(live, "Its", "Their")
    if all(pod.evictable for pod in pods[: len(live)]) and not refused.pod.never_preempts:
        them = _s(live, "it", "them")
        yield f"{their} priority is lower, so the scheduler may evict {them} itself."
    if any(pod.owner is not None for pod in live):
        yield f"{their} controller{_s(live)} may start {_s(live, 'another in its', 'others in their')} place."


def _s(things: Collection[object], one: str = "", several: str = "s") -> str:
    """Return the form of a word for one thing or for several."""
    return one if len(things) == 1 else several


def _named(node_info: NodeInfo, pods: Sequence[Pod]) -> str:
    return few([f"{pod.key}{_remark(node_info, pod)}" for pod in pods])


def _remark(node_info: NodeInfo, pod: Pod) -> str:
    info = node_info.pod_infos.get(pod.uid)
    if info is None:
        return " (it is pending, and space is kept for it)"
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

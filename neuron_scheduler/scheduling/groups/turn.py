"""
A turn: whole machines are kept for a request that smaller pods would not let in, as they come free by themselves.

A pod is expected to run as long again as it has run: so the node drains first whose oldest holder started last. Nobody
is evicted. The nominations are awaited ones: they keep off pods of the same or a lower priority only.
"""

from collections.abc import Generator, Sequence
from typing import Final, TypeAlias

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.labels import domain_of
from neuron_scheduler.cluster.index.nodeset import slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.model.node import ULTRASERVER_PLACES
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.refusals import refusal_of_pod, resolvable_nodes
from neuron_scheduler.scheduling.groups.regions import takes_whole, without_pod_terms
from neuron_scheduler.scheduling.preemption.nominations import can_be_kept, holders, nomination_without

Nodes: TypeAlias = tuple[tuple[str, Nomination], ...]
"""A node's name and the nomination for each pod."""
_FREE: Final = 0.5
"""How much of the kept machines is free already: a full one would come free as a whole in any case (measured)."""
_MOST_TRIED: Final = 64
"""Nodes that all filters are asked about."""
_AT_ONCE: Final = 64
"""Nodes that are looked at in one step."""


def nodes_that_drain_first(
    cluster: Cluster,
    pods: Sequence[Pod],
    profile: Profile,
    *,
    topology: str = "",
    domain: str = "",
    had_it: bool = False,
) -> Generator[None, None, Nodes]:
    """
    Return the nodes that drain first, one for each of some pods with equal requests; yields when other tasks may run.

    Empty if a pod would share a machine, if there are too few nodes, or if less is free in pieces than they ask for,
    unless they `had_it` before this leader: since then others have taken pieces that were not kept. All are in one
    domain of `topology`, in `domain` if it is given. The indexes of a refusal must be warm.
    """
    first = _by_itself(pods[0], topology)
    if refusal_of_pod(cluster.view, first, profile) is not None:
        return ()
    helpful, _ = resolvable_nodes(cluster, first, profile)
    names = [cluster.view.row(slot).node.name for slot in slots_of(helpful)]
    free, draining = 0.0, list[tuple[float, str, str, float]]()
    for number, name in enumerate(names, start=1):
        row = cluster.node(name)
        if row is not None and not takes_whole(row, first):
            return ()
        if row is not None and not row.neuron_usage.unknown_holders and not _is_kept_for_others(row, pods):
            share = _free_share(row)
            free += share
            within = domain_of(row.node, topology) if topology else ""
            if within is not None and domain in ("", within):
                draining.append((-_oldest_start(row), name, within, share))
        if number % _AT_ONCE == 0:
            yield
    if free < len(pods) and not had_it:
        return ()
    draining.sort(key=lambda node: node[0])
    return (yield from _first_enough(cluster, pods, profile, topology, draining))


def _first_enough(
    cluster: Cluster,
    pods: Sequence[Pod],
    profile: Profile,
    topology: str,
    draining: Sequence[tuple[float, str, str, float]],
) -> Generator[None, None, Nodes]:
    """Return nodes of the domain in which the first enough of them drain; they come in the order in which they do."""
    by_domain, tried = dict[str, dict[str, float]](), 0
    for _, name, within, share in draining:
        near = by_domain.setdefault(within, {})
        near[name] = share
        if len(near) < len(pods):
            continue
        if sum(near.values()) < _FREE * len(pods):
            del near[min(near, key=lambda name: near[name])]
            continue
        kept = list[tuple[str, Nomination]]()
        for candidate in sorted(near, key=lambda name: _place_of(cluster.node(name), topology)):  # as the ranks
            nomination = _nomination_on(cluster, candidate, pods[len(kept)], profile, topology)
            kept += [] if nomination is None else [(candidate, nomination)]
            tried += 1
            yield
        if len(kept) == len(pods):
            return tuple(kept)
        if tried >= _MOST_TRIED:
            break
        by_domain[within] = {name: near[name] for name, _ in kept}
    return ()


def _by_itself(pod: Pod, topology: str) -> Pod:
    """Return a member of a group as it is asked about: the others are not on their nodes yet."""
    return without_pod_terms(pod) if topology else pod


def _nomination_on(cluster: Cluster, name: str, pod: Pod, profile: Profile, topology: str) -> Nomination | None:
    slot, row = cluster.view.slot(name), cluster.node(name)
    if slot is None or row is None:
        return None
    with cluster.row_replaced(slot, attrs.evolve(row, nominations=())):  # those of the pods themselves
        alone = _by_itself(pod, topology)
        nomination = nomination_without(cluster, slot, alone, profile, frozenset(holders(row)))
    return nomination and attrs.evolve(nomination, pod=pod, awaited=True)


def are_as_chosen(cluster: Cluster, nodes: Nodes) -> bool:
    """Return whether nodes that were chosen one after the other can all be kept still."""
    pods = [nomination.pod for _, nomination in nodes]
    rows = [(cluster.node(name), nomination) for name, nomination in nodes]
    return all(row and can_be_kept(row, kept) and not _is_kept_for_others(row, pods) for row, kept in rows)


def _is_kept_for_others(row: NodeInfo, pods: Sequence[Pod]) -> bool:
    return bool({nomination.pod.uid for nomination in row.nominations} - {pod.uid for pod in pods})


def _oldest_start(row: NodeInfo) -> float:
    """Return when the oldest holder started that does not end already; one that has not started begins just now."""
    staying = [pod_info.pod.started for pod_info in holders(row).values() if not pod_info.pod.terminating]
    return min((started for started in staying if started is not None), default=float("inf"))


def _free_share(row: NodeInfo) -> float:
    """Return how much of a machine is free, or is held by pods that end already."""
    staying = [pod_info.cores for pod_info in row.pod_infos.values() if not pod_info.pod.terminating]
    held = sum(cores.bit_count() for cores in staying if cores)
    return 0.0 if row.machine is None else 1 - held / row.machine.core_count


def _place_of(row: NodeInfo | None, topology: str) -> int:
    place = "" if row is None else row.node.labels.get(ULTRASERVER_PLACES.get(topology, ""), "")
    return int(place) if place.isdecimal() else 0

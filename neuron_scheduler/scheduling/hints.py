"""
Whether a changed node could take a pod that certain plugins refused: queueing hints, plugin by plugin.

Upstream: `isSchedulableAfter...` of each plugin (`SchedulerQueueingHints`). Most plugins judge a node by itself, so
something that happens to one node changes their mind about that node only, and what they would say now can be read off
its row. A hint may say yes too often, never no too often: where pods of lower priority could be asked to leave, they
are taken for gone. What several plugins say together is left to the next attempt.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.cluster.node_state import NodeState
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Taint, Toleration, tolerates_all
from neuron_scheduler.neuron.topology import place
from neuron_scheduler.scheduling.plugins import (
    neuron_topology,
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)

_WILDCARD: Final = HostPort("TCP", 1).ip


@attrs.frozen(cache_hash=True)
class Need:
    """
    What the plugins that refused a pod look at in it, and nothing else, so that pods that are alike in it are equal.

    Attributes:
        evicts_below: pods below this priority could be asked to leave; None if it never does, or has done so.
    """

    requests: frozenset[tuple[str, int]] = frozenset()
    neuron: NeuronRequest | None = None
    node_selector: frozenset[tuple[str, str]] = frozenset()
    required_terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    evicts_below: int | None = None


NOTHING_NEEDED: Final = Need()


@attrs.frozen
class Change:
    """
    What happened to a node.

    Attributes:
        state: its row afterwards.
        before: the node before, if it was there.
    """

    state: NodeState
    before: Node | None = None


def need_of(pod: Pod, plugins: frozenset[str], *, promised: bool = False) -> Need:
    """Return what a pod needs, as far as these plugins refused it; one that was promised space evicts nobody else."""
    named, constraints = plugins & _HINTS.keys(), pod.constraints
    affinity, fit = node_affinity.NAME in named, node_resources_fit.NAME in named
    tolerant = named & {taint_toleration.NAME, node_unschedulable.NAME}
    return Need(
        requests=frozenset(pod.requests.items()) if fit else frozenset(),
        neuron=pod.neuron if neuron_topology.NAME in named else None,
        node_selector=frozenset(constraints.node_selector.items()) if affinity else frozenset(),
        required_terms=constraints.required_terms if affinity else None,
        tolerations=pod.tolerations if tolerant else (),
        host_ports=pod.host_ports if node_ports.NAME in named else (),
        evicts_below=None if pod.never_preempts or promised else pod.priority,
    )


def may_accept(need: Need, plugins: Iterable[str], changes: Iterable[Change]) -> bool:
    """Tell whether one of these plugins may have changed its mind about one of the nodes."""
    changes = tuple(changes)
    return any(
        (hint := _HINTS.get(plugin)) is None or any(hint(need, change) for change in changes) for plugin in plugins
    )


def _at_best(need: Need, state: NodeState) -> NodeState:
    return state if need.evicts_below is None else state.above(need.evicts_below)


def _has_room(need: Need, change: Change) -> bool:
    state = _at_best(need, change.state)
    return state.free(PODS) > 0 and all(state.free(resource) >= amount for resource, amount in need.requests)


def _has_block(need: Need, change: Change) -> bool:
    state = _at_best(need, change.state)
    if need.neuron is None or state.machine is None or state.node.neuron_unhealthy:
        return False
    return place(state.machine, state.free_cores, need.neuron) is not None


def _has_ports(need: Need, change: Change) -> bool:
    taken: dict[tuple[str, int], set[str]] = {}
    for port in _at_best(need, change.state).ports:
        taken.setdefault((port.protocol, port.port), set()).add(port.ip)
    return not any(_collides(wanted, taken.get((wanted.protocol, wanted.port))) for wanted in need.host_ports)


def _collides(wanted: HostPort, taken: Collection[str] | None) -> bool:
    """Tell whether a port cannot be had where it is taken at these addresses."""
    return taken is not None and (wanted.ip == _WILDCARD or _WILDCARD in taken or wanted.ip in taken)


def _matches_now(need: Need, change: Change) -> bool:
    return _newly(change, lambda node: _matches(need, node))


def _matches(need: Need, node: Node) -> bool:
    if any(node.labels.get(key) != value for key, value in need.node_selector):
        return False
    terms = need.required_terms
    return terms is None or any(term.matches(node.labels, node.name) for term in terms)


def _tolerated_now(need: Need, change: Change) -> bool:
    return _newly(
        change,
        lambda node: tolerates_all(
            need.tolerations, (t for t in node.taints if t.effect is not Effect.PREFER_NO_SCHEDULE)
        ),
    )


def _open_now(need: Need, change: Change) -> bool:
    cordon = (Taint("node.kubernetes.io/unschedulable", Effect.NO_SCHEDULE),)
    return _newly(
        change,
        lambda node: not node.refusal and (not node.unschedulable or tolerates_all(need.tolerations, cordon)),
    )


def _newly(change: Change, accepts: Callable[[Node], bool]) -> bool:
    """Tell whether the node is accepted now and was not before."""
    return accepts(change.state.node) and (change.before is None or not accepts(change.before))


_HINTS: Final[Mapping[str, Callable[[Need, Change], bool]]] = {
    node_resources_fit.NAME: _has_room,
    neuron_topology.NAME: _has_block,
    node_ports.NAME: _has_ports,
    node_affinity.NAME: _matches_now,
    taint_toleration.NAME: _tolerated_now,
    node_unschedulable.NAME: _open_now,
}

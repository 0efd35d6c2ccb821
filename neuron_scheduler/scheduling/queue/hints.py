"""
Whether a changed node could take a pod that certain plugins refused: queueing hints, plugin by plugin.

Upstream: `isSchedulableAfter...` of each plugin (`SchedulerQueueingHints`). Most plugins judge a node by itself, so
something that happens to one node changes their mind about that node only, and what they would say now can be read off
its row. So the node must do for all of them that refused the pod, and be new to the mind of one. A hint may say yes too
often, never no too often: where pods of lower priority could be asked to leave, they are taken for gone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
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
class HintInput:
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


NO_HINT_INPUT: Final = HintInput()


@attrs.frozen
class Change:
    """
    What happened to a node.

    Attributes:
        node_info: its row afterwards.
        before: the node before, and before each further change that this stands for; None where it was not there.
    """

    node_info: NodeInfo
    before: tuple[Node | None, ...] = (None,)


def hint_input_of(pod: Pod, plugins: frozenset[str], *, has_nomination: bool = False) -> HintInput:
    """Return what a pod needs, as far as these plugins refused it; one that was promised space evicts nobody else."""
    named, constraints = plugins & LOCAL, pod.constraints
    affinity, fit = node_affinity.NAME in named, node_resources_fit.NAME in named
    tolerant = named & {taint_toleration.NAME, node_unschedulable.NAME}
    return HintInput(
        requests=frozenset(pod.requests.items()) if fit else frozenset(),
        neuron=pod.neuron if neuron_topology.NAME in named else None,
        node_selector=frozenset(constraints.node_selector.items()) if affinity else frozenset(),
        required_terms=constraints.required_terms if affinity else None,
        tolerations=pod.tolerations if tolerant else (),
        host_ports=pod.host_ports if node_ports.NAME in named else (),
        evicts_below=None if pod.never_preempts or has_nomination else pod.priority,
    )


def acceptable(hint_input: HintInput, plugins: Iterable[str], node_info: NodeInfo) -> bool:
    """Tell whether a node would do now for all of these plugins, as far as it is known what they look at."""
    best = node_info if hint_input.evicts_below is None else node_info.without_lower_priority(hint_input.evicts_below)
    return all(_accepts(plugin, hint_input, best) for plugin in plugins if plugin in LOCAL)


def may_accept(hint_input: HintInput, change: Change, *, helped: Iterable[str], plugins: Iterable[str]) -> bool:
    """
    Tell whether a node that has changed may take a pod that these plugins refused.

    Of them the change concerns those that are `helped`: one of them must have changed its mind.
    """
    return any(_may_think_otherwise(plugin, hint_input, change) for plugin in helped) and acceptable(
        hint_input, plugins, change.node_info
    )


def _accepts(plugin: str, hint_input: HintInput, node_info: NodeInfo) -> bool:
    judge = _OF_NODES.get(plugin)
    return judge(hint_input, node_info.node) if judge is not None else _OF_ROWS[plugin](hint_input, node_info)


def _may_think_otherwise(plugin: str, hint_input: HintInput, change: Change) -> bool:
    """Tell whether the plugin refused what the node was, as far as that is known; what it is now is asked of all."""
    judge = _OF_NODES.get(plugin)
    return judge is None or any(before is None or not judge(hint_input, before) for before in change.before)


def _has_room(hint_input: HintInput, node_info: NodeInfo) -> bool:
    return node_info.free(PODS) > 0 and all(
        node_info.free(resource) >= amount for resource, amount in hint_input.requests
    )


def _has_block(hint_input: HintInput, node_info: NodeInfo) -> bool:
    if hint_input.neuron is None or node_info.machine is None or node_info.node.neuron_unhealthy:
        return False
    return place(node_info.machine, node_info.free_cores, hint_input.neuron) is not None


def _has_ports(hint_input: HintInput, node_info: NodeInfo) -> bool:
    taken: dict[tuple[str, int], set[str]] = {}
    for port in node_info.ports:
        taken.setdefault((port.protocol, port.port), set()).add(port.ip)
    return not any(_collides(wanted, taken.get((wanted.protocol, wanted.port))) for wanted in hint_input.host_ports)


def _collides(wanted: HostPort, taken: Collection[str] | None) -> bool:
    """Tell whether a port cannot be had where it is taken at these addresses."""
    return taken is not None and (wanted.ip == _WILDCARD or _WILDCARD in taken or wanted.ip in taken)


def _matches(hint_input: HintInput, node: Node) -> bool:
    if any(node.labels.get(key) != value for key, value in hint_input.node_selector):
        return False
    terms = hint_input.required_terms
    return terms is None or any(term.matches(node.labels, node.name) for term in terms)


def _is_tolerated(hint_input: HintInput, node: Node) -> bool:
    return tolerates_all(hint_input.tolerations, (t for t in node.taints if t.effect is not Effect.PREFER_NO_SCHEDULE))


def _is_open(hint_input: HintInput, node: Node) -> bool:
    return not node.refusal and (not node.unschedulable or tolerates_all(hint_input.tolerations, _CORDON))


_CORDON: Final = (Taint("node.kubernetes.io/unschedulable", Effect.NO_SCHEDULE),)

_OF_NODES: Final[Mapping[str, Callable[[HintInput, Node], bool]]] = {
    node_affinity.NAME: _matches,
    taint_toleration.NAME: _is_tolerated,
    node_unschedulable.NAME: _is_open,
}
_OF_ROWS: Final[Mapping[str, Callable[[HintInput, NodeInfo], bool]]] = {
    node_resources_fit.NAME: _has_room,
    node_ports.NAME: _has_ports,
    neuron_topology.NAME: _has_block,
}
LOCAL: Final = frozenset(_OF_NODES.keys() | _OF_ROWS.keys())
"""Plugins that judge a node by itself, and look at nothing in a pod but its `Need`."""

"""
Whether a changed node could take a pod that certain plugins refused: queueing hints.

Upstream: `isSchedulableAfter...` of each plugin (`SchedulerQueueingHints`). Most plugins judge a node by itself, so a
change of one node changes their answer for that node only, and the new answer follows from the node's row. So the node
must pass all the plugins that refused the pod and have a hint, and one of the plugins that the change concerns may have
refused the node before. Pods of lower priority that could be evicted are left out of account, so that a hint may say
yes too often, and never no too often.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.contract import NodeHint, RowHint
from neuron_scheduler.scheduling.plugins.registry import PLUGINS

_HINTS: Final[Mapping[str, NodeHint[Any] | RowHint[Any]]] = {
    plugin.name: plugin.hint for plugin in PLUGINS if plugin.hint is not None
}
LOCAL: Final = frozenset(_HINTS)
"""Names of the plugins that have a hint: they judge a node by itself, and look at nothing else in a pod."""


@attrs.frozen(cache_hash=True)
class HintInput:
    """
    What the plugins that refused a pod look at in it, and nothing else, so that pods that are alike in it are equal.

    Attributes:
        by_plugin: names of plugins that have a hint, each with what the plugin looks at.
        evicts_below: pods below this priority could be evicted for it; None if it never preempts, or has done so.
    """

    by_plugin: tuple[tuple[str, Hashable], ...] = ()
    evicts_below: int | None = None


NO_HINT_INPUT: Final = HintInput()


@attrs.frozen
class NodeChange:
    """
    What happened to a node.

    Attributes:
        node_info: its row afterwards.
        before: the node before the change, and before each later change of the burst; None where it did not exist.
    """

    node_info: NodeInfo
    before: tuple[Node | None, ...] = (None,)


def hint_input_of(pod: Pod, plugins: frozenset[str], *, has_nomination: bool = False) -> HintInput:
    """Return what these plugins, which refused a pod, look at in it; a pod with a nomination evicts no other pods."""
    return HintInput(
        by_plugin=tuple([(name, hint.looks_at(pod)) for name, hint in _HINTS.items() if name in plugins]),
        evicts_below=None if pod.never_preempts or has_nomination else pod.priority,
    )


def acceptable(hint_input: HintInput, node_info: NodeInfo) -> bool:
    """Return whether a node passes now all the plugins that refused the pod and have a hint."""
    if hint_input.evicts_below is not None:
        node_info = node_info.without_lower_priority(hint_input.evicts_below)
    return all(_HINTS[name].accepts(looked_at, node_info) for name, looked_at in hint_input.by_plugin)


def may_accept(hint_input: HintInput, change: NodeChange, *, concerned: frozenset[str]) -> bool:
    """
    Return whether a node that has changed may take a pod.

    Args:
        hint_input: what the plugins that refused the pod look at in it.
        change: what happened to the node.
        concerned: names of those of the plugins that the change concerns; the answer of one must have changed.
    """
    return _may_have_refused(hint_input, change, concerned) and acceptable(hint_input, change.node_info)


def _may_have_refused(hint_input: HintInput, change: NodeChange, plugins: frozenset[str]) -> bool:
    """Return whether one of the plugins may have refused the node before; those without a hint always may."""
    return not plugins <= LOCAL or any(
        before is None or _HINTS[name].may_have_refused(looked_at, before)
        for name, looked_at in hint_input.by_plugin
        if name in plugins
        for before in change.before
    )

"""
What a plugin is, and the values that plugins and the decision share.

Upstream: `pkg/scheduler/framework/interface.go`. A refusal's reason is a lower-case phrase without ids, so that equal
reasons can be counted; in kube-scheduler's or AWS's own wording where there is one.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, NewType, TypeVar

import attrs

from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

PluginName = NewType("PluginName", str)
"""A plugin's name, made once in its file: a name that is written out elsewhere is an error of the type check."""

_Input = TypeVar("_Input", bound=Hashable)
Accept = Callable[[View, Pod, NodeSet], NodeSet]
Prefer = Callable[[View, Pod, NodeSet], NodeSet]
EVERY_PLUGIN: Final = PluginName("*")


@attrs.frozen
class Refusal:
    """
    Nodes that a filter refuses for one reason; several refusals of one filter may name the same node.

    Attributes:
        unresolvable: evicting pods there would not help (`UnschedulableAndUnresolvable`), whoever else is asked.
        new_node_cannot_help: any new node would be refused as well.
    """

    plugin: PluginName
    reason: str
    nodes: NodeSet
    unresolvable: bool = False
    new_node_cannot_help: bool = False


@attrs.frozen
class PodRefusal:
    """The reason why no node can take a pod in the current state of the cluster, and a new one could not either."""

    plugin: PluginName
    reason: str


Refuse = Callable[[View, Pod, NodeSet], Sequence[Refusal]]

NONE_REFUSED: Sequence[Refusal] = ()


@attrs.frozen
class Filter:
    """
    One step of a plugin that refuses nodes.

    Attributes:
        refuse: which of some nodes it refuses, and why.
        accept: which it accepts, where that takes less time than the reasons; the two must agree.
        refuse_emptied: which it would refuse without the node's own pods of a lower priority, one node at a time.
        reads: the step is skipped for a pod that leaves out all of these; it is never skipped if there are none.
        narrows: the nodes that it accepts are so much alike that other filters have less to distinguish.
        before: name of the plugin before whose filters the step comes, or `EVERY_PLUGIN`; None for the place of its own
            plugin.
    """

    refuse: Refuse
    accept: Accept | None = None
    refuse_emptied: Refuse | None = None
    reads: tuple[PodField, ...] = ()
    narrows: bool = False
    before: PluginName | None = None

    @property
    def accept_nodes(self) -> Accept:
        return self.accept or self._rest

    def _rest(self, view: View, pod: Pod, among: NodeSet) -> NodeSet:
        for refusal in self.refuse(view, pod, among):
            among = less(among, refusal.nodes)
        return among


@attrs.frozen
class PreFilter:
    """
    A plugin's step that refuses a pod whatever the nodes are; `reads` and `before` as in `Filter`.

    Attributes:
        cause: what the pod waits for; None for the cause of the plugin's other refusals.
    """

    refuse: Callable[[View, Pod], PodRefusal | None]
    reads: tuple[PodField, ...]
    before: PluginName | None = None
    cause: Cause | None = None


@attrs.frozen
class Preference:
    """
    A plugin's step that returns the best of several nodes; `reads` as in `Filter`.

    Attributes:
        name: in a configuration file.
        every_pod: it is not skipped for a pod that leaves out all that it reads.
    """

    name: str
    prefer: Prefer
    reads: tuple[PodField, ...] = ()
    every_pod: bool = attrs.field(default=attrs.Factory(lambda self: not self.reads, takes_self=True))


@attrs.frozen
class NodeHint(Generic[_Input]):
    """
    Whether a node would pass now, for a plugin that looks at nothing but the node's object.

    A hint is asked about one changed node, where a filter is asked about all. It may say yes too often, never no too
    often: a pod is not tried again before the hint says yes. A `NodeHint` is also asked before a Binding that has
    waited is sent (`scheduling.cycle.recheck`).

    Attributes:
        looks_at: what the plugin looks at in a pod; hashable, as pods that are equal in it share one question.
        fits: whether the node passes.
    """

    looks_at: Callable[[Pod], _Input]
    fits: Callable[[_Input, Node], bool]

    def accepts(self, looked_at: _Input, node_info: NodeInfo) -> bool:
        return self.fits(looked_at, node_info.node)


@attrs.frozen
class RowHint(Generic[_Input]):
    """As `NodeHint`, for a plugin that also looks at what the node's pods use."""

    looks_at: Callable[[Pod], _Input]
    fits: Callable[[_Input, NodeInfo], bool]

    def accepts(self, looked_at: _Input, node_info: NodeInfo) -> bool:
        return self.fits(looked_at, node_info)


@attrs.frozen(kw_only=True)
class Plugin:
    """
    A plugin: its steps, and what the rest of the scheduler needs to know about it.

    Attributes:
        name: in refusals, logs and metrics; kube-scheduler's where it has the plugin.
        filters: in the order in which they run.
        events: what may let a node pass that the plugin refused (`EventsToRegister`); an event that is missing leaves
            pods waiting that would fit.
        hint: for a plugin that judges a node by nothing but the node and its pods; None where it looks further.
        cause: what a pod waits for that the plugin refuses.
        causes: what it waits for instead, by reason.
        counts_pods: its answer depends on the labels and terms of other pods, those of other nodes included.
        counts_volumes: its answer depends on the volumes of the node's pods.
    """

    name: PluginName
    pre_filter: PreFilter | None = None
    filters: tuple[Filter, ...] = ()
    preference: Preference | None = None
    events: frozenset[ClusterEvent] = frozenset()
    hint: NodeHint[Any] | RowHint[Any] | None = None
    cause: Cause = Cause.OTHER
    causes: Mapping[str, Cause] = attrs.field(factory=dict)
    counts_pods: bool = False
    counts_volumes: bool = False

    @property
    def reads(self) -> frozenset[PodField]:
        """All fields that a step reads which refuses nodes or pods."""
        steps = [step.reads for step in self.filters] + ([self.pre_filter.reads] if self.pre_filter else [])
        return frozenset(field for fields in steps for field in fields)

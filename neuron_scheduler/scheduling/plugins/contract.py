"""
The words that plugins and the decision share.

Upstream: `pkg/scheduler/framework/interface.go`. A refusal's reason is a lower-case phrase without ids, in
kube-scheduler's or AWS's own wording where there is one, so that equal reasons can be counted.
"""

from collections.abc import Callable, Sequence

import attrs

from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod


@attrs.frozen
class Refusal:
    """
    Nodes that a filter refuses for one reason; several refusals of one filter may name the same node.

    Attributes:
        unresolvable: evicting pods from these nodes would not help (`UnschedulableAndUnresolvable`).
        hopeless: any new node would be refused as well.
    """

    plugin: str
    reason: str
    nodes: NodeSet
    unresolvable: bool = False
    new_node_cannot_help: bool = False


@attrs.frozen
class PodRefusal:
    """
    A pod that no node can take as things stand.

    Attributes:
        hopeless: no new node could help; the condition must not make an autoscaler buy one.
    """

    plugin: str
    reason: str
    new_node_cannot_help: bool = False


Refuse = Callable[[View, Pod, NodeSet], Sequence[Refusal]]
Accept = Callable[[View, Pod, NodeSet], NodeSet]
Prefer = Callable[[View, Pod, NodeSet], NodeSet]

NONE_REFUSED: Sequence[Refusal] = ()


@attrs.frozen
class Filter:
    """
    A plugin's say on which nodes a pod may get.

    Attributes:
        refuse: which of some nodes it refuses, and why.
        accept: which it accepts, where that is known for less than the reasons; the two must agree.
        heeds: names of what in a pod gives it something to do, of which one suffices; empty if any pod does.
        narrows: what it accepts is so much alike that other filters have less to tell apart.
    """

    refuse: Refuse
    accept: Accept | None = None
    heeds: tuple[str, ...] = ()
    narrows: bool = False

    def __call__(self, view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
        """Return which of the nodes are refused, and why."""
        return self.refuse(view, pod, among)

    @property
    def accepting(self) -> Accept:
        """Which of some nodes are accepted."""
        return self.accept or self._rest

    def _rest(self, view: View, pod: Pod, among: NodeSet) -> NodeSet:
        for refusal in self.refuse(view, pod, among):
            among = less(among, refusal.nodes)
        return among


@attrs.frozen
class PreFilter:
    """A plugin's say on whether a pod can get any node at all; `heeds` as in `Filter`."""

    refuse: Callable[[View, Pod], PodRefusal | None]
    heeds: tuple[str, ...] = ()


@attrs.frozen
class Preference:
    """A plugin's say on which of several nodes are best; `heeds` as in `Filter`."""

    prefer: Prefer
    heeds: tuple[str, ...] = ()

"""
The words that plugins and the decision share.

Upstream: `pkg/scheduler/framework/interface.go`. A refusal's reason is a lower-case phrase without ids, in
kube-scheduler's or AWS's own wording where there is one, so that equal reasons can be counted.
"""

from collections.abc import Callable, Sequence

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.nodeset import NodeSet
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
    hopeless: bool = False


@attrs.frozen
class PodRefusal:
    """
    A pod that no node can take as things stand.

    Attributes:
        hopeless: no new node could help; the condition must not make an autoscaler buy one.
    """

    plugin: str
    reason: str
    hopeless: bool = False


PreFilter = Callable[[Cluster, Pod], PodRefusal | None]
Filter = Callable[[Cluster, Pod, NodeSet], Sequence[Refusal]]
Preference = Callable[[Cluster, Pod, NodeSet], NodeSet]

NONE_REFUSED: Sequence[Refusal] = ()

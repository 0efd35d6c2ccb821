"""
NodePorts: a host port can be taken once per protocol and address; `0.0.0.0` stands for every address.

Upstream: `plugins/nodeports/node_ports.go`, `framework/types.go` (HostPortInfo).
"""

from collections.abc import Sequence

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NONE_REFUSED, Filter, Plugin, Refusal
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = "NodePorts"
REASON = "node(s) didn't have free ports for the requested pod ports"

_ANY_ADDRESS = HostPort("TCP", 1).ip


def _taken(node_info: NodeInfo) -> Values:
    """Post each port under its address and under all addresses together."""
    if not node_info.ports:
        return ()
    return tuple({key for p in node_info.ports for key in ((p.protocol, p.port, p.ip), (p.protocol, p.port))})


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse nodes on which one of the pod's host ports is taken."""
    if not pod.host_ports:
        return NONE_REFUSED
    taken = view.postings(_taken)
    refused = NO_NODES
    for port in pod.host_ports:
        if port.ip == _ANY_ADDRESS:
            refused |= taken.get((port.protocol, port.port))
        else:
            refused |= taken.any_of((port.protocol, port.port, ip) for ip in (port.ip, _ANY_ADDRESS))
    return [Refusal(NAME, REASON, refused & among)]


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, reads=(PodField.HOST_PORTS,)),),
    events=frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.ASSIGNED_POD_GONE}),
)

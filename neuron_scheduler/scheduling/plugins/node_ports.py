"""
NodePorts: a host port can be taken once per protocol and address; `0.0.0.0` means every address.

Upstream: `plugins/nodeports/node_ports.go`, `framework/types.go` (HostPortInfo).
"""

from collections.abc import Iterator, Sequence

from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NONE_REFUSED, Filter, Plugin, PluginName, Refusal, RowHint
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("NodePorts")
REASON = "node(s) didn't have free ports for the requested pod ports"

_ANY_ADDRESS = HostPort("TCP", 1).ip


_Key = tuple[str | int, ...]
"""A key of `_taken_ports`."""


def _taken_ports(node_info: NodeInfo) -> Values:
    """Post each port under its address and under all addresses together."""
    if not node_info.ports:
        return ()
    return tuple({key for port in node_info.ports for key in _keys(port)})


def _keys(port: HostPort) -> tuple[_Key, ...]:
    return ((port.protocol, port.port, port.ip), (port.protocol, port.port))


def _conflicts(port: HostPort) -> tuple[_Key, ...]:
    """Return the keys of `_taken_ports` under which a node has a port that excludes this one."""
    if port.ip == _ANY_ADDRESS:
        return ((port.protocol, port.port),)
    return ((port.protocol, port.port, port.ip), (port.protocol, port.port, _ANY_ADDRESS))


def _conflicts_of(pod: Pod) -> frozenset[_Key]:
    return frozenset(key for port in pod.host_ports for key in _conflicts(port))


def users(port: HostPort, node_info: NodeInfo) -> Iterator[Pod]:
    """Yield the pods of a node that have a port which excludes this one."""
    keys = {*_conflicts(port)}
    for pod_info in node_info.pod_infos.values():
        if any(not keys.isdisjoint(_keys(used)) for used in pod_info.pod.host_ports):
            yield pod_info.pod


def fits(conflicts: frozenset[_Key], node_info: NodeInfo) -> bool:
    return conflicts.isdisjoint(_taken_ports(node_info))


def has_free(node_info: NodeInfo, pod: Pod) -> bool:
    """Return whether none of the host ports of a pod, which is not on the node, is taken there."""
    return not pod.host_ports or fits(_conflicts_of(pod), node_info)


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    if not pod.host_ports:
        return NONE_REFUSED
    refused = view.postings(_taken_ports).any_of(_conflicts_of(pod))
    return [Refusal(NAME, REASON, refused & among)]


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, reads=(PodField.HOST_PORTS,)),),
    events=frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.ASSIGNED_POD_GONE}),
    hint=RowHint(_conflicts_of, fits),
    cause=Cause.RESOURCES,
)

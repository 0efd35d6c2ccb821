"""
What the cluster has, in numbers for the metrics: asked of the indexes, so that a scrape does not loop over nodes.
"""

from typing import cast

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.node_state import NodeState
from neuron_scheduler.cluster.nodeset import lowest_slot
from neuron_scheduler.cluster.postings import Values
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.topology import largest_free_block, whole_free_devices


def _instance_type(node: Node) -> Values:
    return () if machine_of(node) is None else (node.instance_type or "unknown",)


def _free_devices(state: NodeState) -> int:
    return whole_free_devices(state.machine, state.free_cores) if state.machine else 0


def _largest_block(state: NodeState) -> int:
    return largest_free_block(state.machine, state.free_cores, Unit.DEVICE) if state.machine else 0


def _unknown_holders(state: NodeState) -> int:
    return state.silicon.unknown_holders


def _contested_cores(state: NodeState) -> int:
    return state.silicon.contested.bit_count()


def unknown_holders(cluster: Cluster) -> int:
    """Return how many bound pods hold silicon that cannot be told."""
    return cluster.view.column(_unknown_holders).total(cluster.view.live)


def contested_cores(cluster: Cluster) -> int:
    """Return how many cores more than one pod claims."""
    return cluster.view.column(_contested_cores).total(cluster.view.live)


def free_devices(cluster: Cluster) -> dict[str, int]:
    """Return the wholly free devices by instance type."""
    types, free = cluster.view.node_postings(_instance_type), cluster.view.column(_free_devices)
    return {cast(str, name): free.total(types.get(name)) for name in types.values}


def largest_free_blocks(cluster: Cluster) -> dict[str, int]:
    """Return the largest count of devices that one container could get now, by instance type."""
    types, blocks = cluster.view.node_postings(_instance_type), cluster.view.column(_largest_block)
    return {cast(str, name): blocks.value(lowest_slot(blocks.highest(types.get(name)))) for name in types.values}

"""
A profile: which plugins run for the pods of one scheduler name, and in which order.

Filters run in kube-scheduler's order, so that a node is counted under the reason kube-scheduler would give.
Preferences are lexicographic: each narrows the best of the ones before it, so the choice can be explained.
"""

import attrs

from neuron_scheduler.scheduling.framework import Filter, Preference, PreFilter
from neuron_scheduler.scheduling.plugins import (
    dynamic_resources,
    inter_pod_affinity,
    neuron_topology,
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
    volume_binding,
)


@attrs.frozen
class Profile:
    """The ordered plugins behind one `schedulerName`."""

    scheduler_name: str
    pre_filters: tuple[PreFilter, ...]
    filters: tuple[Filter, ...]
    preferences: tuple[Preference, ...]


def default_profile(scheduler_name: str, *, trusting: bool = False) -> Profile:
    """
    Return the profile that serves Neuron pods.

    Args:
        scheduler_name: the pods' `spec.schedulerName`.
        trusting: unknown Neuron allocations count by number only (`--unknown-allocations=count-only`).
    """
    return Profile(
        scheduler_name=scheduler_name,
        pre_filters=(
            neuron_topology.pre_filter,
            node_affinity.pre_filter,
            volume_binding.pre_filter,
            pod_topology_spread.pre_filter,
            inter_pod_affinity.pre_filter,
            dynamic_resources.pre_filter,
        ),
        filters=(
            node_affinity.filter_names,
            node_unschedulable.filter_nodes,
            node_name.filter_nodes,
            taint_toleration.filter_nodes,
            node_affinity.filter_nodes,
            node_ports.filter_nodes,
            neuron_topology.filter_counts,
            node_resources_fit.filter_nodes,
            neuron_topology.FreeBlock(trusting),
        ),
        preferences=(
            taint_toleration.prefer,
            node_affinity.prefer,
            neuron_topology.prefer_without_neuron,
            neuron_topology.SmallestBlock(trusting),
            node_resources_fit.prefer_least_allocated,
        ),
    )

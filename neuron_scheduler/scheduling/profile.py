"""
A profile: which plugins run for the pods of one scheduler name, and in which order.

Filters run in kube-scheduler's order, so that a node is counted under the reason kube-scheduler would give.
Preferences are lexicographic: each narrows the best of the ones before it, so the choice can be explained.
"""

from collections.abc import Sequence

import attrs

from neuron_scheduler.scheduling import wishes
from neuron_scheduler.scheduling.framework import Filter, Preference, PreFilter
from neuron_scheduler.scheduling.plugins import (
    dynamic_resources,
    image_locality,
    inter_pod_affinity,
    neuron_topology,
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)


@attrs.frozen
class Profile:
    """The ordered plugins behind one `schedulerName`."""

    scheduler_name: str
    pre_filters: tuple[PreFilter, ...]
    filters: tuple[Filter, ...]
    preferences: tuple[Preference, ...]


def _preferences(*, trusting: bool) -> dict[str, Preference]:
    """Return every preference by the name it has in a configuration file, the most important first."""
    return {
        "TaintToleration": taint_toleration.prefer,
        "WeightedTerms": wishes.prefer,
        "AvoidNeuronNodes": neuron_topology.prefer_without_neuron,
        "DefaultTopologySpread": pod_topology_spread.prefer_by_default,
        "SmallestBlock": neuron_topology.SmallestBlock(trusting),
        "LeastAllocated": node_resources_fit.prefer_least_allocated,
        "ImageLocality": image_locality.prefer,
    }


PREFERENCES: tuple[str, ...] = tuple(_preferences(trusting=False))


def default_profile(
    scheduler_name: str, *, trusting: bool = False, preferences: Sequence[str] = PREFERENCES
) -> Profile:
    """
    Return the profile that serves Neuron pods.

    Args:
        scheduler_name: the pods' `spec.schedulerName`.
        trusting: unknown Neuron allocations count by number only (`--unknown-allocations=count-only`).
        preferences: out of `PREFERENCES`, the most important first; what is not named has no say.
    """
    by_name = _preferences(trusting=trusting)
    return Profile(
        scheduler_name=scheduler_name,
        pre_filters=(
            neuron_topology.pre_filter,
            node_affinity.pre_filter,
            volume_restrictions.pre_filter,
            volume_binding.pre_filter,
            volume_zone.pre_filter,
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
            volume_restrictions.filter_nodes,
            node_volume_limits.filter_nodes,
            volume_binding.filter_nodes,
            volume_zone.filter_nodes,
            pod_topology_spread.filter_nodes,
            inter_pod_affinity.filter_nodes,
        ),
        preferences=tuple(by_name[name] for name in preferences),
    )

"""
A profile: which plugins run for the pods of one scheduler name, and in which order.

Filters run in kube-scheduler's order, so that a node is counted under the reason kube-scheduler would give.
Preferences are lexicographic: each narrows the best of the ones before it, so the choice can be explained.

Most pods leave out most of what a spec can say, and a plugin that heeds only what is left out is not asked at all:
which plugins remain for a kind of pod is worked out once.
"""

from collections.abc import Sequence

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins import (
    dynamic_resources,
    image_locality,
    inter_pod_affinity,
    neuron_topology,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_rejections,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    preferred_terms,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from neuron_scheduler.scheduling.plugins.contract import Accept, Filter, Prefer, Preference, PreFilter

_CLAIMS = ("constraints.volume_claims",)
_VOLUMES = ("constraints.volume_claims", "constraints.disks", "constraints.inline_volumes")
_NAMES = ("constraints.required_terms",)
_NODES = ("constraints.node_selector", "constraints.required_terms")
_SILICON = ("neuron",)

_MOST_PLANS = 1024


HEEDED = (
    *("refusal", "node_name", "neuron", "host_ports", "images", "volume_images"),
    *("constraints.node_selector", "constraints.required_terms", "constraints.spread"),
    *("constraints.required_features", "constraints.resource_claims", *_VOLUMES),
)
"""What plugins may heed."""


def _left_out(pod: Pod) -> tuple[bool, ...]:
    """Tell of each of `HEEDED` whether a pod leaves it out; written out, since it is asked for every pod."""
    told = pod.constraints
    return (
        not pod.refusal,
        not pod.node_name,
        pod.neuron is None,
        not pod.host_ports,
        not pod.images,
        not pod.volume_images,
        not told.node_selector,
        told.required_terms is None,
        not told.spread,
        not told.required_features,
        not told.resource_claims,
        not told.volume_claims,
        not told.disks,
        not told.inline_volumes,
    )


@attrs.frozen
class Plan:
    """
    The plugins that have something to do for one kind of pod, in order.

    Attributes:
        accepts: the filters without their reasons, where order means nothing: what narrows most comes first.
    """

    pre_filters: tuple[PreFilter, ...]
    filters: tuple[Filter, ...]
    accepts: tuple[Accept, ...]
    preferences: tuple[Prefer, ...]


@attrs.frozen
class Profile:
    """The ordered plugins behind one `schedulerName`."""

    scheduler_name: str
    pre_filters: tuple[PreFilter, ...]
    filters: tuple[Filter, ...]
    preferences: tuple[Preference, ...]
    _plans: dict[tuple[bool, ...], Plan] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def plan(self, pod: Pod) -> Plan:
        """Return the plugins that have something to do for a pod."""
        left_out = _left_out(pod)
        found = self._plans.get(left_out)
        if found is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            told = frozenset(name for name, absent in zip(HEEDED, left_out, strict=True) if not absent)
            found = self._plans[left_out] = self._planned(told)
        return found

    def _planned(self, told: frozenset[str]) -> Plan:
        filters = tuple(each for each in self.filters if not each.heeds or told.intersection(each.heeds))
        return Plan(
            pre_filters=tuple(each for each in self.pre_filters if told.intersection(each.heeds)),
            filters=filters,
            accepts=tuple(each.accepting for each in sorted(filters, key=lambda each: not each.narrows)),
            preferences=tuple(
                each.prefer for each in self.preferences if not each.heeds or told.intersection(each.heeds)
            ),
        )


def _preferences(*, count_unknown_only: bool) -> dict[str, Preference]:
    """Return every preference by the name it has in a configuration file, the most important first."""
    return {
        "AvoidRejectingNodes": Preference(node_rejections.prefer),
        "TaintToleration": Preference(taint_toleration.prefer),
        "WeightedTerms": Preference(preferred_terms.prefer),
        "AvoidNeuronNodes": Preference(neuron_topology.prefer_without_neuron),
        "DefaultTopologySpread": Preference(pod_topology_spread.prefer_by_default),
        "SmallestBlock": Preference(neuron_topology.SmallestBlock(count_unknown_only), heeds=_SILICON),
        "LeastAllocated": Preference(node_resources_fit.prefer_least_allocated),
        "ImageLocality": Preference(image_locality.prefer, heeds=("images", "volume_images")),
    }


PREFERENCES: tuple[str, ...] = tuple(_preferences(count_unknown_only=False))


def default_profile(
    scheduler_name: str, *, count_unknown_only: bool = False, preferences: Sequence[str] = PREFERENCES
) -> Profile:
    """
    Return the profile that serves Neuron pods.

    Args:
        scheduler_name: the pods' `spec.schedulerName`.
        count_unknown_only: unknown Neuron allocations count by number only (`--unknown-allocations=count-only`).
        preferences: out of `PREFERENCES`, the most important first; what is not named has no say.
    """
    by_name = _preferences(count_unknown_only=count_unknown_only)
    free_block = neuron_topology.FreeBlock(count_unknown_only)
    return Profile(
        scheduler_name=scheduler_name,
        pre_filters=(
            PreFilter(neuron_topology.pre_filter, heeds=("refusal",)),
            PreFilter(node_affinity.pre_filter, heeds=_NAMES),
            PreFilter(volume_restrictions.pre_filter, heeds=_VOLUMES),
            PreFilter(volume_binding.pre_filter, heeds=_CLAIMS),
            PreFilter(volume_zone.pre_filter, heeds=_CLAIMS),
            PreFilter(dynamic_resources.pre_filter, heeds=("constraints.resource_claims",)),
        ),
        filters=(
            Filter(node_affinity.filter_names, heeds=_NAMES),
            Filter(node_unschedulable.filter_nodes, node_unschedulable.open_nodes),
            Filter(node_name.filter_nodes, heeds=("node_name",)),
            Filter(taint_toleration.filter_nodes, taint_toleration.tolerated_nodes),
            Filter(node_affinity.filter_nodes, node_affinity.fitting_nodes, heeds=_NODES),
            Filter(node_ports.filter_nodes, heeds=("host_ports",)),
            Filter(neuron_topology.filter_counts, neuron_topology.legal_nodes, heeds=_SILICON),
            Filter(node_resources_fit.filter_nodes, node_resources_fit.fitting_nodes),
            Filter(free_block, free_block.nodes, heeds=_SILICON, narrows=True),
            Filter(volume_restrictions.filter_nodes, heeds=_VOLUMES),
            Filter(node_volume_limits.filter_nodes, heeds=_VOLUMES),
            Filter(volume_binding.filter_nodes, heeds=_CLAIMS),
            Filter(volume_zone.filter_nodes, heeds=_CLAIMS),
            Filter(pod_topology_spread.filter_nodes, heeds=("constraints.spread",)),
            Filter(inter_pod_affinity.filter_nodes, inter_pod_affinity.agreeable_nodes),
            Filter(node_declared_features.filter_nodes, heeds=("constraints.required_features",)),
        ),
        preferences=tuple(by_name[name] for name in preferences),
    )

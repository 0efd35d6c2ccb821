"""All plugins, each in its place: the only list of them."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins import (
    avoid_neuron_nodes,
    avoid_rejecting_nodes,
    dynamic_resources,
    image_locality,
    intact_ultra_servers,
    inter_pod_affinity,
    neuron_topology,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    smallest_block,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
    weighted_terms,
)
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import EVERY_PLUGIN, Filter, Plugin, PluginName, PreFilter
from neuron_scheduler.scheduling.plugins.pod_fields import PodField, left_out

_Step = TypeVar("_Step", Filter, PreFilter)


PLUGINS: Final = (
    node_unschedulable.PLUGIN,
    node_name.PLUGIN,
    taint_toleration.PLUGIN,
    node_affinity.PLUGIN,
    node_ports.PLUGIN,
    node_resources_fit.PLUGIN,
    neuron_topology.PLUGIN,
    volume_restrictions.PLUGIN,
    node_volume_limits.PLUGIN,
    volume_binding.PLUGIN,
    volume_zone.PLUGIN,
    pod_topology_spread.PLUGIN,
    inter_pod_affinity.PLUGIN,
    dynamic_resources.PLUGIN,
    node_declared_features.PLUGIN,
)
"""The plugins that refuse nodes or pods, in kube-scheduler's order."""


_PREFERRING: Final = (
    avoid_rejecting_nodes.PLUGIN,
    taint_toleration.PLUGIN,
    weighted_terms.PLUGIN,
    avoid_neuron_nodes.PLUGIN,
    pod_topology_spread.PLUGIN,
    smallest_block.PLUGIN,
    intact_ultra_servers.PLUGIN,
    node_resources_fit.PLUGIN,
    image_locality.PLUGIN,
)
PREFERENCES: Final = {
    plugin.preference.name: plugin.preference for plugin in _PREFERRING if plugin.preference is not None
}
"""All preferences by name, the most important first."""
GROUP_TOPOLOGY: Final = PluginName("PodGroupTopology")
"""The name under which a plan for a group refuses the nodes outside of the group's domain (`scheduling.groups`)."""
_EVENTS: Final = {
    GROUP_TOPOLOGY: frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS}),
    **{plugin.name: plugin.events for plugin in PLUGINS},
}
CONCERNED_BY: Final = {
    event: frozenset(name for name, events in _EVENTS.items() if event in events) for event in ClusterEvent
}
"""Names of the plugins whose refusals an event may change."""
LOCAL: Final = frozenset(plugin.name for plugin in PLUGINS if plugin.hint is not None)
"""Names of the plugins that have a hint: they judge a node by itself, and look at nothing else in a pod."""
_FIELDS: Final = tuple(PodField)
COUNTING_PODS: Final = frozenset(plugin.name for plugin in PLUGINS if plugin.counts_pods)
COUNTING_VOLUMES: Final = frozenset(plugin.name for plugin in PLUGINS if plugin.counts_volumes)


def names_for(pod: Pod) -> frozenset[str]:
    """Return the names of plugins that may refuse nodes to a pod; the others read only fields that it leaves out."""
    fields = {field for field, is_left_out in zip(_FIELDS, left_out(_FIELDS)(pod), strict=True) if not is_left_out}
    return frozenset(
        plugin.name
        for plugin in PLUGINS
        if any(not step.reads or fields.intersection(step.reads) for step in plugin.filters)
    )


def pre_filters_of(ordered: Sequence[Plugin]) -> tuple[PreFilter, ...]:
    return _in_order(ordered, ((plugin, plugin.pre_filter) for plugin in ordered if plugin.pre_filter is not None))


def filters_of(ordered: Sequence[Plugin]) -> tuple[Filter, ...]:
    return _in_order(ordered, ((plugin, step) for plugin in ordered for step in plugin.filters))


def _in_order(ordered: Sequence[Plugin], steps: Iterable[tuple[Plugin, _Step]]) -> tuple[_Step, ...]:
    """Return steps in the order of their plugins, but each that names a plugin `before` that plugin's steps."""
    places = {EVERY_PLUGIN: 0, **{plugin.name: place for place, plugin in enumerate(ordered, start=1)}}

    def place(step: tuple[Plugin, _Step]) -> tuple[int, bool]:
        plugin, name = step[0], step[1].before
        return places[name or plugin.name], not name

    return tuple(step for _, step in sorted(steps, key=place))

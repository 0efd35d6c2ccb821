"""The registry orders the plugins' steps, and a step that names no plugin is an error at import."""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from neuron_scheduler.scheduling import plugins
from neuron_scheduler.scheduling.plugins import neuron_topology, node_affinity
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import EVERY_PLUGIN, Filter, Plugin, PluginName
from neuron_scheduler.scheduling.plugins.registry import (
    PLUGINS,
    PREFERENCES,
    filters_of,
    pre_filters_of,
)

EVENTS_OF = {
    **dict.fromkeys(("labels", "label_postings", "domains", "integer_postings", "totals"), ClusterEvent.NODE_LABELS),
    **dict.fromkeys(("free_volumes", "instance_type"), ClusterEvent.NODE_LABELS),
    **dict.fromkeys(("taints", "unschedulable"), ClusterEvent.NODE_TAINTS),
    **dict.fromkeys(("allocatable", "capacity"), ClusterEvent.NODE_ALLOCATABLE),
    "neuron_fault": ClusterEvent.NODE_HEALTH,
    "declared_features": ClusterEvent.NODE_FEATURES,
}
"""What may change what a filter has read: a field of a node, an index by labels, a function of static_volumes."""


def _step(*, before: str | None = None) -> Filter:
    return Filter(lambda _view, _pod, _among: (), before=None if before is None else PluginName(before))


def test_plugins_are_in_kube_schedulers_order() -> None:
    """As in `getDefaultPlugins`; NeuronTopology has its place beside the other resources."""
    assert [plugin.name for plugin in PLUGINS] == [
        *("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
        *("NeuronTopology", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"),
        *("PodTopologySpread", "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures"),
    ]


def test_the_file_of_a_plugin_has_its_name() -> None:
    """In snake case, so that who knows kube-scheduler's name, or one of the settings, finds the file."""
    modules = [import_module(f"{plugins.__name__}.{module.name}") for module in iter_modules(plugins.__path__)]
    names = {module.__name__.rpartition(".")[2]: module.NAME for module in modules if hasattr(module, "NAME")}
    assert len(names) > 20
    assert {file: re.sub(r"(?<=.)(?=[A-Z])", "_", name).lower() for file, name in names.items()} == {
        file: file for file in names
    }


def test_steps_that_come_earlier_than_their_plugins() -> None:
    """The names of nodes that a pod allows come first, legal counts before resources."""
    places = {step.refuse: place for place, step in enumerate(filters_of(PLUGINS))}
    assert places[node_affinity.filter_names] == 0
    assert places[node_affinity.filter_nodes] < places[neuron_topology.filter_counts]
    assert pre_filters_of(PLUGINS)[0].refuse is neuron_topology.pre_filter


def test_steps_are_ordered_by_what_they_come_before() -> None:
    """Steps before one plugin keep the order of their own plugins."""
    own, of_b, of_c, first = _step(), _step(before="a"), _step(before="a"), _step(before=EVERY_PLUGIN)
    ordered = (
        Plugin(name=PluginName("a"), filters=(own,)),
        Plugin(name=PluginName("b"), filters=(of_b,)),
        Plugin(name=PluginName("c"), filters=(of_c, first)),
    )
    assert [step.refuse for step in filters_of(ordered)] == [step.refuse for step in (first, of_b, of_c, own)]


def test_a_step_before_an_unknown_plugin_is_an_error() -> None:
    """A misspelt name does not move a filter silently."""
    with pytest.raises(KeyError, match="NodeResorcesFit"):
        filters_of((Plugin(name=PluginName("a"), filters=(_step(before="NodeResorcesFit"),)),))


def test_each_name_is_there_once() -> None:
    """A name is a key in refusals, metrics and configuration files."""
    assert len({plugin.name for plugin in PLUGINS}) == len(PLUGINS)


def test_a_new_node_concerns_all_who_refuse_nodes() -> None:
    """A plugin that lists no event would let its pods wait for the periodic attempt."""
    assert [plugin.name for plugin in PLUGINS if plugin.filters and ClusterEvent.NODE_ADDED not in plugin.events] == []


def test_every_plugin_file_is_registered() -> None:
    """A file that ends with a plugin is in one of the two lists, and its preference in that of preferences."""
    modules = [import_module(f"{plugins.__name__}.{module.name}") for module in iter_modules(plugins.__path__)]
    made = [module.PLUGIN for module in modules if hasattr(module, "PLUGIN")]
    made += [module.plugin() for module in modules if hasattr(module, "plugin")]
    refusing = [plugin for plugin in made if plugin.filters or plugin.pre_filter]
    preferring = [plugin for plugin in made if plugin.preference]
    assert {plugin.name for plugin in refusing} == {plugin.name for plugin in PLUGINS}
    assert {plugin.preference.name for plugin in preferring} == set(PREFERENCES)


def _read_by(module: str) -> set[str]:
    """Return the fields of nodes, methods of the view and functions that a module uses."""
    path = sys.modules[module].__file__
    assert path is not None
    tree, names = ast.parse(Path(path).read_text()), set[str]()
    for part in ast.walk(tree):
        if isinstance(part, ast.Attribute) and ast.unparse(part.value).split(".")[-1] in {"node", "view"}:
            names.add(part.attr)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            names.add(part.func.id)
    return names


def test_a_filter_is_concerned_by_changes_of_what_it_reads() -> None:
    """Else a pod that it refused would sleep when a node gets the label that it lacks."""
    missing = [
        (plugin.name, name)
        for plugin in PLUGINS
        for name in sorted({name for step in plugin.filters for name in _read_by(step.refuse.__module__)})
        if name in EVENTS_OF and EVENTS_OF[name] not in plugin.events
    ]
    assert missing == []

"""
A profile: which plugins run for the pods of one scheduler name, and in which order.

Filters run in kube-scheduler's order, so that a node is counted under the reason kube-scheduler would give.
Preferences are lexicographic: each narrows the best of the ones before it, so the choice can be explained.

A step that reads only fields that a pod leaves out is skipped. Which steps remain is worked out once for all pods that
leave out the same fields.
"""

from collections.abc import Callable, Iterable

import attrs

from neuron_scheduler.model.neuron_request import with_pairs
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins import (
    avoid_rejecting_nodes,
    dynamic_resources,
    neuron_topology,
    node_resources_fit,
    node_unschedulable,
    registry,
    smallest_block,
)
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import Accept, Filter, PluginName, Prefer, Preference, PreFilter
from neuron_scheduler.scheduling.plugins.pod_fields import PodField, left_out

_MOST_SELECTIONS = 1024
_RULES = frozenset(step for plugin in registry.PLUGINS if plugin.cause is Cause.AFFINITY for step in plugin.filters)


@attrs.frozen
class ProfileSteps:
    """
    The steps that have something to do for one kind of pod, in order.

    Attributes:
        accepts: the filters without their reasons, where order means nothing: what narrows most comes first.
        rules: those of them that say which nodes are meant, not what these lack: selector, affinity, spread.
    """

    pre_filters: tuple[PreFilter, ...]
    filters: tuple[Filter, ...]
    accepts: tuple[Accept, ...]
    rules: tuple[Accept, ...]
    preferences: tuple[Prefer, ...]


@attrs.frozen
class Profile:
    """
    The ordered steps of the plugins behind one `schedulerName`.

    Attributes:
        plugins: names of those that refuse nodes or pods, in kube-scheduler's order.
        allow_aligned_pairs: its pods may get aligned pairs of devices.
    """

    scheduler_name: str
    pre_filters: tuple[PreFilter, ...]
    filters: tuple[Filter, ...]
    preferences: tuple[Preference, ...]
    plugins: tuple[PluginName, ...] = attrs.field(kw_only=True, eq=False)
    allow_aligned_pairs: bool = attrs.field(default=False, kw_only=True)
    _fields: tuple[PodField, ...] = attrs.field(init=False, eq=False, repr=False)
    _left_out: Callable[[Pod], tuple[bool, ...]] = attrs.field(init=False, eq=False, repr=False)
    _steps: dict[tuple[bool, ...], ProfileSteps] = attrs.field(factory=dict, init=False, eq=False, repr=False)
    _others: dict[Filter, "Profile"] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    @_fields.default
    def _deciding_fields(self) -> tuple[PodField, ...]:
        """Return the fields on which it depends whether some step is skipped."""
        reads = [step.reads for step in self.pre_filters]
        reads += [step.reads for step in self.filters]
        reads += [step.reads for step in self.preferences if not step.every_pod]
        return tuple(field for field in PodField if any(field in fields for fields in reads))

    @_left_out.default
    def _left_out_of_these(self) -> Callable[[Pod], tuple[bool, ...]]:
        return left_out(self._fields)

    def own(self, pod: Pod) -> Pod:
        """Return one of the profile's pods, as it is to be decided."""
        return attrs.evolve(pod, neuron=with_pairs(pod.neuron)) if self.allow_aligned_pairs and pod.neuron else pod

    def without(self, step: Filter) -> "Profile":
        """Return the profile without a filter, itself if it has no such filter; made once."""
        if step not in self.filters:
            return self
        if step not in self._others:
            self._others[step] = attrs.evolve(self, filters=tuple(each for each in self.filters if each != step))
        return self._others[step]

    def steps_for(self, pod: Pod) -> ProfileSteps:
        key = self._left_out(pod)
        steps = self._steps.get(key)
        if steps is None:
            if len(self._steps) >= _MOST_SELECTIONS:
                self._steps.clear()
            fields = [field for field, absent in zip(self._fields, key, strict=True) if not absent]
            steps = self._steps[key] = self._select_steps(frozenset(fields))
        return steps

    def _select_steps(self, fields: frozenset[PodField]) -> ProfileSteps:
        filters = tuple(step for step in self.filters if not step.reads or fields.intersection(step.reads))
        preferences = [step for step in self.preferences if step.every_pod or fields.intersection(step.reads)]
        return ProfileSteps(
            pre_filters=tuple(step for step in self.pre_filters if fields.intersection(step.reads)),
            filters=filters,
            accepts=tuple(step.accept_nodes for step in sorted(filters, key=lambda step: not step.narrows)),
            rules=tuple(step.accept_nodes for step in filters if step in _RULES),
            preferences=tuple(step.prefer for step in preferences),
        )


def default_profile(
    scheduler_name: str, *, preferences: Iterable[str] = registry.PREFERENCES, allow_aligned_pairs: bool = False
) -> Profile:
    """
    Return the profile that serves Neuron pods; of the preferences (`registry.PREFERENCES`) those named, in their order.
    """
    return Profile(
        scheduler_name=scheduler_name,
        pre_filters=registry.pre_filters_of(registry.PLUGINS),
        filters=registry.filters_of(registry.PLUGINS),
        plugins=tuple(plugin.name for plugin in registry.PLUGINS),
        preferences=tuple(registry.PREFERENCES[name] for name in preferences),
        allow_aligned_pairs=allow_aligned_pairs,
    )


def extender_profile() -> Profile:
    """
    Return the profile for pods that kube-scheduler schedules with our help.

    It has only what kube-scheduler's own plugins cannot know: which nodes we cannot read, the Neuron devices, and the
    resources that pods of our queue are about to use. It has no scheduler name.
    """
    plugins = (node_unschedulable.PLUGIN, node_resources_fit.BESIDE_KUBE_SCHEDULER, neuron_topology.PLUGIN)
    return Profile(
        scheduler_name="",
        pre_filters=registry.pre_filters_of(plugins),
        filters=registry.filters_of(plugins),
        plugins=tuple(plugin.name for plugin in plugins),
        preferences=(avoid_rejecting_nodes.PREFERENCE, smallest_block.BESIDE_KUBE_SCHEDULER),
    )


def preemption_profile() -> Profile:
    """
    Return the profile that says which pods must leave for a pod that kube-scheduler schedules with our help.

    Other victims than kube-scheduler's own must satisfy all of its filters, too. DynamicResources is left out: it
    refuses every pod with claims, and kube-scheduler can serve them. There are no preferences.
    """
    plugins = [plugin for plugin in registry.PLUGINS if plugin.name != dynamic_resources.NAME]
    return Profile(
        scheduler_name="",
        pre_filters=registry.pre_filters_of(plugins),
        filters=registry.filters_of(plugins),
        plugins=tuple(plugin.name for plugin in plugins),
        preferences=(),
    )


def own_pods(profiles: Iterable[Profile]) -> Callable[[Pod], Pod] | None:
    """Return what makes a pod as its profile is to decide it; None if each profile takes its pods as they are."""
    asking = {profile.scheduler_name: profile for profile in profiles if profile.allow_aligned_pairs}

    def own(pod: Pod) -> Pod:
        return asking[pod.scheduler_name].own(pod) if pod.scheduler_name in asking else pod

    return own if asking else None

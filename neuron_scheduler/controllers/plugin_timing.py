"""
How long each plugin takes: one decision in ten is timed, as in kube-scheduler (`pluginMetricsSamplePercent`).

Decisions have no clock. For the timed ones the loop passes a copy of the profile whose steps measure themselves; all
others run as if this module did not exist. What is measured goes to the histograms later, before a scrape, as in
kube-scheduler (`MetricAsyncRecorder`). A filter is asked about all nodes at once, so one figure stands where
kube-scheduler has one for each node.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins import registry
from neuron_scheduler.telemetry.metrics import Metrics

SHARE: Final = 0.1
"""Of the decisions, that are timed."""
PRE_FILTER, FILTER, SCORE = "PreFilter", "Filter", "Score"
"""kube-scheduler's names; our preferences are at the place of its scores."""
_PLUGIN_OF: Final = {
    step.refuse: plugin.name
    for plugin in registry.PLUGINS
    for step in (*plugin.filters, *((plugin.pre_filter,) if plugin.pre_filter is not None else ()))
}
_Step = Callable[..., Any]
_Span = tuple[str, str, float, bool]
"""The point, the plugin, the seconds, and whether the result was empty: no node is left, or no refusal of the pod."""
MOST_KEPT: Final = 1000
"""Timed decisions between two scrapes; further ones are not kept."""
_A_STEP: Final = 50  # decisions that go to the histograms in one step
_REFUSED: Final = {PRE_FILTER: "UnschedulableAndUnresolvable", FILTER: "Unschedulable", SCORE: "Unschedulable"}


@attrs.define(eq=False, kw_only=True)
class PluginTiming:
    """
    Times some decisions.

    Attributes:
        clock: seconds that never jump.
        dice: returns a number from 0 to 1; below `SHARE`, the decision is timed.
    """

    metrics: Metrics
    clock: Callable[[], float]
    dice: Callable[[], float] = random.random
    _timed: dict[str, Profile] = attrs.field(factory=dict, init=False)
    _spans: list[_Span] = attrs.field(factory=list, init=False)
    _kept: list[tuple[str, tuple[_Span, ...]]] = attrs.field(factory=list, init=False)

    def sampled(self, profile: Profile) -> Profile:
        """Return the profile to decide with: the same one, or its timed copy. After a timed one, call `keep`."""
        if self.dice() >= SHARE:
            return profile
        self._spans.clear()
        timed = self._timed.get(profile.scheduler_name)
        if timed is None:
            timed = self._timed[profile.scheduler_name] = self._copy(profile)
        return timed

    def keep(self, profile: Profile) -> None:
        """Keep what the timed decision took, until `flushed`."""
        if len(self._kept) < MOST_KEPT:
            self._kept.append((profile.scheduler_name, tuple(self._spans)))

    def flushed(self) -> Iterator[None]:
        """Put what is kept into the histograms; yields when other tasks may run."""
        kept, self._kept = self._kept, []
        for position, (scheduler_name, spans) in enumerate(kept, start=1):
            self._show(scheduler_name, spans)
            if position % _A_STEP == 0:
                yield

    def _show(self, scheduler_name: str, spans: tuple[_Span, ...]) -> None:
        """Observe one decision: plugin by plugin, and all of a point together."""
        plugins: dict[tuple[str, str], tuple[float, bool]] = {}
        points: dict[str, tuple[float, bool]] = {}
        for point, plugin, seconds, empty in spans:
            passed = empty == (point == PRE_FILTER)
            before, passed_before = plugins.get((point, plugin), (0.0, True))
            plugins[point, plugin] = before + seconds, passed_before and passed
            before, passed_before = points.get(point, (0.0, True))
            points[point] = before + seconds, passed_before and passed
        for (point, plugin), (seconds, passed) in plugins.items():
            self.metrics.plugin_seconds(plugin, point, _status(point, passed=passed)).observe(seconds)
        for point, (seconds, passed) in points.items():
            status = _status(point, passed=passed)
            self.metrics.extension_point_seconds(point, status, scheduler_name).observe(seconds)

    def _copy(self, profile: Profile) -> Profile:
        return attrs.evolve(
            profile,
            pre_filters=tuple(
                attrs.evolve(step, refuse=self._step(PRE_FILTER, _PLUGIN_OF[step.refuse], step.refuse))
                for step in profile.pre_filters
            ),
            filters=tuple(
                attrs.evolve(step, accept=self._step(FILTER, _PLUGIN_OF[step.refuse], step.accepting))
                for step in profile.filters
            ),
            preferences=tuple(
                attrs.evolve(step, prefer=self._step(SCORE, step.name, step.prefer)) for step in profile.preferences
            ),
        )

    def _step(self, point: str, plugin: str, run: _Step) -> _Step:
        clock, add = self.clock, self._spans.append

        def timed(*arguments: object) -> object:
            started = clock()
            result = run(*arguments)
            add((point, plugin, clock() - started, not result))
            return result

        return timed


def _status(point: str, *, passed: bool) -> str:
    return "Success" if passed else _REFUSED[point]

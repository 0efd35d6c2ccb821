"""One decision in ten is timed, step by step, and no decision changes by it."""

from collections.abc import Iterator
from itertools import count

import pytest

from neuron_scheduler.controllers.plugin_timing import MOST_KEPT, PluginTiming
from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import schedule_pod
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.telemetry.test_metrics import samples

PLUGIN = 'scheduler_plugin_execution_duration_seconds_{}{{extension_point="{}",plugin="{}",status="{}"}}'
POINT = 'scheduler_framework_extension_point_duration_seconds_{}{{extension_point="{}",profile="p",status="{}"}}'


@pytest.fixture
def profile() -> Profile:
    """Return a profile."""
    return default_profile("p")


def timing(metrics: Metrics, roll: float = 0.0) -> PluginTiming:
    """Return a timing whose clock goes on by a second each time it is read, and whose dice show `roll`."""
    seconds = count()
    return PluginTiming(metrics=metrics, clock=lambda: float(next(seconds)), dice=lambda: roll)


def test_only_some_decisions_are_timed(profile: Profile) -> None:
    """Below one tenth a decision gets the timed copy, always the same; otherwise the profile itself."""
    rolls: Iterator[float] = iter((0.5, 0.09, 0.1, 0.0))
    timed = PluginTiming(metrics=Metrics(), clock=lambda: 0.0, dice=lambda: next(rolls))
    chosen = [timed.sampled(profile) for _ in range(4)]
    assert [one is profile for one in chosen] == [True, False, True, False]
    assert chosen[1] is chosen[3]


def test_each_plugin_that_runs_is_timed(profile: Profile) -> None:
    """The steps of one plugin are added up, and those of a point."""
    metrics = Metrics(profiles=("p",))
    timed = timing(metrics)
    cluster = cluster_of([node("a", "trn1.32xlarge"), node("b", "trn1.32xlarge")])
    asking = pod("x", devices=4)
    assert schedule_pod(cluster, asking, timed.sampled(profile)) == schedule_pod(cluster, asking, profile)
    timed.keep(profile)
    assert [*timed.flushed()] == []
    seen = samples(metrics)
    assert seen[PLUGIN.format("count", "Filter", "NeuronTopology", "Success")] == 1
    assert seen[PLUGIN.format("sum", "Filter", "NeuronTopology", "Success")] == 2  # two steps, a second each
    assert seen[PLUGIN.format("count", "Score", "SmallestBlock", "Success")] == 1
    of_filters = "scheduler_plugin_execution_duration_seconds_sum{" + 'extension_point="Filter"'
    steps = sum(value for name, value in seen.items() if name.startswith(of_filters))
    assert seen[POINT.format("sum", "Filter", "Success")] == steps
    assert seen[POINT.format("count", "Score", "Success")] == 1


def test_a_refusal_is_the_status(profile: Profile) -> None:
    """The plugin that leaves no node, or refuses the pod itself, has the status; so has its point."""
    metrics = Metrics(profiles=("p",))
    timed = timing(metrics)
    for asking in (pod("x", devices=4), pod("y", refusal="never")):
        schedule_pod(cluster_of([node("a", "inf2.xlarge")]), asking, timed.sampled(profile))
        timed.keep(profile)
    assert [*timed.flushed()] == []
    seen = samples(metrics)
    assert seen[POINT.format("count", "Filter", "Unschedulable")] == 1
    assert seen[PLUGIN.format("count", "PreFilter", "NeuronTopology", "UnschedulableAndUnresolvable")] == 1
    assert seen[POINT.format("count", "PreFilter", "UnschedulableAndUnresolvable")] == 1


def test_what_is_measured_is_bounded_and_shown_in_steps(profile: Profile) -> None:
    """Between two scrapes so many decisions are kept, and no more; they are shown once."""
    metrics = Metrics(profiles=("p",))
    timed, cluster = timing(metrics), cluster_of([node("a", "trn1.32xlarge")])
    for _ in range(MOST_KEPT + 10):
        schedule_pod(cluster, pod("x", devices=4), timed.sampled(profile))
        timed.keep(profile)
    assert len([*timed.flushed()]) > 10
    assert [*timed.flushed()] == []
    assert samples(metrics)[POINT.format("count", "Filter", "Success")] == MOST_KEPT

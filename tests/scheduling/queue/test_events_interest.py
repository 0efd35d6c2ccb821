"""Which waiting pods an event may help."""

from collections.abc import Mapping

import attrs
import pytest

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import (
    LabelSelector,
    Operator,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
)
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.registry import CONCERNED_BY
from neuron_scheduler.scheduling.queue.events import (
    MOST_ASKED,
    Interest,
    PodChange,
    interest_of,
    pod_change,
    pods_may_help,
)
from tests.support.builders import pod
from tests.support.queueing import drain, new_queue, refuse_all

E = ClusterEvent


SPREAD = frozenset({"PodTopologySpread"})
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
COUNTING = pod(
    labels={"app": "db"},
    spread=(SpreadConstraint("zone", 1, hard=True, selector=WEB),),
    affinity=(PodAffinityTerm("zone", WEB, frozenset({"near"})),),
    anti_affinity=(PodAffinityTerm("zone", WEB, frozenset(), LabelSelector()),),
)
WEB_LABELS = {"app": "web"}


def changes_of(*pods: Pod) -> set[PodChange | None]:
    """Return the parts of pods that have gone which can matter to others."""
    return {pod_change(pod) for pod in pods}


def may_help(
    event: ClusterEvent, pods: set[PodChange | None], plugins: frozenset[str], interest: Interest | None
) -> bool:
    """Return whether an event may help a pod that these plugins refused, because of the pods it happened to."""
    return pods_may_help(event, pods, plugins & CONCERNED_BY[event], interest)


@pytest.mark.parametrize(
    ("pending", "other", "want"),
    [
        pytest.param(COUNTING, pod(labels={"app": "web"}), True, id="its spread counts the other"),
        pytest.param(COUNTING, pod(labels={"app": "db"}), False, id="other labels"),
        pytest.param(
            attrs.evolve(COUNTING, namespace="o"), pod(labels={"app": "db"}), False, id="no labels that matter"
        ),
        pytest.param(
            pod(spread=COUNTING.constraints.spread), pod(labels={"app": "web"}, namespace="o"), False, id="elsewhere"
        ),
        pytest.param(
            pod(affinity=COUNTING.constraints.affinity),
            pod(labels={"app": "web"}, namespace="near"),
            True,
            id="affinity",
        ),
        pytest.param(pod(affinity=COUNTING.constraints.affinity), pod(labels={"app": "web"}), False, id="not there"),
        pytest.param(
            pod(anti_affinity=COUNTING.constraints.anti_affinity), pod(labels={"app": "web"}), True, id="perhaps meant"
        ),
        pytest.param(
            pod(labels={"app": "web"}),
            pod(anti_affinity=(PodAffinityTerm("zone", WEB, frozenset({"default"})),)),
            True,
            id="the other kept it away",
        ),
        pytest.param(
            pod(labels={"app": "db"}),
            pod(anti_affinity=(PodAffinityTerm("zone", WEB, frozenset({"default"})),)),
            False,
            id="the other kept others away",
        ),
    ],
)
def test_which_pods_matter(pending: Pod, other: Pod, *, want: bool) -> None:
    """A pod refused by who is where is woken by those it counts, and by those that it was kept away by."""
    interest = interest_of(pending, SPREAD)
    assert may_help(E.ASSIGNED_POD_GONE, changes_of(other), SPREAD, interest) is want
    assert may_help(E.ASSIGNED_POD_GONE, {*changes_of(other), None}, SPREAD, interest)
    assert not may_help(E.NODE_HEALTH, {None}, SPREAD, interest)


@pytest.mark.parametrize(
    ("before", "after", "want"), [({}, WEB_LABELS, True), (WEB_LABELS, {}, True), ({}, {"app": "db"}, False)]
)
def test_a_pod_that_changes_matters_as_it_was_and_as_it_is(
    before: Mapping[str, str], after: Mapping[str, str], *, want: bool
) -> None:
    """It may be counted now, or no more."""
    queue = new_queue()
    queue.add(pod("waits", spread=COUNTING.constraints.spread), 0.0)
    refuse_all(queue, 0.0, SPREAD)
    queue.note(E.ASSIGNED_POD_LABELS, pod("other", labels=before), pod("other", labels=after))
    assert (drain(queue, 10.0) == ["waits"]) is want


def test_nobody_who_keeps_apart_is_woken_by_an_arrival() -> None:
    """A pod that is added helps pods that want it near or count it, never pods that must be apart from it."""
    web, keeping = pod(labels={"app": "web"}, namespace="near"), COUNTING.constraints
    for pending, want in (
        (COUNTING, True),
        (pod(affinity=keeping.affinity), True),
        (pod(spread=keeping.spread, namespace="near"), True),
        (pod(anti_affinity=keeping.anti_affinity), False),
    ):
        assert may_help(E.ASSIGNED_POD_ADDED, changes_of(web), SPREAD, interest_of(pending, SPREAD)) is want


@pytest.mark.parametrize("plugin", ["VolumeRestrictions", "NodeVolumeLimits"])
def test_only_pods_with_volumes_give_volumes_up(plugin: str) -> None:
    """A pod refused for volumes is woken by the end of a pod that had some."""
    plain, mounting, plugins = pod(), pod(volume_claims=("data",)), frozenset({plugin})
    assert not may_help(E.ASSIGNED_POD_GONE, changes_of(plain), plugins, None)
    assert may_help(E.ASSIGNED_POD_GONE, changes_of(plain, mounting), plugins, None)
    assert may_help(E.ASSIGNED_POD_GONE, {None}, plugins, None)


def test_other_plugins_do_not_ask_which_pod() -> None:
    """A pod that also lacks cpu is helped by any pod that goes, and one without a refusal by every event."""
    for plugins in (SPREAD | {"NodeResourcesFit"}, frozenset[str]()):
        queue = new_queue()
        queue.add(COUNTING, 0.0)
        refuse_all(queue, 0.0, plugins)
        queue.note(E.ASSIGNED_POD_ADDED, pod("x", namespace="o"))
        assert len(drain(queue, 10.0)) == (not plugins)
        queue.note(E.ASSIGNED_POD_GONE, pod("x", namespace="o"))
        assert len(drain(queue, 10.0)) == bool(plugins)
    assert interest_of(COUNTING, frozenset({"NodeResourcesFit"})) is None


def test_a_crowd_is_not_looked_through() -> None:
    """So many pods at once may help all pods that count pods."""
    crowd = changes_of(*(pod(labels={"n": str(i)}) for i in range(MOST_ASKED + 1)))
    assert may_help(E.ASSIGNED_POD_ADDED, crowd, SPREAD, interest_of(COUNTING, SPREAD))


def test_a_pod_wakes_those_that_count_it() -> None:
    """A pod of one application does not wake the pods of other applications."""
    queue = new_queue()
    for app in ("web", "db"):
        selector = LabelSelector((Requirement("app", Operator.IN, (app,)),))
        spread = (SpreadConstraint("zone", 1, hard=True, selector=selector),)
        queue.add(pod(app, labels={"app": app}, spread=spread), 0.0)
    refuse_all(queue, 0.0, SPREAD)
    queue.note(E.ASSIGNED_POD_ADDED, pod("other", labels={"app": "web"}))
    assert drain(queue, 10.0) == ["web"]

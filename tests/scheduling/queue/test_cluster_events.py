"""What happened to a node, and whom it may help."""

from typing import Any

import attrs
import pytest

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    Operator,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
    Taint,
)
from neuron_scheduler.scheduling.queue.cluster_events import (
    MAY_HELP,
    MOST_ASKED,
    ClusterEvent,
    PodChange,
    interest_of,
    may_help,
    node_events,
    pod_changes,
)
from tests.support.builders import node, pod

BEFORE = node("n", "trn1.32xlarge")
E = ClusterEvent


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param({}, {}, [], id="a heartbeat"),
        pytest.param({}, {"labels": {"a": "b"}}, [E.NODE_LABELS], id="a label"),
        pytest.param({}, {"taints": (Taint("t", Effect.NO_EXECUTE),)}, [E.NODE_TAINTS], id="a taint"),
        pytest.param({"unschedulable": True}, {}, [E.NODE_TAINTS], id="uncordoned"),
        pytest.param({}, {"unschedulable": True}, [], id="cordoned"),
        pytest.param({}, {"allocatable": {"cpu": 1}}, [E.NODE_ALLOCATABLE], id="allocatable"),
        pytest.param({}, {"capacity": {}}, [E.NODE_ALLOCATABLE], id="capacity"),
        pytest.param({"neuron_unhealthy": True}, {}, [E.NODE_HEALTH], id="healthy again"),
        pytest.param({}, {"neuron_unhealthy": True}, [], id="unhealthy"),
        pytest.param({}, {"declared_features": ("a",)}, [E.NODE_FEATURES], id="features"),
        pytest.param({"refusal": "cannot be read"}, {}, [E.NODE_TAINTS], id="readable again"),
        pytest.param(
            {"unschedulable": True},
            {"labels": {}, "capacity": {}},
            [E.NODE_LABELS, E.NODE_TAINTS, E.NODE_ALLOCATABLE],
            id="all",
        ),
    ],
)
def test_node_events(before: dict[str, Any], after: dict[str, Any], want: list[ClusterEvent]) -> None:
    """Only what could help a pod is an event."""
    assert list(node_events(attrs.evolve(BEFORE, **before), attrs.evolve(BEFORE, **after))) == want


@pytest.mark.parametrize(
    ("event", "want"),
    [
        (E.NODE_ADDED, {"NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"}),
        (E.NODE_ADDED, {"NeuronTopology", "NodeName"}),
        (E.NODE_LABELS, {"NodeAffinity", "NeuronTopology"}),
        (E.NODE_TAINTS, {"TaintToleration", "NodeUnschedulable"}),
        (E.NODE_ALLOCATABLE, {"NodeResourcesFit", "NeuronTopology"}),
        (E.NODE_HEALTH, {"NeuronTopology"}),
        (E.ASSIGNED_POD_GONE, {"NodePorts", "NodeResourcesFit", "NeuronTopology", "InterPodAffinity"}),
        *(
            (event, {"PodTopologySpread", "InterPodAffinity"})
            for event in (E.ASSIGNED_POD_ADDED, E.ASSIGNED_POD_LABELS)
        ),
        *((event, {"PodTopologySpread", "InterPodAffinity"}) for event in (E.ASSIGNED_POD_GONE, E.NODE_ADDED)),
        (E.NODE_LABELS, {"PodTopologySpread", "InterPodAffinity"}),
        (E.NAMESPACE_LABELS, {"InterPodAffinity"}),
        *((event, {"PodTopologySpread"}) for event in (E.NODE_DELETED, E.NODE_TAINTS)),
    ],
)
def test_plugins_concerned(event: ClusterEvent, want: set[str]) -> None:
    """Each event concerns at least the plugins that kube-scheduler registers for it, and ours."""
    assert want <= MAY_HELP[event]


def test_every_event_is_known() -> None:
    """A new event must say whom it helps."""
    assert MAY_HELP.keys() == set(ClusterEvent)


SPREAD = frozenset({"PodTopologySpread"})
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
COUNTING = pod(
    labels={"app": "db"},
    spread=(SpreadConstraint("zone", 1, hard=True, selector=WEB),),
    affinity=(PodAffinityTerm("zone", WEB, frozenset({"near"})),),
    anti_affinity=(PodAffinityTerm("zone", WEB, frozenset(), LabelSelector()),),
)
NEAR_HERE = (PodAffinityTerm("zone", WEB, frozenset({"default"})),)


def told(*pods: Pod) -> set[PodChange | None]:
    """Return what of pods that have gone can matter to others."""
    return {found for pod in pods for found in pod_changes(E.ASSIGNED_POD_GONE, (pod,))}


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
    assert may_help(E.ASSIGNED_POD_GONE, told(other), SPREAD, interest) is want
    assert may_help(E.ASSIGNED_POD_GONE, {*told(other), None}, SPREAD, interest)
    assert not may_help(E.NODE_HEALTH, {None}, SPREAD, interest)


TELLING: dict[str, tuple[Pod, dict[str, Any], dict[str, Any], bool]] = {
    "a label that nobody asks for": (COUNTING, {"labels": {"app": "web"}}, {"labels": {"app": "web", "z": "1"}}, False),
    "counted now": (pod(spread=COUNTING.constraints.spread), {}, {"labels": {"app": "web"}}, True),
    "counted no more": (pod(spread=COUNTING.constraints.spread), {"labels": {"app": "web"}}, {}, True),
    "ending, which spread does not count": (
        pod(spread=COUNTING.constraints.spread),
        {"labels": {"app": "web"}},
        {"labels": {"app": "web"}, "terminating": True},
        True,
    ),
    "wanted near": (pod(affinity=NEAR_HERE), {}, {"labels": {"app": "web"}}, True),
    "wanted near no more, so that there may be none": (pod(affinity=NEAR_HERE), {"labels": {"app": "web"}}, {}, True),
    "to be kept apart from no more": (
        pod(anti_affinity=COUNTING.constraints.anti_affinity),
        {"labels": {"app": "web"}},
        {},
        True,
    ),
    "to be kept apart from": (
        pod(anti_affinity=COUNTING.constraints.anti_affinity),
        {},
        {"labels": {"app": "web"}},
        False,
    ),
    "ending, which affinity does not mind": (
        pod(anti_affinity=COUNTING.constraints.anti_affinity),
        {"labels": {"app": "web"}},
        {"labels": {"app": "web"}, "terminating": True},
        False,
    ),
}


@pytest.mark.parametrize("case", TELLING)
def test_which_changes_matter(case: str) -> None:
    """A pod is woken by a change of another only where the other counts otherwise than before."""
    pending, before, after, want = TELLING[case]
    change = pod_changes(E.ASSIGNED_POD_LABELS, (attrs.evolve(pod(), **before), attrs.evolve(pod(), **after)))
    assert may_help(E.ASSIGNED_POD_LABELS, set(change), SPREAD, interest_of(pending, SPREAD)) is want


def test_nobody_who_keeps_apart_is_woken_by_an_arrival() -> None:
    """A pod that comes helps those who want it near or count it, and those never whom it is kept apart from."""
    web, keeping = pod(labels={"app": "web"}, namespace="near"), COUNTING.constraints
    for pending, want in (
        (COUNTING, True),
        (pod(affinity=keeping.affinity), True),
        (pod(spread=keeping.spread, namespace="near"), True),
        (pod(anti_affinity=keeping.anti_affinity), False),
    ):
        assert may_help(E.ASSIGNED_POD_ADDED, told(web), SPREAD, interest_of(pending, SPREAD)) is want


@pytest.mark.parametrize("plugin", ["VolumeRestrictions", "NodeVolumeLimits"])
def test_only_pods_with_volumes_give_volumes_up(plugin: str) -> None:
    """A pod refused for volumes is woken by the end of a pod that had some."""
    plain, mounting, plugins = pod(), pod(volume_claims=("data",)), frozenset({plugin})
    assert not may_help(E.ASSIGNED_POD_GONE, told(plain), plugins, None)
    assert may_help(E.ASSIGNED_POD_GONE, told(plain, mounting), plugins, None)
    assert may_help(E.ASSIGNED_POD_GONE, {None}, plugins, None)


def test_other_plugins_do_not_ask_which_pod() -> None:
    """A pod that also lacks cpu is helped by any pod that goes, and one that nobody refused by anything."""
    plugins = SPREAD | {"NodeResourcesFit"}
    stranger = told(pod(namespace="o"))
    assert may_help(E.ASSIGNED_POD_GONE, stranger, plugins, interest_of(COUNTING, plugins))
    assert not may_help(E.ASSIGNED_POD_ADDED, stranger, plugins, interest_of(COUNTING, plugins))
    assert interest_of(COUNTING, frozenset({"NodeResourcesFit"})) is None
    assert may_help(E.NODE_HEALTH, {None}, frozenset(), None)


def test_a_crowd_is_not_looked_through() -> None:
    """So many pods at once may help everybody who counts pods."""
    crowd = told(*(pod(labels={"n": str(i)}) for i in range(MOST_ASKED + 1)))
    assert may_help(E.ASSIGNED_POD_ADDED, crowd, SPREAD, interest_of(COUNTING, SPREAD))

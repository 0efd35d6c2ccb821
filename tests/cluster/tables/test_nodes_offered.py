"""A name that no node has costs no index, however many pods use it."""

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import ZONE_LABEL
from neuron_scheduler.model.pod import Constraints
from neuron_scheduler.model.selectors import LabelSelector, PodAffinityTerm, SpreadConstraint
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import schedule_pod
from tests.support.builders import node, pod

PROFILE = default_profile("p")


def test_it_follows_the_nodes() -> None:
    """A key or a resource is offered while some node has it."""
    cluster = Cluster()
    for name, zone in (("a", "x"), ("b", "y")):
        cluster.put_node(node(name, labels={ZONE_LABEL: zone}, allocatable={"a.io/r": 1}))
    view = cluster.view
    assert view.label_postings(ZONE_LABEL).get("x") == 1
    assert view.offers("a.io/r")
    cluster.put_node(node("a", labels={"rank": "7"}))
    cluster.remove_node("b")
    assert not view.label_postings(ZONE_LABEL).keyed
    assert view.integer_postings("rank").get(7) == 1
    assert not view.offers("a.io/r")
    assert Cluster.fork(cluster).view.label_postings("rank").get("7") == 1


def test_a_node_with_known_names_is_no_news() -> None:
    """Another set of known keys changes no epoch; a key is gone with the last node of the last set that has it."""
    cluster = Cluster()
    cluster.put_node(node("a", labels={"x": "1", "y": "1"}, allocatable={"a.io/r": 1}))
    cluster.put_node(node("b", labels={"z": "1"}, allocatable={"a.io/r": 1}))
    epoch = cluster.view.epoch
    cluster.put_node(node("c", labels={"y": "2", "z": "2"}, allocatable={"a.io/r": 2}))
    assert cluster.view.epoch == epoch
    fork = cluster.fork()
    fork.remove_node("a")
    assert not fork.view.has_label("x")
    assert fork.view.has_label("y")
    assert cluster.view.has_label("x")
    cluster.put_node(node("c", labels={"new": "1"}, allocatable={"a.io/r": 2}))
    assert cluster.view.epoch == epoch + 1


def test_made_up_names_leave_no_index() -> None:
    """Pods with keys and resources of their own are decided, warmed up and placed without an index for these."""
    cluster = Cluster()
    cluster.put_node(node("a", labels={ZONE_LABEL: "x"}))
    table = cluster._table

    def indexes() -> int:
        return len(table.of_nodes._by_definition) + len(table.of_rows._by_definition)

    counts = []
    for i in range(50):
        term = PodAffinityTerm(f"key-{i}", LabelSelector(), frozenset({"default"}))
        spread = SpreadConstraint(f"spread-{i}", 1, True, LabelSelector())
        for constraints in (
            Constraints(node_selector={f"node-{i}": "v"}),
            Constraints(affinity=(term,)),
            Constraints(anti_affinity=(term,), preferred_anti_affinity=(term,)),
            Constraints(spread=(spread,)),
        ):
            pending = pod(f"p{i}", constraints=constraints, requests={"cpu": 1, f"a.io/{i}": 1})
            for _ in IndexWarmup().prepare(cluster, pending, PROFILE):
                pass
            schedule_pod(cluster, pending, PROFILE)
        cluster.put_pod(pod(f"b{i}", on="a", constraints=Constraints(anti_affinity=(term,))))
        counts.append(indexes())
    assert counts[1] == counts[-1]

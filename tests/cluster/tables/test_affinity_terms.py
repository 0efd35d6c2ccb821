"""Terms of placed pods: which match a pod, and how many pods have them in each domain, after any changes."""

from collections import Counter
from itertools import product
from random import Random
from typing import Any

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.tables import affinity_terms as terms_module
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement
from tests.support.builders import node, pod
from tests.support.oracle_affinity import means
from tests.support.random_objects import LABELS, NOT_DB, TEAM, WEB, WEB_OR_DB

BOTH = LabelSelector((Requirement("app", Operator.IN, ("web",)), Requirement("rank", Operator.IN, ("5", "6"))))
TERMS = tuple(
    PodAffinityTerm(key, selector, frozenset(names), among, weight)
    for key in (ZONE_LABEL, HOSTNAME_LABEL)
    for selector in (WEB, WEB_OR_DB, BOTH, NOT_DB, LabelSelector(), None)
    for names, among in ((("default",), None), (("default", "other"), None), ((), TEAM))
    for weight in (0, 7)
)
NODES = "abcde"


def some_node(dice: Random, name: str) -> Node:
    """Return a node in some zone or none."""
    labels = {ZONE_LABEL: dice.choice(["x", "y", None]), HOSTNAME_LABEL: dice.choice([name, name, name, "a", None])}
    return node(name, created=ord(name), labels={k: v for k, v in labels.items() if v is not None})


def some_pod(dice: Random, name: str) -> Pod:
    """Return a pod that has up to two terms of each kind."""
    terms_of_placed_pods: dict[str, Any] = {
        b.value: tuple(dice.choices(TERMS, k=dice.choice([0, 0, 1, 2]))) for b in TermKind
    }
    return pod(name, labels=dice.choice(LABELS), on=dice.choice(NODES), **terms_of_placed_pods)


def check(cluster: Cluster, nodes: dict[str, Node], bound: dict[str, Pod], team: str) -> None:
    """Compare with counting pods one by one, for every kind of term."""
    namespaces = {"default": {}, "other": {"team": team}}
    slots = {name: cluster.view.slot(name) or Slot(0) for name in nodes}
    questions = [*product(namespaces, LABELS)]
    for namespace, labels in (questions[-1], *questions):  # the last one of the check before is the first here
        asking = pod("asking", labels=labels, namespace=namespace)
        for kind in TermKind:
            want: dict[PodAffinityTerm, Counter[str]] = {}
            for placed in bound.values():
                for term in getattr(placed.constraints, kind.value) if placed.node_name in nodes else ():
                    if means(term, asking, namespaces):
                        domain = nodes[placed.node_name].labels.get(term.topology_key)
                        want.setdefault(term, Counter())
                        for name, there in nodes.items():
                            want[term][name] += domain is not None and there.labels.get(term.topology_key) == domain
            yielded = list(cluster.view.terms_of_placed_pods(kind, asking))
            assert len(yielded) == len(want)
            for term, totals in yielded:
                assert {name: totals.value(slot) for name, slot in slots.items()} == want[term]
                assert not totals.positive & ~cluster.view.live


@pytest.mark.parametrize("seed", range(4))
def test_terms_of_placed_pods_agree_with_counting(seed: int) -> None:
    """Pods and nodes are added, removed and changed, and domains become single nodes or not."""
    dice = Random(seed)
    cluster, bound, team = Cluster(), dict[str, Pod](), "b"
    nodes = {name: some_node(dice, name) for name in NODES}
    for new in nodes.values():
        cluster.put_node(new)
    for _ in range(120):
        for _ in range(dice.choice([1, 1, 2, 40])):
            _change(dice, cluster, nodes, bound)
        team = dice.choice(["a", "b"])
        cluster.namespaces.put(Namespace("u", "other", {"team": team}))
        check(cluster, nodes, bound, team)
        if dice.random() < 0.1:
            check(cluster.fork(), nodes, bound, team)
        if nodes and dice.random() < 0.2:
            _replace_a_row(dice, cluster, nodes, bound, team)
    for uid in list(bound):
        cluster.remove_pod(uid)
    assert not cluster._table.terms._pods_with.by_key
    assert not cluster._table.terms._totals
    assert not any(directory.by_key for directory in cluster._table.terms._directories.values())


@pytest.mark.parametrize("seed", range(4))
def test_forks_of_forks_go_their_own_ways(seed: int) -> None:
    """A change of a cluster or of one of its forks is seen by that one only; each has its own totals."""
    dice = Random(seed)
    nodes = {name: some_node(dice, name) for name in NODES}
    family = [(Cluster(), nodes, dict[str, Pod]())]
    for new in nodes.values():
        family[0][0].put_node(new)
    family[0][0].namespaces.put(Namespace("u", "other", {"team": "b"}))
    for _ in range(80):
        cluster, nodes, bound = dice.choice(family)
        if dice.random() < 0.3:
            family = [*family[-3:], (cluster.fork(), dict(nodes), dict(bound))]
        for _ in range(dice.choice([1, 2, 30])):
            _change(dice, cluster, nodes, bound)
        check(*dice.choice(family), "b")
    for cluster, nodes, bound in family:
        check(cluster, nodes, bound, "b")


def _change(dice: Random, cluster: Cluster, nodes: dict[str, Node], bound: dict[str, Pod]) -> None:
    chance, name = dice.random(), dice.choice(NODES)
    if chance < 0.1:
        nodes[name] = some_node(dice, name)
        cluster.put_node(nodes[name])
    elif chance < 0.15:
        cluster.remove_node(name)
        nodes.pop(name, None)
    elif chance < 0.5 and bound:
        uid = dice.choice(sorted(bound))
        cluster.remove_pod(uid)
        del bound[uid]
    else:
        new = some_pod(dice, f"p{dice.randint(0, 30)}")
        cluster.put_pod(new)
        bound[new.uid] = new


def _replace_a_row(dice: Random, cluster: Cluster, nodes: dict[str, Node], bound: dict[str, Pod], team: str) -> None:
    """Without the pods of one node their terms are not counted; afterwards they are again."""
    name = dice.choice(sorted(nodes))
    empty = Cluster().put_node(nodes[name])
    with cluster.row_replaced(cluster.view.slot(name) or Slot(0), empty):
        check(cluster, nodes, {uid: p for uid, p in bound.items() if p.node_name != name}, team)
    check(cluster, nodes, bound, team)


def test_only_terms_that_could_match_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand terms with different labels, in one namespace or many, only the one for a pod's labels is tried."""
    tried: list[PodAffinityTerm] = []
    means_it = terms_module._matches

    def counting(term: PodAffinityTerm, *asked: Any) -> bool:
        tried.append(term)
        return means_it(term, *asked)

    monkeypatch.setattr(terms_module, "_matches", counting)
    cluster = Cluster()
    cluster.put_node(node("n", pods=5000, labels={HOSTNAME_LABEL: "n"}))
    for i in range(1000):
        shared = Requirement("managed-by", Operator.IN, ("helm",))
        own = LabelSelector((shared, Requirement("instance", Operator.IN, (f"i{i}",))))
        same = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
        terms_of_placed_pods = (
            PodAffinityTerm(HOSTNAME_LABEL, own, frozenset({"default"})),
            PodAffinityTerm(HOSTNAME_LABEL, same, frozenset({f"ns{i}"})),
        )
        cluster.put_pod(pod(f"p{i}", on="n", anti_affinity=terms_of_placed_pods))
    labels = {"managed-by": "helm", "instance": "i500", "app": "web"}
    assert len(list(cluster.view.terms_of_placed_pods(TermKind.ANTI_AFFINITY, pod(labels=labels)))) == 1
    assert len(tried) <= 2
    assert (
        len(list(cluster.view.terms_of_placed_pods(TermKind.ANTI_AFFINITY, pod(labels=labels, namespace="ns7")))) == 1
    )
    assert len(tried) <= 3


@pytest.mark.parametrize("seed", range(5))
def test_a_namespace_has_only_so_many(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further terms are left out, also those of pods that change or move; in the end nothing is left behind."""
    monkeypatch.setattr(terms_module, "MOST_OF_A_NAMESPACE", 3)
    dice, cluster, bound = Random(seed), Cluster(), dict[str, Pod]()
    for name in NODES:
        cluster.put_node(some_node(dice, name))
    most = 0
    for _ in range(200):
        name = f"p{dice.randrange(10)}"
        if dice.random() < 0.3:
            cluster.remove_pod(f"uid-{name}")
            bound.pop(name, None)
        else:
            bound[name] = some_pod(dice, name)
            cluster.put_pod(bound[name])
        table = cluster._table.terms
        assert len(table._pods_with.by_key) <= 3
        terms_of_placed_pods = sum(sum(pods.numbers.values()) for pods in table._pods_with.by_key.values())
        terms = [
            term for placed in bound.values() for kind in TermKind for term in getattr(placed.constraints, kind.value)
        ]
        assert terms_of_placed_pods + sum(table._left_out.values()) == sum(term.selector is not None for term in terms)
        most = max(most, cluster.view.terms_left_out)
    assert most > 0
    for name in bound:
        cluster.remove_pod(f"uid-{name}")
    table = cluster._table.terms
    assert (table._pods_with.by_key, table._left_out, table._of_namespace) == ({}, {}, {})


def test_one_namespace_does_not_crowd_out_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms of a namespace with too many are left out; the terms of other pods count."""
    monkeypatch.setattr(terms_module, "MOST_OF_A_NAMESPACE", 3)
    cluster = Cluster()
    cluster.put_node(node("n", labels={ZONE_LABEL: "x"}))
    for i in range(5):
        term = PodAffinityTerm(ZONE_LABEL, WEB, frozenset({"default", f"n{i}"}))
        cluster.put_pod(pod(f"p{i}", namespace="tenant", on="n", anti_affinity=(term,)))
    other = PodAffinityTerm(ZONE_LABEL, WEB, frozenset({"default"}))
    cluster.put_pod(pod("other", on="n", anti_affinity=(other,)))
    terms = [
        term
        for term, _ in cluster.view.terms_of_placed_pods(TermKind.ANTI_AFFINITY, pod("asking", labels={"app": "web"}))
    ]
    assert len(terms) == 4
    assert other in terms
    assert cluster.view.terms_left_out == 2

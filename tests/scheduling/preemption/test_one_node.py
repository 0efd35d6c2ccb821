"""Victims for a pod of kube-scheduler's on one node: the cheapest legal set there is, whatever was proposed."""

from collections.abc import Collection, Sequence
from random import Random

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import extender_profile, preemption_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance
from neuron_scheduler.scheduling.preemption.one_node import victims_instead
from neuron_scheduler.scheduling.preemption.victims import Incoming, Victims
from neuron_scheduler.steps import run
from tests.scheduling.preemption.test_search_properties import ASKED, TYPES, some_budgets, some_holders
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, with_budgets
from tests.support.oracle_preemption import cheapest, cost

BESIDE, WHOLE = extender_profile(), preemption_profile()


def chosen(
    cluster: Cluster,
    pending: Pod,
    *proposed: str,
    budgets: Sequence[DisruptionBudget] = (),
    spared: Collection[str] = (),
) -> Victims | None:
    """Return the victims on node `n` in place of those proposed, by name."""
    incoming = Incoming(
        pending, WHOLE, DisruptionAllowance(with_budgets(cluster, budgets).budgets), spared=frozenset(spared)
    )
    return run(victims_instead(cluster, "n", incoming, BESIDE, {f"uid-{name}" for name in proposed}))


def names(victims: Victims | None) -> list[str] | None:
    return None if victims is None else [victim.name for victim in victims.pods]


def full_torus(*priorities: int) -> tuple[Cluster, Node]:
    """Return a node whose 16 devices are held by a pod for each two of them, `p0` and so on, of these priorities."""
    torus = node("n", "trn1.32xlarge")
    holders = [pod(f"p{i}", on="n", devices=1, ids=(i,), priority=priorities[i % len(priorities)]) for i in range(16)]
    return cluster_of([torus], holders), torus


def test_a_proposal_that_frees_a_block_stays() -> None:
    """It is as good as any other."""
    cluster, _ = full_torus(0)
    assert names(chosen(cluster, pod("q", devices=4, priority=1), "p4", "p5", "p6", "p7")) == ["p4", "p5", "p6", "p7"]


def test_a_proposal_without_a_block_is_swapped() -> None:
    """Four devices that are no block are of no use."""
    cluster, _ = full_torus(0)
    victims = chosen(cluster, pod("q", devices=4, priority=1), "p1", "p6", "p11", "p12")
    assert victims is not None
    ids = sorted(int(victim.name[1:]) for victim in victims.pods)
    assert ids[0] % 4 == 0
    assert ids == list(range(ids[0], ids[0] + 4))


def test_a_proposal_of_more_than_the_count_stays() -> None:
    """kube-scheduler has just nominated a pod there, which we have not seen: its victims must not be named twice."""
    cluster, _ = full_torus(0)
    first = pod("first", devices=8, priority=1)
    of_the_first = names(chosen(cluster, first, *(f"p{i}" for i in range(8))))
    assert len(of_the_first or ()) == 8
    everybody = [f"p{i}" for i in range(16)]
    assert set(names(chosen(cluster, pod("second", devices=8, priority=1), *everybody)) or ()) == set(everybody)
    one_too_many = names(chosen(cluster, pod("q", devices=4, priority=1), "p1", "p6", "p11", "p12", "p13"))
    assert len(one_too_many or ()) == 4, "it frees no block"


def test_victims_are_added_where_a_block_needs_more() -> None:
    """The pod that straddles the block has to leave as well."""
    torus = node("n", "trn1.32xlarge")
    holders = [
        pod("keeps", on="n", devices=8, ids=range(8), priority=9),
        pod("a", on="n", devices=2, ids=(8, 12)),
        pod("b", on="n", devices=2, ids=(9, 13)),
        pod("c", on="n", devices=2, ids=(10, 14)),
        pod("d", on="n", devices=2, ids=(11, 15)),
    ]
    victims = chosen(cluster_of([torus], holders), pod("q", devices=4, priority=1), "a", "b")
    assert sorted(names(victims) or ()) == ["a", "b", "c", "d"]


def test_where_no_block_can_come_free_the_node_is_left_out() -> None:
    """Pods of the same priority are in each block."""
    cluster, _ = full_torus(0, 1, 0, 0)
    assert chosen(cluster, pod("q", devices=4, priority=1), "p0", "p2", "p3", "p4") is None


def test_where_no_pod_has_to_leave_the_node_is_left_out() -> None:
    """The proposal is out of date: nobody is evicted in vain."""
    cluster = cluster_of([node("n", "trn1.32xlarge")], [pod("p", on="n", devices=4, ids=range(4))])
    assert chosen(cluster, pod("q", devices=4, priority=1), "p") is None


def test_an_unknown_node_is_left_out() -> None:
    """Nothing is known of its devices."""
    assert chosen(Cluster(), pod("q", devices=4, priority=1), "p") is None


def test_unknown_and_more_important_pods_are_never_victims() -> None:
    """Whoever proposes them."""
    cluster, _ = full_torus(0, 0, 0, 0, 5, 5, 5, 5)
    victims = chosen(cluster, pod("q", devices=4, priority=3), "p4", "p5", "p6", "p7", "p99")
    assert victims is not None
    assert {victim.priority for victim in victims.pods} == {0}


def test_pods_that_cannot_be_evicted_are_spared() -> None:
    """kube-scheduler does not know them yet, and refuses an answer that names one."""
    cluster, _ = full_torus(0)
    spared = {f"uid-p{i}" for i in (0, 5, 10)}
    victims = chosen(cluster, pod("q", devices=4, priority=1), "p0", "p1", "p2", "p3", spared=spared)
    assert names(victims) == ["p12", "p13", "p14", "p15"]


def test_the_space_nominated_for_a_more_important_pod_is_no_block() -> None:
    """Pods have been evicted for it."""
    cluster = cluster_of([node("n", "trn1.32xlarge")], [pod("p", on="n", devices=8, ids=range(8, 16))])
    cluster.nominate("n", Nomination(pod("nominated", devices=8, priority=9), CoreMask(0xFFFF)))
    assert names(chosen(cluster, pod("q", devices=8, priority=1), "p")) == ["p"]
    assert chosen(cluster, pod("q", devices=16, priority=1), "p") is None


def test_a_resource_that_no_node_offers_is_not_counted() -> None:
    """A DRA driver may provide it; otherwise every pod of the node would have to leave."""
    cluster, _ = full_torus(0)
    pending = pod("q", devices=4, priority=1, requests={"example.com/claimed": 1})
    assert len(names(chosen(cluster, pending, "p0", "p1", "p2", "p3")) or ()) == 4


def test_a_resource_that_the_node_offers_is_counted() -> None:
    """A block alone is not enough."""
    efa = "vpc.amazonaws.com/efa"
    torus = node("n", "trn1.32xlarge", allocatable={efa: 1})
    holder = pod("holder", on="n", requests={efa: 1})
    blocks = [pod(f"p{i}", on="n", devices=4, ids=range(4 * i, 4 * i + 4)) for i in range(4)]
    victims = chosen(
        cluster_of([torus], [holder, *blocks]), pod("q", devices=4, priority=1, requests={efa: 1}), "p0", "holder"
    )
    assert sorted(names(victims) or ()) == ["holder", "p0"]


def test_where_our_filters_refuse_what_kube_scheduler_accepts_victims_are_added() -> None:
    """kube-scheduler may run without a plugin of ours; its own filters accepted the proposal."""
    torus = node("n", "trn1.32xlarge", taints=(Taint("t", Effect.NO_SCHEDULE),))
    holders = [pod(f"p{i}", on="n", devices=1, ids=(i,)) for i in range(16)]
    victims = chosen(cluster_of([torus], holders), pod("q", devices=4, priority=1), "p1", "p6")
    assert victims is not None
    assert {"p1", "p6"} <= {victim.name for victim in victims.pods}


@pytest.mark.parametrize("seed", range(20))
def test_the_victims_are_the_cheapest_legal_set(seed: int) -> None:
    """No set of lower pods costs less, and after the victims are gone the filter accepts the pod on that node."""
    dice, answered = Random(seed), 0
    for _ in range(40):
        where = node("n", dice.choice(TYPES))
        bound = some_holders(dice, where)
        pending = pod("pending", priority=dice.choice([1, 4, 9, 10]), **dice.choice(ASKED))
        budgets = some_budgets(dice, bound)
        cluster = cluster_of([where], bound)
        if isinstance(decide_on(cluster, pending, BESIDE, "n"), Decision):
            continue
        share = dice.choice([0.0, 0.0, 0.5])
        proposed = [other.name for other in bound if dice.random() < share]
        victims = chosen(cluster, pending, *proposed, budgets=budgets)
        best = cheapest([where], bound, pending, budgets)
        assert (victims is None) == (best is None)
        if victims is None:
            continue
        answered += 1
        assert all(victim.priority < pending.priority for victim in victims.pods)
        stays = {victim.name for victim in victims.pods} <= set(proposed)  # it may have more than the count needs
        assert stays or cost(victims.pods, budgets) == best
        assert victims.violations == cost(victims.pods, budgets)[0]
        for victim in victims.pods:
            cluster.remove_pod(victim.uid)
        assert isinstance(decide_on(cluster, pending, BESIDE, "n"), Decision)
    assert answered > 3

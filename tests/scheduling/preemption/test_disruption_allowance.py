"""Budgets are used up pod by pod, and each counts the pods that it would count alone."""

from collections import Counter
from random import Random

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance
from tests.support.builders import pod
from tests.support.harness import with_budgets

SELECTORS = (
    None,
    LabelSelector(),
    LabelSelector((Requirement("app", Operator.IN, ("a",)),)),
    LabelSelector((Requirement("app", Operator.IN, ("a", "b")), Requirement("tier", Operator.EXISTS))),
    LabelSelector((Requirement("app", Operator.NOT_IN, ("a",)),)),
    LabelSelector((Requirement("tier", Operator.DOES_NOT_EXIST), Requirement("app", Operator.IN, ("b",)))),
)


def test_each_budget_counts_as_if_it_were_alone() -> None:
    """A pod goes beyond a budget if the budget counts more pods up to this one than it allows."""
    dice = Random(3)
    beyond = 0
    for _ in range(300):
        budgets = [
            DisruptionBudget(
                f"b{i}", dice.choice(["default", "other"]), f"b{i}", dice.choice(SELECTORS), dice.randint(0, 2)
            )
            for i in range(dice.randint(0, 5))
        ]
        pods = [
            pod(
                f"p{i}",
                namespace=dice.choice(["default", "other"]),
                labels={key: dice.choice("abc") for key in ("app", "tier") if dice.random() < 0.7},
            )
            for i in range(5)
        ]
        want = {
            counted.uid
            for budget in budgets
            for counted in [pod for pod in pods if budget.counts(pod)][budget.allowed :]
        }
        allowance = DisruptionAllowance(with_budgets(Cluster(), budgets).budgets)
        assert allowance.violating_uids(pods) == want
        assert allowance.violating_uids(pods) == want, "asking uses nothing up"
        kinds = Counter(map(allowance.counted_by, pods))
        one_after_the_other = sorted(pods, key=lambda pod: [*kinds].index(allowance.counted_by(pod)))
        assert allowance.violation_count(kinds) == len(allowance.violating_uids(one_after_the_other))
        beyond += len(want)
    assert beyond


def test_a_spared_pod_uses_nothing_up() -> None:
    """The leaving pods are counted first; a pod that is spared by one budget uses up no other budget."""
    web, all_of_x = (
        DisruptionBudget(
            f"b{key}", "default", f"b{key}", LabelSelector((Requirement(key, Operator.IN, ("a",)),)), allowed
        )
        for key, allowed in (("app", 1), ("tier", 1))
    )
    gone = pod("gone", labels={"app": "a"})
    both, tier, app, none = (
        pod("both", labels={"app": "a", "tier": "a"}),
        pod("tier", labels={"tier": "a"}),
        pod("app", labels={"app": "a"}),
        pod("none"),
    )
    allowance = DisruptionAllowance(with_budgets(Cluster(), [web, all_of_x]).budgets)
    assert allowance.uids_to_spare([gone], [both, tier, app, none]) == {both.uid, app.uid}
    assert allowance.uids_to_spare([], [app, both, tier]) == {both.uid}
    assert allowance.violating_uids([gone, both, tier]) == {both.uid, tier.uid}

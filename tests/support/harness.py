"""Builds a cluster of nodes and pods and decides one more pod: a node with ids, or a refusal."""

from collections.abc import Iterable

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod

Placed = tuple[str, tuple[int, ...]]


def cluster_of(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> Cluster:
    """Return a cluster of nodes and bound pods."""
    cluster = Cluster()
    for node in nodes:
        cluster.put_node(node)
    for bound in pods:
        cluster.put_pod(bound)
    return cluster


def with_budgets(cluster: Cluster, budgets: Iterable[DisruptionBudget]) -> Cluster:
    """Return the cluster with these PodDisruptionBudgets alone; what stays as it is is not touched."""
    before = {
        key: budget for each in cluster.budgets._namespaces.by_key.values() for key, budget in each.by_key.items()
    }
    after = {budget.key: budget for budget in budgets}
    for key in before.keys() - after.keys():
        cluster.budgets.remove(before[key])
    for key, budget in after.items():
        if budget != before.get(key):
            cluster.budgets.put(budget)
    return cluster


def decide(cluster: Cluster, pod: Pod) -> Decision | FitError:
    """Return the decision of the default profile."""
    return schedule_pod(cluster, pod, default_profile("my-scheduler"))


def schedule(cluster: Cluster, pod: Pod) -> Placed | str:
    """Place a pod and return (node, ids); if it does not fit, change nothing and return the refusal's counts."""
    decision = decide(cluster, pod)
    if isinstance(decision, FitError):
        return attrs.evolve(decision, hint="", blocked="").text
    cores = decision.placement.cores if decision.placement else NO_CORES
    cluster.assume(attrs.evolve(pod, node_name=decision.node_name), cores)
    return decision.node_name, decision.placement.ids if decision.placement else ()


def refusal(cluster: Cluster, pod: Pod) -> FitError:
    """Return the refusal of a pod that does not fit."""
    decision = decide(cluster, pod)
    if isinstance(decision, Decision):
        raise TypeError(f"{pod.key} fits on {decision.node_name}")
    return decision

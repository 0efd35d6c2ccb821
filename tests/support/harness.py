"""A cluster of nodes and pods, and what becomes of one more pod: a node with ids, or a sentence."""

from collections.abc import Iterable

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod

Placed = tuple[str, tuple[int, ...]]


def cluster_of(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> Cluster:
    """Return a cluster of nodes and bound pods."""
    cluster = Cluster()
    for each in nodes:
        cluster.put_node(each)
    for bound in pods:
        cluster.put_pod(bound)
    return cluster


def decide(cluster: Cluster, pod: Pod, *, count_unknown_only: bool = False) -> Decision | FitError:
    """Return the decision of the default profile."""
    return schedule_pod(cluster, pod, default_profile("my-scheduler", count_unknown_only=count_unknown_only))


def schedule(cluster: Cluster, pod: Pod, *, count_unknown_only: bool = False) -> Placed | str:
    """Place a pod for good and return (node, ids), or leave all as it is and return the refusal's counts."""
    found = decide(cluster, pod, count_unknown_only=count_unknown_only)
    if isinstance(found, FitError):
        return attrs.evolve(found, hint="", blocked="").text
    cores = found.placement.cores if found.placement else NO_CORES
    cluster.assume(attrs.evolve(pod, node_name=found.node_name), cores)
    return found.node_name, found.placement.ids if found.placement else ()


def refusal(cluster: Cluster, pod: Pod, *, count_unknown_only: bool = False) -> FitError:
    """Return the refusal of a pod that does not fit."""
    found = decide(cluster, pod, count_unknown_only=count_unknown_only)
    if isinstance(found, Decision):
        raise TypeError(f"{pod.key} fits on {found.node_name}")
    return found

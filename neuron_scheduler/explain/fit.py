"""
How many more replicas of a workload fit, where they go, and what limits the rest.

Every figure is found by placing pods on a fork, one after the other, by the decision of the running scheduler. The fork
is made in the first step, so later changes of the cluster do not count. Does not evict: pods stay where they are, and
space that is kept for pending pods is not free. Pods that wait already are not placed first.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import repeat
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers import Fit, Limit, PlacedPod
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NO_LABELS
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, NoNode, fit_error
from neuron_scheduler.scheduling.cycle.what_if import Placer

MOST_PODS: Final = 1000
"""Pods that are placed if more were not asked for."""


@attrs.frozen
class PodSet:
    """
    Equal pods of one replica.

    Attributes:
        template: a pod without a node; its name begins the names of its copies.
        count: pods of one replica.
        name: such as `worker`; empty if the replica has only this one.
    """

    template: Pod
    count: int = 1
    name: str = ""


@attrs.frozen
class Replicated:
    """
    Replicas of pods.

    Attributes:
        replicas: how many are wanted; 0 to ask how many there can be.
        pod_sets: the pods of one replica, in the order in which they are placed.
        name: such as `Job train`.
        notes: what could not be read of it, for the answer.
    """

    replicas: int
    pod_sets: tuple[PodSet, ...]
    name: str = ""
    notes: tuple[str, ...] = ()

    @property
    def pods_per_replica(self) -> int:
        """How many pods one replica has."""
        return sum(pod_set.count for pod_set in self.pod_sets)


def how_many_of(
    cluster: Cluster, workload: Replicated, profile: Profile, *, most: int = MOST_PODS
) -> Generator[None, None, Fit]:
    """
    Return how many replicas of a workload fit; yields where other tasks may run.

    A step is one decision, or a part of building the indexes for it.

    Args:
        cluster: it is not changed.
        workload: what is placed.
        profile: by which it is decided.
        most: pods that are placed at most, unless more are wanted.
    """
    fork = cluster.fork()
    yield
    placer, placed, limit = Placer(fork), list[PlacedPod](), None
    bound = max(workload.replicas, most // workload.pods_per_replica, 1)
    for replica, pod_set in _in_order(workload, bound):
        pod = _copy_of(fork, pod_set.template)
        result = yield from placer.place(pod, profile)
        if isinstance(result, NoNode):
            yield from placer.warmup.of_refusal(fork, pod, profile)
            refused = fit_error(fork, pod, profile, result)
            limit = Limit(refused.text, refused.cause, replica, pod_set.name)
            break
        placed.append(_placed_pod(fork, result, pod, replica, pod_set.name))
    total, wanted = bound if limit is None else limit.replica - 1, workload.replicas
    return Fit(
        name=workload.name,
        asks=_asks(workload),
        asked=wanted,
        fitting=min(wanted, total) if wanted else total,
        pods_per_replica=workload.pods_per_replica,
        placed=tuple(pod for pod in placed if not wanted or pod.replica <= wanted),
        total=total,
        limit=limit,
        notes=(*workload.notes, *_notes([pod_set.template for pod_set in workload.pod_sets])),
    )


def _in_order(workload: Replicated, most: int) -> Iterator[tuple[int, PodSet]]:
    """Yield each pod to be placed: the number of its replica, and its set."""
    for replica in range(1, most + 1):
        for pod_set in workload.pod_sets:
            yield from repeat((replica, pod_set), pod_set.count)


def _copy_of(fork: Cluster, template: Pod) -> Pod:
    """Return one more pod like the template."""
    name = f"{template.name}/{fork.pod_count}"  # no object has such a name, and no pod that was placed before
    return attrs.evolve(template, uid=name, name=name, node_name="", nominated_node_name="", allocation=NO_LABELS)


def _placed_pod(fork: Cluster, decision: Decision, pod: Pod, replica: int, part: str) -> PlacedPod:
    node_info = fork.node(decision.node_name)
    return PlacedPod(
        replica=replica,
        node_name=decision.node_name,
        instance_type="" if node_info is None else node_info.node.instance_type,
        part=part,
        ids=decision.ids,
        unit="" if pod.neuron is None else pod.neuron.unit,
    )


def _asks(workload: Replicated) -> str:
    if workload.pods_per_replica == 1:
        return asked(workload.pod_sets[0].template.neuron)
    parts = [(pod_set.count, asked(pod_set.template.neuron)) for pod_set in workload.pod_sets]
    return " and ".join(f"{count} x {part}" for count, part in parts if part)


def _notes(templates: Sequence[Pod]) -> Iterator[str]:
    gates = sorted({gate for template in templates for gate in template.gates})
    if gates:
        yield f"The pods wait for their scheduling gates ({', '.join(gates)}) first; they are not considered."
    if any(template.priority > 0 for template in templates):
        yield "Evictions of pods of lower priority are not considered."

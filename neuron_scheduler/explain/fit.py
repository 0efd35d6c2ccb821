"""
How many more replicas of a workload fit, where they go, what limits the rest, and what new nodes would give.

Every figure is found by placing pods on a fork, one after the other, by the decision of the running scheduler. The fork
is made in the first step, so later changes of the cluster do not count. Does not evict: pods stay where they are, and
space that is kept for pending pods is not free. Pods that wait already are not placed first.

A claim that replicas would create, and whose class waits for its first consumer, is provisioned where the pod goes, so
the decision reads it. Any other is provisioned at once, at a place that nobody can know now: it is left out, and a note
says so.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers.fit import Fit, Fits, PlacedPod, Purchase, TypeCount
from neuron_scheduler.explain.placing import Placing, place, warm_up
from neuron_scheduler.explain.purchase import Question, purchase, smallest_purchases
from neuron_scheduler.explain.replicated import PodSet, Replicated, replicated
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import PersistentVolumeClaim
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.cycle.profile import Profile


def with_known_claims(cluster: Cluster, workload: Replicated) -> Replicated:
    """Return the workload without the claims that cannot be considered, with a note for each class of them."""
    notes = dict.fromkeys(workload.notes)
    pod_sets: list[PodSet] = []
    for pod_set in workload.pod_sets:
        problems = {claim.name: _problem(cluster, claim) for claim in pod_set.claims}
        left_out = {name for name, problem in problems.items() if problem}
        notes |= dict.fromkeys(filter(None, problems.values()))
        pod_sets.append(_without(pod_set, left_out) if left_out else pod_set)
    return attrs.evolve(workload, pod_sets=tuple(pod_sets), notes=tuple(notes))


def _problem(cluster: Cluster, claim: PersistentVolumeClaim) -> str:
    storage_class = cluster.volumes.classes.get(claim.class_name)
    if not claim.class_name:
        return "Volumes of the default storage class are not considered: which class that is, is not known here."
    if storage_class is None:
        return f"Volumes of the storage class {claim.class_name} are not considered: the class is not known here."
    if not storage_class.waits:
        return (
            f"Volumes of the storage class {claim.class_name} are not considered: they are provisioned before a pod"
            " has a node."
        )
    return ""


def _without(pod_set: PodSet, names: set[str]) -> PodSet:
    constraints = pod_set.template.constraints
    constraints = attrs.evolve(
        constraints,
        volume_claims=tuple(name for name in constraints.volume_claims if name not in names),
        ephemeral_claims=tuple(name for name in constraints.ephemeral_claims if name not in names),
    )
    template = attrs.evolve(pod_set.template, constraints=constraints)
    return attrs.evolve(
        pod_set, template=template, claims=tuple(claim for claim in pod_set.claims if claim.name not in names)
    )


MOST_PODS: Final = 1000
"""Pods that are placed if more were not asked for."""

Buy = tuple[int, str]
"""A number of nodes and their instance type."""


def how_many(
    cluster: Cluster,
    template: Pod,
    profile: Profile,
    *,
    replicas: int,
    buy: Sequence[Buy] = (),
    suggest: bool = True,
    most: int = MOST_PODS,
) -> Generator[None, None, Fit]:
    """
    Return how many pods like a template fit; yields where other tasks may run.

    Arguments are those of `how_many_of`; `replicas` is 0 to ask how many there can be.
    """
    workload = replicated(template, replicas)
    return how_many_of(cluster, workload, profile, buy=buy, suggest=suggest, most=most)


def how_many_of(
    cluster: Cluster,
    workload: Replicated,
    profile: Profile,
    *,
    buy: Sequence[Buy] = (),
    suggest: bool = True,
    most: int = MOST_PODS,
) -> Generator[None, None, Fit]:
    """
    Return how many replicas of a workload fit; yields where other tasks may run.

    Args:
        cluster: it is not changed.
        workload: what is placed.
        profile: by which it is decided.
        buy: purchases to try.
        suggest: whether to search the smallest purchase that lets all wanted replicas in, if not all fit.
        most: pods that are placed at most, unless more are wanted.
    """
    fork, workload = cluster.fork(), with_known_claims(cluster, workload)
    yield
    yield from warm_up(fork, workload, profile)
    bound = max(workload.replicas, most // workload.pods_per_replica, 1)
    placing: Placing = yield from place(fork.fork(), workload, profile, most=bound)
    question = Question(cluster=fork, workload=workload, profile=profile, most=bound, before=placing)
    return _fit(question, (yield from _purchases(question, buy, suggest=suggest)))


def how_many_of_each(
    cluster: Cluster,
    workloads: Sequence[Replicated],
    profile_of: Callable[[Replicated], Profile],
    *,
    buy: Sequence[Buy] = (),
    suggest: bool = True,
    most: int = MOST_PODS,
) -> Generator[None, None, Fits]:
    """
    Return how many replicas of several workloads fit, which are placed one after the other in their order.

    It yields where other tasks may run. Arguments are those of `how_many_of`.
    """
    fork, answers = cluster.fork(), list[Fit]()
    yield
    for workload in workloads:
        profile = profile_of(workload)
        fit = yield from how_many_of(fork, workload, profile, buy=buy, suggest=suggest, most=most)
        answers.append(fit)
        if workload is not workloads[-1]:
            yield from place(fork, with_known_claims(fork, workload), profile, most=workload.replicas)
    return Fits(tuple(answers))


def _purchases(question: Question, buy: Sequence[Buy], *, suggest: bool) -> Generator[None, None, tuple[Purchase, ...]]:
    purchases: dict[Buy, Purchase] = {}
    for nodes, instance_type in buy:
        purchases[nodes, instance_type] = yield from purchase(question, instance_type, nodes)
    if suggest and question.before.complete < question.workload.replicas:
        smallest = yield from smallest_purchases(question)
        purchases |= {(answer.nodes, answer.instance_type): answer for answer in smallest}
    return tuple(purchases.values())


def _fit(question: Question, purchases: tuple[Purchase, ...]) -> Fit:
    workload, placing = question.workload, question.before
    wanted = workload.replicas
    shown = tuple(pod for pod in placing.pods if not wanted or pod.replica <= wanted)
    return Fit(
        name=workload.name,
        asks=_asks(workload),
        asked=wanted,
        fitting=min(wanted, placing.complete) if wanted else placing.complete,
        pods_per_replica=workload.pods_per_replica,
        pods_fitting=len(shown),
        placed=shown,
        total=placing.complete,
        most=question.most,
        limit=placing.limit,
        types=_by_type(shown),
        purchases=purchases,
        notes=(*workload.notes, *_notes(workload, purchases)),
    )


def _asks(workload: Replicated) -> str:
    if workload.pods_per_replica == 1:
        return asked(workload.pod_sets[0].template.neuron)
    parts = [(pod_set.count, asked(pod_set.template.neuron)) for pod_set in workload.pod_sets]
    return " and ".join(f"{count} x {part}" for count, part in parts if part)


def _by_type(placed: Sequence[PlacedPod]) -> tuple[TypeCount, ...]:
    pods = Counter(pod.instance_type for pod in placed)
    nodes = Counter(instance_type for instance_type, _ in {(pod.instance_type, pod.node_name) for pod in placed})
    return tuple(TypeCount(instance_type, count, nodes[instance_type]) for instance_type, count in pods.most_common())


def _notes(workload: Replicated, purchases: Sequence[Purchase]) -> Iterator[str]:
    templates = [pod_set.template for pod_set in workload.pod_sets]
    gates = sorted({gate for template in templates for gate in template.gates})
    if gates:
        yield f"The pods wait for their scheduling gates ({', '.join(gates)}) first; they are not considered."
    if any(template.priority > 0 for template in templates):
        yield "Evictions of pods of lower priority are not considered."
    unknown = dict.fromkeys(bought.instance_type for bought in purchases if not bought.like and not bought.problem)
    if unknown:
        yield (
            f"The cluster has no {', '.join(unknown)}: its cpu, memory, taints and labels are not known, so only its"
            " Neuron devices limit what fits on it."
        )

"""
How many more replicas of a workload fit, where they go, what limits the rest, and what new nodes would give.

Every figure is found by placing pods on a fork, one after the other, by the decision of the running scheduler. The fork
is made in the first step, so later changes of the cluster do not count. Does not evict: pods stay where they are, and
space that is kept for pending pods is not free. Pods that wait already are not placed first.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers.fit import Fit, Fits, PlacedPod, Purchase, TypeCount
from neuron_scheduler.explain.own_claims import with_known_claims
from neuron_scheduler.explain.placing import Placing, place, warm_up
from neuron_scheduler.explain.purchase import Question, purchase, smallest_purchases
from neuron_scheduler.explain.replicated import Replicated, replicated
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.cycle.profile import Profile

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
) -> Iterator[Fit | None]:
    """
    Say how many pods like a template fit; yields None where other tasks may run, and the answer last.

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
) -> Iterator[Fit | None]:
    """
    Say how many replicas of a workload fit; yields None where other tasks may run, and the answer last.

    Args:
        cluster: it is not changed.
        workload: what is placed.
        profile: by which it is decided.
        buy: purchases to try.
        suggest: whether to search the smallest purchase that lets all wanted replicas in, if not all fit.
        most: pods that are placed at most, unless more are wanted.
    """
    fork, workload = cluster.fork(), with_known_claims(cluster, workload)
    yield None
    for _ in warm_up(fork, workload, profile):
        yield None
    bound = max(workload.replicas, most // workload.pods_per_replica, 1)
    placing: Placing = yield from place(fork.fork(), workload, profile, most=bound)
    question = Question(cluster=fork, workload=workload, profile=profile, most=bound, before=placing)
    yield _fit(question, (yield from _purchases(question, buy, suggest=suggest)))


def how_many_of_each(
    cluster: Cluster,
    workloads: Sequence[Replicated],
    profile_of: Callable[[Replicated], Profile],
    *,
    buy: Sequence[Buy] = (),
    suggest: bool = True,
    most: int = MOST_PODS,
) -> Iterator[Fits | None]:
    """
    Say how many replicas of several workloads fit, which are placed one after the other in their order.

    It yields None where other tasks may run, and the answer last. Arguments are those of `how_many_of`.
    """
    fork, answers = cluster.fork(), list[Fit]()
    yield None
    for workload in workloads:
        profile = profile_of(workload)
        for fit in how_many_of(fork, workload, profile, buy=buy, suggest=suggest, most=most):
            yield None
            if fit is not None:
                answers.append(fit)
        if workload is not workloads[-1]:
            for _ in place(fork, with_known_claims(fork, workload), profile, most=workload.replicas):
                yield None
    yield Fits(tuple(answers))


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

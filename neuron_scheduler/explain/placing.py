"""
Place replicas one pod after the other on a fork, as the running scheduler would: decide, assume, next.

The only place of `explain` that fills a fork. Each pod is decided by `schedule_pod` itself, so devices, spread
constraints, host ports and claims count as they do for real pods. Does not evict anything or try another order.
"""

from collections.abc import Generator, Iterator, Mapping
from itertools import repeat
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers.fit import Limit, PlacedPod
from neuron_scheduler.explain.replicated import PodSet, Replicated
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NO_LABELS
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, NoNode, fit_error
from neuron_scheduler.scheduling.cycle.what_if import Placer

_NOTHING: Final[Mapping[str, str]] = NO_LABELS


@attrs.frozen
class Placing:
    """
    What came of it.

    Attributes:
        pods: in order, those of the last, incomplete replica included.
        complete: replicas of which every pod was placed.
        limit: why the next pod was not placed; None if all were.
    """

    pods: tuple[PlacedPod, ...]
    complete: int
    limit: Limit | None = None


def place(fork: Cluster, workload: Replicated, profile: Profile, *, most: int) -> Generator[None, None, Placing]:
    """
    Place up to `most` replicas on a fork; it yields where other tasks may run, and returns what came of it.

    A step is one decision, or a part of building the indexes for it.
    """
    placer, pods = Placer(fork), list[PlacedPod]()
    if workload.controller is not None:
        fork.workloads.put(workload.controller)
    for replica, pod_set in _in_order(workload, most):
        pod = copy_of(fork, pod_set)
        result = yield from placer.place(pod, profile)
        if isinstance(result, NoNode):
            yield from placer.warmup.of_refusal(fork, pod, profile)
            limit = _limit(fit_error(fork, pod, profile, result), replica, pod_set.name)
            return Placing(tuple(pods), replica - 1, limit)
        pods.append(_placed_pod(fork, result, pod, replica, pod_set.name))
    return Placing(tuple(pods), most)


def warm_up(fork: Cluster, workload: Replicated, profile: Profile) -> Iterator[None]:
    """Build in steps the indexes that a workload's decisions and refusals need; later forks of this fork have them."""
    warmup = IndexWarmup()
    for pod_set in workload.pod_sets:
        yield from warmup.of(fork, pod_set.template, profile)
        yield from warmup.of_refusal(fork, pod_set.template, profile)


def _in_order(workload: Replicated, most: int) -> Iterator[tuple[int, PodSet]]:
    """Yield each pod to be placed: the number of its replica, and its set."""
    for replica in range(1, most + 1):
        for pod_set in workload.pod_sets:
            yield from repeat((replica, pod_set), pod_set.count)


def copy_of(fork: Cluster, pod_set: PodSet) -> Pod:
    """Return one more pod of a set, and add the claims that it has for itself alone."""
    template = pod_set.template
    uid = name = f"{template.name}/{fork.pod_count}"  # no object has such a name, and no pod that was placed before
    copy = attrs.evolve(template, uid=uid, name=name, node_name="", nominated_node_name="", allocation=_NOTHING)
    if not pod_set.claims:
        return copy
    renamed = {claim.name: f"{name}/{index}" for index, claim in enumerate(pod_set.claims)}
    for claim in pod_set.claims:
        claim_name = renamed[claim.name]
        fork.put_storage(attrs.evolve(claim, uid=f"claim-{claim_name}", name=claim_name, owner=uid))
    constraints = copy.constraints
    return attrs.evolve(
        copy,
        constraints=attrs.evolve(
            constraints,
            volume_claims=tuple(renamed.get(claim, claim) for claim in constraints.volume_claims),
            ephemeral_claims=tuple(renamed.get(claim, claim) for claim in constraints.ephemeral_claims),
        ),
    )


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


def _limit(refused: FitError, replica: int, part: str) -> Limit:
    return Limit(refused.text, refused.cause, replica, part, autoscalers=not refused.new_node_cannot_help)

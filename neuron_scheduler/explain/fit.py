"""
How many more replicas of a workload fit, where they go, and what limits the rest.

Every figure is found by placing pods on a fork, one after the other, by the decision of the running scheduler. Pods
that start together are placed by its plan for a group. The fork is made in the first step, so later changes of the
cluster do not count. No pod is evicted, pods that wait already are not placed first, and space that is kept for
pending pods is not free.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers import Fit, Limit, PlannedPod
from neuron_scheduler.explain.groups import label_complaints, mixed_text
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import PodGroup
from neuron_scheduler.model.replicated import PodSet, Replicated
from neuron_scheduler.model.selectors import NO_LABELS, LabelSelector, Operator, PodAffinityTerm, Requirement
from neuron_scheduler.model.wording import count_text, few_names
from neuron_scheduler.scheduling.cycle.neuron_shortage import request_text
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, fit_error
from neuron_scheduler.scheduling.cycle.what_if import Placer
from neuron_scheduler.scheduling.groups.gang import GroupPlan, gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.plugins.cause import Cause

MOST_PODS: Final = 1000
"""Pods that are placed if more were not asked for."""
MAY_PREEMPT: Final = "`fit` evicts nobody; the scheduler may evict pods of lower priority for these."
_ROWS_AT_ONCE: Final = 256
_REPLICA: Final = "/replica"
"""A label that no pod has: a key has a prefix before the slash."""


def how_many_of(
    cluster: Cluster, workload: Replicated, profile: Profile, *, most: int = MOST_PODS
) -> Generator[None, None, Fit]:
    """
    Return how many replicas of a workload fit; yields after each decision, and while indexes are built.

    The cluster stays as it is. `most` pods are placed at most, unless more are wanted.
    """
    fork = cluster.fork()
    yield
    sets = (attrs.evolve(pod_set, template=profile.own(pod_set.template)) for pod_set in workload.pod_sets)
    workload = attrs.evolve(workload, pod_sets=tuple(sets))
    placer, placed, limit = Placer(fork), list[PlannedPod](), None
    bound = max(workload.replicas, most // workload.pods_per_replica, 1)
    for replica, parts in _in_order(workload, bound):
        found = yield from _place(placer, parts, profile, replica)
        if isinstance(found, Limit):
            limit = found
            break
        placed += found
    notes = [*workload.notes, *_notes(fork, workload)]
    by_replica = groupby(placed, key=attrgetter("replica"))
    mixed = (mixed_text(pod.instance_type for pod in pods if pod.unit) for _, pods in by_replica)
    notes += dict.fromkeys(filter(None, mixed))
    if limit is not None and (yield from _may_preempt(fork, workload)):
        notes.append(MAY_PREEMPT)
    total, wanted = bound if limit is None else limit.replica - 1, workload.replicas
    never = not total and (yield from _never_fits(fork, workload, profile))
    return Fit(
        name=workload.name,
        asks=_asks(workload),
        asked=wanted,
        fitting=min(wanted, total) if wanted else total,
        pods_per_replica=workload.pods_per_replica,
        placed=tuple(pod for pod in placed if not wanted or pod.replica <= wanted),
        total=total,
        limit=limit,
        never=never,
        notes=tuple(notes),
    )


def _in_order(workload: Replicated, most: int) -> Iterator[tuple[int, list[PodSet]]]:
    """Yield what is placed at once: the number of the replica, and the set of a pod, or of each member of a group."""
    for replica in range(1, most + 1):
        for key, sets in groupby(workload.pod_sets, key=lambda each: each.template.group and each.template.group.key):
            pods = [each for pod_set in sets for each in repeat(pod_set, pod_set.count)]
            yield from ((replica, part) for part in ([pods] if key else [[each] for each in pods]))


def _place(
    placer: Placer, parts: Sequence[PodSet], profile: Profile, replica: int
) -> Generator[None, None, list[PlannedPod] | Limit]:
    first, fork = parts[0], placer.fork
    if first.template.group is not None:
        return (yield from _place_together(placer, parts, first.template.group, profile, replica))
    pod = _copy_of(fork, first.template)
    result = yield from placer.place(pod, profile)
    if isinstance(result, Decision):
        return [_placed_pod(fork, result, pod, first.name, replica)]
    yield from placer.warmup.prepare_refusal(fork, pod, profile)
    refused = fit_error(fork, pod, profile, result)
    return Limit(refused.text, refused.cause, replica, first.name)


def _never_fits(fork: Cluster, workload: Replicated, profile: Profile) -> Generator[None, None, bool]:
    """Return whether no replica would fit if all pods but those of every node were gone, as they are then."""
    templates = [pod_set.template for pod_set in workload.pod_sets]
    if any(not _is_about_its_like(term, pod) for pod in templates for term in pod.constraints.affinity):
        return False  # it needs pods that are there
    for node_info in filter(None, fork.view.rows_in_slots()):
        for info in [*node_info.pod_infos.values()]:
            if not info.pod.is_of_every_node:
                fork.remove_pod(info.pod.uid)
        for nomination in node_info.nominations:
            fork.clear_nomination(nomination.pod.uid)
        yield
    placer = Placer(fork)
    for _, parts in _in_order(workload, 1):
        if isinstance((yield from _place(placer, parts, profile, 1)), Limit):
            return True
    return False


def _place_together(
    placer: Placer, parts: Sequence[PodSet], group: PodGroup, profile: Profile, replica: int
) -> Generator[None, None, list[PlannedPod] | Limit]:
    if group.least > len(parts):
        asked = count_text(group.least, "pod")
        return Limit(f"Group {group.key} asks for {asked}, but the file makes {len(parts)}.", Cause.GROUP, replica)
    fork = placer.fork
    key = attrs.evolve(group.key, name=f"{group.key.name}/{replica}")
    own = attrs.evolve(group, key=key, least=len(parts), expected=len(parts))
    pods, placed = dict[str, tuple[Pod, str]](), list[PlannedPod]()
    for number, part in enumerate(parts):
        pod = attrs.evolve(_together_with(_copy_of(fork, part.template, number), replica), group=own)
        pods[pod.uid] = pod, part.name
        fork.groups.put(pod)
        yield
    gang = gang_of(fork, [pod for pod, _ in pods.values()])
    plan = yield from plan_group(fork, gang, profile, placer.warmup)
    if isinstance(plan, GroupPlan):
        for each in plan.members:
            placed.append(_placed_pod(fork, each.decision, *pods[each.pod.uid], replica))
            yield
        return placed
    refused = attrs.evolve(plan, member="").fit_error(attrs.evolve(gang, title=str(group.key)))
    if 0 < group.least < len(parts):
        fit = f"{plan.fitting} of its {len(parts)} pods fit at once, and it starts with {group.least}."
        refused = attrs.evolve(plan.reason, group=f"Group {group.key}: {fit} For the next one:")
    return Limit(refused.text, refused.cause, replica)


def _copy_of(fork: Cluster, template: Pod, number: int = 0) -> Pod:
    """Return one more pod like the template; `number` tells those apart that are placed together."""
    name = f"{template.name}/{fork.pod_count + number}"  # no object has such a name, and no pod that was placed before
    return attrs.evolve(template, uid=name, name=name, node_name="", nominated_node_name="", allocation=NO_LABELS)


def _together_with(pod: Pod, replica: int) -> Pod:
    """Return a pod whose affinity to its like is to those of its replica: another job would have another name."""
    labels = {**pod.labels, _REPLICA: str(replica)}
    own = Requirement(_REPLICA, Operator.IN, (str(replica),))

    def with_own(term: PodAffinityTerm) -> PodAffinityTerm:
        if term.selector is None or not _is_about_its_like(term, pod):
            return term
        return attrs.evolve(term, selector=LabelSelector((*term.selector.requirements, own)))

    affinity = tuple(map(with_own, pod.constraints.affinity))
    return attrs.evolve(pod, labels=labels, constraints=attrs.evolve(pod.constraints, affinity=affinity))


def _is_about_its_like(term: PodAffinityTerm, pod: Pod) -> bool:
    return term.selector is not None and term.selector.matches(pod.labels)


def _placed_pod(fork: Cluster, decision: Decision, pod: Pod, part: str, replica: int) -> PlannedPod:
    node_info = fork.node(decision.node_name)
    return PlannedPod(
        replica=replica,
        node_name=decision.node_name,
        instance_type="" if node_info is None else node_info.node.instance_type,
        part=part,
        ids=decision.ids,
        unit="" if pod.neuron is None else pod.neuron.unit,
    )


def _asks(workload: Replicated) -> str:
    if workload.pods_per_replica == 1:
        return request_text(workload.pod_sets[0].template.neuron)
    parts = [(pod_set.count, request_text(pod_set.template.neuron)) for pod_set in workload.pod_sets]
    return " and ".join(f"{count} x {part}" for count, part in parts if part)


def _may_preempt(fork: Cluster, workload: Replicated) -> Generator[None, None, bool]:
    """Return whether the scheduler may evict pods for these."""
    templates = [pod_set.template for pod_set in workload.pod_sets]
    highest = max((pod.priority for pod in templates if not pod.never_preempts), default=None)
    for number, node_info in enumerate(filter(None, fork.view.rows_in_slots()), start=1):
        if highest is None or any(priority < highest for priority in node_info.priorities):
            return highest is not None
        if number % _ROWS_AT_ONCE == 0:
            yield
    return False


def _notes(cluster: Cluster, workload: Replicated) -> Iterator[str]:
    templates = [pod_set.template for pod_set in workload.pod_sets]
    for key in dict.fromkeys(template.group.key for template in templates if template.group is not None):
        owners = cluster.groups.owners(key)
        if owners and workload.name not in owners:
            yield (
                f"Group {key} has members already, of {few_names(owners)}: with its name they and these pods are one"
                " group. Give each run a name of its own."
            )
    yield from dict.fromkeys(each for template in templates for each in label_complaints(template))
    gates = sorted({gate for template in templates for gate in template.gates})
    if gates:
        yield f"The pods' scheduling gates ({', '.join(gates)}) must be removed first; they are not considered."

"""
What becomes of a waiting pod together with its group: the scheduler's own plan and words, made on a fork.

Also what is wrong with the labels that name a group: nobody else says that they have no effect.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import COUNT_LABEL, MOST_MEMBERS, NAME_LABELS, Dialect
from neuron_scheduler.model.wording import clip, list_of
from neuron_scheduler.neuron.catalog import family_of
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.groups.gang import Gang, GroupPlan, GroupRefusal, gang_of, held_text
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PodRefusal
from neuron_scheduler.scheduling.plugins.registry import GROUP_TOPOLOGY

_LABELS: Final = (*NAME_LABELS, COUNT_LABEL)
_PREFIX: Final = f"{COUNT_LABEL.partition('/')[0]}/"
_ALIKE: Final = 0.85


@attrs.frozen
class Waits:
    """A pod waits with its group: the message of its condition, the cause, and how the group was refused as a whole."""

    message: str
    cause: Cause
    refused: tuple[Gang, GroupRefusal] | None = None

    @property
    def complaint(self) -> PodRefusal | None:
        """Return what the members themselves have to change, whatever the nodes are; None if that is nothing."""
        reason = None if self.refused is None else self.refused[1].reason
        is_theirs = reason is not None and reason.new_node_cannot_help and reason.pod_reason
        return PodRefusal(GROUP_TOPOLOGY, is_theirs) if is_theirs else None


def decide_in_group(fork: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, Mapping[str, Decision | Waits]]:
    """
    Return by uid what the scheduler decides for a pod in a group and for those that it decides together with it.

    The fork is changed; yields whenever other tasks may run.
    """
    if pod.group is None:
        raise ValueError(f"{pod.key} is in no group")
    fork.groups.served |= {pod.scheduler_name}  # it is explained as if it were ours
    fork.groups.put(pod)
    group, members = fork.groups.group(pod.group.key), fork.groups.members(pod.group.key)
    others = [each for uid, each in members.items() if uid != pod.uid and fork.node_of(uid) is None]
    ours = (each for each in others if each.scheduler_name == pod.scheduler_name and not each.node_name)
    waiting = [pod, *ours]
    if group.has_to_wait and fork.groups.present_count(group.key) < group.least:
        text = held_text(fork.groups, group.key)
        return dict.fromkeys([each.uid for each in waiting], Waits(text, Cause.GROUP))
    gang = gang_of(fork, waiting)
    found = yield from plan_group(fork, gang, profile, IndexWarmup())
    if isinstance(found, GroupPlan):
        taken = {taken.pod.uid: taken.decision for taken in found.members}
        return taken | {left.uid: Waits(error.text, error.cause) for left, error in found.left_out}
    refused = found.fit_error(gang)
    return dict.fromkeys([each.uid for each in waiting], Waits(refused.text, refused.cause, (gang, found)))


def label_complaints(pod: Pod) -> Iterator[str]:
    """Yield in one note what is wrong with the labels by which a pod was to be in a group, and if it is in none."""
    found = [*_mistyped_labels(pod)]
    count, is_named = pod.labels.get(COUNT_LABEL), any(map(pod.labels.get, NAME_LABELS))
    if count is not None and not is_named:
        found.append(f"The label {COUNT_LABEL} has no effect without {NAME_LABELS[1]}.")
    elif (
        count is not None
        and pod.group is not None
        and pod.group.least == 0
        and pod.group.key.dialect is Dialect.COSCHEDULING
    ):
        number = f"no number from 1 to {MOST_MEMBERS}: its group waits for no missing pods"
        found.append(f"The label {COUNT_LABEL} is {clip(count) or 'empty'}, {number}.")
    if found and pod.group is None and not pod.gates:
        found.append("So the pod is in no group: it starts by itself.")
    if found:
        yield " ".join(found)


def _mistyped_labels(pod: Pod) -> Iterator[str]:
    for key in pod.labels.keys() - {*_LABELS}:
        cutoff = 0.0 if key.startswith(_PREFIX) else _ALIKE
        for meant in get_close_matches(key, _LABELS, n=1, cutoff=cutoff):
            yield f"The label {clip(key)} has no meaning here; did you mean {meant}?"


def mixed_text(instance_types: Iterable[str]) -> str:
    """Return that members on machines of these types are on several families; empty if they are not."""
    families = sorted({family_of(each) for each in instance_types if each})
    if len(families) < 2:
        return ""
    compiled = "programs are compiled for one. A nodeSelector for the instance type keeps them together"
    return f"The members of the group would be on machines of {list_of(families)}, and {compiled}."

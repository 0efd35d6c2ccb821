"""
The decision about one pod with all its reasons: the message, the counts, and every node in a group.

The message is that of `FitError`, and the groups are made from the refusals of the same diagnosis, so their numbers
cannot differ from what the Event and the condition say. Does not suggest what to do: that is for `changes`.
"""

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import slots_of
from neuron_scheduler.explain.answers.explanation import FilterCount, NodeGroup
from neuron_scheduler.explain.groups import MOST_NAMED, filter_counts, groups_of, merged
from neuron_scheduler.explain.subject import ids_text
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.filters import accepted, nodes_with_nominations, refusals_of
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, NoNode, diagnosis, select_node
from neuron_scheduler.scheduling.plugins.contract import PodRefusal, Refusal

_MOST_ASKED_ONE_BY_ONE: Final = 100


@attrs.frozen
class Reasons:
    """
    What was decided, and why.

    Attributes:
        outcome: of the decision.
        message: for people, as the Event has it.
        filters, groups: as in `Explanation`.
    """

    outcome: Decision | FitError
    message: str
    filters: tuple[FilterCount, ...] = ()
    groups: tuple[NodeGroup, ...] = ()

    @property
    def cause(self) -> str:
        """What the pod waits for; empty if it fits."""
        return self.outcome.cause if isinstance(self.outcome, FitError) else ""


def reasons(cluster: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, Reasons]:
    """
    Decide a pod and return all reasons; yields when other tasks may run.

    Args:
        cluster: a fork that nobody else uses; the pod's own nomination is removed from it.
        pod: it need not be pending.
        profile: whose filters.
    """
    yield from warmed_up(cluster, pod, profile)
    result = select_node(cluster, pod, profile)
    yield
    if isinstance(result, NoNode) and result.pod_refusal is not None:
        return _of_refused_pod(cluster, pod, profile, result, result.pod_refusal)
    outcome: Decision | FitError
    if isinstance(result, Decision):
        outcome, message = result, _fits(pod, result)
        cluster.clear_nomination(pod.uid)
        refusals = merged(_refusals_beside(cluster, pod, profile))
    else:
        diagnosed = diagnosis(cluster, pod, profile, result)
        outcome, message = diagnosed.fit_error, diagnosed.fit_error.text
        cluster.clear_nomination(pod.uid)
        refusals = merged(diagnosed.refusals)
    yield
    groups = yield from groups_of(cluster, pod, profile, refusals)
    return Reasons(outcome, message, filter_counts(refusals), groups)


def warmed_up(cluster: Cluster, pod: Pod, profile: Profile) -> Iterator[None]:
    """Build the indexes that the decision about a pod and its reasons need; yields when other tasks may run."""
    warmup = IndexWarmup()
    yield from warmup.of(cluster, pod, profile)
    yield from warmup.of_refusal(cluster, pod, profile)


def _of_refused_pod(cluster: Cluster, pod: Pod, profile: Profile, result: NoNode, refusal: PodRefusal) -> Reasons:
    """Return the reasons of a pod that is refused whatever the nodes are: all of them are one group."""
    error, view = diagnosis(cluster, pod, profile, result).fit_error, cluster.view
    count = view.node_count
    if not count:
        return Reasons(error, error.text)
    names = tuple(node_info.node.name for node_info in islice(view.rows(), MOST_NAMED))
    group = NodeGroup(count, names, plugin=refusal.plugin, reason=refusal.reason, cause=error.cause)
    counts = (FilterCount(refusal.plugin, refusal.reason, count, unresolvable=True),)
    return Reasons(error, error.text, counts, (group,))


def _refusals_beside(cluster: Cluster, pod: Pod, profile: Profile) -> list[Refusal]:
    """
    Return the refusals of the nodes that do not take a pod which others take.

    Nodes with nominations are asked one by one, as the decision does with the node that it chooses.
    """
    candidates, refusals = accepted(cluster, pod, profile, cluster.view.live)
    doubtful = nodes_with_nominations(cluster, pod.priority) & candidates
    for slot in islice(slots_of(doubtful), _MOST_ASKED_ONE_BY_ONE):
        refusals += refusals_of(cluster, slot, pod, profile)
    return refusals


def _fits(pod: Pod, decision: Decision) -> str:
    """Return where a pod would go, in the words of the Event."""
    return f"{pod.key} fits now: it would be assigned to {decision.node_name}{ids_text(decision.ids, pod)}."

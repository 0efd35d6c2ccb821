"""
The smallest changes that would let a refused pod in, of every kind.

The kinds are asked one after the other, in the order in which their changes are shown. The search pauses, and runs on
the live cluster (`refused_pod` says why): each change was true when it was found, and its names are valid afterwards.
Does not combine kinds: where no single change suffices, a note says so.
"""

from collections.abc import Generator, Sequence
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers import Change
from neuron_scheduler.explain.changes.departure import find_departure
from neuron_scheduler.explain.changes.nodes import find_new_node, find_uncordon
from neuron_scheduler.explain.changes.pod_spec import find_count, find_instance_type, find_selector, find_toleration
from neuron_scheduler.explain.changes.refused_pod import Kind, Note, RefusedPod
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import asks_much
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance

KINDS: Final[tuple[Kind, ...]] = (
    find_count,
    find_departure,
    find_uncordon,
    find_toleration,
    find_selector,
    find_instance_type,
    find_new_node,
)
"""In the order of `ChangeKind`."""
NONE_ALONE: Final = "No single change of the kinds that were tried lets the pod in."
ASKS_MUCH: Final = "What would let the pod in was not tried: it compares itself with other pods in too many ways."
NONE_HELPS: Final = "No change of the cluster lets the pod in: the reason is the pod itself."

Answer = tuple[tuple[Change, ...], tuple[str, ...]]
"""The changes, and the notes."""


def changes(
    cluster: Cluster,
    pod: Pod,
    profile: Profile,
    *,
    refused: FitError,
    budgets: Sequence[DisruptionBudget] = (),
    now: float = 0.0,
) -> Generator[None, None, Answer]:
    """
    Return changes after which the pod fits; yields whenever other tasks may run.

    Args:
        cluster: may change at each yield.
        pod: as it was refused.
        profile: with which it was refused.
        refused: why.
        budgets: the disruption budgets of the other pods.
        now: seconds since the epoch.
    """
    if pod.refusal:
        return (), (NONE_HELPS,)
    if asks_much(pod):
        return (), (ASKS_MUCH,)
    refused_pod = RefusedPod(cluster, pod, profile, refused, DisruptionAllowance(budgets), now)
    found: list[Change] = []
    notes: dict[str, None] = {}
    for kind in KINDS:
        for item in kind(refused_pod):
            if isinstance(item, Change):
                found.append(item)
            elif isinstance(item, Note):
                notes[item.text] = None
            yield
    if not found:
        notes = {NONE_ALONE: None, **notes}
    return tuple(found), tuple(notes)

"""
Rehearsals: the indexes that a sort of pods needs are built before the first of them is decided, a few rows at a time.

An index is built when it is first asked for, which takes milliseconds; a first decision asks for a dozen. Whoever
schedules pods rehearses those of a new sort, pausing as told, so that heartbeats and probes are answered meanwhile. A
sort is rehearsed again where the cluster has dropped an index since, or nobody has asked for one for long. What only a
refusal asks for is rehearsed when a pod is refused. Refuses to decide anything: the cluster may change in the pauses.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.view import Needs, View
from neuron_scheduler.model.neuron_request import neuron_request
from neuron_scheduler.model.pod import FEW_COMPARISONS, NO_CONSTRAINTS, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_DEVICE, Container
from neuron_scheduler.scheduling.cycle.filters import nominated_overlay, nomination_priorities
from neuron_scheduler.scheduling.cycle.neuron_shortage import warm_up_shortage
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.node_resources_fit import allocatable_of, free_of

_MOST_SORTS = 4096
_FEW_CHANGES: Final = 64
"""Changes of rows after which it is looked at again whether the indexes are there."""

_ASKED: dict[str, int] = {CPU: 1, MEMORY: 1, NEURON_DEVICE: 1}
TYPICAL = Pod(uid="", namespace="", name="", requests=_ASKED, neuron=neuron_request([Container("", _ASKED)]))
"""A pod like most: to rehearse it leaves little to be built for the first one that comes, whatever it asks for."""

_Question = Callable[[View, Pod, Profile], None]


@attrs.define(eq=False)
class _WarmedUp:
    """
    What a sort of pods needs, and when all of it was last known to be ready.

    Attributes:
        epoch, changes: those of the view then.
    """

    needs: Needs
    epoch: int
    changes: int


@attrs.define(eq=False)
class IndexWarmup:
    """Knows for which sorts of pods a cluster has been prepared."""

    _sorts: dict[Hashable, _WarmedUp] = attrs.field(factory=dict)

    def of(self, cluster: Cluster, pod: Pod, profile: Profile) -> Iterator[None]:
        """
        Build the missing indexes for a pod's decision, in steps; yields nothing if none is missing.

        A pod that asks much about other pods is rehearsed for every attempt: its counts are soon out of date.
        """
        if pod.refusal:
            return iter(())
        return self._warmed_up(cluster, pod, profile, warm_up, always=asks_much(pod))

    def of_refusal(self, cluster: Cluster, pod: Pod, profile: Profile) -> Iterator[None]:
        """Build what is missing to say why no node takes a pod, in the same way."""
        if pod.refusal:
            return iter(())
        return self._warmed_up(cluster, pod, profile, warm_up_refusal, always=False)

    def _warmed_up(
        self, cluster: Cluster, pod: Pod, profile: Profile, question: _Question, *, always: bool
    ) -> Iterator[None]:
        view = cluster.view
        overlay = nominated_overlay(cluster, pod.priority) if cluster.has_nominations else None
        sort = (question, overlay, _sort(pod, profile))
        known, epoch, changes = self._sorts.get(sort), view.epoch, view.changes
        if known is not None and known.epoch == epoch and not always:
            if changes - known.changes <= _FEW_CHANGES:
                return iter(())
            if view.is_ready(known.needs):
                known.changes = changes
                return iter(())

        def ask(view: View) -> None:
            question(view, pod, profile)
            if overlay is not None:
                question(view.with_overlay(overlay), pod, profile)

        index_requests = view.index_requests(ask)
        if len(self._sorts) >= _MOST_SORTS:
            self._sorts.clear()
        self._sorts[sort] = _WarmedUp(index_requests.needs, epoch, changes)
        return index_requests.prepared()


def warm_up(view: View, pod: Pod, profile: Profile) -> None:
    """Ask all that a decision would ask, whatever the answers are."""
    plan = profile.plan(pod)
    for plugin in plan.filters:
        plugin.accepting(view, pod, view.live)
    for resource in filter(view.offers, pod.requests):  # the filter stops at one of which too little is free
        view.column(free_of(resource))
    for prefer in plan.preferences:
        prefer(view, pod, view.live)


def warm_up_refusal(view: View, pod: Pod, profile: Profile) -> None:
    """Ask all that a diagnosis would ask, whatever the answers are, and where space is promised, which matters next."""
    view.postings(nomination_priorities)
    for plugin in profile.plan(pod).filters:
        plugin.refuse(view, pod, view.live)
    for resource in filter(view.offers, pod.requests):
        view.node_column(allocatable_of(resource))
    if pod.neuron is not None:
        warm_up_shortage(view, pod.neuron)


def asks_much(pod: Pod) -> bool:
    """Tell whether it takes long to count what a pod asks about other pods."""
    told = pod.constraints
    return told is not NO_CONSTRAINTS and told.comparisons > FEW_COMPARISONS and not pod.refusal


def _sort(pod: Pod, profile: Profile) -> Hashable:
    """Return what tells which indexes a pod needs, as far as it is known for next to nothing."""
    told = pod.constraints
    return (
        profile.scheduler_name,
        pod.neuron,
        tuple(pod.requests),
        tuple(told.node_selector),
        told.required_terms,
        told.preferred_terms,
        tuple([constraint.topology_key for constraint in told.spread]),
    )

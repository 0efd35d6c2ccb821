"""
Rehearsals: the indexes that a sort of pods needs are built before the first of them is decided, a few rows at a time.

An index is built when it is first asked for, which takes milliseconds; a first decision asks for a dozen. Whoever
schedules pods rehearses those of a new sort, pausing as told, so that heartbeats and probes are answered meanwhile.
Refuses to decide anything: the cluster may change in the pauses.
"""

from collections.abc import Hashable, Iterator

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import neuron_request
from neuron_scheduler.model.pod import FEW_COMPARISONS, NO_CONSTRAINTS, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_DEVICE, Container
from neuron_scheduler.scheduling.plugins.node_resources_fit import allocatable_of
from neuron_scheduler.scheduling.profile import Profile
from neuron_scheduler.scheduling.shortage import rehearse_shortage

_MOST_SORTS = 4096

_ASKED: dict[str, int] = {CPU: 1, MEMORY: 1, NEURON_DEVICE: 1}
TYPICAL = Pod(uid="", namespace="", name="", requests=_ASKED, neuron=neuron_request([Container("", _ASKED)]))
"""A pod like most: to rehearse it leaves little to be built for the first one that comes, whatever it asks for."""


@attrs.define(eq=False)
class Rehearsal:
    """Knows for which sorts of pods a cluster has been prepared since its slots were given."""

    _epoch: int = -1
    _sorts: set[Hashable] = attrs.field(factory=set)

    def of(self, cluster: Cluster, pod: Pod, profile: Profile) -> Iterator[None]:
        """
        Build the missing indexes for a pod, in steps; yields nothing if none is missing.

        A pod that asks much about other pods is rehearsed for every attempt: its counts are soon out of date.
        """
        if pod.refusal:
            return
        if cluster.view.epoch != self._epoch or len(self._sorts) >= _MOST_SORTS:
            self._epoch = cluster.view.epoch
            self._sorts.clear()
        sort = _sort(pod, profile)
        if sort not in self._sorts or asks_much(pod):
            self._sorts.add(sort)
            yield from cluster.view.prepared(lambda view: rehearse(view, pod, profile))


def rehearse(view: View, pod: Pod, profile: Profile) -> None:
    """Ask all that a decision or a diagnosis would ask, whatever the answers are."""
    plan = profile.plan(pod)
    for plugin in plan.filters:
        plugin.refuse(view, pod, view.live)
        plugin.accepting(view, pod, view.live)
    for prefer in plan.preferences:
        prefer(view, pod, view.live)
    for resource in pod.requests:
        if view.offers(resource):
            view.node_column(allocatable_of(resource))
    if pod.neuron is not None:
        rehearse_shortage(view, pod.neuron)


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

"""
Warm-up: the indexes that a kind of pod needs are built before the first such pod is decided, a few rows at a time.

An index takes milliseconds to build, and a first decision asks for a dozen. So the scheduling loop warms up for each
new kind of pod, with pauses for heartbeats and probes, and again if an index was dropped or has much to catch up with.
The indexes that only a refusal needs are built when a pod is refused.
"""

from collections.abc import Callable, Generator, Hashable
from functools import partial
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.view import IndexRequests, View
from neuron_scheduler.model.neuron_request import neuron_request
from neuron_scheduler.model.pod import FEW_COMPARISONS, NO_CONSTRAINTS, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_DEVICE, Container
from neuron_scheduler.scheduling.cycle.filters import nominated_overlay, nomination_priorities
from neuron_scheduler.scheduling.cycle.neuron_shortage import warm_up_neuron_shortage
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.node_resources_fit import allocatable_of, free_of

_MOST_KINDS = 4096
_FEW_CHANGES: Final = 64
"""Changes of rows after which the indexes of a kind are checked again."""
_MOST_ROUNDS = 8
"""Each round applies the changes that came during the last; after this many, changes come too fast."""

_REQUESTS: dict[str, int] = {CPU: 1, MEMORY: 1, NEURON_DEVICE: 1}
TYPICAL = Pod(uid="", namespace="", name="", requests=_REQUESTS, neuron=neuron_request([Container("", _REQUESTS)]))
"""A pod like most: after a warm-up for it, little is left to build for the first pod of any kind."""

_Question = Callable[[View, Pod, Profile], None]
_NO_REQUESTS: Final = IndexRequests()


@attrs.define(eq=False)
class _Readiness:
    """The indexes that a kind of pod needs, and the view's epoch and changes when all were last known to be ready."""

    asked: IndexRequests
    epoch: int
    changes: int


@attrs.define(eq=False)
class IndexWarmup:
    """Warm-ups of one cluster, with the kinds of pods for which it is ready."""

    _ready: dict[Hashable, _Readiness] = attrs.field(factory=dict)

    def prepare(self, cluster: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, bool]:
        """
        Build the missing indexes for a pod's decision, in steps; yields nothing if none is missing.

        What changes meanwhile is applied in steps, too; returns True if changes come too fast for that. For a pod that
        asks about other pods, or volumes, they are looked at in every attempt: its counts are soon out of date.
        """
        return self._steps(cluster, pod, profile, warm_up, always=_asks_about_others(pod))

    def comparisons(self, cluster: Cluster, pod: Pod, profile: Profile) -> int:
        """Return how many pods are compared with this one at most to build what is missing for its decision."""
        if _is_refused_before(cluster.view, pod, profile):
            return 0
        return cluster.view.index_requests(lambda view: warm_up(view, pod, profile)).comparisons

    def prepare_refusal(self, cluster: Cluster, pod: Pod, profile: Profile) -> Generator[None, None, bool]:
        return self._steps(cluster, pod, profile, warm_up_refusal)

    def _steps(
        self, cluster: Cluster, pod: Pod, profile: Profile, question: _Question, *, always: bool = False
    ) -> Generator[None, None, bool]:
        """Build what a question needs, with no step if it is ready; return whether changes come too fast."""
        look = partial(self._requests, cluster, pod, profile, question, always=always)
        requests = _NO_REQUESTS if pod.refusal else look()
        for _ in range(_MOST_ROUNDS):
            if not requests.lacking:
                break
            yield from requests.prepare()
            requests = look()
        return bool(requests.lacking)

    def _requests(
        self, cluster: Cluster, pod: Pod, profile: Profile, question: _Question, *, always: bool
    ) -> IndexRequests:
        """Return the indexes that a question needs; none if all of them are known to be ready."""
        view = cluster.view
        overlay = nominated_overlay(cluster, pod.priority) if cluster.has_nominations else None
        kind = (question, overlay, hash(_kind_of(pod, profile)))  # a node affinity may have ten thousand values
        readiness, epoch, changes = self._ready.get(kind), view.epoch, view.changes
        if readiness is not None and readiness.epoch == epoch and not always:
            if changes - readiness.changes <= _FEW_CHANGES:
                return _NO_REQUESTS
            if readiness.asked.are_ready():
                readiness.changes = changes
                return _NO_REQUESTS

        if _is_refused_before(view, pod, profile):
            return _NO_REQUESTS

        def ask(view: View) -> None:
            question(view, pod, profile)
            if overlay is not None:
                question(view.with_overlay(overlay), pod, profile)

        index_requests = view.index_requests(ask)
        if not index_requests.lacking:
            if len(self._ready) >= _MOST_KINDS:
                self._ready.clear()
            self._ready[kind] = _Readiness(index_requests, epoch, changes)
        return index_requests


def warm_up(view: View, pod: Pod, profile: Profile) -> None:
    """Ask for all that a decision would ask for, whatever the answers are."""
    steps = profile.steps_for(pod)
    for plugin in steps.filters:
        plugin.accept_nodes(view, pod, view.live)
    for resource in filter(view.offers, pod.requests):  # the filter stops at one of which too little is free
        view.column(free_of(resource))
    for prefer in steps.preferences:
        prefer(view, pod, view.live)


def warm_up_refusal(view: View, pod: Pod, profile: Profile) -> None:
    """Ask for all that a diagnosis would ask for, and for the nominations, which preemption asks for next."""
    view.postings(nomination_priorities)
    for plugin in profile.steps_for(pod).filters:
        plugin.refuse(view, pod, view.live)
    for resource in filter(view.offers, pod.requests):
        view.node_column(allocatable_of(resource))
    if pod.neuron is not None:
        warm_up_neuron_shortage(view, pod.neuron)


def _is_refused_before(view: View, pod: Pod, profile: Profile) -> bool:
    """Return whether no filter is asked: it may be the reason that they would take long."""
    return any(pre_filter.refuse(view, pod) is not None for pre_filter in profile.steps_for(pod).pre_filters)


def _asks_about_others(pod: Pod) -> bool:
    """Return whether other pods count, or volumes; by default pods of its workload do, unless a pod has Neuron."""
    constraints = pod.constraints
    is_asking = constraints is not NO_CONSTRAINTS and bool(constraints.comparisons or constraints.volume_claims)
    return pod.neuron is None or is_asking or asks_much(pod)


def asks_much(pod: Pod) -> bool:
    """Return whether it takes long to count what a pod asks about other pods, or to find devices for its claims."""
    constraints = pod.constraints
    if pod.neuron is not None and pod.neuron.asks_much:
        return not pod.refusal
    return constraints is not NO_CONSTRAINTS and constraints.comparisons > FEW_COMPARISONS and not pod.refusal


def _kind_of(pod: Pod, profile: Profile) -> Hashable:
    """Return what decides which indexes a pod needs, as far as it is cheap to know."""
    constraints = pod.constraints
    return (
        profile.scheduler_name,
        pod.neuron,
        tuple(pod.requests),
        tuple(constraints.node_selector),
        constraints.required_terms,
        constraints.preferred_terms,
        tuple([constraint.topology_key for constraint in constraints.spread]),
    )

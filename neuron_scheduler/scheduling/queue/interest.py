"""
Which waiting pods an event may help: by the plugins that refused them, and by the pods that it happened to.

Upstream: the hints of the plugins that look at other pods (`isSchedulableAfterPodChange`).
"""

from collections.abc import Callable, Collection, Iterator, Set as AbstractSet

import attrs

from neuron_scheduler.model.pod import FEW_COMPARISONS, Pod
from neuron_scheduler.model.selectors import LabelSelector, PodAffinityTerm
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.registry import CONCERNED_BY, COUNTING_PODS, COUNTING_VOLUMES

MOST_ASKED = 256
"""Different pods in one burst of events; beyond, comparing them with the waiting pods costs more than it saves."""

_DEPENDING_ON_PODS = COUNTING_PODS | COUNTING_VOLUMES


@attrs.frozen(cache_hash=True)
class PodChange:
    """
    The part of a pod that came, went or changed which can matter to other pods.

    Attributes:
        before: the same before a change; None for one that came or went.
    """

    namespace: str
    labels: frozenset[tuple[str, str]]
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    has_volumes: bool = False
    terminating: bool = False
    before: "PodChange | None" = None


@attrs.frozen(cache_hash=True)
class Interest:
    """
    How a refused pod selects other pods, and what they may select it by; equal for the replicas of a workload.

    Attributes:
        asks_much: comparing it with other pods would take longer than needless attempts.
    """

    namespace: str
    labels: frozenset[tuple[str, str]]
    selectors: tuple[LabelSelector, ...]
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    asks_much: bool = False

    def concerns(self, other: PodChange, event: ClusterEvent) -> bool:
        """Return whether the other pod may matter; one that is added never helps a pod that must be apart from it."""
        if self.asks_much:
            return True  # thousands of such pods may wait, and each event would be compared with each of them
        if other.before is not None:
            return self._counts_otherwise(other.before, other)
        return (
            any(self._counts(selector, other) for selector in self.selectors)
            or any(_may_match(term, other.namespace, other.labels) for term in self.affinity)
            or (event is not ClusterEvent.ASSIGNED_POD_ADDED and self._keeps_apart(other))
        )

    def _counts_otherwise(self, before: PodChange, after: PodChange) -> bool:
        """Return whether a pod that has changed counts otherwise now; its own terms cannot have changed."""

        def matches(term: PodAffinityTerm, pod: PodChange) -> bool:
            return _may_match(term, pod.namespace, pod.labels)

        return (
            any(
                (self._counts(selector, before) and not before.terminating)
                != (self._counts(selector, after) and not after.terminating)
                for selector in self.selectors
            )
            or any(matches(term, before) != matches(term, after) for term in self.affinity)
            or any(matches(term, before) and not matches(term, after) for term in self.anti_affinity)
        )

    def _counts(self, selector: LabelSelector, other: PodChange) -> bool:
        return other.namespace == self.namespace and selector.matches(dict(other.labels))

    def _keeps_apart(self, other: PodChange) -> bool:
        return any(_may_match(term, other.namespace, other.labels) for term in self.anti_affinity) or any(
            _may_match(term, self.namespace, self.labels) for term in other.anti_affinity
        )


def pod_changes(event: ClusterEvent, pods: Collection[Pod]) -> Iterator[PodChange | None]:
    """Yield the parts that can matter of the pods that an event happened to: of a change, the pod before and after."""
    changes = [
        PodChange(
            namespace=pod.namespace,
            labels=frozenset(pod.labels.items()),
            anti_affinity=pod.constraints.anti_affinity,
            has_volumes=bool(pod.constraints.volume_claims or pod.constraints.disks),
            terminating=pod.terminating,
        )
        for pod in pods
    ]
    if event is ClusterEvent.ASSIGNED_POD_LABELS and len(changes) == 2:
        before, after = changes
        yield attrs.evolve(after, before=before)
    else:
        yield from changes or (None,)


def interest_of(pod: Pod, plugins: frozenset[str]) -> Interest | None:
    """Return which pods matter to a pod that these plugins refused; None if none of the plugins counts pods."""
    if not plugins & COUNTING_PODS:
        return None
    constraints = pod.constraints
    return Interest(
        namespace=pod.namespace,
        labels=frozenset(pod.labels.items()),
        selectors=tuple({c.selector: None for c in constraints.spread if c.hard and c.selector is not None}),
        affinity=constraints.affinity,
        anti_affinity=constraints.anti_affinity,
        asks_much=constraints.comparisons > FEW_COMPARISONS,
    )


def may_help(
    event: ClusterEvent,
    happened_to: AbstractSet[PodChange | None],
    plugins: frozenset[str],
    interest: Interest | None,
    *,
    local: Callable[[frozenset[str]], bool] = bool,
) -> bool:
    """
    Return whether an event may help a pod that these plugins refused.

    For plugins that count pods, or their volumes, it depends on the pods that it happened to; if these are unknown
    (None) or too many, it may help. For the other plugins `local` is asked, which knows the nodes it happened to.
    """
    if not plugins:
        return True
    concerned = plugins & CONCERNED_BY[event]
    by_node = concerned - _DEPENDING_ON_PODS
    if len(happened_to) > MOST_ASKED and concerned != by_node:
        return True
    if concerned & COUNTING_VOLUMES and any(pod is None or pod.has_volumes for pod in happened_to):
        return True
    if concerned & COUNTING_PODS and any(
        pod is None or interest is None or interest.concerns(pod, event) for pod in happened_to
    ):
        return True
    return bool(by_node) and local(by_node)


def _may_match(term: PodAffinityTerm, namespace: str, labels: frozenset[tuple[str, str]]) -> bool:
    """Return whether a term may match a pod; a namespace selector always may: namespaces are unknown here."""
    if term.selector is None or not term.selector.matches(dict(labels)):
        return False
    return term.namespace_selector is not None or namespace in term.namespaces

"""
What an autoscaler concludes that counts: which waiting pods fit on existing nodes, so that it adds nothing for them.

Karpenter and Cluster Autoscaler simulate the default filters, with amounts of devices in place of blocks. This does the
same with our filters: a pod that asks for no Neuron, but for so much of the resource, passes NeuronTopology. The rules
are Karpenter's (`pkg/controllers/provisioning/scheduling`): pods in descending order of cpu and memory, preferences
taken for requirements until nothing else is left, terminating pods in the count, nominations not. Cluster Autoscaler
orders by priority and ignores preferences. Refuses to know prices and limits of node pools.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Final

import attrs

from neuron_scheduler.capacity.lines import PODS_A_STEP, key_of
from neuron_scheduler.capacity.offers import Offers, names_a_node
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import row_of
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.model.node import HOSTNAME_LABEL
from neuron_scheduler.model.pod import Pod, placed
from neuron_scheduler.model.resources import CPU, MEMORY
from neuron_scheduler.model.selectors import (
    NO_LABELS,
    NodeSelectorTerm,
    PodAffinityTerm,
    PreferredTerm,
    SpreadConstraint,
)
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import refusal_of_pod
from neuron_scheduler.scheduling.queue.signature import Signature

_ANY_NUMBER: Final = 1 << 30
UNSCHEDULABLE: Final = "Unschedulable"
_OF_NODES: Final = ("DaemonSet", "Node")
_MOST_GIVEN_UP: Final = 8
"""Preferences of one kind that are given up one by one; of more, all go at once."""
_MOST_TERMS: Final = 16
"""Required terms that are tried one by one; of more, all are tried at once, or one such pod would delay every plan."""


def is_seen(pod: Pod) -> bool:
    """
    Return whether autoscalers look at a waiting pod at all (Karpenter: `IsProvisionable`).

    The condition's reason decides; a pod with a nominated node has a place, and pods of nodes come with their node.
    """
    condition = pod.scheduled
    if condition is None or condition.reason != UNSCHEDULABLE or pod.node_name or pod.nominated_node_name:
        return False
    return not (pod.gates or pod.refusal or pod.terminating or (pod.owner is not None and pod.owner.kind in _OF_NODES))


@attrs.frozen
class Counted:
    """
    What the autoscaler concludes.

    Attributes:
        hidden: uids of pods that it takes for fitting on existing nodes.
        preferring: uids of pods for which it adds a machine only because it takes their preferences for requirements.
        cluster: a fork with the hidden pods where they fit by count.
    """

    hidden: frozenset[str]
    preferring: frozenset[str]
    cluster: Cluster


def counted(
    cluster: Cluster, pods: Iterable[Pod], profile_of: Callable[[Pod], Profile], offers: Offers
) -> Generator[None, None, Counted]:
    """
    Count which of the pods with Neuron that autoscalers see fit on existing nodes, one after the other.

    It changes `cluster`, a fork. It yields where other tasks may run.
    """
    counting = _Counting(cluster, offers)
    in_order = sorted(pods, key=_packing_order)
    yield
    for position, pod in enumerate(in_order, start=1):
        if not names_a_node(pod.constraints):  # Karpenter ignores it
            yield from counting.count(pod, profile_of(pod))
        if position % PODS_A_STEP == 0:
            yield
    return Counted(frozenset(counting.hidden), frozenset(counting.preferring), cluster)


def fits_by_count(cluster: Cluster, pod: Pod, profile: Profile, among: NodeSet) -> NodeSet:
    """Return the nodes on which a pod fits for an autoscaler; `pod` is as `without_blocks` returns it."""
    for accept in profile.plan(pod).accepts:
        if not among:
            break
        among = accept(cluster.view, pod, among)
    return among


def without_blocks(pod: Pod) -> Pod:
    """Return a pod that is content with any devices: it asks for the amount alone."""
    return attrs.evolve(pod, neuron=None)


@attrs.define(eq=False)
class _Counting:
    """The pods that were counted so far."""

    _cluster: Cluster
    _offers: Offers
    hidden: set[str] = attrs.field(factory=set)
    preferring: set[str] = attrs.field(factory=set)
    _refused: dict[Signature, bool] = attrs.field(factory=dict)  # whether only preferences keep the pods from nodes
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup)

    def count(self, pod: Pod, profile: Profile) -> Generator[None, None, None]:
        """Place a pod where it fits by count, or note that it does not."""
        key = key_of(pod, profile, apart=self._cluster.view.has_terms(TermKind.ANTI_AFFINITY))
        if key not in self._refused:
            node_name, preferring = yield from self._place(pod, profile)
            yield
            if node_name:
                self._cluster.assume(placed(without_blocks(pod), node_name, NO_LABELS))
                self.hidden.add(pod.uid)
                return
            self._refused[key] = preferring
        if self._refused[key]:
            self.preferring.add(pod.uid)

    def _place(self, pod: Pod, profile: Profile) -> Generator[None, None, tuple[str, bool]]:
        """Return the name of the node where a pod fits, else whether it fits on one without its preferences."""
        view = self._cluster.view
        plain = without_blocks(pod)
        if refusal_of_pod(view, plain, profile) is not None:
            return "", False
        preferences = _preferences_of(pod)
        while preferences is not None:
            stage = preferences.required_by(plain)
            yield from self._warmup.of(self._cluster, stage, profile)
            fitting = fits_by_count(self._cluster, stage, profile, view.live)
            if fitting:
                return view.row(view.oldest(fitting)).node.name, False
            preferences = preferences.with_one_less()
            if preferences is not None and (yield from self._is_bought_for(stage, profile)):
                return "", bool(fits_by_count(self._cluster, plain, profile, view.live))
        return "", False

    def _is_bought_for(self, stage: Pod, profile: Profile) -> Generator[None, None, bool]:
        """Return whether some machine that could be added takes the pod by count, with these preferences."""
        for offer in self._offers.offers:
            row = row_of(offer.fresh)
            if self._cluster.view.slot(row.node.name) is None:
                with self._cluster.row_added(row) as slot:
                    if fits_by_count(self._cluster, stage, profile, 1 << slot):
                        return True
            yield
        return False


def _packing_order(pod: Pod) -> tuple[int, int, float, str]:
    """Order pods as Karpenter does (`byCPUAndMemoryDescending`)."""
    return -pod.requests.get(CPU, 0), -pod.requests.get(MEMORY, 0), pod.created, pod.uid


@attrs.frozen
class _Preferences:
    """
    What Karpenter takes for requirements of a pod until neither an existing nor a new node takes it.

    Attributes:
        terms: of the required node affinity, in groups; the first alone counts. None if the pod has none.
        affinity, anti_affinity: to pods; the heaviest comes first.
        nodes: preferred node affinity; the first alone counts, the heaviest.
        soft: topology spread that is a preference.
    """

    terms: tuple[tuple[NodeSelectorTerm, ...], ...] | None
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    nodes: tuple[PreferredTerm, ...]
    soft: tuple[SpreadConstraint, ...]

    def with_one_less(self) -> "_Preferences | None":
        """Return what remains if one is given up, in Karpenter's order (`preferences.go`); None if nothing can be."""
        if self.terms is not None and len(self.terms) > 1:
            return attrs.evolve(self, terms=self.terms[1:])
        for name in ("affinity", "anti_affinity", "nodes", "soft"):
            some = getattr(self, name)
            if some:
                return attrs.evolve(self, **{name: some[1:] if len(some) <= _MOST_GIVEN_UP else ()})
        return None

    def required_by(self, pod: Pod) -> Pod:
        """Return a pod that requires all of this, and whose other preferences are gone."""
        constraints, terms = pod.constraints, None if self.terms is None else self.terms[0]
        if self.nodes:
            preferred = self.nodes[0].term
            terms = tuple(_both(term, preferred) for term in terms or (NodeSelectorTerm(),))
        hard = (*(constraint for constraint in constraints.spread if constraint.hard), *self.soft)
        required = attrs.evolve(
            constraints,
            required_terms=terms,
            preferred_terms=(),
            affinity=constraints.affinity + self.affinity,
            anti_affinity=constraints.anti_affinity + self.anti_affinity,
            preferred_affinity=(),
            preferred_anti_affinity=(),
            spread=tuple(map(_required, hard)),
        )
        return attrs.evolve(pod, constraints=required)


def _both(one: NodeSelectorTerm, other: NodeSelectorTerm) -> NodeSelectorTerm:
    """Return a term that requires what two do."""
    unreadable = one.unreadable or other.unreadable
    return NodeSelectorTerm(one.expressions + other.expressions, one.fields + other.fields, unreadable)


def _required(constraint: SpreadConstraint) -> SpreadConstraint:
    """Return a constraint as Karpenter reads it: a new host is always possible, so the lowest count of a host is 0."""
    domains = _ANY_NUMBER if constraint.topology_key == HOSTNAME_LABEL else constraint.min_domains
    return attrs.evolve(constraint, hard=True, min_domains=domains)


def _preferences_of(pod: Pod) -> _Preferences | None:
    constraints, required = pod.constraints, pod.constraints.required_terms
    return _Preferences(
        None if required is None else _in_groups(required),
        tuple(sorted(constraints.preferred_affinity, key=lambda term: -term.weight)),
        tuple(sorted(constraints.preferred_anti_affinity, key=lambda term: -term.weight)),
        tuple(sorted(constraints.preferred_terms, key=lambda term: -term.weight)),
        tuple(constraint for constraint in constraints.spread if not constraint.hard),
    )


def _in_groups(terms: tuple[NodeSelectorTerm, ...]) -> tuple[tuple[NodeSelectorTerm, ...], ...]:
    return tuple((term,) for term in terms) if 0 < len(terms) <= _MOST_TERMS else (terms,)

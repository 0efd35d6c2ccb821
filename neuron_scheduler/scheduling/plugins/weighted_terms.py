"""
WeightedTerms: preferred node affinity, soft topology spread and preferred pod affinity, as one weighted sum.

Upstream, each of these plugins scores on its own, is normalised to 0..100, and counts twice
(`pkg/scheduler/apis/config/v1/default_plugins.go`); the same here, with fractions instead of rounding. A *source*
yields (weight above 0, nodes), and a node gets the sum of its weights. A weight against nodes is yielded as a weight
for the other nodes of `among`.
"""

from collections.abc import Callable, Iterable, Iterator
from math import prod

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.scheduling.plugins import inter_pod_affinity, node_affinity, pod_topology_spread
from neuron_scheduler.scheduling.plugins.contract import Plugin, PluginName, Preference
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("WeightedTerms")

Source = Callable[[View, Pod, NodeSet], Iterable[tuple[int, NodeSet]]]

OF_SPAN: tuple[Source, ...] = (inter_pod_affinity.preferred_weights,)
"""
Sources in which a node's share is (its sum - the lowest sum) / (the highest sum - the lowest sum).

In the other sources it is its sum / the highest sum.
"""


def prefer(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes with the highest sum of shares."""
    sources = list(_sources(view, pod.constraints))
    if not sources:
        return among
    if len(sources) == 1:
        return _sum(sources[0], view, pod, among).highest(among)
    sums: list[tuple[Column, int]] = []
    for source in sources:
        column = _sum(source, view, pod, among)
        highest, lowest = column.maximum(among), column.minimum(among)
        if highest > lowest:
            sums.append((column, highest - lowest if source in OF_SPAN else highest))
    common = prod(whole for _, whole in sums)
    shares = Column()
    for column, whole in sums:
        shares.add_all(column, common // whole, among)
    return shares.highest(among)


def _sources(view: View, constraints: Constraints) -> Iterator[Source]:
    """Yield the sources that may have weights for a pod."""
    if constraints.preferred_terms:
        yield node_affinity.preferred_weights
    if constraints.spread and not all(constraint.hard for constraint in constraints.spread):
        yield pod_topology_spread.preferred_weights
    if (
        constraints.preferred_affinity
        or constraints.preferred_anti_affinity
        or view.has_terms(*inter_pod_affinity.PREFERRED_KINDS)
    ):
        yield inter_pod_affinity.preferred_weights


def _sum(source: Source, view: View, pod: Pod, among: NodeSet) -> Column:
    column = Column()
    for weight, nodes in source(view, pod, among):
        column.add(weight, nodes & among)
    return column


PLUGIN = Plugin(
    name=NAME,
    preference=Preference(
        NAME,
        prefer,
        reads=(
            PodField.PREFERRED_TERMS,
            PodField.SPREAD,
            PodField.PREFERRED_AFFINITY,
            PodField.PREFERRED_ANTI_AFFINITY,
        ),
        every_pod=True,  # placed pods may have terms that match it
    ),
)

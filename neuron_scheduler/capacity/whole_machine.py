"""
A packed machine in the terms in which an autoscaler can be asked for it.

Whatever machine the autoscaler adds for these terms must take all of the pods: the instance types, the zones and the
constraints of one pod, the *pattern*, are chosen so. Refuses a machine for which an existing node has room by count:
the autoscaler would add nothing.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

import attrs

from neuron_scheduler.capacity.counting import fits_by_count
from neuron_scheduler.capacity.lines import Line
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.offers import Offer, zone_matters
from neuron_scheduler.capacity.packing import Loaded, Packed, Packing
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import row_of
from neuron_scheduler.cluster.index.nodeset import slots_of
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_NAMES, Resources, add
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.queue.signature import Signature

_TENTHS_FOR_OTHERS: Final = 9
"""Of the cpu of an empty machine, how much a request takes at most to come before pods of others."""


@attrs.frozen
class Scope:
    """
    Where the pods of a machine may all be.

    Attributes:
        offers: all machines of one size that take each of them.
        pattern: the pod whose constraints allow just these, of their types and in their zones.
    """

    offers: tuple[Offer, ...]
    pattern: Pod


@attrs.define(eq=False)
class Scopes:
    """Which pods may share a machine: those of which one can represent all."""

    _packing: Packing

    def joins(self, offer: Offer, load: Loaded, line: Line, pod: Pod) -> Generator[None, None, bool]:
        """Return whether a pod may be asked for together with those that are on a machine."""
        scope = yield from self.of(offer, (*load, (line, pod)))
        return scope is not None

    def of(self, offer: Offer, load: Loaded) -> Generator[None, None, Scope | None]:
        """Return the scope of the pods of a machine; None if none of them can represent all."""
        taking: list[tuple[Pod, tuple[Offer, ...]]] = []
        for line, pod in {id(line): (line, pod) for line, pod in load}.values():
            taking.append((pod, (yield from self._packing.taking(line, pod))))
        shared = set[Offer].intersection(*(set(offers) for _, offers in taking))
        sized = tuple(each for each in taking[0][1] if each in shared and each.silicon == offer.silicon)
        return _spoken_for(taking, sized) if offer in shared else None


def _spoken_for(taking: Sequence[tuple[Pod, tuple[Offer, ...]]], offers: tuple[Offer, ...]) -> Scope | None:
    types = {offer.instance_type for offer in offers}
    zones = {offer.zone for offer in offers}
    for pod, its_own in taking:
        reached = {offer for offer in its_own if offer.instance_type in types and offer.zone in zones}
        if reached == {*offers}:
            return Scope(offers, pod)
    return None


@attrs.frozen(kw_only=True)
class Terms:
    """
    What all needs of one plan depend on.

    Attributes:
        names: resources of Neuron that pods ask for, by the value of the label of the type on whose nodes they are;
            those that wait are under the empty text.
        cpu: the requests of all pods that wait, with Neuron or without it, in thousandths; in ascending order.
        rank: how urgent each pod is, by its uid; the most urgent has 0.
        shortage: why each line waits, by its key.
    """

    names: Mapping[str, frozenset[str]]
    cpu: Sequence[int]
    rank: Mapping[str, int]
    shortage: Mapping[Signature, str]


def machine_need(packing: Packing, packed: Packed, terms: Terms) -> Generator[None, None, MachineNeed]:
    """Return the need for a machine that was packed with `Scopes.joins`, and is the last one that was."""
    before = yield from packing.before(packed)
    scope = yield from Scopes(before).of(packed.offer, packed.load)
    if scope is None:  # its pods depend on each other
        scope = Scope((packed.offer,), packed.load[0][1])
    offers = yield from _holding_all(before, packed, scope.offers)
    load = sorted(packed.load, key=lambda placed: terms.rank[placed[1].uid])
    types = tuple(dict.fromkeys(offer.instance_type for offer in (packed.offer, *offers)))
    return MachineNeed(
        instance_types=types,
        silicon=_silicon(packed, types, terms),
        host=_host(packed, offers, terms.cpu),
        zones=_zones(before, packed, offers),
        pods=tuple(pod for _, pod in load),
        pattern=scope.pattern,
        shortage=terms.shortage.get(load[0][0].key, ""),
    )


def has_room_by_count(cluster: Cluster, need: MachineNeed, profile: Profile) -> frozenset[str]:
    """Return the names of the nodes on which an autoscaler would see room for the whole machine."""
    view = cluster.view
    types = NodeSelectorTerm(
        tuple(
            Requirement(key, Operator.IN, values)
            for key, values in ((INSTANCE_TYPE_LABEL, need.instance_types), (ZONE_LABEL, need.zones))
            if values
        )
    )
    asking = attrs.evolve(
        need.pattern,
        neuron=None,
        requests={**need.host, **need.silicon},
        constraints=Constraints(
            node_selector=need.pattern.constraints.node_selector,
            required_terms=_both(need.pattern.constraints.required_terms, types),
        ),
        host_ports=(),
    )
    return frozenset(view.row(slot).node.name for slot in slots_of(fits_by_count(cluster, asking, profile, view.live)))


def _both(terms: tuple[NodeSelectorTerm, ...] | None, also: NodeSelectorTerm) -> tuple[NodeSelectorTerm, ...]:
    """Return terms that also require what another one does."""
    if terms is None:
        return (also,)
    return tuple(attrs.evolve(term, expressions=term.expressions + also.expressions) for term in terms)


def _holding_all(packing: Packing, packed: Packed, offers: Sequence[Offer]) -> Generator[None, None, tuple[Offer, ...]]:
    """Return those of the offers on whose type all the pods have room together."""
    holding: dict[str, bool] = {packed.offer.instance_type: True}
    for offer in offers:
        if offer.instance_type not in holding:
            other = yield from packing.tried(offer, [(line, (pod,)) for line, pod in packed.load])
            holding[offer.instance_type] = len(other.load) == len(packed.load)
    return tuple(offer for offer in offers if holding[offer.instance_type])


def _silicon(packed: Packed, types: Iterable[str], terms: Terms) -> Resources:
    """Return what is asked for of Neuron: by the pods' resource, and by the others in which such nodes are in use."""
    names = {line.request.resource for line, _ in packed.load} | terms.names.get("", frozenset())
    for instance_type in types:
        names |= terms.names.get(instance_type, frozenset())
    return {name: amount for name, amount in packed.offer.silicon.items() if name in names}


def _host(packed: Packed, offers: Sequence[Offer], waiting: Sequence[int]) -> Resources:
    """
    Return all but Neuron: the sum of the pods', and more cpu than any pod that waits and that the machine could hold.

    Karpenter places pods in descending order of cpu. For the sake of others' pods a part of the cpu is left: its own
    estimate of what a new machine has may be lower than what a node of the type has. Other resources decide what is
    bought: on AWS it adds network interfaces for EFA only if `vpc.amazonaws.com/efa` is requested.
    """
    requests = [pod.requests for _, pod in packed.load]
    rows = [row_of(offer.fresh) for offer in (packed.offer, *offers)]
    cpu, memory = (min(row.free(name) for row in rows) for name in (CPU, MEMORY))
    asked = [amounts.get(CPU, 0) for amounts in requests]
    held = waiting[: bisect_right(waiting, cpu)]
    before_others = min(held[-1] + 1 if held else 0, cpu * _TENTHS_FOR_OTHERS // 10)
    total = reduce(add, requests)
    host = {
        **{name: amount for name, amount in total.items() if name not in NEURON_NAMES},
        CPU: max(min(max(sum(asked), max(asked) + 1), cpu), before_others),
        MEMORY: min(total.get(MEMORY, 0), memory),
    }
    return {name: amount for name, amount in host.items() if amount}


def _zones(packing: Packing, packed: Packed, offers: Sequence[Offer]) -> tuple[str, ...]:
    """Return the zones that must be asked for; none where every zone is open to every pod of the machine."""
    zones = {offer.zone for offer in offers} - {""}
    types = {offer.instance_type for offer in offers}
    existing = {offer.zone for offer in packing.offers.offers if offer.instance_type in types and not offer.assumed}
    bound = any(zone_matters(pod) for _, pod in packed.load)
    return tuple(sorted(zones)) if bound or not zones >= existing - {""} else ()

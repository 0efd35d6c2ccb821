"""
The changes of a pod's spec that would let it in: COUNT, REQUESTS, TOLERATION, SELECTOR and INSTANCE_TYPE;
and PAIRS.

Each kind makes other forms of the pod and asks for a node for them; the first form that fits is offered.

COUNT: one container asks for another number of devices or cores, the nearest one with which the pod fits.

REQUESTS: the pod asks for less of one resource other than Neuron, as much as is free at most where all else fits.

TOLERATION: the pod tolerates the taints of a node, the fewest first, each by its key, value and effect. Taints that say
that a node is not fit for pods, or is about to go, are never offered: a pod that tolerates them would fail there.

SELECTOR: the pod drops keys of its node selector, or requirements of its required node affinity; none of those that it
drops can stay. The requirements of a single term are dropped one by one. Several terms are alternatives, and are
dropped together. None that names instance types is dropped.

INSTANCE_TYPE: the pod selects the type of the node that it would get if it selected none.

Both keep to the families of instance types that the pod means, because programs are compiled for a family. So does
NEW_NODE.

PAIRS: the pod's profile allows aligned pairs of devices.
"""

import json
from collections.abc import Collection, Generator, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Final, cast

import attrs

from neuron_scheduler.cluster.fresh_node import tells_state
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet
from neuron_scheduler.cluster.view import View
from neuron_scheduler.explain.answers import ChangeKind, SuggestedChange
from neuron_scheduler.explain.changes.refused_pod import (
    MOST_TRIED,
    NOT_ALL,
    RefusedPod,
    SearchStep,
    requirement_text,
    taint_text,
    with_template,
)
from neuron_scheduler.model.neuron_request import NeuronRequest, widest_phase, with_pairs
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, INSTANCE_TYPE_LABELS
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_NAMES
from neuron_scheduler.model.selectors import NodeSelectorTerm, Requirement, Taint, Toleration
from neuron_scheduler.model.wording import clip, few, quantity
from neuron_scheduler.neuron.annotations import runs_of
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine, family_of
from neuron_scheduler.neuron.topology import illegal_count, served_counts
from neuron_scheduler.scheduling.cycle.neuron_shortage import (
    allows_type,
    amount,
    named_types,
    nodes_that_fit_without_neuron,
)
from neuron_scheduler.scheduling.plugins import (
    neuron_topology,
    node_affinity,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)

Part = str | Requirement | tuple[NodeSelectorTerm, ...]
"""
What a pod can drop: a key of its node selector, a requirement of the only term of its required node affinity, or all of
that affinity.
"""
WHOLE: Final = "its required node affinity"


def find_count(refused: RefusedPod) -> Iterator[SearchStep]:
    request, view, pod = refused.pod.neuron, refused.cluster.view, refused.pod
    if request is None:
        return
    yield from view.prepare(
        lambda view: (neuron_topology.machines(view), neuron_topology.largest_blocks(view, request))
    )
    legal, possible = _counts(refused, request)
    counts = (*request.counts, *request.init_counts)
    nearest = sorted(
        (abs(count - old), count, place) for place, old in enumerate(counts) for count in {*possible} - {old}
    )
    found = yield from refused.first_fitting(
        ((count, place), _with_count(pod, request, place, count)) for _, count, place in nearest
    )
    if found is None:
        return
    (count, place), node_name = found
    kind = "container" if place < len(request.counts) else "init container"
    where = f" in one {kind}" if len(counts) > 1 else ""
    serving = f"; the counts that can be served are {runs_of(legal)}" if len(legal) > 1 else ""
    asks = f"Ask for {amount(count, request.unit)} instead of {counts[place]}{where}"
    sentence = f"{asks}: it then goes to {node_name}{serving}."
    yield SuggestedChange(
        ChangeKind.COUNT, with_template(sentence, pod), node_name=node_name, detail=f"{request.resource}={count}"
    )


def _counts(refused: RefusedPod, request: NeuronRequest) -> tuple[tuple[int, ...], list[int]]:
    """Return the counts that nodes passing the other filters serve, and those for which some of them has a block."""
    view = refused.cluster.view
    machines = neuron_topology.machines(view)
    nodes = nodes_that_fit_without_neuron(refused.cluster, refused.pod, refused.profile, machines.keyed & view.live)
    on_these = [machine for machine in cast(frozenset[Machine], machines.values) if machines.get(machine) & nodes]
    legal = sorted({count for each in on_these for count in served_counts(each, request.unit, pairs=request.pairs)})
    largest = neuron_topology.largest_blocks(view, request).maximum(nodes)
    return tuple(legal), [count for count in legal if count <= largest]


def _with_count(pod: Pod, request: NeuronRequest, place: int, count: int) -> Pod:
    """Return the pod whose container at a place, with the init containers last, asks for another count."""
    every, running, requests = [*request.counts, *request.init_counts], len(request.counts), {**pod.requests}
    every[place] = count
    counts, init_counts = tuple(every[:running]), tuple(every[running:])
    total = sum(widest_phase(counts, [*zip(init_counts, request.beside, strict=True)]))
    neuron = attrs.evolve(request, counts=counts, init_counts=init_counts, total=total)
    for name, times in ((request.resource, 1), (NEURON_CORE, request.cores_each)):
        requests[name] = requests.get(name, 0) + (total - request.total) * times
    return attrs.evolve(pod, neuron=neuron, requests={name: each for name, each in requests.items() if each})


def find_requests(refused: RefusedPod) -> Iterator[SearchStep]:
    pod, view = refused.pod, refused.cluster.view
    asked = [name for name, amount in pod.requests.items() if amount > 0 and name not in NEURON_NAMES]
    for name in asked[:MOST_TRIED]:
        nodes = yield from refused.nodes_that_fit(with_request(pod, name, 0), view.live)
        free = view.column(node_resources_fit.free_of(name)).maximum(nodes)
        if not 0 < free < pod.requests[name]:
            continue
        decision = yield from refused.decision(with_request(pod, name, free))
        if decision is not None:
            less, before = (quantity(name, each) for each in (free, pod.requests[name]))
            sentence = f"Ask for at most {less} {clip(name)} instead of {before}: it then goes to {decision.node_name}."
            yield SuggestedChange(
                ChangeKind.REQUESTS, with_template(sentence, pod), node_name=decision.node_name, detail=f"{name}={less}"
            )
            return


def with_request(pod: Pod, name: str, amount: int) -> Pod:
    return attrs.evolve(pod, requests={**pod.requests, name: amount})


def with_tolerations(pod: Pod, taints: Collection[Taint]) -> Pod:
    more = (Toleration(each.key, exists=not each.value, value=each.value, effect=each.effect) for each in taints)
    return attrs.evolve(pod, tolerations=(*pod.tolerations, *more))


def find_toleration(refused: RefusedPod) -> Iterator[SearchStep]:
    """Yield the fewest taints of one node that the pod would have to tolerate."""
    fit = yield from tolerable_taints(refused)
    found = yield from refused.first_fitting((taints, with_tolerations(refused.pod, taints)) for taints in fit)
    if found is not None:
        taints, node_name = found
        yield toleration(refused.pod, taints, f": the pod then goes to {node_name}", node_name)


def tolerable_taints(refused: RefusedPod) -> Generator[None, None, list[tuple[Taint, ...]]]:
    """Return the taints that a pod does not tolerate, of each node that fits but for them; the fewest first."""
    view, pod = refused.cluster.view, refused.pod
    tolerant = attrs.evolve(pod, tolerations=(*pod.tolerations, Toleration(exists=True)))
    nodes = yield from refused.nodes_that_fit(tolerant, node_unschedulable.open_nodes(view, pod, view.live))
    lists = taint_toleration.lists_of_taints(view)
    sets = {
        tuple(taint for taint in taints if not any(each.tolerates(taint) for each in pod.tolerations))
        for taints in cast(frozenset[tuple[Taint, ...]], lists.values)
        if lists.get(taints) & nodes
    }
    return sorted((each for each in sets if each and not any(map(tells_state, each))), key=lambda s: (len(s), str(s)))


def toleration(pod: Pod, taints: Sequence[Taint], then: str, node_name: str = "") -> SuggestedChange:
    """Return that taints are tolerated, as a change; `then` ends its first sentence."""
    texts, fields = [*map(taint_text, taints)], [*map(_toleration_fields, taints)]
    sentence = (
        f"Tolerate the taint{'s' if len(taints) > 1 else ''} {few(texts)}{then}."
        f" In its spec: tolerations: {json.dumps(fields)}."
    )
    return SuggestedChange(
        ChangeKind.TOLERATION, with_template(sentence, pod), node_name=node_name, detail=", ".join(texts)
    )


def _toleration_fields(taint: Taint) -> dict[str, str]:
    """Return the toleration in the API's fields; JSON is YAML too."""
    value = {"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}
    return {"key": taint.key, **value, "effect": taint.effect.value}


def parts(constraints: Constraints) -> tuple[Part, ...]:
    """Return all that a pod with these constraints can drop."""
    keys, terms = sorted(constraints.node_selector), constraints.required_terms
    if terms is None:
        return tuple(keys)
    requirements = (*terms[0].expressions, *terms[0].fields) if len(terms) == 1 and not terms[0].unreadable else ()
    return (*keys, *(dict.fromkeys(requirements) or (terms,)))


def without_parts(pod: Pod, dropped: Collection[Part]) -> Pod:
    selector = {key: value for key, value in pod.constraints.node_selector.items() if key not in dropped}
    terms = pod.constraints.required_terms
    if terms in dropped:
        terms = None
    elif terms is not None and len(terms) == 1:
        expressions = tuple(each for each in terms[0].expressions if each not in dropped)
        left = attrs.evolve(
            terms[0], expressions=expressions, fields=tuple(each for each in terms[0].fields if each not in dropped)
        )
        terms = (left,) if left.expressions or left.fields or left == terms[0] else None
    return attrs.evolve(pod, constraints=attrs.evolve(pod.constraints, node_selector=selector, required_terms=terms))


def find_selector(refused: RefusedPod) -> Iterator[SearchStep]:
    pod, among = refused.pod, _nodes_of_families(refused)
    dropped = parts_without_types(pod)
    decision = (yield from refused.decision(without_parts(pod, dropped), among)) if dropped else None
    if decision is None:
        return
    if len(dropped) > MOST_TRIED:
        yield NOT_ALL
    for part in dropped[:MOST_TRIED]:
        fewer = [each for each in dropped if each != part]
        without_fewer = (yield from refused.decision(without_parts(pod, fewer), among)) if fewer else None
        if without_fewer is not None:
            dropped, decision = fewer, without_fewer
    anywhere = yield from refused.decision(without_parts(pod, dropped))
    if anywhere is None or anywhere.node_name != decision.node_name:
        return  # it would go to a machine of another family
    named = [part_text(pod, part) for part in dropped]
    sentence = f"Drop {few(named)} from the pod's required nodes: it then goes to {decision.node_name}."
    yield SuggestedChange(
        ChangeKind.SELECTOR, with_template(sentence, pod), node_name=decision.node_name, detail="; ".join(named)
    )


def parts_without_types(pod: Pod) -> list[Part]:
    """Return what a pod can drop and still select the same instance types."""
    return [part for part in parts(pod.constraints) if not _names_types(part)]


def _names_types(part: Part) -> bool:
    match part:
        case str():
            return part in INSTANCE_TYPE_LABELS
        case Requirement():
            return part.key in INSTANCE_TYPE_LABELS
        case _:
            return any(each.key in INSTANCE_TYPE_LABELS for term in part for each in term.expressions)


def families_meant(view: View, pod: Pod) -> frozenset[str]:
    """Return the families of machines with Neuron that match a pod's rules; if none does, those of types it allows."""
    machines, matching = neuron_topology.machines(view), node_affinity.fitting_nodes(view, pod, view.live)
    present = cast(frozenset[Machine], machines.values)
    matched = {family_of(each.instance_type) for each in present if machines.get(each) & matching}
    if matched:
        return frozenset(matched)
    is_free = not any(map(_names_types, parts(pod.constraints)))
    names = (*INSTANCE_TYPES, *(each.instance_type for each in present), *named_types(pod.constraints))
    return frozenset(family_of(name) for name in names if is_free or allows_type(pod.constraints, name))


def _nodes_of_families(refused: RefusedPod) -> NodeSet:
    """Return the nodes of the families that the pod means."""
    view, pod = refused.cluster.view, refused.pod
    if pod.neuron is None:
        return view.live
    machines, families = neuron_topology.machines(view), families_meant(view, pod)
    present = cast(frozenset[Machine], machines.values)
    return reduce(or_, (machines.get(each) for each in present if family_of(each.instance_type) in families), NO_NODES)


def part_text(pod: Pod, part: Part) -> str:
    """Return what is dropped, as people read it: `key=value`, `key In (a, b)`, or words for the whole affinity."""
    match part:
        case str():
            return f"{part}={pod.constraints.node_selector[part]}"
        case Requirement():
            return requirement_text(part)
        case _:
            return WHOLE


def with_instance_type(pod: Pod, value: str) -> Pod:
    """Return a pod that selects one instance type by the label's value, besides what it selects."""
    selector = {**pod.constraints.node_selector, INSTANCE_TYPE_LABEL: value}
    return attrs.evolve(pod, constraints=attrs.evolve(pod.constraints, node_selector=selector))


def find_instance_type(refused: RefusedPod) -> Iterator[SearchStep]:
    pod = refused.pod
    of_type = [part for part in parts(pod.constraints) if _names_types(part)]
    free = without_parts(pod, of_type)
    decision = (yield from refused.decision(free, _nodes_of_families(refused))) if of_type else None
    node_info = None if decision is None else refused.cluster.node(decision.node_name)
    value = "" if node_info is None else node_info.node.labels.get(INSTANCE_TYPE_LABEL, "")
    selected = (yield from refused.decision(with_instance_type(free, value))) if value else None
    if selected is not None:
        yield SuggestedChange(
            ChangeKind.INSTANCE_TYPE,
            with_template(f"Select the instance type {value}: the pod then goes to {selected.node_name}.", pod),
            node_name=selected.node_name,
            instance_type=value,
            detail=f"{INSTANCE_TYPE_LABEL}={value}",
        )


def find_pairs(refused: RefusedPod) -> Iterator[SearchStep]:
    request, name = refused.pod.neuron, refused.profile.scheduler_name
    machines = cast(frozenset[Machine], neuron_topology.machines(refused.cluster.view).values)
    if request is None or not name:
        return
    paired = with_pairs(request)
    if not any(illegal_count(each, request) and not illegal_count(each, paired) for each in machines):
        return
    decision = yield from refused.decision(attrs.evolve(refused.pod, neuron=paired))
    if decision is not None:
        yield SuggestedChange(
            ChangeKind.PAIRS,
            f"Set allowAlignedPairs in the profile of {name}: the pod then goes to {decision.node_name}. Pairs of"
            " devices were never run on hardware.",
            node_name=decision.node_name,
            detail="allowAlignedPairs=true",
        )

"""
The changes of a pod's spec that would let it in: COUNT, TOLERATION, SELECTOR and INSTANCE_TYPE.

COUNT: the pod asks for another number of devices or cores. Smallest: the nearest count below the pod's own that fits
now, and the nearest one above it. Every count is tried that some instance type serves whose nodes pass the pod's other
filters; only counts for which none of these nodes has a free block need no trial. Which of several containers could ask
for less is for the pod's owner to say, so none is offered for them.

TOLERATION: the pod tolerates taints. Smallest: the fewest taints, each tolerated by its key, value and effect. Of
several sets with as few taints, the one that opens most nodes is named first. Taints that say that a node is not fit
for pods, or is about to go, are never offered: the node needs repair or time, and a pod that tolerates them would fail
there. A note names them where they alone keep nodes from taking the pod.

SELECTOR: the pod drops keys of its node selector, or requirements of its required node affinity. Smallest: the fewest
of them. If the required node affinity has one term, each of its requirements is one; several terms are alternatives,
and only all of them together can be dropped. Up to `_MOST_SETS_SHOWN` sets with as few are offered, because only the
pod's owner knows what it can do without.

INSTANCE_TYPE: the pod selects another instance type that the cluster has; any pod that selects none may go to every
type already. All that it requires of the node's type is replaced by the one type; what else it requires stays.
Smallest: of the types that take it now, the one whose machines have the fewest devices; the sentence names the others.
"""

import json
from collections.abc import Generator, Iterator, Sequence
from itertools import combinations
from typing import Final, cast

import attrs

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet
from neuron_scheduler.explain.answers import Change, ChangeKind
from neuron_scheduler.explain.changes.refused_pod import Found, Note, RefusedPod, any_of, kubectl, with_template
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.node import BETA_INSTANCE_TYPE_LABEL, INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement, Taint, Toleration
from neuron_scheduler.model.wording import clipped, counted, few, few_names
from neuron_scheduler.neuron.annotations import runs_of
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.topology import served
from neuron_scheduler.scheduling.cycle.neuron_shortage import amount, otherwise_fitting
from neuron_scheduler.scheduling.plugins import neuron_topology, node_unschedulable, taint_toleration

_MOST_COUNTS: Final = 16
_SEVERAL: Final = Note("Several of its containers ask for Neuron; other counts for them were not tried.")
_NOT_ALL_COUNTS: Final = Note(f"Only {_MOST_COUNTS} other counts were tried; others may fit.")


def find_count(refused: RefusedPod) -> Iterator[Found]:
    """Yield the nearest counts that fit, the smaller one first."""
    request, view = refused.pod.neuron, refused.cluster.view
    if request is None:
        return
    if len(request.counts) + len(request.init_counts) > 1:
        yield _SEVERAL
        return
    yield from view.prepared(
        lambda view: (neuron_topology.machines(view), neuron_topology.largest_blocks(view, request.resource))
    )
    yield from refused.warmed_up(refused.pod)
    legal, possible = _counts(refused, request)
    yield None
    below = [count for count in reversed(possible) if count < request.total]
    above = [count for count in possible if count > request.total]
    fitting = yield from _nearest(refused, request, below, legal)
    fitting |= yield from _nearest(refused, request, above, legal)
    if legal and not fitting and request.total not in legal:
        yield Note(
            f"The nodes that pass its other filters serve counts of {runs_of(legal)} {request.unit}s; none fits now."
        )


def _with_count(pod: Pod, request: NeuronRequest, count: int) -> Pod:
    requests = {**pod.requests, request.resource: pod.requests.get(request.resource, 0) - request.total + count}
    neuron = attrs.evolve(
        request,
        counts=(count,) if request.counts else (),
        init_counts=(count,) if request.init_counts else (),
        total=count,
    )
    return attrs.evolve(pod, neuron=neuron, requests={name: each for name, each in requests.items() if each})


def _counts(refused: RefusedPod, request: NeuronRequest) -> tuple[tuple[int, ...], list[int]]:
    """Return the counts that nodes passing the other filters serve, and those for which some of them has a block."""
    cluster, view = refused.cluster, refused.cluster.view
    machines = neuron_topology.machines(view)
    with cluster.without_nomination(refused.pod.uid):
        nodes = otherwise_fitting(cluster, refused.pod, refused.profile, machines.keyed & view.live)
    on_these = [machine for machine in cast(frozenset[Machine], machines.values) if machines.get(machine) & nodes]
    legal = sorted({count for machine in on_these for count in served(machine, request.unit)})
    largest = neuron_topology.largest_blocks(view, request.resource).maximum(nodes)
    return tuple(legal), [count for count in legal if count <= largest]


def _nearest(
    refused: RefusedPod, request: NeuronRequest, counts: Sequence[int], legal: Sequence[int]
) -> Generator[Found, None, bool]:
    """Yield the first of the counts that fits; return whether there is one."""
    tried = ((count, _with_count(refused.pod, request, count)) for count in counts)
    found = yield from refused.first_fitting(tried, _MOST_COUNTS, _NOT_ALL_COUNTS)
    if found is None:
        return False
    count, node_name = found
    by_distance = sorted(legal, key=lambda each: (each != count, abs(each - request.total), each))
    serving = f"; the counts that can be served are {runs_of(legal)}" if len(legal) > 1 else ""
    yield Change(
        ChangeKind.COUNT,
        with_template(
            f"Ask for {amount(count, request.unit)} instead of {request.total}: it then goes to {node_name}{serving}.",
            refused.pod,
        ),
        node_name=node_name,
        counts=tuple(by_distance),
        detail=f"{request.resource}={count}",
    )
    return True


_MOST_TAINTS: Final = 32
_NOT_ALL_TAINTS: Final = Note(f"Only {_MOST_TAINTS} sets of taints were tried.")
_OF_A_STATE: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "aws-node-termination-handler/")
_OF_A_STATE_TOO: Final = frozenset(
    {
        "DeletionCandidateOfClusterAutoscaler",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "karpenter.sh/unregistered",
        "node.cilium.io/agent-not-ready",
        "sagemaker.amazonaws.com/node-health-status",
    }
)

_Taints = frozenset[Taint]


def says_not_fit(taint: Taint) -> bool:
    """Return whether a taint tells the state of a node, and not for whom the node is."""
    return taint.key.startswith(_OF_A_STATE) or taint.key in _OF_A_STATE_TOO or taint.key.endswith("/agent-not-ready")


def toleration_of(taint: Taint) -> Toleration:
    """Return the toleration for one taint and no other."""
    return Toleration(taint.key, exists=not taint.value, value=taint.value, effect=taint.effect)


def tolerating(pod: Pod, taints: _Taints) -> Pod:
    """Return the pod with a toleration for each of the taints."""
    return attrs.evolve(pod, tolerations=(*pod.tolerations, *map(toleration_of, _in_order(taints))))


def find_toleration(refused: RefusedPod) -> Iterator[Found]:
    """Yield the tolerations for the fewest taints."""
    view, pod = refused.cluster.view, refused.pod
    tolerant = attrs.evolve(pod, tolerations=(*pod.tolerations, Toleration(exists=True)))
    yield from refused.warmed_up(tolerant)
    if not taint_toleration.untolerated(view, pod) & view.live:
        return
    opened = view.live if refused.reads_other_nodes else refused.fitting(tolerant, view.live)
    by_missing = _by_missing(refused, node_unschedulable.open_nodes(view, pod, opened))
    offered = {taints: nodes for taints, nodes in by_missing.items() if not any(map(says_not_fit, taints))}
    yield from _notes(refused, by_missing, offered)
    order = sorted(offered, key=lambda taints: (len(taints), -offered[taints].bit_count(), _details(taints)))
    yield None
    tried = ((taints, tolerating(pod, taints)) for taints in order)
    found = yield from refused.first_fitting(tried, _MOST_TAINTS, _NOT_ALL_TAINTS)
    if found is not None:
        yield _toleration(pod, *found)


def _by_missing(refused: RefusedPod, among: NodeSet) -> dict[_Taints, NodeSet]:
    """Return the nodes by the taints that the pod would have to tolerate besides."""
    lists, tolerations = taint_toleration.lists_of_taints(refused.cluster.view), refused.pod.tolerations
    by_missing: dict[_Taints, NodeSet] = {}
    for taints in cast(frozenset[tuple[Taint, ...]], lists.values):
        missing = frozenset(taint for taint in taints if not any(each.tolerates(taint) for each in tolerations))
        nodes = lists.get(taints) & among
        if missing and nodes:
            by_missing[missing] = by_missing.get(missing, NO_NODES) | nodes
    return by_missing


def _notes(refused: RefusedPod, by_missing: dict[_Taints, NodeSet], offered: dict[_Taints, NodeSet]) -> Iterator[Note]:
    """Yield a note about the nodes whose taints are not for pods to tolerate."""
    unfit = NO_NODES
    keys: set[str] = set()
    for taints, nodes in by_missing.items():
        if taints not in offered:
            unfit |= nodes
            keys |= {taint.key for taint in taints if says_not_fit(taint)}
    if unfit and not refused.reads_other_nodes:
        yield Note(
            f"{counted(unfit.bit_count(), 'node')} would do without the taint{'s' if len(keys) > 1 else ''} "
            f"{few_names(sorted(keys))}: repair or wait for them, a pod should not tolerate that."
        )


def _toleration(pod: Pod, taints: _Taints, node_name: str) -> Change:
    written = [_written(taint) for taint in _in_order(taints)]
    which = few(_details(taints))
    sentence = (
        f"Tolerate the taint{'s' if len(taints) > 1 else ''} {which}: the pod then goes to {node_name}. "
        f"In its spec: tolerations: {json.dumps(written)}."
    )
    return Change(
        ChangeKind.TOLERATION,
        with_template(sentence, pod),
        command=_patch(pod, written),
        node_name=node_name,
        detail=", ".join(_details(taints)),
    )


def _patch(pod: Pod, written: list[dict[str, str]]) -> str:
    """Return the command that adds tolerations to the pod: of a pod's spec, they are what may grow."""
    patch = (
        [{"op": "add", "path": "/spec/tolerations/-", "value": each} for each in written]
        if pod.tolerations
        else [{"op": "add", "path": "/spec/tolerations", "value": written}]
    )
    of = (pod.name, "--namespace", pod.namespace)
    return kubectl("patch", "pod", *of, "--type=json", "--patch", json.dumps(patch), names=(pod.name, pod.namespace))


def _written(taint: Taint) -> dict[str, str]:
    """Return the toleration in the API's fields; JSON is YAML too."""
    value = {"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}
    return {"key": taint.key, **value, "effect": taint.effect.value}


def _detail(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect.value}"


def _details(taints: _Taints) -> list[str]:
    return [_detail(taint) for taint in _in_order(taints)]


def _in_order(taints: _Taints) -> list[Taint]:
    return sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect))


_MOST_SETS_SHOWN: Final = 3
_MOST_SETS: Final = 64
_MOST_VALUES: Final = 4
_NOT_ALL_SETS: Final = Note(f"Only {_MOST_SETS} ways of dropping node selectors were tried.")
WHOLE: Final = "its required node affinity"


@attrs.frozen
class Part:
    """
    What a pod can drop: exactly one of these.

    Attributes:
        key: of the node selector.
        requirement: of the only term of the required node affinity.
        whole: all of the required node affinity.
    """

    key: str | None = None
    requirement: Requirement | None = None
    whole: bool = False


def parts(constraints: Constraints) -> tuple[Part, ...]:
    """Return all that a pod with these constraints can drop."""
    keys = [Part(key=key) for key in sorted(constraints.node_selector)]
    terms = constraints.required_terms
    if terms is None:
        return tuple(keys)
    requirements = dict.fromkeys((*terms[0].expressions, *terms[0].fields)) if len(terms) == 1 else {}
    if len(terms) == 1 and not terms[0].unreadable and requirements:
        return (*keys, *(Part(requirement=requirement) for requirement in requirements))
    return (*keys, Part(whole=True))


def without(pod: Pod, dropped: Sequence[Part]) -> Pod:
    """Return the pod without these parts."""
    constraints = pod.constraints
    keys = {part.key for part in dropped}
    requirements = {part.requirement for part in dropped}
    selector = {key: value for key, value in constraints.node_selector.items() if key not in keys}
    terms = constraints.required_terms
    if any(part.whole for part in dropped):
        terms = None
    elif terms is not None and len(terms) == 1:
        expressions = tuple(each for each in terms[0].expressions if each not in requirements)
        fields = tuple(each for each in terms[0].fields if each not in requirements)
        emptied = not (expressions or fields) and (terms[0].expressions or terms[0].fields)
        terms = None if emptied else (NodeSelectorTerm(expressions, fields, unreadable=terms[0].unreadable),)
    return attrs.evolve(pod, constraints=attrs.evolve(constraints, node_selector=selector, required_terms=terms))


def find_selector(refused: RefusedPod) -> Iterator[Found]:
    """Yield the smallest sets of requirements without which the pod fits."""
    pod = refused.pod
    every = parts(pod.constraints)
    if not every:
        return
    free = without(pod, every)
    yield from refused.warmed_up(free)
    if not refused.reads_other_nodes and refused.decision(free) is None:
        return
    tried = shown = 0
    for size in range(1, len(every) + 1):
        for dropped in combinations(every, size):
            if tried == _MOST_SETS:
                yield _NOT_ALL_SETS
                return
            tried += 1
            other = without(pod, dropped)
            yield from refused.warmed_up(other)
            decision = refused.decision(other)
            yield None if decision is None else _drop(pod, dropped, decision.node_name)
            shown += decision is not None
            if shown == _MOST_SETS_SHOWN:
                return
        if shown:
            return


def _drop(pod: Pod, dropped: Sequence[Part], node_name: str) -> Change:
    named = [described(pod, part) for part in dropped]
    return Change(
        ChangeKind.SELECTOR,
        with_template(f"Drop {few(named)} from the pod's required nodes: it then goes to {node_name}.", pod),
        node_name=node_name,
        detail="; ".join(named),
    )


def described(pod: Pod, part: Part) -> str:
    """Return what is dropped, as people read it: `key=value`, `key In (a, b)`, or words for the whole affinity."""
    if part.key is not None:
        return f"{part.key}={pod.constraints.node_selector[part.key]}"
    if part.requirement is None:
        return WHOLE
    values = part.requirement.values
    more = f", and {len(values) - _MOST_VALUES} more" if len(values) > _MOST_VALUES else ""
    written = f" ({', '.join(map(clipped, values[:_MOST_VALUES]))}{more})" if values else ""
    return f"{part.requirement.key} {part.requirement.operator.value}{written}"


_TYPE_LABELS: Final = (INSTANCE_TYPE_LABEL, BETA_INSTANCE_TYPE_LABEL)
_MOST_TYPES: Final = 32
_NOT_ALL_TYPES: Final = Note(f"Only {_MOST_TYPES} instance types were tried.")


def selects_types(pod: Pod) -> bool:
    """Return whether a pod requires anything of the node's instance type."""
    terms = pod.constraints.required_terms or ()
    return any(key in pod.constraints.node_selector for key in _TYPE_LABELS) or any(
        expression.key in _TYPE_LABELS for term in terms for expression in term.expressions
    )


def selecting(pod: Pod, value: str | None) -> Pod:
    """Return the pod as it is if it selects one type by the label's value; None for a pod that selects none."""
    constraints = pod.constraints
    selector = {key: each for key, each in constraints.node_selector.items() if key not in _TYPE_LABELS}
    if value is not None:
        selector[INSTANCE_TYPE_LABEL] = value
    terms = constraints.required_terms
    if terms is not None:
        terms = tuple(_without_type(term) for term in terms)
        terms = None if any(not (term.expressions or term.fields or term.unreadable) for term in terms) else terms
    return attrs.evolve(pod, constraints=attrs.evolve(constraints, node_selector=selector, required_terms=terms))


def _without_type(term: NodeSelectorTerm) -> NodeSelectorTerm:
    """Return a term without its requirements of the type; a term that was empty matches nothing, and stays so."""
    if not (term.expressions or term.fields):
        return NodeSelectorTerm((Requirement(INSTANCE_TYPE_LABEL, Operator.IN, ()),))
    return attrs.evolve(term, expressions=tuple(each for each in term.expressions if each.key not in _TYPE_LABELS))


def find_instance_type(refused: RefusedPod) -> Iterator[Found]:
    """Yield the smallest type that takes the pod."""
    if not selects_types(refused.pod):
        return
    free = selecting(refused.pod, None)
    yield from refused.warmed_up(selecting(free, "any"))
    values = _likely(refused, free)
    yield None
    fitting: list[tuple[int, str, str]] = []
    for value in values[:_MOST_TYPES]:
        decision = refused.decision(selecting(refused.pod, value))
        if decision is not None:
            fitting.append((_devices(refused, decision.node_name), value, decision.node_name))
        yield None
    if len(values) > _MOST_TYPES:
        yield _NOT_ALL_TYPES
    for _, value, _ in sorted(fitting):
        decision = refused.decision(selecting(refused.pod, value))
        if decision is not None:
            others = [other for _, other, _ in sorted(fitting) if other != value]
            yield _type(refused.pod, value, decision.node_name, others)
            return


def _likely(refused: RefusedPod, free: Pod) -> list[str]:
    """Return the types of the nodes that take the pod if it selects none."""
    view = refused.cluster.view
    by_type = view.labelled(INSTANCE_TYPE_LABEL)
    nodes = view.live if refused.reads_other_nodes else refused.fitting(free, view.live)
    return sorted(value for value in cast(frozenset[str], by_type.values) if by_type.get(value) & nodes)


def _devices(refused: RefusedPod, node_name: str) -> int:
    node_info = refused.cluster.node(node_name)
    return 0 if node_info is None or node_info.machine is None else node_info.machine.devices


def _type(pod: Pod, value: str, node_name: str, others: list[str]) -> Change:
    also = f" {any_of(others)} would do, too." if others else ""
    return Change(
        ChangeKind.INSTANCE_TYPE,
        with_template(f"Select the instance type {value}: the pod then goes to {node_name}.{also}", pod),
        node_name=node_name,
        instance_type=value,
        detail=f"{INSTANCE_TYPE_LABEL}={value}",
    )

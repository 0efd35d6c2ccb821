"""
The figures behind a refusal, in one sentence for each node: a row of the table for each plugin.

A reason has no figures, so that equal reasons can be counted; what one node lacks is in its row. Nodes with equal
sentences are one group. A plugin without a row has no figures: its reason says enough, as those of volumes do.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from neuron_scheduler.cluster.index.labels import domain_of
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.explain.changes.refused_pod import requirement_text, taint_text
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, PODS, device_name_on
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Taint, Toleration
from neuron_scheduler.model.volumes import PersistentVolumeClaim
from neuron_scheduler.model.wording import clip, count_text, few, few_names, first_of, list_of, quantity
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.topology import free_blocks
from neuron_scheduler.scheduling.cycle.neuron_shortage import request_text, served_counts_text, unknown_holder
from neuron_scheduler.scheduling.plugins import (
    inter_pod_affinity,
    neuron_topology,
    node_affinity,
    node_declared_features,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
)
from neuron_scheduler.scheduling.plugins.contract import PluginName
from neuron_scheduler.scheduling.plugins.neuron_topology import free_units_of, largest_block_of
from neuron_scheduler.scheduling.plugins.node_resources_fit import insufficient
from neuron_scheduler.scheduling.plugins.static_volumes import mountable_nodes

Sentence = Callable[[Slot, NodeInfo, Sequence[str]], str]
"""Returns what one node lacks, without a full stop; the last argument is the plugin's reasons for that node."""

Arithmetic = Callable[[View, Pod], Sentence]
"""Asks the indexes once for all nodes; its result is then asked about each."""
_TOO_FEW: Final = (*neuron_topology.UNHEALTHY.values(), neuron_topology.UNKNOWN, *neuron_topology.NO_BLOCK.values())


def _of_node(text: Callable[[Pod, NodeInfo, Sequence[str]], str]) -> Arithmetic:
    return lambda _view, pod: lambda _slot, node_info, reasons: text(pod, node_info, reasons)


def _once_for_equal(arithmetic: Arithmetic) -> Arithmetic:
    """Return the same for sentences about the pod's resources, made once for all nodes with equal figures."""

    def ask(view: View, pod: Pod) -> Sentence:
        sentence, made, names = arithmetic(view, pod), dict[Hashable, str](), (*pod.requests, PODS)

        def say(slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
            usage, node = node_info.neuron_usage, node_info.node
            if usage.unknown_holders:  # one of them is named
                return sentence(slot, node_info, reasons)
            figures = map(node.allocatable.get, names), map(node_info.used.get, names)
            key = (reasons, node_info.machine, usage.free, *figures[0], *figures[1])
            text = made.get(key)
            if text is None:
                text = made[key] = sentence(slot, node_info, reasons)
            return text

        return say

    return ask


def cordon(_pod: Pod, node_info: NodeInfo, reasons: Sequence[str]) -> str:
    if node_unschedulable.UNREADABLE in reasons:
        return f"its object could not be read: {clip(node_info.node.refusal)}"
    return "it is cordoned (spec.unschedulable)"


def taints(pod: Pod, node_info: NodeInfo, _reasons: Sequence[str]) -> str:
    return _untolerated_text(pod.tolerations, node_info.node.taints)


@memoise(maxsize=1 << 10)
def _untolerated_text(tolerations: tuple[Toleration, ...], node_taints: tuple[Taint, ...]) -> str:
    untolerated = [
        taint_text(taint)
        for taint in node_taints
        if taint.effect is not Effect.PREFER_NO_SCHEDULE and not any(each.tolerates(taint) for each in tolerations)
    ]
    return f"the pod does not tolerate {few_names(untolerated)}"


def node_terms(pod: Pod, node_info: NodeInfo, reasons: Sequence[str]) -> str:
    if node_affinity.NOT_NAMED in reasons:
        return "the pod's required node affinity names other nodes"
    return first_of(_unmet(pod, node_info.node))


def _unmet(pod: Pod, node: Node) -> Iterator[str]:
    """Yield what the pod requires and a node does not have, each when it is needed: there may be very many."""
    for key, value in pod.constraints.node_selector.items():
        if node.labels.get(key) != value:
            yield f"the pod selects {clip(key)}={clip(value)}, {_label_text(key, node.labels)}"
    terms = pod.constraints.required_terms
    if terms is not None and not any(term.matches(node.labels, node.name) for term in terms):
        yield from (_missed_text(term, node) for term in terms)
        if not terms:
            yield "the pod's required node affinity is empty"


def _label_text(key: str, labels: Mapping[str, str]) -> str:
    return f"here it is {clip(labels[key]) or 'empty'}" if key in labels else "which is not here"


def _missed_text(term: NodeSelectorTerm, node: Node) -> str:
    if term.unreadable:
        return "a term of the pod's node affinity cannot be read"
    return first_of(_missed_parts(term, node)) or "a term of the pod's node affinity is empty"


def _missed_parts(term: NodeSelectorTerm, node: Node) -> Iterator[str]:
    for expression in term.expressions:
        if not expression.matches(node.labels):
            yield f"the pod requires {requirement_text(expression)}, {_label_text(expression.key, node.labels)}"
    for field in term.fields:
        if not field.matches({"metadata.name": node.name}):
            yield f"the pod requires {requirement_text(field)}"


def features(pod: Pod, node_info: NodeInfo, _reasons: Sequence[str]) -> str:
    declared = node_info.node.declared_features
    missing = [feature for feature in pod.constraints.required_features if feature not in declared]
    return f"its kubelet does not declare {few_names(missing)}"


def spread(view: View, pod: Pod) -> Sentence:
    constraints = [*pod_topology_spread.hard_counts(view, pod)]

    def sentence(slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        missing = pod_topology_spread.NO_LABEL in reasons
        for constraint, totals, most in constraints:
            key = constraint.topology_key
            if domain_of(node_info.node, key) is None:
                return _no_domain(key, node_info)
            count = totals.value(slot)
            if count > most and not missing:
                value = clip(node_info.node.labels.get(key, ""))
                return (
                    f"{clip(key)}={value} has {count_text(count, 'matching pod')}, and may have at most"
                    f" {max(0, most)} before this one (maxSkew {constraint.max_skew})"
                )
        return ""

    return sentence


def other_pods(view: View, pod: Pod) -> Sentence:
    """Return a function that says which labels a node lacks for the pod's affinity, or that no pod matches it."""
    terms = pod.constraints.affinity
    keys = dict.fromkeys(term.topology_key for term in terms)
    matching = inter_pod_affinity.query_of_terms(view, terms)
    is_matched = matching is not None and any(view.totals(matching, key).positive for key in keys)
    asked = (requirement_text(each) for term in terms if term.selector for each in term.selector.requirements)
    alone = "" if is_matched else f"no pod with a node matches its affinity: {first_of(asked)}"

    def sentence(_slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        lacking = first_of(_no_domain(key, node_info) for key in keys if domain_of(node_info.node, key) is None)
        return lacking or (alone if inter_pod_affinity.NOT_NEAR in reasons else "")

    return sentence


def _no_domain(key: str, node_info: NodeInfo) -> str:
    has_label = key in node_info.node.labels
    return f"its label {clip(key)} names no UltraServer" if has_label else f"it has no label {clip(key)}"


def ports(pod: Pod, node_info: NodeInfo, _reasons: Sequence[str]) -> str:
    taken = []
    for port in pod.host_ports:
        users = [user.key for user in node_ports.users(port, node_info)]
        if users:
            taken.append(f"host port {port.port}/{port.protocol} is used by {few_names(users)}")
    return few(taken)


def resources(view: View, pod: Pod) -> Sentence:
    reasons_of = {insufficient(name): name for name in pod.requests}
    unknown = {name for name in pod.requests if not view.offers(name)}

    def sentence(_slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        parts = []
        for reason in reasons:
            name = PODS if reason == node_resources_fit.TOO_MANY_PODS else reasons_of[reason]
            if name in unknown:
                parts.append(f"needs {quantity(name, pod.requests[name])} {clip(name)}; no node has any")
                continue
            allocatable, used = node_info.node.allocatable.get(name, 0), node_info.used.get(name, 0)
            parts.append(_resource_text(name, pod.requests.get(name, 0) if name != PODS else 1, allocatable, used))
            if pod.neuron is not None and name == pod.neuron.resource:
                parts[-1] += _by_ids(pod.neuron, node_info, max(0, allocatable - used))
        return "; ".join(parts)

    return sentence


def _by_ids(request: NeuronRequest, node_info: NodeInfo, free: int) -> str:
    """Return how many devices or cores are free, if not as many as the kubelet counts; empty otherwise."""
    really = free_units_of(request.resource)(node_info)
    if node_info.machine is None or really == free:
        return ""
    units = count_text(really, f"whole {Unit.DEVICE}" if request.unit is Unit.DEVICE else Unit.CORE)
    return f"; by the ids that pods hold, {units} {'is' if really == 1 else 'are'} free"


def _resource_text(name: str, needed: int, allocatable: int, used: int) -> str:
    needs = f"needs {quantity(name, needed)} {clip(name)}" if name != PODS else "needs room for 1 pod"
    if allocatable <= 0:
        return f"{needs}; the node has none"
    free = max(0, allocatable - used)
    return (
        f"{needs}; allocatable {quantity(name, allocatable)}, used {quantity(name, used)}, free {quantity(name, free)}"
    )


def neuron(pod: Pod, node_info: NodeInfo, reasons: Sequence[str]) -> str:
    request = pod.neuron
    if request is None or node_info.machine is None:
        return "; ".join(reasons)
    known = {*_TOO_FEW, insufficient(request.resource)}
    parts = [] if known.issuperset(reasons) else [_illegal(node_info.machine, request)]
    if neuron_topology.UNHEALTHY.get(node_info.node.neuron_fault) in reasons:
        parts.append(f"the node's condition {node_info.node.neuron_fault} reports a problem")
    if neuron_topology.UNKNOWN in reasons:
        free, size = free_units_of(request.resource)(node_info), node_info.machine.size(request.unit)
        parts.append(f"needs {request_text(request)}; {free} of {size} withheld: {_unknown(node_info)}")
    elif not parts:
        parts.append(_free(request, node_info))
    return "; ".join(parts)


def _unknown(node_info: NodeInfo) -> str:
    holders = node_info.neuron_usage.unknown_holders
    return f"{count_text(holders, 'pod')} with unknown ids may hold some of them, {unknown_holder(node_info)}"


def _free(request: NeuronRequest, node_info: NodeInfo) -> str:
    machine, free = node_info.machine, free_units_of(request.resource)(node_info)
    if machine is None:
        return ""
    needs = f"needs {request_text(request)}; {free} of {machine.size(request.unit)} free"
    if request.unit is Unit.CORE:
        largest = largest_block_of(request.resource, pairs=request.pairs)(node_info)
        return f"{needs}, the largest free block has {largest}" if free else needs
    blocks = free_blocks(machine.with_pairs() if request.pairs else machine, node_info.free_cores, free)
    return f"{needs}{in_blocks(blocks)}"


def in_blocks(blocks: Iterable[int]) -> str:
    """Return `, in 1 block of 8 and 4 blocks of 1`; empty without blocks."""
    counts = [
        f"{count_text(count, 'block')} of {size}" for size, count in sorted(Counter(blocks).items(), reverse=True)
    ]
    return f", in {list_of(counts)}" if counts else ""


def _illegal(machine: Machine, request: NeuronRequest) -> str:
    kind = clip(machine.instance_type) or "this machine"
    if not request.units <= machine.units:
        return (
            f"needs {request_text(request)}; {kind} serves no {request.unit}s: its capacity does not say which it has"
        )
    return f"needs {request_text(request)}; {kind} {served_counts_text(machine, request)}"


def free_for(pod: Pod, node_info: NodeInfo, _reasons: Sequence[str]) -> str:
    """Return what is free on a node that takes the pod; nothing if the pod asks for no Neuron."""
    if pod.neuron is None:
        return ""
    free = _free(pod.neuron, node_info)
    unknown = node_info.neuron_usage.unknown_holders  # not named: this figure is shown to every reader
    return f"{free}, for pods with 1 {pod.neuron.unit} only: another pod's ids are unknown" if unknown else free


def free_on(node_info: NodeInfo) -> str:
    machine = node_info.machine
    if machine is None:
        return ""
    parts, unknown = [], node_info.neuron_usage.unknown_holders
    state = "withheld" if unknown else "free"
    if Unit.DEVICE in machine.units:
        free = free_units_of(device_name_on(node_info.node.allocatable))(node_info)
        blocks = "" if unknown else in_blocks(free_blocks(machine, node_info.free_cores, free))
        parts.append(f"{free} of {count_text(machine.devices, 'device')} {state}{blocks}")
    if Unit.CORE in machine.units:
        parts.append(f"{free_units_of(NEURON_CORE)(node_info)} of {count_text(machine.core_count, 'core')} {state}")
    if unknown:
        parts.append(_unknown(node_info))
    return "; ".join(parts)


def unprovisioned_text(view: View, pod: Pod) -> str:
    """Return for which claim of a pod a volume is to be provisioned, and for which node; empty if for none."""
    for name in pod.constraints.volume_claims:
        claim = view.volumes.claim(f"{pod.namespace}/{name}")
        if claim is not None and claim.selected_node and not claim.is_fully_bound:
            return f"PersistentVolumeClaim {clip(name)}, to be provisioned for {clip(claim.selected_node)}"
    return ""


def states_of_claims(view: View, pod: Pod) -> Iterator[str]:
    """Yield a sentence for each claim of a pod, with the phase that kubectl shows."""
    for name in pod.constraints.volume_claims:
        claim, about = view.volumes.claim(f"{pod.namespace}/{name}"), f"PersistentVolumeClaim {clip(name)}"
        if claim is None:
            yield f"{about} does not exist."
        elif claim.lost or claim.is_fully_bound:
            state = "Lost" if claim.lost else "Bound"
            yield f"{about} is {state}: its volume is {clip(claim.volume_name)}{_mountable(view, pod, claim)}."
        elif claim.selected_node:
            yield f"{about} is Pending, to be provisioned for {clip(claim.selected_node)}."
        elif not claim.class_name:
            yield f"{about} is Pending, and has no StorageClass."
        elif claim.class_name not in view.volumes.classes:
            yield f"{about} is Pending: there is no StorageClass {clip(claim.class_name)}."
        else:
            when = (
                "when its pod gets a node" if view.volumes.waits_for_consumer(claim) else "before its pod gets a node"
            )
            yield f"{about} is Pending: StorageClass {clip(claim.class_name)} binds it {when}."


def _mountable(view: View, pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Return on how many of the nodes that a pod may use the volume of its claim can be mounted; empty if on any."""
    volume = view.volumes.volume(claim.volume_name)
    if volume is None or volume.required_terms is None:
        return ""
    meant = node_affinity.fitting_nodes(view, pod, view.live)
    meant &= meant if pod.neuron is None else neuron_topology.machines(view).keyed
    number, where = mountable_nodes(view, volume, meant).bit_count(), count_text(meant.bit_count(), "node")
    rules = list_of([requirement_text(each) for term in volume.required_terms for each in term.expressions])
    return f"; of {where} that the pod's rules allow, {number} can mount it ({rules})"


ARITHMETIC: Final[Mapping[PluginName, Arithmetic]] = {
    node_unschedulable.NAME: _of_node(cordon),
    taint_toleration.NAME: _of_node(taints),
    node_affinity.NAME: _of_node(node_terms),
    node_declared_features.NAME: _of_node(features),
    node_ports.NAME: _of_node(ports),
    node_resources_fit.NAME: _once_for_equal(resources),
    neuron_topology.NAME: _once_for_equal(_of_node(neuron)),
    pod_topology_spread.NAME: spread,
    inter_pod_affinity.NAME: other_pods,
}


def sentence_of(plugin: PluginName | None, view: View, pod: Pod) -> Sentence:
    """Return the function that says what a node lacks for a plugin; what is free, if no plugin refuses it."""
    if plugin is None:
        return _once_for_equal(_of_node(free_for))(view, pod)
    return ARITHMETIC.get(plugin, _of_node(lambda _pod, _node_info, _reasons: ""))(view, pod)
